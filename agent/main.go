// Command sandyard-agent is PID 1 of a sandbox: it runs commands and moves files for the host, over the byte stream that
// its stdin and stdout are. docs/agent-protocol.md says how. It opens no socket in any network.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// buildVersion is set by the build.
var buildVersion = "unknown"

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println(buildVersion)
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sandyard-agent:", err)
		os.Exit(1)
	}
}

func run() error {
	debug.SetGCPercent(50)
	runtime.GOMAXPROCS(2)
	syscall.Umask(0o022)
	if err := ignoreChildSignals(); err != nil {
		return err
	}
	if os.Getpid() != 1 {
		if err := becomeSubreaper(); err != nil {
			return err
		}
	}
	in, err := pollable(os.Stdin)
	if err != nil {
		return err
	}
	out, err := pollable(os.Stdout)
	if err != nil {
		return err
	}
	a, err := newAgent(in, out)
	if err != nil {
		return err
	}
	go a.heedSignals()
	for {
		if err := a.serve(); !sourceEnded(err) || os.Getpid() != 1 {
			return err
		}
		time.Sleep(100 * time.Millisecond) // every writer has closed the pipe; the next host opens it again
	}
}

// pollable makes a standard file non-blocking and known to the runtime's poller, if it did not arrive like that.
func pollable(file *os.File) (*os.File, error) {
	if file.SetDeadline(time.Time{}) == nil {
		return file, nil
	}
	fd := int(file.Fd())
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, pathError("set non-blocking", file.Name(), err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}

const setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER

// becomeSubreaper makes orphans come to this process, as they do to PID 1.
func becomeSubreaper() error {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
		return errno
	}
	return nil
}

// heedSignals acts on SIGUSR1 and lets the others pass. They are caught, not ignored: commands would inherit that.
func (a *agent) heedSignals() {
	caught := make(chan os.Signal, 16)
	signal.Notify(caught, syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT)
	for s := range caught {
		if s == syscall.SIGUSR1 {
			a.interrupt()
		}
	}
}
