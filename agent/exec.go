package main

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// command is one process that the host asked for, with the pipes that it speaks through.
type command struct {
	agent   *agent
	id      string
	argv    []string
	pid     int
	started time.Time

	mu        sync.Mutex
	changed   sync.Cond
	primary   *stream // the stream of the exec itself; nil once the command is detached
	detached  bool
	stdin     *os.File // the end that the agent writes to; nil if there is none
	terminal  bool     // stdin and the one output are the same terminal
	outputs   []*outputPipe
	open      int // outputs that may still have something to send
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

// exec runs a command; its stream ends with the command, or at once if it is detached.
func (a *agent) exec(s *stream, r *request) error {
	l, err := a.prepare(r)
	if err != nil {
		return err
	}
	c := &command{agent: a, id: r.ID, argv: l.argv, primary: s, detached: r.Detach, terminal: r.Pty != nil}
	c.changed.L = &c.mu
	if r.Detach {
		c.primary = nil
	}
	if err := a.commands.add(c); err != nil {
		return err
	}
	if err := c.launch(l, r); err != nil {
		a.commands.remove(c)
		return err
	}
	if r.Detach {
		s.close(map[string]any{"pid": c.pid, "exec": c.id})
	} else {
		s.whenReset(c.abandoned)
	}
	for _, p := range c.outputs {
		go c.pump(p)
	}
	if c.stdin != nil {
		go c.feed(s)
	}
	return nil
}

// launch is what a process is started with.
type launch struct {
	program string
	argv    []string
	cwd     string
	attr    syscall.ProcAttr
}

func (a *agent) prepare(r *request) (*launch, error) {
	argv, err := commandLine(r)
	if err != nil {
		return nil, err
	}
	who, err := a.users.lookup(r.User)
	if err != nil {
		return nil, err
	}
	env, path, err := environment(r, who)
	if err != nil {
		return nil, err
	}
	l := &launch{argv: argv, cwd: r.Cwd}
	if l.cwd == "" {
		l.cwd = who.home
	}
	if l.program, err = findProgram(argv[0], path, l.cwd); err != nil {
		return nil, err
	}
	l.attr = syscall.ProcAttr{Dir: l.cwd, Env: env, Sys: &syscall.SysProcAttr{Setsid: true, Credential: who.credential()}}
	return l, nil
}

func commandLine(r *request) ([]string, error) {
	if r.ID == "" {
		return nil, badRequest("an exec needs an id")
	}
	argv := r.Argv
	if (r.Shell != nil) == (len(argv) > 0) {
		return nil, badRequest("an exec needs either argv or shell")
	}
	if r.Shell != nil {
		shell, err := findShell()
		if err != nil {
			return nil, err
		}
		argv = []string{shell, "-c", *r.Shell}
	}
	for _, word := range append([]string{r.Cwd}, argv...) {
		if strings.ContainsRune(word, 0) {
			return nil, badRequest("a NUL byte cannot be part of a command")
		}
	}
	return argv, nil
}

func findShell() (string, error) {
	for _, shell := range []string{"/bin/sh", "/bin/bash", "/usr/bin/bash"} {
		var st syscall.Stat_t
		if syscall.Stat(shell, &st) == nil {
			return shell, nil
		}
	}
	return "", &failure{"no-shell", "the sandbox has neither /bin/sh nor bash; give the command as argv"}
}

// environment returns the variables as execve takes them, and PATH among them.
func environment(r *request, who *account) (env []string, path string, err error) {
	defaults := map[string]string{"HOME": who.home, "USER": who.name, "PATH": defaultPath}
	if who.name == "" {
		defaults["USER"] = strconv.FormatUint(uint64(who.uid), 10)
	}
	if r.Pty != nil {
		defaults["TERM"] = "xterm-256color"
	}
	for name, value := range r.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return nil, "", badRequest("the environment's " + strconv.Quote(name) + " has a '=' or NUL where none can be")
		}
		env = append(env, name+"="+value)
	}
	for name, value := range defaults {
		if _, given := r.Env[name]; !given {
			env = append(env, name+"="+value)
		}
	}
	if given, ok := r.Env["PATH"]; ok {
		return env, given, nil
	}
	return env, defaultPath, nil
}

// credential is nil where the agent itself is that user already.
func (who *account) credential() *syscall.Credential {
	if len(who.groups) == 0 && int(who.uid) == os.Geteuid() && int(who.gid) == os.Getegid() {
		return nil
	}
	return &syscall.Credential{Uid: who.uid, Gid: who.gid, Groups: who.groups}
}

// launch starts the process with its pipes or its terminal.
func (c *command) launch(l *launch, r *request) error {
	e := &ends{stdin: -1}
	defer e.closeForeign()
	var err error
	if c.terminal {
		err = e.openTerminal(r.Pty)
		l.attr.Sys.Setctty = true
	} else {
		err = e.openPipes(c.agent.null, r.Stdin && !r.Detach)
	}
	if err != nil {
		e.closeOwn()
		return err
	}
	l.attr.Files = e.child[:]
	c.open = len(e.outputs)
	c.started = time.Now()
	c.pid, err = c.agent.reaper.fork(l.program, l.argv, &l.attr, c.exited)
	if err != nil {
		e.closeOwn()
		return startFailure(err, l.program, l.cwd)
	}
	c.own(e)
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

// own makes files of the agent's descriptors. It comes after the fork, because it takes longer than opening them did.
func (c *command) own(e *ends) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// pipeSize is what a pipe is asked to hold: the larger, the fewer switches between the agent and the process. Under gVisor it
// doubles what a command can print in a second.
const (
	pipeSize    = 1 << 20
	setPipeSize = 1031 // F_SETPIPE_SZ
)

func nonBlocking(fd int) *os.File {
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), setPipeSize, pipeSize) // a terminal has none
	_ = syscall.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "pipe")
}

// -- while it runs ----------------------------------------------------------------------------------------------------

// pump passes on what the command writes until that ends, or until the command has ended and all it wrote is passed on.
// What processes left in the background write after that is read and thrown away, so that they never see a broken pipe.
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
	if drained {
		p.discard(raw)
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

func (c *command) hasExited() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exit != nil
}

// -- its end ----------------------------------------------------------------------------------------------------------

// kill ends the command's process group, unless the command has ended already.
func (c *command) kill() {
	c.agent.reaper.ifAlive(c.pid, func() { _ = syscall.Kill(-c.pid, syscall.SIGKILL) })
}

// abandoned is called when the host gives the exec's stream up.
func (c *command) abandoned() {
	c.mu.Lock()
	detached := c.detached
	c.mu.Unlock()
	if !detached {
		c.kill()
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
