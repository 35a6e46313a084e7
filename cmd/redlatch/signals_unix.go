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

// sentToAll reports whether the program of lock run has got a signal too: in the foreground of a terminal, that and the shell send
// some to all processes. Who sends one to this process alone cannot be told from them.
func sentToAll(s os.Signal, tty string) bool {
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
	return err == nil && foreground == unix.Getpgrp()
}

// terminate asks a process to end.
func terminate(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
