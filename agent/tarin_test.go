package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var longAgo = time.Unix(1_000_000_000, 123_456_000)

func archive(t testing.TB, entries ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := h.PAXRecords["SANDYARD.content"]
		h.PAXRecords = nil
		h.Uid, h.Gid, h.ModTime, h.Format = os.Geteuid(), os.Getegid(), longAgo, tar.FormatPAX
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(name, content string) *tar.Header {
	return &tar.Header{Name: name, Typeflag: tar.TypeReg, PAXRecords: map[string]string{"SANDYARD.content": content}}
}

func link(kind byte, name, target string) *tar.Header {
	return &tar.Header{Name: name, Typeflag: kind, Linkname: target}
}

func dir(name string) *tar.Header { return &tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755} }

func unpack(t testing.TB, target string, data []byte) error {
	t.Helper()
	root, err := os.OpenRoot(target)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	e := &extractor{root: root, buffer: make([]byte, 4096)}
	e.stopped = func() bool { return e.bytes > 1<<20 }
	return e.extract(bytes.NewReader(data))
}

// targetBeside returns a directory to unpack into, and one beside it with a file that must stay as it is.
func targetBeside(t testing.TB) (target, outside string) {
	t.Helper()
	top := t.TempDir()
	target, outside = filepath.Join(top, "target"), filepath.Join(top, "outside")
	for _, d := range []string{target, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("untouched"), 0o600); err != nil {
		t.Fatal(err)
	}
	return target, outside
}

func checkOutside(t testing.TB, outside string) {
	t.Helper()
	entries, err := os.ReadDir(outside)
	if err != nil || len(entries) != 1 {
		t.Fatalf("outside there is now %v, %v", entries, err)
	}
	info, err := os.Lstat(filepath.Join(outside, "secret"))
	if err != nil || info.Mode() != 0o600 || info.Sys().(*syscall.Stat_t).Nlink != 1 {
		t.Fatalf("the file outside is now %v, %v", info, err)
	}
	if text, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(text) != "untouched" {
		t.Fatalf("the file outside now says %q, %v", text, err)
	}
	above, err := os.ReadDir(filepath.Dir(outside))
	if err != nil || len(above) != 2 {
		t.Fatalf("beside the target there is now %v, %v", above, err)
	}
}

func TestArchivesCannotLeaveTheirDirectory(t *testing.T) {
	for name, entries := range map[string][]*tar.Header{
		"a name upwards":                 {file("../outside/secret", "evil")},
		"a name upwards from below":      {dir("a"), file("a/../../outside/secret", "evil")},
		"an absolute name":               {file("/outside/secret", "evil")},
		"a directory upwards":            {dir("../new")},
		"a file through a symlink":       {link(tar.TypeSymlink, "l", "../outside"), file("l/secret", "evil")},
		"through an absolute symlink":    {link(tar.TypeSymlink, "l", "OUTSIDE"), file("l/secret", "evil")},
		"a directory through a symlink":  {link(tar.TypeSymlink, "l", "../outside"), dir("l/new")},
		"through a chain of symlinks":    {dir("d"), link(tar.TypeSymlink, "d/up", ".."), link(tar.TypeSymlink, "l", "d/up/.."), file("l/outside/secret", "evil")},
		"a hard link upwards":            {link(tar.TypeLink, "h", "../outside/secret")},
		"a hard link to an absolute one": {link(tar.TypeLink, "h", "OUTSIDE/secret")},
		"a hard link through a symlink":  {link(tar.TypeSymlink, "l", "../outside"), link(tar.TypeLink, "h", "l/secret")},
		"a fifo through a symlink":       {link(tar.TypeSymlink, "l", "../outside"), link(tar.TypeFifo, "l/fifo", "")},
		"a symlink through a symlink":    {link(tar.TypeSymlink, "l", "../outside"), link(tar.TypeSymlink, "l/new", "x")},
		"a character device":             {{Name: "null", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
		"a block device":                 {{Name: "disk", Typeflag: tar.TypeBlock, Devmajor: 8, Devminor: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			target, outside := targetBeside(t)
			for _, h := range entries {
				h.Linkname = strings.Replace(h.Linkname, "OUTSIDE", outside, 1)
			}
			if err := unpack(t, target, archive(t, entries...)); codeOf(err) != "unsafe-path" {
				t.Errorf("it gives %v", err)
			}
			checkOutside(t, outside)
		})
	}
}

func TestAFileReplacesALinkAndDoesNotWriteThroughIt(t *testing.T) {
	target, outside := targetBeside(t)
	err := unpack(t, target, archive(t, link(tar.TypeSymlink, "f", "../outside/secret"), file("f", "inside")))
	if err != nil {
		t.Fatal(err)
	}
	checkOutside(t, outside)
	if text, err := os.ReadFile(filepath.Join(target, "f")); err != nil || string(text) != "inside" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Lstat(filepath.Join(target, "f")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("%v, %v", info, err)
	}
}

func TestArchivesKeepWhatTheySay(t *testing.T) {
	target := t.TempDir()
	script := file("d/script", "#!/bin/sh\n")
	script.Mode = 0o4751
	closed := dir("d")
	closed.Mode = 0o2750
	err := unpack(t, target, archive(t, dir("./"), closed, script, link(tar.TypeSymlink, "d/abs", "/etc/hostname"),
		link(tar.TypeLink, "d/hard", "d/script"), link(tar.TypeFifo, "d/fifo", ""), file("deep/er/than/known", "x"), file("a/../b", "y")))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		mode fs.FileMode
	}{
		{"d", fs.ModeDir | fs.ModeSetgid | 0o750},
		{"d/script", fs.ModeSetuid | 0o751},
		{"d/fifo", fs.ModeNamedPipe | 0o644},
		{"deep/er/than/known", 0o644},
	} {
		info, err := os.Lstat(filepath.Join(target, c.name))
		if err != nil || info.Mode() != c.mode {
			t.Errorf("%s is %v, %v", c.name, info.Mode(), err)
			continue
		}
		if c.name != "d/fifo" && !info.ModTime().Equal(longAgo) {
			t.Errorf("%s is from %v", c.name, info.ModTime())
		}
	}
	if to, err := os.Readlink(filepath.Join(target, "d/abs")); err != nil || to != "/etc/hostname" {
		t.Errorf("the symlink leads to %q, %v", to, err)
	}
	a, errA := os.Stat(filepath.Join(target, "d/script"))
	b, errB := os.Stat(filepath.Join(target, "d/hard"))
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		t.Errorf("the hard link is none: %v %v", errA, errB)
	}
	if text, err := os.ReadFile(filepath.Join(target, "b")); err != nil || string(text) != "y" {
		t.Errorf("a/../b is %q, %v", text, err)
	}
}

