package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func imageUsers(t *testing.T, passwd, group string) *userDatabase {
	t.Helper()
	d := &userDatabase{passwdPath: filepath.Join(t.TempDir(), "passwd"), groupPath: filepath.Join(t.TempDir(), "group")}
	for path, text := range map[string]string{d.passwdPath: passwd, d.groupPath: group} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestUsersAreThoseOfTheImage(t *testing.T) {
	d := imageUsers(t,
		"root:x:0:0:root:/root:/bin/sh\nbroken line\nann:x:1000:100:Ann:/home/ann:/bin/sh\n1000:x:7:7::/seven:/bin/sh\n"+
			"nohome:x:8:8:::/bin/sh\nbad:x:minus:1::/:/bin/sh\n",
		"root:x:0:\nwheel:x:10:root,ann\nvideo:x:44:ann\nusers:x:100:ann\nother:x:45:joann\n")
	for _, c := range []struct {
		spec string
		want account
	}{
		{"", account{name: "root", home: "/root", groups: []uint32{10}}},
		{"root", account{name: "root", home: "/root", groups: []uint32{10}}},
		{"ann", account{name: "ann", uid: 1000, gid: 100, home: "/home/ann", groups: []uint32{10, 44}}},
		{"ann:video", account{name: "ann", uid: 1000, gid: 44, home: "/home/ann"}},
		{"ann:77", account{name: "ann", uid: 1000, gid: 77, home: "/home/ann"}},
		{"1000", account{name: "1000", uid: 7, gid: 7, home: "/seven"}}, // a name goes before a number
		{"8", account{name: "nohome", uid: 8, gid: 8, home: "/"}},
		{"4711", account{uid: 4711, home: "/"}},
		{"4711:45", account{uid: 4711, gid: 45, home: "/"}},
		{"0:0", account{name: "root", home: "/root"}},
	} {
		got, err := d.lookup(c.spec)
		if err != nil {
			t.Errorf("%q: %v", c.spec, err)
			continue
		}
		same := got.name == c.want.name && got.uid == c.want.uid && got.gid == c.want.gid && got.home == c.want.home
		if !same || !slices.Equal(got.groups, c.want.groups) {
			t.Errorf("%q is %+v, not %+v", c.spec, *got, c.want)
		}
	}
	for _, spec := range []string{"nobody", "ann:nogroup", "bad", ":", "ann:", "4294967295", "-1", "ann:4294967295", "root\n"} {
		if got, err := d.lookup(spec); codeOf(err) != "user-not-found" {
			t.Errorf("%q is %+v, %v", spec, got, err)
		}
	}
}

func TestAnImageWithoutUsersHasRootAndNumbers(t *testing.T) {
	d := &userDatabase{passwdPath: "/nonexistent/passwd", groupPath: "/nonexistent/group"}
	if root, err := d.lookup(""); err != nil || root.uid != 0 || root.home != "/root" || root.name != "root" {
		t.Errorf("%+v, %v", root, err)
	}
	if _, err := d.lookup("root"); codeOf(err) != "user-not-found" {
		t.Errorf("root by name: %v", err)
	}
}

func TestANewUserIsSeenAtOnce(t *testing.T) {
	d := imageUsers(t, "root:x:0:0::/root:\n", "")
	if _, err := d.lookup("new"); codeOf(err) != "user-not-found" {
		t.Fatal(err)
	}
	if err := os.WriteFile(d.passwdPath, []byte("root:x:0:0::/root:\nnew:x:5:5::/new:\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := d.lookup("new"); err != nil || got.uid != 5 {
		t.Errorf("%+v, %v", got, err)
	}
}
