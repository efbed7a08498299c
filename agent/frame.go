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
	if err := d.fill(headerSize); err != nil {
		return frame{}, err
	}
	header := d.buffer[d.start:d.end]
	length := int(binary.BigEndian.Uint32(header))
	kind := frameType(header[8])
	if bytes.HasPrefix(header, syncMarker[:headerSize]) {
		return frame{}, errSync
	}
	if length > maxPayload || kind < frameOpen || kind > framePong {
		return frame{}, errViolation
	}
	if err := d.fill(headerSize + length); err != nil {
		return frame{}, err
	}
	f := frame{kind, binary.BigEndian.Uint32(d.buffer[d.start+4:]), d.buffer[d.start+headerSize : d.start+headerSize+length]}
	d.start += headerSize + length
	return f, nil
}

// scan throws bytes away until behind a sync marker and a HELLO that is accepted.
func (d *decoder) scan() (*hello, error) {
	for {
		if h := d.findHello(); h != nil {
			return h, nil
		}
		if err := d.fill(d.end - d.start + 1); err != nil {
			return nil, err
		}
	}
}

// findHello looks through what was read so far, and keeps of it only what may be the beginning of a HELLO.
// A marker never occurs inside a HELLO, so of two incomplete ones the first was cut short and the later one counts.
func (d *decoder) findHello() *hello {
	keep := d.end - len(syncMarker) + 1
	for at := d.start; ; at++ {
		i := bytes.Index(d.buffer[at:d.end], syncMarker)
		if i < 0 {
			break
		}
		at += i
		head := at + len(syncMarker)
		if d.end < head+headerSize {
			keep = at
			continue
		}
		length := int(binary.BigEndian.Uint32(d.buffer[head:]))
		isHello := frameType(d.buffer[head+8]) == frameHello && binary.BigEndian.Uint32(d.buffer[head+4:]) == 0
		if !isHello || length > maxHello {
			continue
		}
		body := head + headerSize
		if d.end < body+length {
			keep = at
			continue
		}
		if h := parseHello(d.buffer[body : body+length]); h != nil {
			d.start = body + length
			return h
		}
	}
	d.start = max(d.start, keep)
	return nil
}

// fill reads until n bytes are buffered. It asks for no more than the rest of a large frame, so that large frames
// never have to be moved to the front.
func (d *decoder) fill(n int) error {
	if d.end-d.start >= n {
		return nil
	}
	if d.start == d.end {
		d.start, d.end = 0, 0
	}
	if d.start+max(n, readAtLeast) > len(d.buffer) {
		d.end = copy(d.buffer[:], d.buffer[d.start:d.end])
		d.start = 0
	}
	for d.end-d.start < n {
		limit := min(d.start+max(n, readAtLeast), len(d.buffer))
		got, err := d.source.Read(d.buffer[d.end:limit])
		d.end += got
		if err != nil {
			return err
		}
	}
	return nil
}
