package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// archiver writes a tar of what it finds.
type archiver struct {
	tar    *tar.Writer
	buffer []byte
}

// tarOut sends a directory's content, or one file, as an archive.
func (a *agent) tarOut(s *stream, r *request) error {
	path, err := r.path()
	if err != nil {
		return err
	}
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return pathError("stat", path, err)
	}
	w := &writer{stream: s, channel: channelIn}
	out := &archiver{tar.NewWriter(w), make([]byte, 128<<10)}
	if st.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		err = out.addContent(path, "")
	} else {
		err = out.add(path, filepath.Base(path), &st)
	}
	if err == nil {
		err = out.tar.Close()
	}
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return err
	}
	s.close(struct{}{})
	return nil
}

// addContent adds what is in a directory under names that begin with prefix.
func (t *archiver) addContent(path, prefix string) error {
	return eachName(path, func(name string) error {
		var st syscall.Stat_t
		if syscall.Lstat(path+"/"+name, &st) != nil {
			return nil // removed meanwhile
		}
		return t.add(path+"/"+name, prefix+name, &st)
	})
}

// add adds one file, or a directory and what is in it. Sockets have no meaning in an archive and are left out.
func (t *archiver) add(path, name string, st *syscall.Stat_t) error {
	h := &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX,
	}
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFREG:
		return t.addFile(path, h)
	case syscall.S_IFDIR:
		h.Typeflag = tar.TypeDir
		h.Name += "/"
	case syscall.S_IFLNK:
		h.Typeflag = tar.TypeSymlink
		link, err := os.Readlink(path)
		if err != nil {
			return err
		}
		h.Linkname = link
	case syscall.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case syscall.S_IFCHR, syscall.S_IFBLK:
		h.Typeflag = tar.TypeChar
		if st.Mode&syscall.S_IFMT == syscall.S_IFBLK {
			h.Typeflag = tar.TypeBlock
		}
		h.Devmajor, h.Devminor = int64(st.Rdev>>8&0xfff), int64(st.Rdev&0xff|st.Rdev>>12&0xfff00)
	default:
		return nil
	}
	if err := t.tar.WriteHeader(h); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		return t.addContent(path, h.Name)
	}
	return nil
}

// addFile adds a regular file with the size it has when opened; if it shrinks meanwhile, zeros take the place.
func (t *archiver) addFile(path string, h *tar.Header) error {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENOENT) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := t.tar.WriteHeader(h); err != nil {
		return err
	}
	for rest := h.Size; rest > 0; {
		n, err := file.Read(t.buffer[:min(rest, int64(len(t.buffer)))])
		if errors.Is(err, io.EOF) {
			n = int(min(rest, int64(len(t.buffer))))
			clear(t.buffer[:n])
		} else if err != nil {
			return err
		}
		if _, err := t.tar.Write(t.buffer[:n]); err != nil {
			return err
		}
		rest -= int64(n)
	}
	return nil
}
