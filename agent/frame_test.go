package main

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json/v2"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
)

type goldenFrame struct {
	Name          string `json:"name"`
	Type          byte   `json:"type"`
	Stream        uint32 `json:"stream"`
	PayloadHex    string `json:"payload_hex"`
	PayloadRepeat [2]any `json:"payload_repeat"`
	BytesHex      string `json:"bytes_hex"`
	HeaderHex     string `json:"header_hex"`
	Level         string `json:"level"`
	Why           string `json:"why"`
}

type golden struct {
	SyncHex string        `json:"sync_hex"`
	Frames  []goldenFrame `json:"frames"`
	Invalid []goldenFrame `json:"invalid"`
}

func readGolden(t testing.TB) golden {
	t.Helper()
	text, err := os.ReadFile("../tests/golden/frames.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(text, &g); err != nil {
		t.Fatal(err)
	}
	if len(g.Frames) == 0 || len(g.Invalid) == 0 {
		t.Fatal("the golden file has no frames")
	}
	return g
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	raw, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// payloadAndBytes expands a golden frame, whose large payloads are described and not written out.
func (g *goldenFrame) payloadAndBytes(t testing.TB) (payload, all []byte) {
	t.Helper()
	if g.HeaderHex == "" {
		return unhex(t, g.PayloadHex), unhex(t, g.BytesHex)
	}
	payload = bytes.Repeat(unhex(t, g.PayloadRepeat[0].(string)), int(g.PayloadRepeat[1].(float64)))
	return payload, append(unhex(t, g.HeaderHex), payload...)
}

func decode(source io.Reader) *decoder { return &decoder{source: source} }

func TestGoldenFramesAreWrittenAndReadAsTheHostDoes(t *testing.T) {
	g := readGolden(t)
	if !bytes.Equal(unhex(t, g.SyncHex), syncMarker) {
		t.Errorf("the sync marker is %x", syncMarker)
	}
	for _, f := range g.Frames {
		t.Run(f.Name, func(t *testing.T) {
			payload, all := f.payloadAndBytes(t)
			if got := appendFrame(nil, frameType(f.Type), f.Stream, payload); !bytes.Equal(got, all) {
				t.Errorf("written as %x", got[:min(len(got), 64)])
			}
			got, err := decode(bytes.NewReader(all)).next()
			if err != nil || byte(got.kind) != f.Type || got.stream != f.Stream || !bytes.Equal(got.payload, payload) {
				t.Errorf("read as type %d of stream %d, %v", got.kind, got.stream, err)
			}
		})
	}
}

func TestGoldenDataFramesAreSealedLikeThat(t *testing.T) {
	for _, f := range readGolden(t).Frames {
		if frameType(f.Type) != frameData {
			continue
		}
		payload, all := f.payloadAndBytes(t)
		d := newDataFrame()
		n := copy(d.content(), payload[1:])
		if got := d.seal(f.Stream, payload[0], n); !bytes.Equal(got, all) {
			t.Errorf("%s is sealed as %x", f.Name, got[:min(len(got), 64)])
		}
		d.free()
	}
}

func TestGoldenHeadersThatNoHostSendsAreRefused(t *testing.T) {
	for _, f := range readGolden(t).Invalid {
		if f.Level != "header" {
			continue
		}
		want := errViolation
		if strings.HasPrefix(f.BytesHex, hex.EncodeToString(syncMarker)) {
			want = errSync
		}
		if _, err := decode(bytes.NewReader(unhex(t, f.BytesHex))).next(); !errors.Is(err, want) {
			t.Errorf("%s: %v, although %s", f.Name, err, f.Why)
		}
	}
}

func TestFramesArriveInPiecesOfAnySize(t *testing.T) {
	var all []byte
	for i := range 300 {
		all = appendFrame(all, frameData, uint32(i+1), bytes.Repeat([]byte{byte(i)}, i*i))
	}
	for name, source := range map[string]io.Reader{
		"one byte at a time": iotest.OneByteReader(bytes.NewReader(all)),
		"halves":             iotest.HalfReader(bytes.NewReader(all)),
		"as much as fits":    bytes.NewReader(all),
	} {
		d := decode(source)
		for i := range 300 {
			f, err := d.next()
			if err != nil || f.stream != uint32(i+1) || len(f.payload) != i*i || i > 0 && f.payload[i*i-1] != byte(i) {
				t.Fatalf("%s: frame %d is of stream %d, %d bytes, %v", name, i, f.stream, len(f.payload), err)
			}
		}
		if _, err := d.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: behind the last frame: %v", name, err)
		}
	}
}

