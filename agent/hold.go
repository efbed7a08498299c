package main

import (
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	holdSocket   = "@sandyard-agent" // abstract: in no file system and no network
	maxSeconds   = 10 * 365 * 24 * 3600
	holdPatience = 2 * time.Second
	holdClients  = 16 // at once; more wait
)

// hold is the wish of something inside the sandbox that it be kept awake.
type hold struct {
	mu    sync.Mutex
	until time.Time
}

func (h *hold) heldUntil() (unixMS int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.until.After(time.Now()) {
		return 0
	}
	return h.until.UnixMilli()
}

// setHold changes the wish and tells the host.
func (a *agent) setHold(seconds float64) (unixMS int64, err error) {
	if !(seconds >= 0 && seconds <= maxSeconds) {
		return 0, badRequest("seconds must be from 0 to ten years")
	}
	a.hold.mu.Lock()
	defer a.hold.mu.Unlock()
	a.hold.until = time.Time{}
	if seconds > 0 {
		a.hold.until = time.Now().Add(time.Duration(seconds * float64(time.Second))).Round(0) // by the wall's clock
		unixMS = a.hold.until.UnixMilli()
	}
	event := encode(map[string]any{"event": "hold", "until_unix_ms": unixMS})
	a.out.announce(appendFrame(nil, frameData, 0, append([]byte{channelIn}, event...)))
	return unixMS, nil
}

func (a *agent) holdRequest(s *stream, r *request) error {
	until, err := a.setHold(r.Seconds)
	if err != nil {
		return err
	}
	s.close(map[string]any{"held_until_unix_ms": until})
	return nil
}

// -- from inside
// ------------------------------------------------------------------------------------------------------

// holdMessage is what the hold command says to the agent, and gets back.
type holdMessage struct {
	Seconds float64 `json:"seconds,omitzero"`
	Until   int64   `json:"held_until_unix_ms,omitzero"`
	Error   string  `json:"error,omitzero"`
}

// socketName can be changed so that several agents can run on one machine, as in tests.
func socketName() string {
	if name := os.Getenv("SANDYARD_AGENT_SOCKET"); name != "" {
		return name
	}
	return holdSocket
}

// serveHolds answers the hold command. A few clients at a time: whoever is slow is cut off, and nobody grows anything.
func (a *agent) serveHolds(listener net.Listener) {
	places := make(chan struct{}, holdClients)
	for {
		conn, err := listener.Accept()
		if err != nil {
			time.Sleep(holdPatience) // out of descriptors: it may pass
			continue
		}
		places <- struct{}{}
		go func() {
			defer func() { <-places }()
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(holdPatience))
			var m holdMessage
			err := json.UnmarshalRead(io.LimitReader(conn, 256), &m)
			if err == nil {
				m.Until, err = a.setHold(m.Seconds)
			}
			if err != nil {
				m = holdMessage{Error: err.Error()}
			}
			_, _ = conn.Write(encode(m))
		}()
	}
}

// holdCommand is `sandyard-agent hold 10m`.
func holdCommand(duration string) error {
	seconds, err := parseDuration(duration)
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", socketName())
	if err != nil {
		return fmt.Errorf("the sandbox's agent does not answer: %w", err)
	}
	defer conn.Close()
	if _, err := conn.Write(encode(holdMessage{Seconds: seconds})); err != nil {
		return err
	}
	if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
		return err
	}
	var m holdMessage
	if err := json.UnmarshalRead(io.LimitReader(conn, 256), &m); err != nil {
		return err
	}
	if m.Error != "" {
		return errors.New(m.Error)
	}
	if m.Until != 0 {
		fmt.Println("held until", time.UnixMilli(m.Until).UTC().Format(time.RFC3339))
	}
	return nil
}

// parseDuration reads 90, 90s, 10m, 1.5h or 1d as seconds.
func parseDuration(text string) (seconds float64, err error) {
	unit := map[byte]float64{'s': 1, 'm': 60, 'h': 3600, 'd': 86400}
	number, factor := text, 1.0
	if text != "" {
		if f, ok := unit[text[len(text)-1]]; ok {
			number, factor = text[:len(text)-1], f
		}
	}
	seconds, err = strconv.ParseFloat(number, 64)
	if err != nil || seconds < 0 || strings.ContainsAny(number, "eEnNxXpP_+") {
		return 0, fmt.Errorf("%q is not a duration: write seconds, or 90s, 10m, 1.5h, 1d; 0 ends a hold", text)
	}
	return seconds * factor, nil
}
