package main

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"
)

// entry describes one file.
type entry struct {
	Name    string `json:"name"`
	NameB64 []byte `json:"name_b64,omitempty"` // where the name is not UTF-8
	Type    string `json:"type"`
	Size    int64  `json:"size"`
	Mode    uint32 `json:"mode"`
	UID     uint32 `json:"uid"`
	GID     uint32 `json:"gid"`
	MtimeNS int64  `json:"mtime_ns"`
	Target  string `json:"target,omitempty"` // of a symlink
}

func newEntry(path, name string, st *syscall.Stat_t) *entry {
	e := &entry{
		Name: name, Size: st.Size, Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid, MtimeNS: st.Mtim.Nano(), Type: "other",
	}
	if !utf8.ValidString(name) {
		e.NameB64 = []byte(name)
	}
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		e.Type = "file"
	case syscall.S_IFDIR:
		e.Type = "directory"
	case syscall.S_IFLNK:
		e.Type = "symlink"
		e.Target, _ = os.Readlink(path)
	}
	return e
}

// read sends a file's content, or a part of it.
func (a *agent) read(s *stream, r *request) error {
	path, err := r.path()
	if err != nil {
		return err
	}
	remaining := int64(-1)
	if r.Length != nil {
		remaining = *r.Length
	}
	if r.Offset < 0 || remaining < -1 {
		return badRequest("offset and length cannot be negative")
	}
	// Without O_NONBLOCK, opening a named pipe would wait for its other end.
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return pathError("open", path, err)
	}
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil {
		return pathError("stat", path, err)
	}
	if st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		return pathError("read", path, syscall.EISDIR)
	}
	if r.Offset > 0 {
		if _, err := syscall.Seek(fd, r.Offset, io.SeekStart); err != nil {
			return pathError("seek", path, err)
		}
	}
	if err := s.sendFile(fd, remaining); err != nil {
		return pathError("read", path, err)
	}
	s.close(map[string]any{"size": st.Size, "mode": st.Mode & 0o7777, "mtime_ns": st.Mtim.Nano()})
	return nil
}

// sendFile sends what is read from fd as DATA; length -1 is all of it.
func (s *stream) sendFile(fd int, length int64) error {
	f := newDataFrame()
	defer f.free()
	for length != 0 {
		if !s.awaitWindow() {
			return errGone
		}
		limit := maxData
		if length > 0 {
			limit = int(min(length, maxData))
		}
		limit = s.reserve(limit)
		n, err := readNow(uintptr(fd), f.content()[:limit])
		s.refund(limit - n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !s.agent.out.send(s, f.seal(s.id, channelIn, n)) {
			return errGone
		}
		if length > 0 {
			length -= int64(n)
		}
	}
	return nil
}

func (a *agent) stat(s *stream, r *request) error {
	path, err := r.path()
	if err != nil {
		return err
	}
	var st syscall.Stat_t
	if r.Follow == nil || *r.Follow {
		err = syscall.Stat(path, &st)
	} else {
		err = syscall.Lstat(path, &st)
	}
	if err != nil {
		return pathError("stat", path, err)
	}
	s.close(newEntry(path, filepath.Base(path), &st))
	return nil
}

// list sends one entry a line, in no order.
func (a *agent) list(s *stream, r *request) error {
	path, err := r.path()
	if err != nil {
		return err
	}
	w := &writer{stream: s, channel: channelIn}
	count := 0
	err = eachName(path, func(name string) error {
		var st syscall.Stat_t
		if syscall.Lstat(path+"/"+name, &st) != nil {
			return nil // removed meanwhile
		}
		count++
		_, err := w.Write(append(encode(newEntry(path+"/"+name, name, &st)), '\n'))
		return err
	})
	if err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.close(map[string]any{"count": count})
	return nil
}

// eachName calls visit with the name of everything in a directory, in no order, until that fails.
func eachName(path string, visit func(name string) error) error {
	directory, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer directory.Close()
	for {
		names, err := directory.Readdirnames(256)
		for _, name := range names {
			if err := visit(name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// place returns where a request is to make something and who is to own it; the directories above are there, if it asks for
// that.
func (a *agent) place(r *request) (path string, owner *account, err error) {
	if path, err = r.path(); err != nil {
		return "", nil, err
	}
	if owner, err = a.users.lookup(r.User); err != nil {
		return "", nil, err
	}
	if r.Parents {
		err = makeParents(path, owner)
	}
	return path, owner, err
}

func (a *agent) mkdir(s *stream, r *request) error {
	path, owner, err := a.place(r)
	if err != nil {
		return err
	}
	err = makeDirectory(path, r.mode(0o755), owner)
	there := errors.Is(err, syscall.EEXIST) && r.Parents && isDirectory(path)
	if err != nil && !there {
		return err
	}
	s.close(map[string]any{"created": !there})
	return nil
}

func (r *request) mode(otherwise uint32) uint32 {
	if r.Mode == nil {
		return otherwise
	}
	return uint32(*r.Mode) & 0o7777
}

func isDirectory(path string) bool {
	var st syscall.Stat_t
	return syscall.Stat(path, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFDIR
}

// makeDirectory makes one directory with exactly this mode and owner.
func makeDirectory(path string, mode uint32, owner *account) error {
	if err := syscall.Mkdir(path, 0o700); err != nil {
		return pathError("mkdir", path, err)
	}
	// By descriptor: whoever may write to the directory above could put a link to elsewhere in the path's place.
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return pathError("mkdir", path, err)
	}
	defer syscall.Close(fd)
	if err := giveAway(fd, mode, owner); err != nil {
		return pathError("mkdir", path, err)
	}
	return nil
}

// giveAway sets owner and mode of what the agent has just made. The owner comes first: its change takes bits away.
func giveAway(fd int, mode uint32, owner *account) error {
	if int(owner.uid) != os.Geteuid() || int(owner.gid) != os.Getegid() {
		if err := syscall.Fchown(fd, int(owner.uid), int(owner.gid)); err != nil {
			return err
		}
	}
	return syscall.Fchmod(fd, mode)
}

// makeParents makes the directories that are missing above path.
func makeParents(path string, owner *account) error {
	for i := 1; i < len(path); i++ {
		if path[i] != '/' || path[i-1] == '/' || strings.Trim(path[i:], "/") == "" {
			continue
		}
		err := makeDirectory(path[:i], 0o755, owner)
		if err != nil && !errors.Is(err, syscall.EEXIST) {
			return err
		}
	}
	return nil
}

func (a *agent) removeFile(s *stream, r *request) error {
	path, err := r.path()
	if err != nil {
		return err
	}
	if filepath.Clean(path) == "/" {
		return badRequest("the root directory cannot be removed")
	}
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return pathError("remove", path, err)
	}
	if r.Recursive {
		err = os.RemoveAll(path)
	} else {
		err = os.Remove(path)
	}
	if err != nil {
		return err
	}
	s.close(struct{}{})
	return nil
}

// temporaryName returns a name beside path that nothing else uses.
func temporaryName(path string) string {
	return path[:strings.LastIndexByte(path, '/')+1] + ".sandyard-" + strconv.FormatUint(rand.Uint64(), 36)
}
