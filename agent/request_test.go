package main

import (
	"errors"
	"strings"
	"testing"
)

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return asFailure(err).Code
}

func TestRequestsThatAreNoneAnswerBadRequest(t *testing.T) {
	for _, text := range []string{
		``, `[]`, `"exec"`, `{"op":1}`, `{"op":"exec","argv":"true"}`, `{"op":"exec","argv":[1]}`, `{"op":"read","offset":1.5}`,
		`{"op":"read","path_b64":"%"}`, `{"op":"resize","rows":70000}`, `{"op":"exec","env":{"A":1}}`, `{"op":"a","op":"b"}`,
		`{"op":"stat","path":"\udc80"}`, "{\"op\":\"stat\",\"path\":\"\xff\"}", `{"op":"write","mode":"0644"}`,
	} {
		if _, err := parseRequest([]byte(text)); codeOf(err) != "bad-request" {
			t.Errorf("%s gives %v", text, err)
		}
	}
}

func TestUnknownFieldsAndNullsAreIgnored(t *testing.T) {
	r, err := parseRequest([]byte(`{"op":"exec","argv":["a"],"pty":null,"colour":{"deep":[1]},"rows":5}`))
	if err != nil || r.Op != "exec" || r.Pty != nil || r.Rows != 5 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestPathsAreTakenByteForByte(t *testing.T) {
	for _, c := range []struct{ json, want string }{
		{`{"path":"/a/../b/./c//d"}`, "/a/../b/./c//d"},
		{`{"path":"relative/x"}`, "/relative/x"},
		{`{"path_b64":"L3RtcC//"}`, "/tmp/\xff"},
		{`{"path":"/ignored","path_b64":"L3g="}`, "/x"},
	} {
		r, err := parseRequest([]byte(c.json))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.path(); err != nil || got != c.want {
			t.Errorf("%s is %q, %v", c.json, got, err)
		}
	}
	for _, text := range []string{`{}`, `{"path":""}`, `{"path":"/a\u0000b"}`} {
		r, err := parseRequest([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.path(); codeOf(err) != "bad-request" {
			t.Errorf("%s gives %v", text, err)
		}
	}
}

func TestEnvironmentsAreCompletedAndChecked(t *testing.T) {
	who := &account{name: "ann", uid: 7, home: "/home/ann"}
	env, path, err := environment(&request{Env: map[string]string{"PATH": "/p", "HOME": ""}, Pty: &terminalSize{}}, who)
	if err != nil || path != "/p" {
		t.Fatal(path, err)
	}
	got := map[string]bool{}
	for _, line := range env {
		got[line] = true
	}
	for _, line := range []string{"PATH=/p", "HOME=", "USER=ann", "TERM=xterm-256color"} {
		if !got[line] {
			t.Errorf("%s is missing in %v", line, env)
		}
	}
	if len(env) != 4 {
		t.Errorf("there is more than that: %v", env)
	}
	for _, bad := range []map[string]string{{"A=B": "1"}, {"": "1"}, {"A\x00": "1"}, {"A": "\x00"}} {
		if _, _, err := environment(&request{Env: bad}, who); codeOf(err) != "bad-request" {
			t.Errorf("%q gives %v", bad, err)
		}
	}
}

func TestCommandLinesAreChecked(t *testing.T) {
	empty := ""
	for name, r := range map[string]*request{
		"nothing to run":   {},
		"argv and shell":   {Argv: []string{"true"}, Shell: &empty},
		"NUL in argv":      {Argv: []string{"a\x00b"}},
		"NUL in directory": {Argv: []string{"true"}, Cwd: "/\x00"},
	} {
		if _, err := commandLine(r); codeOf(err) != "bad-request" {
			t.Errorf("%s gives %v", name, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"op":"exec","id":"ex_1","argv":["true"],"env":{"A":"b"},"pty":{"rows":1,"cols":2},"timeout_ms":5}`))
	f.Add([]byte(`{"op":"read","path":"/x","offset":1,"length":-1}`))
	f.Add([]byte(`{"op":"write","path_b64":"L3g=","mode":420,"parents":true,"user":"root:root"}`))
	f.Add([]byte(`{"op":"dial","network":"tcp","address":"127.0.0.1:80"}`))
	f.Add([]byte(`{"op":"after_restore","id":"sb_1","entropy":"AAA=","time_unix_ns":1}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		r, err := parseRequest(payload)
		if err != nil {
			if !errors.As(err, new(*failure)) {
				t.Fatalf("the error has no code: %v", err)
			}
			return
		}
		if argv, err := commandLine(r); err == nil && (len(argv) == 0 || strings.ContainsRune(strings.Join(argv, ""), 0)) {
			t.Fatalf("%q was let through", argv)
		}
		if path, err := r.path(); err == nil && (path[0] != '/' || strings.ContainsRune(path, 0)) {
			t.Fatalf("%q was let through", path)
		}
		if env, _, err := environment(r, &account{}); err == nil && strings.ContainsRune(strings.Join(env, ""), 0) {
			t.Fatalf("%q was let through", env)
		}
	})
}
