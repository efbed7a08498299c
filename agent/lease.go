package main

import (
	"sync"
	"time"
)

const leaseTicks = 8

// lease ends the machine when the host is silent for too long. It counts ticks, not time: a machine that stood still,
// frozen or saved, has lost one tick by it at most.
type lease struct {
	mu     sync.Mutex
	timer  *time.Timer
	period time.Duration
	silent int    // ticks without a frame
	seen   uint64 // frames at the last tick
}

// lease sets the time; 0 ends it.
func (a *agent) setLease(s *stream, r *request) error {
	if !(r.Seconds >= 0 && r.Seconds <= maxSeconds) {
		return badRequest("seconds must be from 0 to ten years")
	}
	l := &a.lease
	l.mu.Lock()
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if r.Seconds > 0 {
		l.period = max(time.Duration(r.Seconds*float64(time.Second))/leaseTicks, time.Millisecond)
		l.silent, l.seen = 0, a.frames.Load()
		l.arm(a)
	}
	l.mu.Unlock()
	s.close(struct{}{})
	return nil
}

// arm starts the next tick. Called with mu held.
func (l *lease) arm(a *agent) {
	var timer *time.Timer
	timer = time.AfterFunc(l.period, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.timer != timer {
			return // set anew meanwhile
		}
		if frames := a.frames.Load(); frames != l.seen {
			l.seen, l.silent = frames, 0
		} else if l.silent++; l.silent > leaseTicks {
			go a.endMachine()
			return
		}
		l.arm(a)
	})
	l.timer = timer
}
