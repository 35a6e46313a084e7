//go:build !unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

// passedOn are the signals that the program of lock run gets too: none, where no process can send one to another.
func passedOn() []os.Signal { return []os.Signal{os.Interrupt} }

// toldByTerminal returns a group that has got a signal already: the console sends what there is to all.
func toldByTerminal(os.Signal, string) (group int) { return 1 }

// family is a program, without what it has started.
type family struct {
	program *exec.Cmd
	changed chan os.Signal // never
}

func newFamily(program *exec.Cmd, _ string) *family { return &family{program: program} }

func (f *family) close() {}

// lives reports that nothing is left once the program has ended.
func (f *family) lives() bool { return false }

// signal ends the program.
func (f *family) signal(s syscall.Signal, told int) {
	if told == 0 && (s == syscall.SIGTERM || s == syscall.SIGKILL) {
		_ = f.program.Process.Kill() // it may have ended
	}
}

// names says what lives.
func (f *family) names() string { return "" }
