// Command sandyard-agent is PID 1 of a sandbox: it runs commands and moves files for the host, over the byte stream
// that its stdin and stdout are. docs/agent-protocol.md says how. It listens in no network.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// buildVersion is set by the build.
var buildVersion = "unknown"

const usage = `usage: %[1]s hold DURATION   keep this sandbox awake: 90s, 10m, 1.5h; 0 ends it
       %[1]s --version
       %[1]s agent           what a sandbox is started with
`

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "agent":
		err = runAgent()
	case len(args) == 1 && args[0] == "--version":
		fmt.Println(buildVersion)
	case len(args) == 2 && args[0] == "hold":
		err = holdCommand(args[1])
	default:
		fmt.Fprintf(os.Stderr, usage, filepath.Base(os.Args[0]))
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

func runAgent() error {
	interrupts := catchSignals()
	limitRuntime()
	syscall.Umask(0o022)
	if err := keepFromRuntime(); err != nil {
		return err
	}
	isInit := os.Getpid() == 1
	if !isInit {
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
	a.in.patient = isInit
	listener, err := net.Listen("unix", socketName())
	if err != nil {
		return err
	}
	go a.serveHolds(listener)
	go a.heed(interrupts)
	if err := a.serve(); !errors.Is(err, io.EOF) {
		return err
	}
	a.endMachine()
	return nil
}

// limitRuntime keeps Go small: one thread to fork, which holds its processor until the child has started, and one for
// everything else meanwhile.
func limitRuntime() {
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(50)
	debug.SetMemoryLimit(256 << 20)
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

// catchSignals returns where SIGUSR1 arrives, which says something. Whatever else would end or stop this process is
// thrown away: Linux would protect PID 1, gVisor does not. All are caught, not ignored: commands would inherit that.
func catchSignals() <-chan os.Signal {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGILL,
		syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGTERM,
		syscall.SIGSTKFLT, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGXCPU, syscall.SIGXFSZ,
		syscall.SIGSYS)
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGUSR1)
	return interrupts
}

func (a *agent) heed(interrupts <-chan os.Signal) {
	for range interrupts {
		a.interrupt()
	}
}