const greeting = `{"version":1,"session":"s","orphans":"kill"}`

func helloBytes(body string) []byte {
	return appendFrame(append([]byte(nil), syncMarker...), frameHello, 0, []byte(body))
}

func TestScanningFindsTheHello(t *testing.T) {
	good := helloBytes(greeting)
	for name, before := range map[string][]byte{
		"nothing before it":         nil,
		"noise before it":           bytes.Repeat([]byte("\x00noise\xff"), 100_000),
		"a marker before it":        syncMarker,
		"half a marker before it":   syncMarker[:9],
		"a cut HELLO before it":     good[:len(good)-20],
		"a cut header before it":    good[:len(syncMarker)+4],
		"another version before it": helloBytes(`{"version":2,"session":"x","orphans":"kill"}`),
		"no session before it":      helloBytes(`{"version":1,"session":"","orphans":"kill"}`),
		"no JSON before it":         helloBytes(`{"version":1,"sess`),
		"a long HELLO before it":    append(append([]byte(nil), syncMarker...), 0, 0, 0x10, 1, 0, 0, 0, 0, 7),
		"a frame before it":         append(append([]byte(nil), syncMarker...), appendFrame(nil, framePing, 0, nil)...),
	} {
		input := append(append(append([]byte(nil), before...), good...), appendFrame(nil, framePing, 0, []byte("p"))...)
		for _, source := range []io.Reader{bytes.NewReader(input), iotest.OneByteReader(bytes.NewReader(input))} {
			d := decode(source)
			h, err := d.scan()
			if err != nil || h.Session != "s" {
				t.Fatalf("with %s: %+v, %v", name, h, err)
			}
			if f, err := d.next(); err != nil || f.kind != framePing || string(f.payload) != "p" {
				t.Errorf("with %s, the next frame is %+v, %v", name, f, err)
			}
		}
	}
}

func TestAMarkerInThePlaceOfAFrameIsStillThereForTheScan(t *testing.T) {
	input := append(appendFrame(nil, framePing, 0, nil), helloBytes(greeting)...)
	d := decode(bytes.NewReader(input))
	if _, err := d.next(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.next(); !errors.Is(err, errSync) {
		t.Fatalf("the marker gives %v", err)
	}
	if h, err := d.scan(); err != nil || h.Session != "s" {
		t.Errorf("the scan gives %+v, %v", h, err)
	}
}

func FuzzDecoder(f *testing.F) {
	for _, g := range append(readGolden(f).Frames, readGolden(f).Invalid...) {
		if g.BytesHex != "" {
			f.Add(unhex(f, g.BytesHex), false)
		}
	}
	f.Add(helloBytes(greeting), true)
	f.Add(append(helloBytes(greeting)[:40], helloBytes(greeting)...), true)
	f.Fuzz(func(t *testing.T, input []byte, scanning bool) {
		whole, pieces := decode(bytes.NewReader(input)), decode(iotest.OneByteReader(bytes.NewReader(input)))
		if scanning {
			a, errA := whole.scan()
			b, errB := pieces.scan()
			if (errA == nil) != (errB == nil) || a != nil && *a != *b {
				t.Fatalf("in one piece %+v %v, in many %+v %v", a, errA, b, errB)
			}
			if errA != nil {
				return
			}
		}
		for {
			a, errA := whole.next()
			b, errB := pieces.next()
			if !errors.Is(errA, errB) || a.kind != b.kind || a.stream != b.stream || !bytes.Equal(a.payload, b.payload) {
				t.Fatalf("in one piece %+v %v, in many %+v %v", a, errA, b, errB)
			}
			if errA != nil {
				return
			}
			again := appendFrame(nil, a.kind, a.stream, a.payload)
			if !bytes.Contains(input, again) || binary.BigEndian.Uint32(again) > maxPayload {
				t.Fatalf("%x was read, but is not in the input", again[:min(len(again), 64)])
			}
		}
	})
}
