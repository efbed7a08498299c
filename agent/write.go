package main

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
)

// upload is one write request: what arrives goes to a temporary file, which takes the target's place when complete.
type upload struct {
	target string // where the file is to be, symlinks followed
	path   string // where the bytes go
	fd     int
	size   int64
}

// write takes a file's content from the host.
func (a *agent) write(s *stream, r *request) error {
	path, owner, err := a.place(r)
	if err != nil {
		return err
	}
	u, err := beginUpload(path, r, owner)
	if err != nil {
		return err
	}
	if err := u.receive(s); err != nil {
		u.discard()
		return err
	}
	if err := u.commit(); err != nil {
		u.discard()
		return err
	}
	s.close(map[string]any{"size": u.size})
	return nil
}

func beginUpload(path string, r *request, owner *account) (*upload, error) {
	target, err := followLinks(path)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(target, "/") {
		return nil, pathError("write", path, syscall.EISDIR)
	}
	var st syscall.Stat_t
	exists := syscall.Lstat(target, &st) == nil
	switch {
	case exists && st.Mode&syscall.S_IFMT == syscall.S_IFDIR:
		return nil, pathError("write", path, syscall.EISDIR)
	case exists && st.Mode&syscall.S_IFMT != syscall.S_IFREG:
		return beginInPlace(target)
	}
	mode := uint32(0o644)
	if exists {
		mode = st.Mode & 0o7777
		if r.User == "" {
			owner = &account{uid: st.Uid, gid: st.Gid}
		}
	}
	u, err := beginTemporary(target, r.mode(mode), owner)
	if exists && cannotCreate(err) {
		return beginInPlace(target)
	}
	return u, err
}

// cannotCreate says whether a directory takes no new file, as those of /proc and some mounts; what is in it may yet be
// written.
func cannotCreate(err error) bool {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return false
	}
	switch errno {
	case syscall.EACCES, syscall.EPERM, syscall.ENOENT, syscall.EINVAL, syscall.EOPNOTSUPP:
		return true
	}
	return false
}

// followLinks returns the path of what path stands for; it need not exist yet.
func followLinks(path string) (string, error) {
	for range 40 {
		buffer := make([]byte, 4096)
		n, err := syscall.Readlink(path, buffer)
		if err != nil {
			return path, nil // not a link
		}
		if link := string(buffer[:n]); link[0] == '/' {
			path = link
		} else {
			path = path[:strings.LastIndexByte(path, '/')+1] + link
		}
	}
	return "", pathError("open", path, syscall.ELOOP)
}

func beginTemporary(target string, mode uint32, owner *account) (*upload, error) {
	u := &upload{target: target, path: temporaryName(target)}
	var err error
	u.fd, err = syscall.Open(u.path, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, pathError("write", target, err)
	}
	if err := giveAway(u.fd, mode, owner); err != nil {
		u.discard()
		return nil, pathError("write", target, err)
	}
	return u, nil
}

// beginInPlace writes to what is no regular file, or cannot be replaced, as a shell's > would.
func beginInPlace(target string) (*upload, error) {
	fd, err := syscall.Open(target, syscall.O_WRONLY|syscall.O_TRUNC|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, pathError("write", target, err)
	}
	return &upload{target: target, path: target, fd: fd}, nil
}

func (u *upload) receive(s *stream) error {
	for {
		chunk, err := s.take()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := writeFull(u.fd, chunk); err != nil {
			return pathError("write", u.target, err)
		}
		u.size += int64(len(chunk))
		s.consumed(chunk)
	}
}

func writeFull(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b)
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		b = b[max(n, 0):]
	}
	return nil
}

// commit puts the complete file into its place.
func (u *upload) commit() error {
	fd := u.fd
	u.fd = -1
	if err := syscall.Close(fd); err != nil {
		return pathError("write", u.target, err)
	}
	if u.path == u.target {
		return nil
	}
	err := syscall.Rename(u.path, u.target)
	if errors.Is(err, syscall.EBUSY) { // a file that is a mount of its own
		err = u.copyOver()
	}
	if err != nil {
		return pathError("write", u.target, err)
	}
	return nil
}

// copyOver writes the complete file into what cannot be replaced.
func (u *upload) copyOver() error {
	content, err := os.Open(u.path)
	if err != nil {
		return err
	}
	defer content.Close()
	target, err := os.OpenFile(u.target, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, content)
	if err := errors.Join(err, target.Close()); err != nil {
		return err
	}
	return os.Remove(u.path)
}

// discard removes what was written of a file that will not be complete.
func (u *upload) discard() {
	if u.fd >= 0 {
		_ = syscall.Close(u.fd)
	}
	if u.path != u.target {
		_ = syscall.Unlink(u.path)
	}
}
