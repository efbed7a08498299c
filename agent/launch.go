package main

import (
	"os"
	"syscall"
	"time"
)

// launch starts the process with its pipes or its terminal.
func (c *command) launch(i *invocation, r *request) error {
	e := &ends{stdin: -1}
	defer e.closeForeign()
	var err error
	if c.terminal {
		err = e.openTerminal(r.Pty)
		i.attr.Sys.Setctty = true
	} else {
		err = e.openPipes(c.agent.null, r.Stdin && !r.Detach)
	}
	if err != nil {
		e.closeOwn()
		return err
	}
	i.attr.Files = e.child[:]
	c.open = len(e.outputs)
	c.started = time.Now()
	pid, err := c.agent.reaper.fork(i.program, i.argv, &i.attr, c.exited)
	if err != nil {
		e.closeOwn()
		return startFailure(err, i.program, i.cwd)
	}
	c.own(pid, e)
	c.limit(time.Duration(r.TimeoutMS) * time.Millisecond)
	return nil
}

// limit kills the command's process group when its time is over; 0 is no limit.
func (c *command) limit(timeout time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if timeout > 0 && c.exit == nil {
		c.timeout = time.AfterFunc(timeout, c.expire)
	}
}

// ends are the descriptors between the agent and the process.
type ends struct {
	child   [3]uintptr // what becomes 0, 1 and 2 of the process
	foreign []int      // those of them that the agent closes once the process has them
	stdin   int        // the agent's own, -1 where there is none
	outputs []int
}

func (e *ends) closeForeign() {
	for _, fd := range e.foreign {
		_ = syscall.Close(fd)
	}
}

func (e *ends) closeOwn() {
	for _, fd := range append(e.outputs, e.stdin) {
		if fd >= 0 {
			_ = syscall.Close(fd)
		}
	}
}

func (e *ends) openPipes(null int, stdin bool) error {
	e.child[0] = uintptr(null)
	for i := range e.child {
		if i == 0 && !stdin {
			continue
		}
		var p [2]int
		if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
			return err
		}
		theirs := p[1]
		if i == 0 {
			theirs, e.stdin = p[0], p[1]
		} else {
			e.outputs = append(e.outputs, p[0])
		}
		e.child[i] = uintptr(theirs)
		e.foreign = append(e.foreign, theirs)
	}
	return nil
}

// own takes over the process, and makes files of the agent's descriptors. That comes after the fork, because it takes
// longer than opening them did.
func (c *command) own(pid int, e *ends) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pid = pid
	for i, fd := range e.outputs {
		c.outputs = append(c.outputs, &outputPipe{nonBlocking(fd), channelOut + byte(i)})
	}
	switch {
	case c.terminal:
		c.stdin = c.outputs[0].file
	case e.stdin >= 0:
		c.stdin = nonBlocking(e.stdin)
	}
}

// pipeSize is what a pipe is asked to hold: the larger, the fewer switches between the agent and the process. Under
// gVisor it doubles what a command can print in a second.
const (
	pipeSize    = 1 << 20
	setPipeSize = 1031 // F_SETPIPE_SZ
)

func nonBlocking(fd int) *os.File {
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), setPipeSize, pipeSize) // a terminal has none
	_ = syscall.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "pipe")
}
