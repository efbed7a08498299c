package main

// follower is a stream that shows the output of a command which was started by another one.
type follower struct {
	stream *stream
	at     int64 // offset of the next byte to send
}

// behind says whether somebody who is attached would miss output if n more bytes came now. Called with mu held.
func (c *command) behind(n int) bool {
	for f := range c.followers {
		if c.replay.end+int64(n)-f.at > replaySize {
			return true
		}
	}
	return false
}

// attach replays the last output of a command, then shows it as it comes, and ends as the command does.
func (a *agent) attach(s *stream, r *request) error {
	c, err := a.commands.find(r.Exec)
	if err != nil {
		return err
	}
	f := &follower{stream: s}
	c.mu.Lock()
	f.at = c.replay.begin
	if c.followers == nil {
		c.followers = map[*follower]struct{}{}
	}
	c.followers[f] = struct{}{}
	c.mu.Unlock()
	s.whenReset(func() { c.leave(f) })
	defer c.leave(f)
	buffer := newDataFrame()
	defer buffer.free()
	for s.awaitWindow() {
		channel, n, ended := c.follow(f, buffer)
		if n > 0 && !a.out.send(s, buffer.seal(s.id, channel, n)) {
			return errGone
		}
		if ended {
			s.close(c.result)
			return nil
		}
	}
	return errGone
}

// follow waits for output that f has not had, and copies as much of it as its window allows.
func (c *command) follow(f *follower, into *dataFrame) (channel byte, n int, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for f.at == c.replay.end && c.result == nil && !f.stream.gone.Load() {
		c.changed.Wait()
	}
	limit := f.stream.reserve(maxData)
	channel, n, f.at = c.replay.read(f.at, into.content()[:limit])
	f.stream.refund(limit - n)
	c.changed.Broadcast()
	return channel, n, n == 0 && c.result != nil
}

// leave lets the command go on without f.
func (c *command) leave(f *follower) {
	c.mu.Lock()
	delete(c.followers, f)
	c.changed.Broadcast()
	c.mu.Unlock()
}
