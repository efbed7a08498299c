package main

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// agent is the sandbox's side of one connection to the host, and all that goes on for it.
type agent struct {
	in      *hostPipe
	decoder decoder
	out     *output
	reaper  *reaper
	users   userDatabase
	null    int           // /dev/null, as stdin of commands that have none
	frames  atomic.Uint64 // frames received, for the lease

	interrupted atomic.Bool // SIGUSR1 came

	// What only the reading goroutine uses.
	session string
	epoch   uint64
	last    uint32 // the highest stream opened in this session

	machine  machine
	commands commands
	hold     hold
	lease    lease

	mu      sync.Mutex
	streams map[uint32]*stream
}

func newAgent(in, out *os.File) (*agent, error) {
	o, err := newOutput(out)
	if err != nil {
		return nil, err
	}
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, pathError("open", "/dev/null", err)
	}
	a := &agent{in: &hostPipe{File: in}, out: o, reaper: newReaper(), null: null, streams: map[uint32]*stream{}}
	a.users.passwdPath, a.users.groupPath = "/etc/passwd", "/etc/group"
	a.machine.bootID = newBootID()
	a.decoder.source = a.in
	a.commands.init()
	return a, nil
}

// serve speaks with one host after the other; it returns when the way to any host is closed for good.
func (a *agent) serve() error {
	a.out.halt(awaitHello())
	for scanning := true; ; {
		var err error
		if scanning {
			var h *hello
			if h, err = a.decoder.scan(); err == nil {
				a.greet(h)
				scanning = false
			}
		} else {
			var f frame
			if f, err = a.decoder.next(); err == nil {
				a.frames.Add(1)
				scanning, err = a.handle(f)
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, errSync):
			a.out.halt(nil)
			scanning = true
		case errors.Is(err, errViolation), errors.Is(err, os.ErrDeadlineExceeded) && a.isInterrupted():
			a.session = ""
			a.out.halt(awaitHello())
			scanning = true
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		}
	}
}

// interrupt says that the frame at hand, if there is one, will never be finished.
func (a *agent) interrupt() {
	a.interrupted.Store(true)
	_ = a.in.SetReadDeadline(time.Unix(1, 0))
}

// isInterrupted says whether that is why a read ended by its deadline.
func (a *agent) isInterrupted() bool {
	_ = a.in.SetReadDeadline(time.Time{})
	return a.interrupted.Swap(false)
}

func awaitHello() []byte {
	return helloFrame(map[string]any{"version": version, "await": true})
}

func helloFrame(body map[string]any) []byte {
	return appendFrame(append([]byte(nil), syncMarker...), frameHello, 0, encode(body))
}

// greet answers a HELLO: the session goes on, or a new one begins and the old one's streams end.
func (a *agent) greet(h *hello) {
	resumed := h.Session == a.session
	if !resumed {
		a.endStreams(h.Orphans == "keep")
		a.session = h.Session
		a.last = 0
		a.epoch++
	}
	a.frames.Add(1)
	a.out.begin(helloFrame(map[string]any{
		"version": version, "session": h.Session, "boot_id": a.machine.boot(), "agent": buildVersion, "resumed": resumed,
	}), a.epoch)
}

// endStreams gives up every stream of a session; with keep, commands go on by themselves.
func (a *agent) endStreams(keep bool) {
	if keep {
		a.commands.detachAll()
	}
	a.mu.Lock()
	streams := make([]*stream, 0, len(a.streams))
	for _, s := range a.streams {
		streams = append(streams, s)
	}
	a.mu.Unlock()
	for _, s := range streams {
		s.abandon()
	}
}

// handle acts on one frame; scan is true when the host will begin again with a HELLO.
func (a *agent) handle(f frame) (scan bool, err error) {
	if f.kind == framePing || f.kind == framePong || f.kind == frameHello {
		return false, a.handleConnection(f)
	}
	if f.stream == 0 {
		return false, errViolation
	}
	if f.kind == frameOpen {
		return a.open(f)
	}
	if f.stream > a.last {
		return false, errViolation
	}
	a.mu.Lock()
	s := a.streams[f.stream]
	a.mu.Unlock()
	return false, a.handleStream(f, s)
}