func TestBrokenArchives(t *testing.T) {
	good := archive(t, file("f", strings.Repeat("x", 2000)))
	for name, data := range map[string][]byte{
		"cut in the content": good[:1536+700],
		"cut in the header":  good[:300],
		"no archive":         bytes.Repeat([]byte("no archive "), 200),
	} {
		if err := unpack(t, t.TempDir(), data); codeOf(err) != "bad-archive" {
			t.Errorf("%s gives %v", name, err)
		}
	}
	target := t.TempDir()
	if err := unpack(t, target, archive(t, dir("d"), file("d", "x"))); codeOf(err) != "is-a-directory" {
		t.Errorf("a file over a directory gives %v", err)
	}
	if err := unpack(t, target, archive(t, file("f", "x"), file("f/g", "x"))); codeOf(err) != "not-a-directory" {
		t.Errorf("a file below a file gives %v", err)
	}
	if err := unpack(t, target, nil); err != nil {
		t.Errorf("an empty archive gives %v", err)
	}
}

func TestASparseFileThatNobodyWantsEnds(t *testing.T) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	records := ""
	for _, record := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.realsize=1000000000000000000"} {
		records += fmt.Sprintf("%d %s\n", len(record)+4, record) // two digits, a blank, the record, a line's end
	}
	holes := "1\n1000000000000000000\n0\n"
	for _, part := range []struct {
		name, content string
	}{{"pax", records}, {"sparse", holes + strings.Repeat("\x00", 512-len(holes))}} {
		h := &tar.Header{Name: part.name, Typeflag: tar.TypeReg, Size: int64(len(part.content)), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(part.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	copy(data[148:], fmt.Sprintf("%06o\x00", checksum(data[:512])+'x'-'0'))
	data[156] = 'x' // a PAX header, which Go's own writer would not write
	if err := unpack(t, t.TempDir(), data); !errors.Is(err, errGone) {
		t.Errorf("it gives %v", err)
	}
}

// checksum sums a tar header, its own eight bytes taken as blanks.
func checksum(header []byte) (sum int) {
	for i, c := range header {
		if i >= 148 && i < 156 {
			c = ' '
		}
		sum += int(c)
	}
	return sum
}

func FuzzTarIn(f *testing.F) {
	f.Add(archive(f, dir("d"), file("d/f", "content")))
	f.Add(archive(f, link(tar.TypeSymlink, "l", "../outside"), file("l/secret", "evil")))
	f.Add(archive(f, link(tar.TypeSymlink, "l", ".."), link(tar.TypeLink, "h", "l/outside/secret"), file("h", "evil")))
	f.Add(archive(f, file("../outside/secret", "evil")))
	f.Add(archive(f, link(tar.TypeFifo, "p", ""), dir("p"), file("a/../../outside/x", "")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 64<<10 {
			return
		}
		target, outside := targetBeside(t)
		if err := unpack(t, target, data); err != nil {
			_ = asFailure(err)
		}
		checkOutside(t, outside)
		_ = filepath.WalkDir(target, func(path string, d fs.DirEntry, err error) error {
			if d != nil && d.IsDir() {
				_ = os.Chmod(path, 0o700) // so that it can be removed
			}
			return nil
		})
	})
}
