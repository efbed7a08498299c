package main

import (
	"errors"
	"strings"
	"syscall"
)

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// findProgram returns the file that name stands for, as execvp would find it with this PATH.
func findProgram(name, path, cwd string) (string, error) {
	if name == "" {
		return "", &failure{"command-not-found", "the command's name is empty"}
	}
	if strings.ContainsRune(name, '/') {
		return name, nil // relative to the directory that the command starts in
	}
	denied := false
	for dir := range strings.SplitSeq(path, ":") {
		if dir == "" {
			dir = "."
		}
		candidate := dir + "/" + name
		probe := candidate
		if dir[0] != '/' {
			probe = cwd + "/" + candidate
		}
		var st syscall.Stat_t
		if err := syscall.Stat(probe, &st); err != nil {
			denied = denied || errors.Is(err, syscall.EACCES)
			continue
		}
		if st.Mode&syscall.S_IFMT == syscall.S_IFREG && st.Mode&0o111 != 0 {
			return candidate, nil
		}
		denied = true
	}
	if denied {
		return "", &failure{"command-not-executable", name + " is in PATH, but is not an executable file"}
	}
	return "", &failure{"command-not-found", name + " is in no directory of PATH (" + path + ")"}
}

// startFailure says why a process could not be started; the kernel's answer alone does not tell which file it means.
func startFailure(err error, program, cwd string) error {
	var st syscall.Stat_t
	if stat := syscall.Stat(cwd, &st); stat != nil || st.Mode&syscall.S_IFMT != syscall.S_IFDIR {
		return &failure{"cwd-not-found", cwd + " is not a directory of the sandbox"}
	}
	probe := program
	if program[0] != '/' {
		probe = cwd + "/" + program
	}
	exists := syscall.Stat(probe, &st) == nil
	forAll := exists && st.Mode&syscall.S_IFMT == syscall.S_IFREG && st.Mode&0o001 != 0
	switch {
	case errors.Is(err, syscall.ENOENT) && exists:
		return &failure{"command-not-executable", program + " needs an interpreter or a loader that is not there"}
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return &failure{"command-not-found", program + " does not exist"}
	case errors.Is(err, syscall.EACCES) && forAll:
		return &failure{"permission-denied", "the user may not enter " + cwd + ", or a directory above " + program}
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EISDIR):
		return &failure{"command-not-executable", program + " is not executable: " + err.Error()}
	case errors.Is(err, syscall.E2BIG):
		return badRequest("the arguments and the environment are too long")
	}
	return pathError("start", program, err)
}
