package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const termTime = 2 * time.Second // between SIGTERM and SIGKILL

// endMachine ends every process, this one last. As PID 1 that is all there are; otherwise, those that this agent
// started.
func (a *agent) endMachine() {
	a.signalEverything(syscall.SIGTERM)
	if !a.childrenGone(termTime) {
		for range 100 { // what is left may be starting more
			a.signalEverything(syscall.SIGKILL)
			if a.childrenGone(20 * time.Millisecond) {
				break
			}
		}
	}
	os.Exit(0)
}

func (a *agent) signalEverything(signal syscall.Signal) {
	if os.Getpid() == 1 {
		_ = syscall.Kill(-1, signal)
		return
	}
	for _, c := range a.commands.running() {
		_, _ = c.signal(signal, true)
	}
	for _, pid := range children() {
		_ = syscall.Kill(pid, signal)
	}
}

// childrenGone waits until this process has no children, for at most the given time.
func (a *agent) childrenGone(within time.Duration) bool {
	for end := time.Now().Add(within); ; time.Sleep(2 * time.Millisecond) {
		if a.reaper.idle() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// children lists the processes whose parent this one is; as a subreaper it becomes that of every orphan.
func children() []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue
		}
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			found = append(found, pid)
		}
	}
	return found
}
