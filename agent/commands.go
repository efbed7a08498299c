package main

import (
	"encoding/json/jsontext"
	"slices"
	"strconv"
	"sync"
	"syscall"
)

// keptEnded is how many detached commands are still known after their end, so that their result can be asked for.
const keptEnded = 32

// commands are those that run, and the last detached ones that ended.
type commands struct {
	mu   sync.Mutex
	byID map[string]*command
	over []*command // ended and detached, oldest first
}

func (r *commands) init() { r.byID = map[string]*command{} }

func (r *commands) add(c *command) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.byID[c.id]; taken {
		return &failure{"exec-exists", "the id " + strconv.Quote(c.id) + " is taken"}
	}
	r.byID[c.id] = c
	return nil
}

func (r *commands) remove(c *command) {
	r.mu.Lock()
	delete(r.byID, c.id)
	r.mu.Unlock()
}

// ended forgets a command, or keeps its result for a while if it was detached.
func (r *commands) ended(c *command) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !c.detached.Load() {
		delete(r.byID, c.id)
		return
	}
	r.over = append(r.over, c)
	if len(r.over) > keptEnded {
		delete(r.byID, r.over[0].id)
		r.over = slices.Delete(r.over, 0, 1)
	}
}

// find waits until the command has been started, or could not be.
func (r *commands) find(id string) (*command, error) {
	r.mu.Lock()
	c, known := r.byID[id]
	r.mu.Unlock()
	if known {
		<-c.settled
	}
	if !known || !c.wasStarted() {
		return nil, &failure{"exec-not-found", "no command has the id " + strconv.Quote(id)}
	}
	return c, nil
}

func (r *commands) all() []*command {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := make([]*command, 0, len(r.byID))
	for _, c := range r.byID {
		found = append(found, c)
	}
	return found
}

// running are those that have been started and have not ended.
func (r *commands) running() []*command {
	return slices.DeleteFunc(r.all(), func(c *command) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.exit != nil || c.pid == 0
	})
}

// detachAll lets every command go on without the stream that started it.
func (r *commands) detachAll() {
	for _, c := range r.all() {
		c.detached.Store(true)
	}
}

// signal sends a signal to a command's process group, or to its first process alone.
func (a *agent) signal(s *stream, r *request) error {
	c, err := a.commands.find(r.Exec)
	if err != nil {
		return err
	}
	if r.Signal < 1 || r.Signal > 64 {
		return badRequest("signals are numbered from 1 to 64")
	}
	alive, err := c.signal(syscall.Signal(r.Signal), r.Group == nil || *r.Group)
	if !alive {
		return &failure{"exec-not-found", "the command has ended"}
	}
	if err != nil {
		return err
	}
	s.close(struct{}{})
	return nil
}

type processEntry struct {
	Exec          string   `json:"exec"`
	PID           int      `json:"pid"`
	Argv          []string `json:"argv"`
	Detached      bool     `json:"detached"`
	StartedUnixMS int64    `json:"started_unix_ms"`
}

const (
	maxShownArgv = 512         // bytes of each command's arguments
	maxShown     = maxData / 2 // bytes of the whole list, which has to fit into a frame
)

// processes lists what runs: as many commands as fit into the answer.
func (a *agent) processes(s *stream, _ *request) error {
	list := []jsontext.Value{}
	size := 0
	for _, c := range a.commands.running() {
		entry := encode(processEntry{c.id, c.pid, shorten(c.argv), c.detached.Load(), c.started.UnixMilli()})
		if size += len(entry); size > maxShown {
			break
		}
		list = append(list, entry)
	}
	s.close(map[string]any{"processes": list})
	return nil
}

// shorten cuts arguments off that are too long to be shown.
func shorten(argv []string) []string {
	shown := []string{}
	for left := maxShownArgv; len(shown) < len(argv) && left > 0; {
		word := argv[len(shown)]
		word = word[:min(len(word), left)]
		left -= len(word) + 1
		shown = append(shown, word)
	}
	return shown
}
