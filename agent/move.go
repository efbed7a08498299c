package main

import (
	"errors"
	"io"
	"os"
	"syscall"
	"time"
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
	switch st.Mode & syscall.S_IFMT {
	case syscall.S_IFDIR:
		return copyDirectory(from, to, &st)
	case syscall.S_IFREG:
		return copyContent(from, to, &st)
	case syscall.S_IFLNK:
		link, err := os.Readlink(from)
		if err != nil {
			return err
		}
		if err := os.Symlink(link, to); err != nil {
			return err
		}
	default:
		if err := syscall.Mknod(to, st.Mode, int(st.Rdev)); err != nil {
			return err
		}
	}
	return os.Lchown(to, int(st.Uid), int(st.Gid))
}

func copyDirectory(from, to string, st *syscall.Stat_t) error {
	if err := syscall.Mkdir(to, 0o700); err != nil {
		return err
	}
	err := eachName(from, func(name string) error { return copyTree(from+"/"+name, to+"/"+name) })
	if err != nil {
		return err
	}
	made, err := os.OpenFile(to, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(copyAttributes(made, st), made.Close())
}

func copyContent(from, to string, st *syscall.Stat_t) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if _, err = io.Copy(target, source); err == nil {
		err = copyAttributes(target, st)
	}
	return errors.Join(err, target.Close())
}

// copyAttributes takes owner, mode and time over; last, because a change of the content changes them.
func copyAttributes(file *os.File, st *syscall.Stat_t) error {
	fd := int(file.Fd())
	if err := giveAway(fd, st.Mode&0o7777, &account{uid: st.Uid, gid: st.Gid}); err != nil {
		return err
	}
	return setTime(fd, time.Unix(st.Mtim.Unix()))
}
