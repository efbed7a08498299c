package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json/v2"
	"errors"
	"io"
	"sync"
)

// The format of docs/agent-protocol.md; tests/golden/frames.json holds it to the same bytes as the host's half.
const (
	headerSize  = 9
	maxData     = 256 << 10
	maxPayload  = maxData + 1
	maxPing     = 64
	maxHello    = 4096
	windowSize  = 1 << 20
	maxStreams  = 1024
	version     = 1
	readAtLeast = 64 << 10
)

var syncMarker = []byte("\xffSANDYARD\x00SYNC\r\n")

type frameType byte

const (
	frameOpen frameType = iota + 1
	frameData
	frameCredit
	frameClose
	frameReset
	framePing
	frameHello
	framePong
)

const (
	channelIn  = 0 // stdin, or the content of a file
	channelOut = 1 // stdout, or the output of a terminal
	channelErr = 2
)

// frame is one frame from the host; its payload is only valid until the next one is read.
type frame struct {
	kind    frameType
	stream  uint32
	payload []byte
}

var (
	errViolation = errors.New("the host sent what the protocol forbids")
	errSync      = errors.New("the host begins again")
)

func putHeader(b []byte, length int, stream uint32, kind frameType) {
	binary.BigEndian.PutUint32(b, uint32(length))
	binary.BigEndian.PutUint32(b[4:], stream)
	b[8] = byte(kind)
}

// appendFrame appends one whole frame to b; the payload is at most maxPayload long.
func appendFrame(b []byte, kind frameType, stream uint32, payload []byte) []byte {
	var header [headerSize]byte
	putHeader(header[:], len(payload), stream, kind)
	return append(append(b, header[:]...), payload...)
}

// dataFrame is the buffer of one outgoing DATA frame: data is put where content() says, then sealed.
type dataFrame struct {
	bytes [headerSize + maxPayload]byte
}

var dataFrames = sync.Pool{New: func() any { return new(dataFrame) }}

func newDataFrame() *dataFrame { return dataFrames.Get().(*dataFrame) }

func (d *dataFrame) free() { dataFrames.Put(d) }

func (d *dataFrame) content() []byte { return d.bytes[headerSize+1:] }

// seal returns the frame's bytes once n bytes of content are in place.
func (d *dataFrame) seal(stream uint32, channel byte, n int) []byte {
	putHeader(d.bytes[:], n+1, stream, frameData)
	d.bytes[headerSize] = channel
	return d.bytes[:headerSize+1+n]
}

// hello is what both sides begin with.
type hello struct {
	Version int    `json:"version"`
	Session string `json:"session"`
	Orphans string `json:"orphans"`
}

// parseHello returns the HELLO that payload holds, or nil if it is not one that the agent accepts.
func parseHello(payload []byte) *hello {
	var h hello
	if json.Unmarshal(payload, &h) != nil || h.Version != version || h.Session == "" || len(h.Session) > 128 {
		return nil
	}
	if h.Orphans != "kill" && h.Orphans != "keep" {
		return nil
	}
	return &h
}

// decoder cuts what the host sends into frames. It holds at most one incomplete frame.
type decoder struct {
	source     io.Reader
	buffer     [readAtLeast + headerSize + maxPayload]byte
	start, end int
}

// next returns the next frame. After errSync and errViolation the bytes in question are still there for scan.
func (d *decoder) next() (frame, error) {
	for {
		f, missing, err := d.cut()
		if missing == 0 || err != nil {
			return f, err
		}
		if err := d.fill(missing); err != nil {
			return frame{}, err
		}
	}
}

// cut takes a whole frame out of the buffer, or says up to how many bytes have to be there for that.
func (d *decoder) cut() (f frame, missing int, err error) {
	held := d.buffer[d.start:d.end]
	if len(held) < headerSize {
		return f, headerSize, nil
	}
	if bytes.HasPrefix(held, syncMarker[:headerSize]) {
		return f, 0, errSync
	}
	size := headerSize + int(binary.BigEndian.Uint32(held))
	kind := frameType(held[8])
	if size > headerSize+maxPayload || kind < frameOpen || kind > framePong {
		return f, 0, errViolation
	}
	if len(held) < size {
		return f, size, nil
	}
	d.start += size
	return frame{kind, binary.BigEndian.Uint32(held[4:]), held[headerSize:size]}, 0, nil
}

// scan throws bytes away until behind a sync marker and a HELLO that is accepted.
func (d *decoder) scan() (*hello, error) {
	for {
		h, start := d.findHello()
		d.start = start
		if h != nil {
			return h, nil
		}
		if err := d.fill(d.end - d.start + 1); err != nil {
			return nil, err
		}
	}
}

// findHello looks through the buffer for the first marker with a HELLO that is accepted. The bytes before start are of
// no use any more: what is left begins behind that HELLO, or else with what may still become one. A marker never
// occurs inside a HELLO, so of two incomplete ones the first was cut short and the later one counts.
func (d *decoder) findHello() (h *hello, start int) {
	keep := max(d.start, d.end-len(syncMarker)+1)
	for at := d.start; ; at++ {
		i := bytes.Index(d.buffer[at:d.end], syncMarker)
		if i < 0 {
			return nil, keep
		}
		at += i
		h, end, complete := d.helloAt(at + len(syncMarker))
		if h != nil {
			return h, end
		}
		if !complete {
			keep = min(keep, at)
		}
	}
}

// helloAt reads the HELLO frame that begins at head, if it is one that is accepted; complete is false while it may yet
// become one.
func (d *decoder) helloAt(head int) (h *hello, end int, complete bool) {
	body := head + headerSize
	if d.end < body {
		return nil, 0, false
	}
	length := int(binary.BigEndian.Uint32(d.buffer[head:]))
	stream := binary.BigEndian.Uint32(d.buffer[head+4:])
	if frameType(d.buffer[head+8]) != frameHello || stream != 0 || length > maxHello {
		return nil, 0, true
	}
	if d.end < body+length {
		return nil, 0, false
	}
	return parseHello(d.buffer[body : body+length]), body + length, true
}

// fill reads once, towards n buffered bytes. It asks for no more than the rest of a large frame, so that large frames
// never have to be moved to the front.
func (d *decoder) fill(n int) error {
	if d.start == d.end {
		d.start, d.end = 0, 0
	}
	if d.start+max(n, readAtLeast) > len(d.buffer) {
		d.end = copy(d.buffer[:], d.buffer[d.start:d.end])
		d.start = 0
	}
	limit := min(d.start+max(n, readAtLeast), len(d.buffer))
	got, err := d.source.Read(d.buffer[d.end:limit])
	d.end += got
	return err
}
