package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	defaultHooks = "/etc/sandyard/after-restore.d"
	hookTime     = 10 * time.Second
	addEntropy   = 0x40085203 // RNDADDENTROPY
)

// machine is what this sandbox is: it changes when a copy is told that it is one.
type machine struct {
	mu     sync.Mutex
	id     string
	bootID string
}

// newBootID is different in every boot and every copy: a copy's random numbers may start out the same, its id does
// not.
func newBootID(seeds ...[]byte) string {
	hash := sha256.New()
	random := make([]byte, 32)
	_, _ = rand.Read(random) // never fails
	for _, seed := range append(seeds, random) {
		hash.Write(seed)
	}
	sum := hash.Sum(nil)
	sum[6], sum[8] = sum[6]&0x0f|0x40, sum[8]&0x3f|0x80 // as a random UUID has it
	text := hex.EncodeToString(sum[:16])
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

func (m *machine) boot() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bootID
}

type machineInfo struct {
	Version            int    `json:"version"`
	Agent              string `json:"agent"`
	BootID             string `json:"boot_id"`
	ID                 string `json:"id"`
	Hostname           string `json:"hostname"`
	UptimeMS           int64  `json:"uptime_ms"`
	Processes          int    `json:"processes"`
	MemoryTotalKiB     int64  `json:"memory_total_kib"`
	MemoryAvailableKiB int64  `json:"memory_available_kib"`
	HeldUntilUnixMS    int64  `json:"held_until_unix_ms"`
	Execs              int    `json:"execs"`
}

func (a *agent) info(s *stream, _ *request) error {
	a.machine.mu.Lock()
	i := machineInfo{Version: version, Agent: buildVersion, BootID: a.machine.bootID, ID: a.machine.id}
	a.machine.mu.Unlock()
	var err error
	if i.Hostname, err = os.Hostname(); err != nil {
		return err
	}
	if i.UptimeMS, err = uptime(); err != nil {
		return err
	}
	if i.MemoryTotalKiB, i.MemoryAvailableKiB, err = memory(); err != nil {
		return err
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, entry := range processes {
		if name := entry.Name(); name[0] >= '1' && name[0] <= '9' {
			i.Processes++
		}
	}
	i.HeldUntilUnixMS = a.hold.heldUntil()
	i.Execs = len(a.commands.running())
	s.close(i)
	return nil
}

func uptime() (ms int64, err error) {
	text, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	return int64(math.Round(seconds * 1000)), err
}

func memory() (totalKiB, availableKiB int64, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		value, _ := strconv.ParseInt(fields[1], 10, 64)
		switch fields[0] {
		case "MemTotal:":
			totalKiB = value
		case "MemAvailable:":
			availableKiB = value
		}
	}
	return totalKiB, availableKiB, nil
}

// afterRestore makes a copy a machine of its own.
func (a *agent) afterRestore(s *stream, r *request) error {
	if r.TimeUnixNS < 0 || len(r.Hostname) > 64 || strings.ContainsAny(r.Hostname, " \t\n\x00") {
		return badRequest("the time or the hostname cannot be")
	}
	if r.TimeUnixNS != 0 {
		now := syscall.NsecToTimeval(r.TimeUnixNS)
		// A kernel that has no such call takes its time from the host, as gVisor does: there is nothing to set.
		if err := syscall.Settimeofday(&now); err != nil && err != syscall.ENOSYS {
			return os.NewSyscallError("settimeofday", err)
		}
	}
	if err := mixEntropy(r.Entropy); err != nil {
		return err
	}
	if r.Hostname != "" {
		if err := setHostname(r.Hostname); err != nil {
			return err
		}
	}
	if r.ID != "" {
		if err := setMachineID(r.ID); err != nil {
			return err
		}
	}
	a.machine.mu.Lock()
	a.machine.id = r.ID
	a.machine.bootID = newBootID([]byte(r.ID), r.Entropy)
	boot := a.machine.bootID
	a.machine.mu.Unlock()
	hooks, err := a.runHooks(r)
	if err != nil {
		return err
	}
	s.close(map[string]any{"boot_id": boot, "hooks": hooks})
	return nil
}

