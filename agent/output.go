package main

import (
	"errors"
	"os"
	"sync"
	"syscall"
)

// maxControl bounds the small frames that wait for a host that does not read; beyond it the agent stops reading, too.
const maxControl = 256 << 10

// output is the one way to the host. Whoever has something to send writes it, one frame at a time and in the order of
// asking, so that no stream starves another; nothing here grows when the host stops reading.
type output struct {
	raw syscall.RawConn

	mu      sync.Mutex
	shrunk  sync.Cond // control was written or dropped
	epoch   uint64    // counts sessions: what belongs to an earlier one is dropped
	open    bool      // false while scanning: nothing but preamble may be written
	busy    bool      // somebody is writing
	leading []byte    // marker and HELLO: written first, and while scanning too
	control []byte    // small frames that nobody waits for
	spare   []byte    // the buffer that control had before
	event   []byte    // the newest event that the host has not got
	credits []*stream // streams with credit to announce
	queue   []*ticket // senders that wait for their turn, oldest first
}

// ticket is one sender's place in the queue.
type ticket struct {
	stream *stream
	turn   chan bool // true: write now; false: the stream is gone
}

func newOutput(file *os.File) (*output, error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	o := &output{raw: raw}
	o.shrunk.L = &o.mu
	return o, nil
}

// send writes one frame of a stream in its turn; it returns false, with nothing written, if the stream is gone.
func (o *output) send(s *stream, bytes []byte) bool {
	if !o.acquire(s) {
		return false
	}
	o.writeAll(bytes)
	o.release(true)
	return true
}

func (o *output) acquire(s *stream) bool {
	o.mu.Lock()
	if s.gone.Load() {
		o.mu.Unlock()
		return false
	}
	if o.open && !o.busy && len(o.queue) == 0 {
		o.busy = true
		o.mu.Unlock()
		return true
	}
	t := &ticket{s, make(chan bool, 1)}
	o.queue = append(o.queue, t)
	o.mu.Unlock()
	return <-t.turn
}

// post sends a small frame of a session without ever waiting for the host.
func (o *output) post(epoch uint64, bytes []byte) {
	o.mu.Lock()
	if epoch == o.epoch {
		o.control = append(o.control, bytes...)
	}
	o.kick()
}

// postCredit announces what s has consumed; several announcements become one.
func (o *output) postCredit(s *stream) {
	o.mu.Lock()
	if s.epoch == o.epoch {
		o.credits = append(o.credits, s)
	}
	o.kick()
}

// announce sends an event; one that the host has not got yet gives way to it.
func (o *output) announce(bytes []byte) {
	o.mu.Lock()
	if o.epoch > 0 {
		o.event = bytes
	}
	o.kick()
}

// begin writes a HELLO and, with it, opens the way for the frames of a session. What was waiting for an earlier one is
// dropped.
func (o *output) begin(leading []byte, epoch uint64) {
	o.mu.Lock()
	if epoch != o.epoch {
		o.epoch = epoch
		o.dropAll()
	}
	o.leading = leading
	o.open = true
	o.kick()
}

// halt lets nothing but leading out until begin. A frame that is being written is still finished.
func (o *output) halt(leading []byte) {
	o.mu.Lock()
	o.open = false
	o.leading = leading
	o.kick()
}

// finish writes the last frame before a checkpoint, and then nothing more.
func (o *output) finish(s *stream, bytes []byte) {
	if !o.acquire(s) {
		return
	}
	o.mu.Lock()
	bytes = append(o.takeControl(), bytes...)
	o.open = false
	o.mu.Unlock()
	o.writeAll(bytes)
	o.release(true)
}

// forget takes the waiting senders of a stream that is gone out of the queue.
func (o *output) forget(s *stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := o.queue[:0]
	for _, t := range o.queue {
		if t.stream == s {
			t.turn <- false
		} else {
			kept = append(kept, t)
		}
	}
	clear(o.queue[len(kept):])
	o.queue = kept
}

// backpressure waits while a host that does not read has too much control traffic pending.
func (o *output) backpressure() {
	o.mu.Lock()
	for len(o.control) > maxControl {
		o.shrunk.Wait()
	}
	o.mu.Unlock()
}

func (o *output) dropAll() {
	for _, t := range o.queue {
		t.turn <- false
	}
	clear(o.queue)
	o.queue, o.credits, o.control, o.event = o.queue[:0], nil, nil, nil
	o.shrunk.Broadcast()
}

// kick writes what is due unless somebody is writing already. Called with mu held; releases it.
func (o *output) kick() {
	if o.busy {
		o.mu.Unlock()
		return
	}
	o.busy = true
	o.mu.Unlock()
	o.release(false)
}

// release writes the small frames that came up meanwhile and passes the turn on. With wait it waits for a slow host;
// without, a goroutine does.
func (o *output) release(wait bool) {
	for {
		o.mu.Lock()
		due := o.takeControl()
		if len(due) == 0 {
			o.passOn()
			return
		}
		o.mu.Unlock()
		if wait {
			o.writeAll(due)
		} else if n := o.writeSome(due); n < len(due) {
			go func() {
				o.writeAll(due[n:])
				o.release(true)
			}()
			return
		}
		o.recycle(due)
	}
}

// passOn gives the turn to the sender that waits longest. Called with mu held; releases it.
func (o *output) passOn() {
	defer o.mu.Unlock()
	if !o.open || len(o.queue) == 0 {
		o.busy = false
		return
	}
	t := o.queue[0]
	o.queue[0] = nil
	o.queue = o.queue[1:]
	t.turn <- true
}

// takeControl returns all that may be written out of turn. Called with mu held.
func (o *output) takeControl() []byte {
	due := o.leading
	o.leading = nil
	if !o.open {
		return due
	}
	if len(due) == 0 {
		due, o.control, o.spare = o.control, o.spare, nil
	} else {
		due = append(due, o.control...)
		o.control = o.control[:0]
	}
	due = append(due, o.event...)
	o.event = nil
	for _, s := range o.credits {
		due = s.appendCredit(due)
	}
	clear(o.credits)
	o.credits = o.credits[:0]
	o.shrunk.Broadcast()
	return due
}

func (o *output) recycle(b []byte) {
	o.mu.Lock()
	if o.spare == nil && cap(b) <= 16<<10 {
		o.spare = b[:0]
	}
	o.mu.Unlock()
}

// writeSome writes what the host's pipe takes at once.
func (o *output) writeSome(b []byte) int {
	written := 0
	_ = o.raw.Write(func(fd uintptr) bool {
		written = writeNow(fd, b)
		return true
	})
	return written
}

// writeAll waits until the host's pipe has taken all of b.
func (o *output) writeAll(b []byte) {
	_ = o.raw.Write(func(fd uintptr) bool {
		b = b[writeNow(fd, b):]
		return len(b) == 0
	})
}

// writeNow writes until the pipe is full. When there is nobody at its other end, the bytes are lost as they would be
// on their way: the next host scans for its own HELLO.
func writeNow(fd uintptr, b []byte) int {
	written := 0
	for written < len(b) {
		n, err := syscall.Write(int(fd), b[written:])
		if n > 0 {
			written += n
		}
		if err == nil || errors.Is(err, syscall.EINTR) {
			continue
		}
		if errors.Is(err, syscall.EAGAIN) {
			return written
		}
		return len(b)
	}
	return written
}
