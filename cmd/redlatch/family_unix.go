//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// family is a program and what it has started.
type family struct {
	program   *exec.Cmd
	apart     bool           // it has a process group of its own, as without a terminal
	strangers map[int]bool   // children of this process that are not of the family
	changed   chan os.Signal // has one when a child of this process has ended, or several have
}

type process struct {
	pid, group int
	name       string
	ended      bool // and its parent has not looked yet
}

// newFamily is called before the program starts. tty is the terminal, if there is one.
func newFamily(program *exec.Cmd, tty string) *family {
	f := &family{program: program, apart: !hasTerminal(tty), strangers: strangers(), changed: make(chan os.Signal, 1)}
	if f.apart {
		program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	signal.Notify(f.changed, syscall.SIGCHLD)
	adopt(true)
	return f
}

func (f *family) close() {
	adopt(false)
	signal.Stop(f.changed)
}

// signal sends a signal to all of them, but for the process group that has it already. Signals that a program gives a meaning are for
// the program alone: others would end by them.
func (f *family) signal(s syscall.Signal, told int) {
	switch s {
	case syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM:
		_ = f.program.Process.Signal(s) // it may have ended
		return
	}
	// Some may have ended, and others may not be signalled. The program is signalled also where /proc does not show it.
	program, all, group := f.program.Process, f.living(), unix.Getpgrp()
	if f.apart {
		group = program.Pid
	}
	if i := slices.IndexFunc(all, func(p process) bool { return p.pid == program.Pid }); i >= 0 {
		group = all[i].group
	}
	together := f.apart && f.groupLives(all)
	if together {
		_ = unix.Kill(-program.Pid, s) // also those that are being started
	}
	if group != told && (!together || group != program.Pid) {
		_ = program.Signal(s)
	}
	for _, p := range all {
		if p.pid != program.Pid && p.group != told && (!f.apart || p.group != program.Pid) {
			_ = unix.Kill(p.pid, s)
		}
	}
}

// groupLives reports whether somebody is in the process group of a program that has one of its own, so that its number is nobody else's.
func (f *family) groupLives(all []process) bool {
	if !errors.Is(f.program.Process.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return true // nobody has waited for the program
	}
	return slices.ContainsFunc(all, func(p process) bool { return p.group == f.program.Process.Pid })
}

// names says which of them live.
func (f *family) names() string {
	var names []string
	for _, p := range f.living() {
		names = append(names, strings.TrimSpace(fmt.Sprintf("%d %s", p.pid, p.name)))
	}
	return strings.Join(names, ", ")
}
