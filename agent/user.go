package main

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// account is whom a command runs as, or whom a file belongs to.
type account struct {
	name   string // "" if the image has no name for the number
	uid    uint32
	gid    uint32
	groups []uint32
	home   string
}

// userDatabase answers from the image's own /etc/passwd and /etc/group. It remembers answers until a file changes.
type userDatabase struct {
	passwdPath string
	groupPath  string

	mu     sync.Mutex
	passwd fileStamp
	group  fileStamp
	known  map[string]*account
}

// fileStamp changes whenever the file does.
type fileStamp struct {
	inode, size  int64
	mtime, ctime syscall.Timespec
}

const knownUsers = 64

func stampOf(path string) fileStamp {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) != nil {
		return fileStamp{}
	}
	return fileStamp{int64(st.Ino), st.Size, st.Mtim, st.Ctim}
}

// lookup finds "" (root), "name", "uid", "name:group" or "uid:gid".
func (d *userDatabase) lookup(spec string) (*account, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	passwd, group := stampOf(d.passwdPath), stampOf(d.groupPath)
	if d.known == nil || d.passwd != passwd || d.group != group || len(d.known) >= knownUsers {
		d.passwd, d.group, d.known = passwd, group, map[string]*account{}
	}
	if found, ok := d.known[spec]; ok {
		return found, nil
	}
	found, err := d.find(spec)
	if err != nil {
		return nil, err
	}
	d.known[spec] = found
	return found, nil
}

func (d *userDatabase) find(spec string) (*account, error) {
	if spec == "" {
		spec = "0"
	}
	user, group, hasGroup := strings.Cut(spec, ":")
	a, err := d.findUser(user)
	if err != nil {
		return nil, err
	}
	if !hasGroup {
		a.groups = d.supplementaryGroups(a.name, a.gid)
		return a, nil
	}
	a.gid, err = d.findGroup(group)
	return a, err
}

// findUser looks a user up by name and then by number; a number needs no entry.
func (d *userDatabase) findUser(user string) (*account, error) {
	var found *account
	number, isNumber := parseID(user)
	eachLine(d.passwdPath, 7, func(fields []string) bool {
		uid, uidOK := parseID(fields[2])
		gid, gidOK := parseID(fields[3])
		byName := fields[0] == user
		if !uidOK || !gidOK || !byName && (!isNumber || uid != number || found != nil) {
			return true
		}
		found = &account{name: fields[0], uid: uid, gid: gid, home: fields[5]}
		return !byName
	})
	switch {
	case found != nil:
		if found.home == "" {
			found.home = "/"
		}
		return found, nil
	case isNumber && number == 0:
		return &account{name: "root", home: "/root"}, nil
	case isNumber:
		return &account{uid: number, home: "/"}, nil
	}
	return nil, &failure{"user-not-found", "the sandbox has no user " + strconv.Quote(user)}
}

func (d *userDatabase) findGroup(group string) (uint32, error) {
	number, found := parseID(group)
	eachLine(d.groupPath, 4, func(fields []string) bool {
		if gid, ok := parseID(fields[2]); ok && fields[0] == group {
			number, found = gid, true
			return false
		}
		return true
	})
	if !found {
		return 0, &failure{"user-not-found", "the sandbox has no group " + strconv.Quote(group)}
	}
	return number, nil
}

func (d *userDatabase) supplementaryGroups(name string, primary uint32) []uint32 {
	var groups []uint32
	if name == "" {
		return groups
	}
	eachLine(d.groupPath, 4, func(fields []string) bool {
		gid, ok := parseID(fields[2])
		if ok && gid != primary && slices.Contains(strings.Split(fields[3], ","), name) {
			groups = append(groups, gid)
		}
		return true
	})
	return groups
}

func parseID(text string) (uint32, bool) {
	n, err := strconv.ParseUint(text, 10, 32)
	return uint32(n), err == nil && n < 1<<32-1 // the highest means "no change" to the kernel
}

// eachLine visits the lines of a file like /etc/passwd that have at least count fields, until visit returns false. A
// file that is not there has no lines: an image without users is an image that only knows numbers.
func eachLine(path string, count int, visit func(fields []string) bool) {
	file, err := os.Open(path)
	if err != nil {
		return
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Split(lines.Text(), ":"); len(fields) >= count && !visit(fields) {
			return
		}
	}
}
