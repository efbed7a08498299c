package main

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// move renames, and where that would cross file systems copies and removes.
func (a *agent) move(s *stream, r *request) error {
	from, err := absolute("from", r.From, r.FromB64)
	if err != nil {
		return err
	}
	to, err := absolute("to", r.To, r.ToB64)
	if err != nil {
		return err
	}
	err = syscall.Rename(from, to)
	if errors.Is(err, syscall.EXDEV) {
		err = moveByCopy(from, to)
	}
	if err != nil {
		return pathError("move", from+" to "+to, err)
	}
	s.close(struct{}{})
	return nil
}

// moveByCopy copies to a temporary name beside the target, so that the target appears at once and complete.
func moveByCopy(from, to string) error {
	temporary := temporaryName(to)
	err := copyTree(from, temporary)
	if err == nil {
		err = syscall.Rename(temporary, to)
	}
	if err != nil {
		_ = os.RemoveAll(temporary)
		return err
	}
	return os.RemoveAll(from)
}

// copyTree copies a file or a directory with everything in it: content, links, owners, modes and times.
func copyTree(from, to string) error {
	var st syscall.Stat_t
	if err := syscall.Lstat(from, &st); err != nil {
		return err
	}
	var err error
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		err = copyDirectory(from, to)
	case syscall.S_IFREG:
		err = copyContent(from, to)
	case syscall.S_IFLNK:
		return copyLink(from, to, &st)
	default:
		err = syscall.Mknod(to, st.Mode, int(st.Rdev))
	}
	if err != nil {
		return err
	}
	return copyAttributes(to, &st)
}

func copyDirectory(from, to string) error {
	if err := syscall.Mkdir(to, 0o700); err != nil {
		return err
	}
	directory, err := os.Open(from)
	if err != nil {
		return err
	}
	defer directory.Close()
	for {
		names, err := directory.Readdirnames(256)
		for _, name := range names {
			if err := copyTree(from+"/"+name, to+"/"+name); err != nil {
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

func copyContent(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

func copyLink(from, to string, st *syscall.Stat_t) error {
	link, err := os.Readlink(from)
	if err != nil {
		return err
	}
	if err := os.Symlink(link, to); err != nil {
		return err
	}
	return chown(to, &account{uid: st.Uid, gid: st.Gid})
}

func copyAttributes(path string, st *syscall.Stat_t) error {
	if err := chown(path, &account{uid: st.Uid, gid: st.Gid}); err != nil {
		return err
	}
	if err := syscall.Chmod(path, st.Mode&0o7777); err != nil {
		return err
	}
	return syscall.UtimesNano(path, []syscall.Timespec{st.Atim, st.Mtim})
}
