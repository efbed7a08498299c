package main

import (
	"errors"
	"io"
	"io/fs"
	"strings"
	"syscall"
)

// failure is an error as the host gets it; codes are those of docs/agent-protocol.md.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (f *failure) Error() string { return f.Code + ": " + f.Message }

func badRequest(message string) *failure { return &failure{"bad-request", message} }

var errnoCodes = map[syscall.Errno]string{
	syscall.ENOENT:       "file-not-found",
	syscall.EISDIR:       "is-a-directory",
	syscall.ENOTDIR:      "not-a-directory",
	syscall.EEXIST:       "file-exists",
	syscall.ENOTEMPTY:    "directory-not-empty",
	syscall.EACCES:       "permission-denied",
	syscall.EPERM:        "permission-denied",
	syscall.EROFS:        "permission-denied",
	syscall.ENOSPC:       "no-space",
	syscall.EDQUOT:       "no-space",
	syscall.ELOOP:        "symlink-loop",
	syscall.ECONNREFUSED: "connection-refused",
	syscall.ECONNRESET:   "connection-reset",
}

// asFailure gives any error a code.
func asFailure(err error) *failure {
	var known *failure
	if errors.As(err, &known) {
		return known
	}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		if code, ok := errnoCodes[errno]; ok {
			return &failure{code, err.Error()}
		}
		return &failure{"io-error", err.Error()}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || strings.HasPrefix(err.Error(), "archive/tar:") {
		return &failure{"bad-archive", err.Error()}
	}
	return &failure{"io-error", err.Error()}
}

// pathError is the error of one system call on a path.
func pathError(op, path string, err error) error {
	return &fs.PathError{Op: op, Path: path, Err: err}
}
