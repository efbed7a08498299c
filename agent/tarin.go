package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// maxDirectories bounds what an archive can make the agent remember.
const maxDirectories = 1 << 20

// extractor unpacks an archive below one directory. Every name goes through os.Root, which refuses to leave it.
type extractor struct {
	root        *os.Root
	owner       *account // nil: as the archive says
	stopped     func() bool
	files       int64 // regular ones
	bytes       int64 // their content
	buffer      []byte
	parent      string        // the directory made last
	directories []*tar.Header // their modes and times come last: what is written into them would change both
}

// tarIn unpacks what the host sends.
func (a *agent) tarIn(s *stream, r *request) error {
	target, err := r.path()
	if err != nil {
		return err
	}
	e := &extractor{buffer: make([]byte, 128<<10), stopped: s.gone.Load}
	if r.User != "" {
		if e.owner, err = a.users.lookup(r.User); err != nil {
			return err
		}
	}
	if e.root, err = openTarget(target, e.owner); err != nil {
		return err
	}
	defer e.root.Close()
	source := &reader{stream: s}
	err = e.extract(source)
	if err == nil {
		_, err = io.CopyBuffer(io.Discard, struct{ io.Reader }{source}, e.buffer) // what follows the archive's end mark
	}
	if err != nil {
		return err
	}
	s.close(map[string]any{"files": e.files, "bytes": e.bytes})
	return nil
}

// openTarget opens the directory to unpack into, and makes it where it is missing.
func openTarget(target string, owner *account) (*os.Root, error) {
	if owner == nil {
		owner = &account{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	}
	if err := makeParents(target, owner); err != nil {
		return nil, err
	}
	if err := makeDirectory(target, 0o755, owner); err != nil && !errors.Is(err, syscall.EEXIST) {
		return nil, err
	}
	return os.OpenRoot(target)
}

func (e *extractor) extract(source io.Reader) error {
	archive := tar.NewReader(source)
	for {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return e.finishDirectories()
		}
		if err == nil {
			err = e.add(h, archive)
		}
		if err != nil {
			return e.explain(h, err)
		}
	}
}

// explain tells an attempt to leave the directory from other failures: os.Root's error for it has no name of its own.
func (e *extractor) explain(h *tar.Header, err error) error {
	if h != nil && (errors.Is(err, tar.ErrInsecurePath) || strings.Contains(err.Error(), "path escapes from parent")) {
		return unsafePath(h, "leads out of the directory")
	}
	return err
}

func unsafePath(h *tar.Header, why string) error {
	return &failure{"unsafe-path", "the archive's entry " + strings.ToValidUTF8(h.Name, "\ufffd") + " " + why}
}

func (e *extractor) add(h *tar.Header, content io.Reader) error {
	if strings.HasPrefix(h.Name, "/") {
		return unsafePath(h, "has an absolute name")
	}
	name := strings.TrimRight(h.Name, "/")
	if name == "" || strings.ContainsRune(name, 0) {
		return &failure{"bad-archive", "an entry has no name, or a NUL byte in it"}
	}
	if h.Typeflag == tar.TypeDir {
		return e.addDirectory(name, h)
	}
	if err := e.makeRoom(name); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeRegA, tar.TypeGNUSparse, tar.TypeCont:
		return e.addFile(name, h, content)
	case tar.TypeSymlink:
		return e.addSymlink(name, h)
	case tar.TypeLink:
		return e.addHardLink(name, h)
	case tar.TypeFifo:
		return e.addFifo(name, h)
	case tar.TypeXGlobalHeader:
		return nil
	}
	return unsafePath(h, "is a device, or of a kind that cannot be unpacked")
}

// makeRoom makes the directories above name, and removes what has the name now: it must not be written through.
func (e *extractor) makeRoom(name string) error {
	if err := e.makeDirectories(above(name)); err != nil {
		return err
	}
	info, err := e.root.Lstat(name)
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.IsDir() {
		return pathError("unpack", name, syscall.EISDIR)
	}
	return e.root.Remove(name)
}

// makeDirectories makes what is missing of a directory and those above it.
func (e *extractor) makeDirectories(name string) error {
	if name == e.parent || name == "." {
		return nil
	}
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		err := e.root.Mkdir(name[:i], 0o755)
		if err == nil && e.owner != nil {
			err = e.root.Lchown(name[:i], int(e.owner.uid), int(e.owner.gid))
		}
		if err != nil && !errors.Is(err, syscall.EEXIST) {
			return err
		}
	}
	info, err := e.root.Stat(name)
	if err == nil && !info.IsDir() {
		err = pathError("unpack", name, syscall.ENOTDIR)
	}
	if err == nil {
		e.parent = name
	}
	return err
}

