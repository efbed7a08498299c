package main

import (
	"encoding/binary"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
)

const (
	creditStep  = windowSize / 4 // consumed bytes are announced in steps of at least this
	smallChunk  = 4 << 10
	middleChunk = 32 << 10
	largeChunk  = 256 << 10
)

// errGone ends whatever works for a stream that the host does not want any more.
var errGone = errors.New("the host has given the stream up")

var (
	middleChunks = sync.Pool{New: func() any { return new([middleChunk]byte) }}
	largeChunks  = sync.Pool{New: func() any { return new([largeChunk]byte) }}
)

// stream is one request under way.
type stream struct {
	agent *agent
	id    uint32
	epoch uint64      // the session it belongs to
	gone  atomic.Bool // reset, ended with its session, or closed by us: nothing more may be sent

	mu      sync.Mutex
	changed sync.Cond
	window  int64    // bytes that the host still takes
	room    int      // bytes that the host may still send
	chunks  [][]byte // what it sent and nobody has taken yet
	ended   bool     // it will send nothing more
	unspent int      // consumed, but not yet credited
	credit  int      // on its way to the host
	onReset func()   // what to stop when the host gives the stream up
}

func newStream(a *agent, id uint32) *stream {
	s := &stream{agent: a, id: id, epoch: a.epoch, window: windowSize, room: windowSize}
	s.changed.L = &s.mu
	return s
}

// -- from the host
// ----------------------------------------------------------------------------------------------------

// receive queues one DATA frame's content, or the end of it if data is empty.
func (s *stream) receive(data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone.Load() {
		return nil
	}
	if len(data) > s.room || s.ended {
		return errViolation
	}
	s.room -= len(data)
	s.ended = len(data) == 0
	s.push(data)
	s.changed.Broadcast()
	return nil
}

// push appends to the last chunk while that has room, so that many small frames do not become many small pieces.
func (s *stream) push(data []byte) {
	if last := len(s.chunks) - 1; last >= 0 {
		n := min(len(data), cap(s.chunks[last])-len(s.chunks[last]))
		s.chunks[last] = append(s.chunks[last], data[:n]...)
		data = data[n:]
	}
	if len(data) > 0 {
		s.chunks = append(s.chunks, append(newChunk(len(data)), data...))
	}
}

func newChunk(size int) []byte {
	switch {
	case size <= smallChunk:
		return make([]byte, 0, smallChunk)
	case size <= middleChunk:
		return middleChunks.Get().(*[middleChunk]byte)[:0]
	}
	return largeChunks.Get().(*[largeChunk]byte)[:0]
}

func freeChunk(chunk []byte) {
	switch cap(chunk) {
	case middleChunk:
		middleChunks.Put((*[middleChunk]byte)(chunk[:middleChunk]))
	case largeChunk:
		largeChunks.Put((*[largeChunk]byte)(chunk[:largeChunk]))
	}
}

// take returns the next chunk, which the caller gives back to consumed; io.EOF behind the last one.
func (s *stream) take() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.chunks) == 0 && !s.ended && !s.gone.Load() {
		s.changed.Wait()
	}
	if s.gone.Load() {
		return nil, errGone
	}
	if len(s.chunks) == 0 {
		return nil, io.EOF
	}
	chunk := s.chunks[0]
	s.chunks = s.chunks[1:]
	return chunk, nil
}

// consumed frees a chunk whose bytes have reached their goal, and lets the host send as many more.
func (s *stream) consumed(chunk []byte) {
	n := len(chunk)
	freeChunk(chunk)
	s.mu.Lock()
	s.unspent += n
	due := s.unspent >= creditStep && !s.gone.Load()
	if due {
		s.room += s.unspent
		s.credit += s.unspent
		s.unspent = 0
	}
	s.mu.Unlock()
	if due {
		s.agent.out.postCredit(s)
	}
}

// appendCredit appends the CREDIT frame that is due.
func (s *stream) appendCredit(b []byte) []byte {
	s.mu.Lock()
	n := s.credit
	s.credit = 0
	s.mu.Unlock()
	if n == 0 || s.gone.Load() {
		return b
	}
	return appendFrame(b, frameCredit, s.id, binary.BigEndian.AppendUint32(nil, uint32(n)))
}

// reader gives what the host sends as one sequence of bytes.
type reader struct {
	stream *stream
	chunk  []byte
	read   int
}

func (r *reader) Read(p []byte) (int, error) {
	if r.read == len(r.chunk) {
		if r.chunk != nil {
			r.stream.consumed(r.chunk)
			r.chunk = nil
		}
		chunk, err := r.stream.take()
		if err != nil {
			return 0, err
		}
		r.chunk, r.read = chunk, 0
	}
	n := copy(p, r.chunk[r.read:])
	r.read += n
	return n, nil
}

// -- to the host
// ------------------------------------------------------------------------------------------------------

// credited adds to what the host takes.
func (s *stream) credited(n uint32) {
	s.mu.Lock()
	s.window += int64(n)
	s.changed.Broadcast()
	s.mu.Unlock()
}

// awaitWindow waits until the host takes at least one byte; false if the stream is gone.
func (s *stream) awaitWindow() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.window <= 0 && !s.gone.Load() {
		s.changed.Wait()
	}
	return !s.gone.Load()
}

