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

// toldByTerminal returns the process group to which the terminal, or its shell, has sent a signal too; 0 if there is none. A signal that
// was sent to this process alone looks the same.
func toldByTerminal(s os.Signal, tty string) (group int) {
	switch s {
	case os.Interrupt, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT:
	default:
		return 0
	}
	f, err := os.Open(tty)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // it was read only
	foreground, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	if err != nil || foreground != unix.Getpgrp() {
		return 0
	}
	return foreground
}

// hasTerminal reports whether there is a terminal that sends signals.
func hasTerminal(tty string) bool {
	f, err := os.Open(tty)
	if err != nil {
		return false
	}
	_ = f.Close() // it was read only
	return true
}
