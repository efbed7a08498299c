package main

import (
	"encoding/json/v2"
	"strings"
)

// request is the payload of an OPEN frame: the fields of every op. Absent ones have the zero value.
type request struct {
	Op string `json:"op"`

	ID        string            `json:"id"`
	Argv      []string          `json:"argv"`
	Shell     *string           `json:"shell"`
	Env       map[string]string `json:"env"`
	Cwd       string            `json:"cwd"`
	User      string            `json:"user"`
	Stdin     bool              `json:"stdin"`
	Pty       *terminalSize     `json:"pty"`
	TimeoutMS int64             `json:"timeout_ms"`
	Detach    bool              `json:"detach"`
	Exec      string            `json:"exec"`
	Signal    int               `json:"signal"`
	Group     *bool             `json:"group"`
	terminalSize

	Path      string `json:"path"`
	PathB64   []byte `json:"path_b64"`
	From      string `json:"from"`
	FromB64   []byte `json:"from_b64"`
	To        string `json:"to"`
	ToB64     []byte `json:"to_b64"`
	Offset    int64  `json:"offset"`
	Length    *int64 `json:"length"`
	Mode      *int   `json:"mode"`
	Parents   bool   `json:"parents"`
	Recursive bool   `json:"recursive"`
	Follow    *bool  `json:"follow"`

	Network    string  `json:"network"`
	Address    string  `json:"address"`
	Seconds    float64 `json:"seconds"`
	Hostname   string  `json:"hostname"`
	Entropy    []byte  `json:"entropy"`
	TimeUnixNS int64   `json:"time_unix_ns"`
	HooksDir   string  `json:"hooks_dir"`
}

type terminalSize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

func parseRequest(payload []byte) (*request, error) {
	var r request
	if err := json.Unmarshal(payload, &r); err != nil {
		return nil, badRequest(err.Error())
	}
	return &r, nil
}

// path returns the absolute path that one of the request's fields gives, byte for byte as Linux will see it.
func absolute(name, text string, raw []byte) (string, error) {
	if len(raw) > 0 {
		text = string(raw)
	}
	if text == "" || strings.ContainsRune(text, 0) {
		return "", badRequest("the request needs a " + name + " without NUL bytes")
	}
	if text[0] != '/' {
		text = "/" + text
	}
	return text, nil
}

func (r *request) path() (string, error) { return absolute("path", r.Path, r.PathB64) }