// mixEntropy gives the kernel randomness that other copies do not have. Where it can be counted it is; a kernel that
// takes its randomness from outside the sandbox, as gVisor does, knows no such call and needs none.
func mixEntropy(entropy []byte) error {
	if len(entropy) == 0 {
		return nil
	}
	device, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer device.Close()
	if _, err := device.Write(entropy); err != nil {
		return err
	}
	var pool struct {
		bits, size int32
		bytes      [64]byte
	}
	pool.size = int32(copy(pool.bytes[:], entropy))
	pool.bits = pool.size * 8
	_ = ioctl(int(device.Fd()), addEntropy, unsafe.Pointer(&pool))
	return nil
}

func setHostname(name string) error {
	old, err := os.Hostname()
	if err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(name)); err != nil {
		return os.NewSyscallError("sethostname", err)
	}
	if err := os.WriteFile("/etc/hostname", []byte(name+"\n"), 0o644); err != nil {
		return err
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile("/etc/hosts", []byte(renameHost(string(hosts), old, name)), 0o644)
}

// renameHost puts the new name where the old one stands in /etc/hosts, or on a line of its own.
func renameHost(hosts, old, name string) string {
	var renamed strings.Builder
	found := false
	for line := range strings.Lines(hosts) {
		words := strings.Fields(line)
		at := slices.Index(words, old)
		if at > 0 && words[0][0] != '#' && old != "localhost" {
			words[at], found = name, true
			line = strings.Join(words, "\t") + "\n"
		}
		renamed.WriteString(line)
	}
	if !found {
		renamed.WriteString("127.0.1.1\t" + name + "\n")
	}
	return renamed.String()
}

// setMachineID gives the machine another /etc/machine-id, if its image has one.
func setMachineID(id string) error {
	const path = "/etc/machine-id"
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	sum := sha256.Sum256([]byte("sandyard machine-id " + id))
	return os.WriteFile(path, []byte(hex.EncodeToString(sum[:16])+"\n"), 0o444)
}

type hookResult struct {
	Name     string `json:"name"`
	ExitCode int    `json:"exit_code"`
}

// runHooks runs the executable files of a directory in the order of their names.
func (a *agent) runHooks(r *request) ([]hookResult, error) {
	directory := r.HooksDir
	if directory == "" {
		directory = defaultHooks
	}
	results := []hookResult{}
	entries, err := os.ReadDir(directory)
	if errors.Is(err, fs.ErrNotExist) {
		return results, nil
	}
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		path := filepath.Join(directory, entry.Name())
		if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		results = append(results, hookResult{entry.Name(), a.runHook(path, r.ID)})
	}
	return results, nil
}

// runHook returns the exit code as a shell would give it; the hook is killed when its time is over.
func (a *agent) runHook(path, id string) int {
	null := uintptr(a.null)
	attr := &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{"PATH=" + defaultPath, "HOME=/root", "USER=root", "SANDYARD_ID=" + id},
		Files: []uintptr{null, null, null},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	}
	ended := make(chan exit, 1)
	pid, err := a.reaper.fork(path, []string{path}, attr, func(e exit) { ended <- e })
	if err != nil {
		return 126
	}
	overtime := time.AfterFunc(hookTime, func() {
		a.reaper.ifAlive(pid, func() { _ = syscall.Kill(-pid, syscall.SIGKILL) })
	})
	defer overtime.Stop()
	code, _ := exitCode((<-ended).status)
	return code
}

// shutdown ends every process and then the agent.
func (a *agent) shutdown(s *stream, _ *request) error {
	answered := make(chan struct{})
	go func() {
		a.out.finish(s, appendFrame(nil, frameClose, s.id, answer(struct{}{})))
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(time.Second): // a host that does not read cannot keep the machine alive
	}
	a.endMachine()
	return nil
}
