package main

import (
	"errors"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// exit is how one child ended.
type exit struct {
	status syscall.WaitStatus
	usage  syscall.Rusage
	at     time.Time
}

// reaper owns every wait of this process: those for commands, and those for the orphans that fall to PID 1.
type reaper struct {
	mu       sync.Mutex
	running  bool // a goroutine waits for children
	starting int  // forks under way, whose children nobody has claimed yet
	early    map[int]exit
	claims   map[int]func(exit)
}

func newReaper() *reaper {
	return &reaper{early: map[int]exit{}, claims: map[int]func(exit){}}
}

// fork starts a process. ended is called once, when it has ended and before its pid can be used again.
func (r *reaper) fork(path string, argv []string, attr *syscall.ProcAttr, ended func(exit)) (pid int, err error) {
	r.mu.Lock()
	r.starting++
	r.mu.Unlock()
	pid, err = syscall.ForkExec(path, argv, attr)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starting--
	if err == nil {
		if e, done := r.early[pid]; done {
			ended(e)
		} else {
			r.claims[pid] = ended
		}
	}
	if r.starting == 0 {
		clear(r.early)
	}
	if err == nil && !r.running {
		r.running = true
		go r.run()
	}
	return pid, err
}

// run reaps until there are no children. Orphans only ever come from children, so none is missed.
func (r *reaper) run() {
	for {
		pid, err := waitAny()
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		at := time.Now()
		r.mu.Lock()
		if err != nil {
			if len(r.claims) == 0 {
				r.running = false
				r.mu.Unlock()
				return
			}
			r.mu.Unlock()
			continue
		}
		r.reap(pid, at)
		r.mu.Unlock()
	}
}

// reap takes one dead child out of the process table, and tells who waits for it. Called with mu held, so that whoever
// sends signals under the same lock never meets another process under the old pid.
func (r *reaper) reap(pid int, at time.Time) {
	e := exit{at: at}
	if got, _ := syscall.Wait4(pid, &e.status, syscall.WNOHANG, &e.usage); got != pid {
		return // a fork whose exec failed waits for its child itself
	}
	if ended, ok := r.claims[pid]; ok {
		delete(r.claims, pid)
		ended(e)
	} else if r.starting > 0 {
		r.early[pid] = e
	}
}

// idle says whether there are no children.
func (r *reaper) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.running && r.starting == 0
}

// ifAlive runs act while the child is certain not to have been reaped; false, and nothing done, if it has been.
func (r *reaper) ifAlive(pid int, act func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, alive := r.claims[pid]
	if alive {
		act()
	}
	return alive
}

// keepFromRuntime sets what becomes of the signals that the Go runtime would treat otherwise.
func keepFromRuntime() error {
	// The reaper waits for the event itself; to deliver SIGCHLD to a handler as well costs each command time (under
	// gVisor, a tenth of what /bin/true takes).
	if err := setDisposition(syscall.SIGCHLD, defaultAction); err != nil {
		return err
	}
	// Those of the C library, which the runtime does not let be caught. Programs that use them set them anew.
	for number := syscall.Signal(32); number <= 34; number++ {
		if err := setDisposition(number, ignore); err != nil {
			return err
		}
	}
	return nil
}

const (
	defaultAction = 0 // SIG_DFL
	ignore        = 1 // SIG_IGN
)

func setDisposition(number syscall.Signal, disposition uintptr) error {
	action := [4]uintptr{disposition} // struct sigaction, whose first field is the handler
	_, _, errno := syscall.RawSyscall6(
		syscall.SYS_RT_SIGACTION, uintptr(number), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

const (
	waitAll    = 0 // P_ALL
	waitExited = 0x00000004
	waitNoReap = 0x01000000 // WNOWAIT
)

// childInfo is siginfo_t as waitid fills it in.
type childInfo struct {
	signo, errno, code, _ int32
	pid                   int32
	_                     [108]byte
}

// waitAny waits until some child is dead, and leaves it in the process table.
func waitAny() (int, error) {
	var info childInfo
	_, _, errno := syscall.Syscall6(
		syscall.SYS_WAITID, waitAll, 0, uintptr(unsafe.Pointer(&info)), waitExited|waitNoReap, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(info.pid), nil
}
