//go:build unix

package main

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// passedOn are the signals that the program of lock run gets too.
func passedOn() []os.Signal {
	return []os.Signal{
		os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
		syscall.SIGALRM, syscall.SIGCONT, syscall.SIGWINCH,
	}
}

// sentToAll reports whether the terminal, or its shell, has sent a signal to the program of lock run too. A signal that was sent to this
// process alone looks the same.
func sentToAll(s os.Signal, program *os.Process, tty string) bool {
	switch s {
	case os.Interrupt, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT:
	default:
		return false
	}
	f, err := os.Open(tty)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was read only
	foreground, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	if err != nil || foreground != unix.Getpgrp() {
		return false
	}
	group, err := unix.Getpgid(program.Pid)
	return err == nil && group == foreground // else it has left the group
}

// terminate asks a process to end.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
