package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

const dialTimeout = 30 * time.Second

// halfCloser is a connection that can say "no more from me" and still listen.
type halfCloser interface {
	net.Conn
	syscall.Conn
	CloseWrite() error
}

// dial connects to something inside the sandbox and passes bytes both ways until both ends have finished.
func (a *agent) dial(s *stream, r *request) error {
	conn, err := connect(s, r)
	if err != nil {
		return err
	}
	defer conn.Close()
	s.whenReset(func() { _ = conn.Close() })
	a.out.post(s.epoch, appendFrame(nil, frameCredit, s.id, binary.BigEndian.AppendUint32(nil, 0)))
	up := make(chan struct{})
	go func() {
		defer close(up)
		s.sendTo(conn)
	}()
	if err := s.receiveFrom(conn); err != nil {
		return err
	}
	<-up
	s.close(struct{}{})
	return nil
}

func connect(s *stream, r *request) (halfCloser, error) {
	if r.Network != "tcp" && r.Network != "unix" || r.Address == "" {
		return nil, badRequest("a dial needs network tcp or unix, and an address")
	}
	if _, _, err := net.SplitHostPort(r.Address); r.Network == "tcp" && err != nil {
		return nil, badRequest(err.Error())
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	s.whenReset(cancel)
	conn, err := new(net.Dialer).DialContext(ctx, r.Network, r.Address)
	switch {
	case err == nil:
		return conn.(halfCloser), nil // both kinds of connection are
	case s.gone.Load():
		return nil, errGone
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, &failure{"connection-refused", err.Error()}
	}
	return nil, &failure{"unreachable", err.Error()}
}

// sendTo passes on what the host sends, and its end. When the peer takes no more, the rest is thrown away.
func (s *stream) sendTo(conn halfCloser) {
	for {
		chunk, err := s.take()
		if err != nil {
			_ = conn.CloseWrite()
			return
		}
		if _, err := conn.Write(chunk); err != nil {
			s.consumed(chunk)
			return
		}
		s.consumed(chunk)
	}
}

// receiveFrom passes on what the peer sends, and its end.
func (s *stream) receiveFrom(conn halfCloser) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	for {
		if !s.awaitWindow() {
			return errGone
		}
		f, n, err := readAvailable(raw, s, func() bool { return false })
		switch {
		case s.gone.Load():
			return errGone
		case errors.Is(err, io.EOF):
			f = newDataFrame()
		case err != nil:
			return err
		}
		sent := s.agent.out.send(s, f.seal(s.id, channelOut, n))
		f.free()
		if !sent {
			return errGone
		}
		if err != nil {
			return nil
		}
	}
}