// above is the directory that name is in, with links and .. in it left to the kernel.
func above(name string) string {
	if i := strings.LastIndexByte(name, '/'); i > 0 {
		return name[:i]
	}
	return "."
}

func (e *extractor) addDirectory(name string, h *tar.Header) error {
	if len(e.directories) == maxDirectories {
		return &failure{"bad-archive", "it has more than a million directories"}
	}
	if err := e.makeDirectories(name); err != nil {
		return err
	}
	kept := &tar.Header{Name: name, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, ModTime: h.ModTime}
	e.directories = append(e.directories, kept)
	return nil
}

func (e *extractor) addFile(name string, h *tar.Header, content io.Reader) error {
	file, err := e.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	e.files++
	_, err = io.CopyBuffer(struct{ io.Writer }{file}, &counted{content, e}, e.buffer)
	if err == nil {
		err = e.setAttributes(file, h)
	}
	return errors.Join(err, file.Close())
}

// counted counts content while it is read, and ends when nobody wants it any more: a few bytes of a sparse file can
// stand for more zeros than any disk holds.
type counted struct {
	content io.Reader
	e       *extractor
}

func (c *counted) Read(p []byte) (int, error) {
	if c.e.stopped() {
		return 0, errGone
	}
	n, err := c.content.Read(p)
	c.e.bytes += int64(n)
	return n, err
}

func (e *extractor) addSymlink(name string, h *tar.Header) error {
	if err := e.root.Symlink(h.Linkname, name); err != nil {
		return err
	}
	uid, gid := e.ownerOf(h)
	return allowed(e.root.Lchown(name, uid, gid))
}

func (e *extractor) addHardLink(name string, h *tar.Header) error {
	if strings.HasPrefix(h.Linkname, "/") {
		return unsafePath(h, "links to an absolute name")
	}
	return e.root.Link(strings.TrimRight(h.Linkname, "/"), name)
}

// addFifo goes through the parent's descriptor, since os.Root has no way to make one.
func (e *extractor) addFifo(name string, h *tar.Header) error {
	parent, err := e.root.Open(above(name))
	if err != nil {
		return err
	}
	defer parent.Close()
	base := name[strings.LastIndexByte(name, '/')+1:]
	if err := syscall.Mknodat(int(parent.Fd()), base, syscall.S_IFIFO|uint32(h.Mode&0o777), 0); err != nil {
		return pathError("mknod", name, err)
	}
	uid, gid := e.ownerOf(h)
	return allowed(e.root.Lchown(name, uid, gid))
}

func (e *extractor) ownerOf(h *tar.Header) (uid, gid int) {
	if e.owner != nil {
		return int(e.owner.uid), int(e.owner.gid)
	}
	return h.Uid, h.Gid
}

// setAttributes comes after the content, because a change of owner or content takes set-user-id bits away.
func (e *extractor) setAttributes(file *os.File, h *tar.Header) error {
	fd := int(file.Fd())
	uid, gid := e.ownerOf(h)
	if err := allowed(syscall.Fchown(fd, uid, gid)); err != nil {
		return pathError("chown", h.Name, err)
	}
	if err := syscall.Fchmod(fd, uint32(h.Mode&0o7777)); err != nil {
		return pathError("chmod", h.Name, err)
	}
	return setTime(fd, h.ModTime)
}

// allowed lets an agent that is not root keep the files that it may not give away, as tar itself does.
func allowed(err error) error {
	if errors.Is(err, syscall.EPERM) && os.Geteuid() != 0 {
		return nil
	}
	return err
}

func setTime(fd int, mtime time.Time) error {
	stamp := syscall.NsecToTimespec(mtime.UnixNano())
	times := [2]syscall.Timespec{stamp, stamp}
	_, _, errno := syscall.Syscall6(syscall.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (e *extractor) finishDirectories() error {
	for i := len(e.directories) - 1; i >= 0; i-- {
		h := e.directories[i]
		directory, err := e.root.Open(h.Name)
		if err == nil {
			err = errors.Join(e.setAttributes(directory, h), directory.Close())
		}
		if err != nil {
			return e.explain(h, err)
		}
	}
	return nil
}
