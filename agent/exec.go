package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// exec runs a command; its stream ends with the command, or at once if it is detached. The id is taken before anything
// else is read from the host, so that requests which follow find it. When no other stream is open, nobody waits for the
// start, and it is done on the spot: that saves a switch to another thread.
func (a *agent) exec(s *stream, r *request, alone bool) error {
	if r.ID == "" {
		return badRequest("an exec needs an id")
	}
	c := &command{agent: a, id: r.ID, primary: s, terminal: r.Pty != nil, settled: make(chan struct{})}
	c.changed.L = &c.mu
	if r.Detach {
		c.primary = nil
		c.detached.Store(true)
	}
	if err := a.commands.add(c); err != nil {
		return err
	}
	if alone {
		c.begin(s, r)
	} else {
		go c.begin(s, r)
	}
	return nil
}

func (c *command) begin(s *stream, r *request) {
	defer close(c.settled)
	if err := c.start(s, r); err != nil {
		c.agent.commands.remove(c)
		s.fail(err)
	}
}

// start starts the command and what passes its input and output on.
func (c *command) start(s *stream, r *request) error {
	i, err := c.agent.prepare(r)
	if err != nil {
		return err
	}
	c.argv = i.argv
	if err := c.launch(i, r); err != nil {
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

// invocation is what a process is started with.
type invocation struct {
	program string
	argv    []string
	cwd     string
	attr    syscall.ProcAttr
}

func (a *agent) prepare(r *request) (*invocation, error) {
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
	i := &invocation{argv: argv, cwd: r.Cwd}
	if i.cwd == "" {
		i.cwd = who.home
	}
	if i.program, err = findProgram(argv[0], path, i.cwd); err != nil {
		return nil, err
	}
	i.attr = syscall.ProcAttr{Dir: i.cwd, Env: env, Sys: &syscall.SysProcAttr{Setsid: true, Credential: who.credential()}}
	return i, nil
}

func commandLine(r *request) ([]string, error) {
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