// reserve takes up to n bytes out of the window; what is not used goes back by refund.
func (s *stream) reserve(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n = max(0, int(min(int64(n), s.window)))
	s.window -= int64(n)
	return n
}

func (s *stream) refund(n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	s.window += int64(n)
	s.changed.Broadcast()
	s.mu.Unlock()
}

// readAvailable waits until raw can be read, and reads as much as the host takes; everything if to is nil. A buffer is
// only held when there is something to put into it. Where there is nothing and stop says so, it returns no frame and
// no error. stop is asked before the pipe is: what was written until it said yes is in the pipe by then, and not lost.
func readAvailable(raw syscall.RawConn, to *stream, stop func() bool) (f *dataFrame, n int, err error) {
	failed := raw.Read(func(fd uintptr) bool {
		stopped := stop()
		limit := maxData
		if to != nil {
			limit = to.reserve(maxData)
		}
		f = newDataFrame()
		if limit > 0 {
			n, err = readNow(fd, f.content()[:limit])
		}
		if to != nil {
			to.refund(limit - n)
		}
		if err != nil {
			f.free()
			f = nil
		}
		if errors.Is(err, syscall.EAGAIN) {
			err = nil
			return stopped
		}
		return true
	})
	return f, n, errors.Join(failed, err)
}

// readNow reads what is there; io.EOF when there will never be more.
func readNow(fd uintptr, b []byte) (int, error) {
	for {
		n, err := syscall.Read(int(fd), b)
		switch {
		case n > 0:
			return n, nil
		case err == nil:
			return 0, io.EOF
		case !errors.Is(err, syscall.EINTR):
			return 0, err
		}
	}
}

// writer sends bytes as DATA on one channel, in frames as large as the window allows. Flush sends the rest.
type writer struct {
	stream  *stream
	channel byte
	frame   *dataFrame
	filled  int
}

func (w *writer) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		if w.frame == nil {
			w.frame = newDataFrame()
		}
		n := copy(w.frame.content()[w.filled:], rest)
		w.filled += n
		rest = rest[n:]
		if w.filled == maxData {
			if err := w.Flush(); err != nil {
				return len(p) - len(rest), err
			}
		}
	}
	return len(p), nil
}

// Flush sends what was written so far and frees the buffer.
func (w *writer) Flush() error {
	if w.frame == nil {
		return nil
	}
	defer func() {
		w.frame.free()
		w.frame, w.filled = nil, 0
	}()
	for w.filled > 0 {
		if !w.stream.awaitWindow() {
			return errGone
		}
		n := w.stream.reserve(w.filled)
		if n > 0 && !w.stream.agent.out.send(w.stream, w.frame.seal(w.stream.id, w.channel, n)) {
			return errGone
		}
		w.filled = copy(w.frame.content(), w.frame.content()[n:w.filled])
	}
	return nil
}

// -- its end
// ----------------------------------------------------------------------------------------------------------

// whenReset says what to stop when the host gives the stream up; at once if it already has.
func (s *stream) whenReset(stop func()) {
	s.mu.Lock()
	gone := s.gone.Load()
	if !gone {
		s.onReset = stop
	}
	s.mu.Unlock()
	if gone {
		stop()
	}
}

// abandon ends the stream because the host wants nothing more of it.
func (s *stream) abandon() {
	if stop, ended := s.end(); ended && stop != nil {
		stop()
	}
}

// end marks the stream as gone, once.
func (s *stream) end() (stop func(), ended bool) {
	s.mu.Lock()
	if s.gone.Swap(true) {
		s.mu.Unlock()
		return nil, false
	}
	stop = s.onReset
	s.onReset = nil
	for _, chunk := range s.chunks {
		freeChunk(chunk)
	}
	s.chunks = nil
	s.changed.Broadcast()
	s.mu.Unlock()
	s.agent.remove(s)
	s.agent.out.forget(s)
	return stop, true
}

// close ends the stream with a result.
func (s *stream) close(result any) {
	s.finish(answer(result))
}

// fail ends the stream with an error; errGone needs no answer.
func (s *stream) fail(err error) {
	if errors.Is(err, errGone) {
		s.abandon()
		return
	}
	s.finish(answerFailure(err))
}

// finish sends CLOSE: a small one without waiting for the host, a large one in its turn.
func (s *stream) finish(payload []byte) {
	bytes := appendFrame(nil, frameClose, s.id, payload)
	if len(bytes) > smallChunk {
		s.agent.out.send(s, bytes)
		s.end()
		return
	}
	if _, ended := s.end(); ended {
		s.agent.out.post(s.epoch, bytes)
	}
}

func answer(result any) []byte {
	payload := encode(map[string]any{"result": result})
	if len(payload) > maxPayload {
		return answerFailure(&failure{"io-error", "the answer is longer than a frame"})
	}
	return payload
}

// maxMessage is what an error says at most; some quote a request, which may be as long as a frame.
const maxMessage = 1000

func answerFailure(err error) []byte {
	f := *asFailure(err)
	if len(f.Message) > maxMessage {
		f.Message = f.Message[:maxMessage] + "..."
	}
	return encode(map[string]any{"error": f})
}

// encode returns JSON; strings that are not UTF-8 lose the bytes that are not.
func encode(value any) []byte {
	payload, err := json.Marshal(value, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err) // every value is one of our own types
	}
	return payload
}
