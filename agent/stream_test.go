package main

import (
	"os"
	"testing"
)

// A command may write and end between a look into its pipe that finds nothing and the question whether it has ended.
func TestWhatIsWrittenJustBeforeTheEndIsRead(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	raw, err := r.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	writeAndEnd := func() bool {
		if !ended {
			_, _ = w.WriteString("last words")
		}
		ended = true
		return true
	}
	f, n, err := readAvailable(raw, nil, writeAndEnd)
	if err != nil || f == nil || string(f.content()[:n]) != "last words" {
		t.Fatalf("read %v bytes, %v", n, err)
	}
	if f, _, err := readAvailable(raw, nil, writeAndEnd); f != nil || err != nil {
		t.Fatalf("there was more: %v", err)
	}
}