func (a *agent) handleConnection(f frame) error {
	if f.stream != 0 || f.kind == frameHello || len(f.payload) > maxPing {
		return errViolation
	}
	if f.kind == framePing {
		a.out.backpressure()
		a.out.post(a.epoch, appendFrame(nil, framePong, 0, f.payload))
	}
	return nil
}

// handleStream acts on a frame of stream s, which is nil when it has ended: frames that crossed its end are ignored.
func (a *agent) handleStream(f frame, s *stream) error {
	switch f.kind {
	case frameData:
		if len(f.payload) == 0 || f.payload[0] != channelIn {
			return errViolation
		}
		if s != nil {
			return s.receive(f.payload[1:])
		}
	case frameCredit:
		if len(f.payload) != 4 {
			return errViolation
		}
		if s != nil {
			s.credited(binary.BigEndian.Uint32(f.payload))
		}
	case frameReset:
		if len(f.payload) != 0 {
			return errViolation
		}
		if s != nil {
			s.abandon()
		}
	default:
		return errViolation
	}
	return nil
}

// open starts a stream.
func (a *agent) open(f frame) (scan bool, err error) {
	if f.stream <= a.last {
		return false, errViolation
	}
	a.last = f.stream
	a.out.backpressure()
	s := newStream(a, f.stream)
	a.mu.Lock()
	full, alone := len(a.streams) >= maxStreams, len(a.streams) == 0
	if !full {
		a.streams[s.id] = s
	}
	a.mu.Unlock()
	if full {
		s.fail(&failure{"too-many-streams", "1,024 streams are open"})
		return false, nil
	}
	r, err := parseRequest(f.payload)
	if err != nil {
		s.fail(err)
		return false, nil
	}
	return a.start(s, r, alone), nil
}

func (a *agent) remove(s *stream) {
	a.mu.Lock()
	if a.streams[s.id] == s {
		delete(a.streams, s.id)
	}
	a.mu.Unlock()
}

// start runs one request. Those that can wait for anything get a goroutine of their own.
func (a *agent) start(s *stream, r *request, alone bool) (scan bool) {
	run, known := operations[r.Op]
	switch {
	case r.Op == "prepare_checkpoint":
		a.out.finish(s, appendFrame(nil, frameClose, s.id, answer(struct{}{})))
		s.end()
		return true
	case r.Op == "exec":
		if err := a.exec(s, r, alone); err != nil {
			s.fail(err)
		}
	case !known:
		s.fail(&failure{"unknown-op", "this agent does not know the op " + strconv.Quote(r.Op)})
	default:
		go func() {
			if err := run(a, s, r); err != nil {
				s.fail(err)
			}
		}()
	}
	return false
}

// operations are the other requests; each closes its stream itself, or returns the error that it is closed with.
var operations = map[string]func(a *agent, s *stream, r *request) error{
	"attach":        (*agent).attach,
	"signal":        (*agent).signal,
	"resize":        (*agent).resize,
	"processes":     (*agent).processes,
	"read":          (*agent).read,
	"write":         (*agent).write,
	"stat":          (*agent).stat,
	"list":          (*agent).list,
	"mkdir":         (*agent).mkdir,
	"remove":        (*agent).removeFile,
	"move":          (*agent).move,
	"tar_out":       (*agent).tarOut,
	"tar_in":        (*agent).tarIn,
	"dial":          (*agent).dial,
	"info":          (*agent).info,
	"hold":          (*agent).holdRequest,
	"lease":         (*agent).setLease,
	"after_restore": (*agent).afterRestore,
	"shutdown":      (*agent).shutdown,
}

// hostPipe is the way from the host.
type hostPipe struct {
	*os.File
	patient bool // the end of the pipe is not the end of the machine: another host may open it again
}

const reopenTime = 100 * time.Millisecond

func (p *hostPipe) Read(b []byte) (int, error) {
	for {
		n, err := p.File.Read(b)
		if err == nil || !p.patient || errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		time.Sleep(reopenTime)
	}
}
