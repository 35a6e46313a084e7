//go:build unix && !linux

package main

import "golang.org/x/sys/unix"

// adopt does nothing: no process can become the parent of what its children leave behind.
func adopt(bool) {}

func strangers() map[int]bool { return nil }

// lives reports whether one of them has not ended.
func (f *family) lives() bool { return len(f.living()) > 0 }

// living returns one that stands for the process group of the program, or the program if that has no group of its own.
func (f *family) living() []process {
	pid := f.program.Process.Pid
	if f.apart && unix.Kill(-pid, 0) == nil {
		return []process{{pid: pid, group: pid}}
	}
	if group, err := unix.Getpgid(pid); err == nil && !f.apart && f.program.Process.Signal(unix.Signal(0)) == nil {
		return []process{{pid: pid, group: group}}
	}
	return nil
}
