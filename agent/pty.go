package main

import (
	"strconv"
	"syscall"
	"unsafe"
)

const (
	endOfTransmission = 0x04 // what a terminal takes for the end of its input
	ioctlLockPty      = 0x40045431
	ioctlPtyNumber    = 0x80045430
	ioctlSetSize      = 0x5414
)

type winsize struct{ rows, cols, xpixel, ypixel uint16 }

// openTerminal makes a terminal whose far side becomes stdin, stdout and stderr of the process.
func (e *ends) openTerminal(size *terminalSize) error {
	master, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return pathError("open", "/dev/ptmx", err)
	}
	e.outputs = []int{master}
	var number, unlocked int32
	if err := ioctl(master, ioctlLockPty, unsafe.Pointer(&unlocked)); err != nil {
		return pathError("unlock", "/dev/ptmx", err)
	}
	if err := ioctl(master, ioctlPtyNumber, unsafe.Pointer(&number)); err != nil {
		return pathError("number", "/dev/ptmx", err)
	}
	if err := setSize(master, size); err != nil {
		return pathError("resize", "/dev/ptmx", err)
	}
	path := "/dev/pts/" + strconv.Itoa(int(number))
	slave, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return pathError("open", path, err)
	}
	e.foreign = []int{slave}
	e.child = [3]uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
	return nil
}

func setSize(fd int, size *terminalSize) error {
	w := winsize{rows: size.Rows, cols: size.Cols}
	return ioctl(fd, ioctlSetSize, unsafe.Pointer(&w))
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// resize tells a command's terminal its new size; the kernel sends SIGWINCH.
func (a *agent) resize(s *stream, r *request) error {
	c, err := a.commands.find(r.Exec)
	if err != nil {
		return err
	}
	if !c.terminal {
		return badRequest("the command has no terminal")
	}
	raw, err := c.stdin.SyscallConn()
	if err == nil {
		failed := raw.Control(func(fd uintptr) { err = setSize(int(fd), &r.terminalSize) })
		if failed != nil {
			err = &failure{"exec-not-found", "the command has ended"}
		}
	}
	if err != nil {
		return err
	}
	s.close(struct{}{})
	return nil
}
