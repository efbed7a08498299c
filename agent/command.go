package main

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// command is one process that the host asked for, with the pipes that it speaks through.
type command struct {
	agent   *agent
	id      string
	argv    []string
	started time.Time
	settled chan struct{} // closed once it has been started, or could not be

	mu        sync.Mutex
	changed   sync.Cond
	primary   *stream // the stream of the exec itself; nil once the command is detached
	detached  atomic.Bool
	stdin     *os.File // the end that the agent writes to; nil if there is none
	terminal  bool     // stdin and the one output are the same terminal
	outputs   []*outputPipe
	open      int // outputs that may still have something to send
	pid       int // 0 until it has been started
	exit      *exit
	timeout   *time.Timer
	timedOut  bool
	replay    replay
	followers map[*follower]struct{}
	result    *execResult // once it has ended and all of its output was passed on
}

// outputPipe is the agent's end of a pipe or terminal that the command writes to.
type outputPipe struct {
	file    *os.File
	channel byte
}

type execResult struct {
	ExitCode       int   `json:"exit_code"`
	Signal         int   `json:"signal"`
	TimedOut       bool  `json:"timed_out"`
	PID            int   `json:"pid"`
	ForkExecWaitUS int64 `json:"fork_exec_wait_us"`
	UserUS         int64 `json:"user_us"`
	SystemUS       int64 `json:"system_us"`
	MaxRSSKiB      int64 `json:"max_rss_kib"`
}

// -- while it runs
// ----------------------------------------------------------------------------------------------------

// pump passes on what the command writes until that ends, or until the command has ended and all it wrote is passed
// on. What processes left in the background write after that is read and thrown away, so that they never see a broken
// pipe.
func (c *command) pump(p *outputPipe) {
	defer p.file.Close()
	raw, err := p.file.SyscallConn()
	if err != nil {
		panic(err) // it was just opened
	}
	drained := false
	for err == nil && !drained {
		drained, err = c.pumpOnce(p, raw)
	}
	c.outputEnded()
	switch {
	case drained:
		p.discard(raw)
	case c.terminal:
		// A program closes its output before it exits: were the terminal closed then, SIGHUP would be what ended it.
		c.awaitResult()
	}
}

func (c *command) awaitResult() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.result == nil {
		c.changed.Wait()
	}
}

// pumpOnce passes on one piece of output. drained: the command has ended and nothing more of its own is in the pipe.
func (c *command) pumpOnce(p *outputPipe, raw syscall.RawConn) (drained bool, err error) {
	primary := c.receiver()
	if primary != nil && !primary.awaitWindow() {
		return false, nil
	}
	f, n, err := readAvailable(raw, primary, c.hasExited)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return false, p.file.SetReadDeadline(time.Time{}) // the command has ended: from now on, do not wait
	}
	if f == nil {
		return err == nil, err
	}
	defer f.free()
	if n > 0 && primary != nil {
		c.agent.out.send(primary, f.seal(primary.id, p.channel, n))
	}
	c.remember(p.channel, f.content()[:n])
	return false, err
}

// receiver returns the stream that output goes to, nil if there is none (any more).
func (c *command) receiver() *stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.primary != nil && c.primary.gone.Load() {
		c.primary = nil
	}
	return c.primary
}

// discard reads until nobody can write any more.
func (p *outputPipe) discard(raw syscall.RawConn) {
	err := os.ErrDeadlineExceeded
	for errors.Is(err, os.ErrDeadlineExceeded) {
		_ = p.file.SetReadDeadline(time.Time{})
		err = raw.Read(func(fd uintptr) bool {
			f := newDataFrame()
			defer f.free()
			for {
				if _, err := readNow(fd, f.content()); err != nil {
					return !errors.Is(err, syscall.EAGAIN)
				}
			}
		})
	}
}

// remember keeps output for those who attach, and waits for those who are attached and slow.
func (c *command) remember(channel byte, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.behind(len(data)) {
		c.changed.Wait()
	}
	c.replay.add(channel, data)
	if len(c.followers) > 0 {
		c.changed.Broadcast()
	}
}

// feed passes stdin on. A command that does not read it any more does not make the host wait.
func (c *command) feed(s *stream) {
	deaf := false
	for {
		chunk, err := s.take()
		if err != nil {
			if c.terminal && errors.Is(err, io.EOF) {
				_, _ = c.stdin.Write([]byte{endOfTransmission})
			}
			break
		}
		if !deaf {
			_, err = c.stdin.Write(chunk)
			deaf = err != nil
		}
		s.consumed(chunk)
	}
	if !c.terminal {
		_ = c.stdin.Close()
	}
}

func (c *command) wasStarted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pid != 0
}

func (c *command) hasExited() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exit != nil
}

// -- its end
// ----------------------------------------------------------------------------------------------------------

// signal sends a signal to the command's process group or its first process; false if that has ended.
func (c *command) signal(number syscall.Signal, group bool) (alive bool, err error) {
	c.mu.Lock()
	pid := c.pid
	c.mu.Unlock()
	target := pid
	if group {
		target = -pid
	}
	alive = c.agent.reaper.ifAlive(pid, func() { err = syscall.Kill(target, number) })
	return alive, err
}

// abandoned is called when the host gives the exec's stream up.
func (c *command) abandoned() {
	if !c.detached.Load() {
		_, _ = c.signal(syscall.SIGKILL, true)
	}
}

// expire ends the command because its time is over.
func (c *command) expire() {
	c.agent.reaper.ifAlive(c.pid, func() {
		c.mu.Lock()
		c.timedOut = true
		c.mu.Unlock()
		_ = syscall.Kill(-c.pid, syscall.SIGKILL)
	})
}

// exited takes the exit status; called by the reaper.
func (c *command) exited(e exit) {
	c.mu.Lock()
	c.exit = &e
	if c.timeout != nil {
		c.timeout.Stop()
	}
	outputs, done := c.outputs, c.open == 0
	c.mu.Unlock()
	if done {
		c.finish()
		return
	}
	for _, p := range outputs {
		_ = p.file.SetReadDeadline(time.Unix(1, 0)) // wakes a pump that waits for more
	}
}

func (c *command) outputEnded() {
	c.mu.Lock()
	c.open--
	done := c.open == 0 && c.exit != nil
	c.mu.Unlock()
	if done {
		c.finish()
	}
}

// finish tells the result to everybody who waits for it.
func (c *command) finish() {
	c.mu.Lock()
	c.result = newExecResult(c)
	primary := c.primary
	if c.stdin != nil && !c.terminal {
		_ = c.stdin.Close()
	}
	c.changed.Broadcast()
	c.mu.Unlock()
	c.agent.commands.ended(c)
	if primary != nil {
		primary.close(c.result)
	}
}

func newExecResult(c *command) *execResult {
	status, usage := c.exit.status, &c.exit.usage
	r := &execResult{
		TimedOut:       c.timedOut,
		PID:            c.pid,
		ForkExecWaitUS: c.exit.at.Sub(c.started).Microseconds(),
		UserUS:         usage.Utime.Nano() / 1000,
		SystemUS:       usage.Stime.Nano() / 1000,
		MaxRSSKiB:      usage.Maxrss,
	}
	r.ExitCode, r.Signal = exitCode(status)
	return r
}

// exitCode is what a shell would say of a process that ended like this.
func exitCode(status syscall.WaitStatus) (code, signal int) {
	if status.Signaled() {
		return 128 + int(status.Signal()), int(status.Signal())
	}
	return status.ExitStatus(), 0
}
