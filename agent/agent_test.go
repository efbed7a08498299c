package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json/v2"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if err := becomeSubreaper(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// testHost is the other end of an agent in this process. Frames are sorted by stream as they arrive, and credited at
// once.
type testHost struct {
	t       *testing.T
	out     *os.File
	mu      sync.Mutex
	next    uint32
	session string
	streams map[uint32]*testStream
	hellos  chan map[string]any
}

type testStream struct {
	data   [3]bytes.Buffer
	closed chan map[string]any
}

// oneReaper is shared by the agents of this process: children are waited for once.
var oneReaper = newReaper()

func startAgent(t *testing.T) (*testHost, *agent) {
	t.Helper()
	fromHost, toAgent, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromAgent, toHost, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	a, err := newAgent(fromHost, toHost)
	if err != nil {
		t.Fatal(err)
	}
	a.reaper = oneReaper
	h := &testHost{t: t, out: toAgent, streams: map[uint32]*testStream{}, hellos: make(chan map[string]any, 16)}
	served := make(chan error)
	go func() { served <- a.serve() }()
	go h.receive(fromAgent)
	t.Cleanup(func() {
		_ = toAgent.Close()
		<-served
		a.endStreams(false)
		_ = toHost.Close()
	})
	return h, a
}

func (h *testHost) receive(from *os.File) {
	d := decode(from)
	for {
		f, err := d.next()
		if err != nil && bytes.HasPrefix(d.buffer[d.start:d.end], syncMarker[:headerSize]) {
			d.start += len(syncMarker)
			continue
		}
		if err != nil {
			return
		}
		payload := append([]byte(nil), f.payload...)
		h.mu.Lock()
		s := h.streams[f.stream]
		h.mu.Unlock()
		var said map[string]any
		switch {
		case f.kind == frameHello:
			if err := json.Unmarshal(payload, &said); err != nil {
				h.t.Error(err)
			}
			h.hellos <- said
		case s == nil:
		case f.kind == frameData:
			s.data[payload[0]].Write(payload[1:])
			h.send(frameCredit, f.stream, binary.BigEndian.AppendUint32(nil, uint32(len(payload)-1)))
		case f.kind == frameClose:
			if err := json.Unmarshal(payload, &said); err != nil {
				h.t.Error(err)
			}
			s.closed <- said
		}
	}
}

func (h *testHost) send(kind frameType, stream uint32, payload []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, _ = h.out.Write(appendFrame(nil, kind, stream, payload))
}

func (h *testHost) hello(session, orphans string) map[string]any {
	h.t.Helper()
	h.mu.Lock()
	if session != h.session {
		h.session, h.next, h.streams = session, 0, map[uint32]*testStream{}
	}
	_, _ = h.out.Write(helloBytes(fmt.Sprintf(`{"version":1,"session":%q,"orphans":%q}`, session, orphans)))
	h.mu.Unlock()
	for {
		select {
		case said := <-h.hellos:
			if said["session"] == session {
				return said
			}
		case <-time.After(10 * time.Second):
			h.t.Fatal("no HELLO came")
		}
	}
}

func (h *testHost) open(request string) (uint32, *testStream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	s := &testStream{closed: make(chan map[string]any, 1)}
	h.streams[h.next] = s
	_, _ = h.out.Write(appendFrame(nil, frameOpen, h.next, []byte(request)))
	return h.next, s
}

func (s *testStream) end(t *testing.T) map[string]any {
	t.Helper()
	select {
	case said := <-s.closed:
		return said
	case <-time.After(20 * time.Second):
		t.Fatal("no CLOSE came")
		return nil
	}
}

func exitCodeOf(said map[string]any) any {
	result, _ := said["result"].(map[string]any)
	return result["exit_code"]
}

func TestManyStreamsOfAllKindsAtOnce(t *testing.T) {
	h, _ := startAgent(t)
	h.hello("s", "kill")
	directory := t.TempDir()
	content := strings.Repeat("0123456789abcdef", 20_000)
	var wait sync.WaitGroup
	for i := range 12 {
		wait.Go(func() {
			_, s := h.open(fmt.Sprintf(`{"op":"exec","id":"out%d","shell":"head -c 3000000 /dev/zero; echo done >&2"}`, i))
			if said := s.end(t); exitCodeOf(said) != 0.0 || s.data[1].Len() != 3_000_000 || s.data[2].String() != "done\n" {
				t.Errorf("%v with %d bytes and %q", said, s.data[1].Len(), s.data[2].String())
			}
		})
		wait.Go(func() {
			id, s := h.open(fmt.Sprintf(`{"op":"exec","id":"cat%d","argv":["cat"],"stdin":true}`, i))
			for part := range 4 {
				h.send(frameData, id, append([]byte{0}, content[part*50_000:(part+1)*50_000]...))
			}
			h.send(frameData, id, []byte{0})
			if said := s.end(t); exitCodeOf(said) != 0.0 || s.data[1].String() != content[:200_000] {
				t.Errorf("%v with %d bytes", said, s.data[1].Len())
			}
		})
		wait.Go(func() {
			path := filepath.Join(directory, fmt.Sprint(i))
			id, s := h.open(fmt.Sprintf(`{"op":"write","path":%q}`, path))
			h.send(frameData, id, append([]byte{0}, content[:200_000]...))
			h.send(frameData, id, []byte{0})
			if said := s.end(t); said["error"] != nil {
				t.Error(said)
			}
			_, r := h.open(fmt.Sprintf(`{"op":"read","path":%q}`, path))
			if said := r.end(t); said["error"] != nil || r.data[0].String() != content[:200_000] {
				t.Errorf("%v with %d bytes", said, r.data[0].Len())
			}
		})
		wait.Go(func() {
			id, s := h.open(fmt.Sprintf(`{"op":"exec","id":"reset%d","argv":["sleep","100"]}`, i))
			h.send(frameReset, id, nil)
			select {
			case said := <-s.closed:
				t.Errorf("a stream that was reset says %v", said)
			case <-time.After(10 * time.Millisecond):
			}
		})
	}
	wait.Wait()
}

func TestSessionsChangeWhileEverythingRuns(t *testing.T) {
	h, a := startAgent(t)
	for round := range 20 {
		orphans := []string{"kill", "keep"}[round%2]
		if said := h.hello(fmt.Sprint(round), orphans); said["resumed"] != false {
			t.Fatal(said)
		}
		for i := range 5 {
			h.open(fmt.Sprintf(`{"op":"exec","id":"r%d.%d","shell":"yes | head -c 2000000; sleep 100"}`, round, i))
		}
		if round%3 == 0 {
			a.interrupt()
		}
	}
	h.hello("last", "kill")
	_, s := h.open(`{"op":"exec","id":"last","shell":"echo alive"}`)
	if said := s.end(t); exitCodeOf(said) != 0.0 || s.data[1].String() != "alive\n" {
		t.Error(said, s.data[1].String())
	}
	for _, c := range a.commands.running() {
		_, _ = c.signal(9, true)
	}
}
