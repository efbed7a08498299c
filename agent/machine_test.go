package main

import "testing"

func TestTheHostnameInHostsIsReplaced(t *testing.T) {
	for _, c := range []struct{ hosts, want string }{
		{"", "127.0.1.1\tnew\n"},
		{"127.0.0.1 localhost\n10.0.0.2 old old.example\n", "127.0.0.1 localhost\n10.0.0.2\tnew\told.example\n"},
		{"# old\n127.0.0.1  localhost\n", "# old\n127.0.0.1  localhost\n127.0.1.1\tnew\n"},
		{"127.0.0.1 localhost old", "127.0.0.1\tlocalhost\tnew\n"},
	} {
		if got := renameHost(c.hosts, "old", "new"); got != c.want {
			t.Errorf("%q becomes %q", c.hosts, got)
		}
	}
	if got := renameHost("127.0.0.1 localhost\n", "localhost", "new"); got != "127.0.0.1 localhost\n127.0.1.1\tnew\n" {
		t.Errorf("a host called localhost leaves %q", got)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]float64{"0": 0, "90": 90, "90s": 90, "10m": 600, "1.5h": 5400, "1d": 86400} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "m", "-1", "1w", "1e3", "0x10", "nan", "inf", "1 m", "1_0"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestBootIDsAreRandomUUIDs(t *testing.T) {
	a, b := newBootID([]byte("same")), newBootID([]byte("same"))
	if a == b || len(a) != 36 || a[14] != '4' {
		t.Error(a, b)
	}
}
