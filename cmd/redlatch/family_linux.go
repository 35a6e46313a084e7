package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// adopt has this process become the parent of what its children leave behind when they end, or not any more.
func adopt(on bool) {
	arg := uintptr(0)
	if on {
		arg = 1
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, arg, 0, 0, 0) // known since Linux 3.4
}

// strangers returns the children that this process has already: a shell may have started some before it became this command.
func strangers() map[int]bool {
	all := map[int]bool{}
	for _, p := range children()[os.Getpid()] {
		all[p.pid] = true
	}
	return all
}

// lives reports whether one of them has not ended. It looks twice: a process may end during a look, and its child begin, both unseen.
func (f *family) lives() bool {
	for range 2 {
		if len(f.living()) > 0 {
			return true
		}
	}
	return false
}

// living returns those that have not ended. It reaps what has ended and was left behind; the program is left to its Wait.
func (f *family) living() (all []process) {
	self, of := os.Getpid(), children()
	for parents := []int{self}; len(parents) > 0; parents = parents[1:] {
		for _, p := range of[parents[0]] {
			switch {
			case f.strangers[p.pid]:
			case !p.ended:
				all, parents = append(all, p), append(parents, p.pid)
			case parents[0] == self && p.pid != f.program.Process.Pid:
				_, _ = unix.Wait4(p.pid, nil, unix.WNOHANG, nil) // a child that has ended
			}
		}
	}
	return all
}

// children returns all processes by their parents, as /proc tells. What ends meanwhile may be missing.
func children() map[int][]process {
	all := map[int][]process{}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is right
	for _, file := range files {
		text, err := os.ReadFile(file)
		name, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')') // the name may have more of them
		fields := bytes.Fields(text[end+1:])
		if err != nil || name < 0 || len(fields) < 18 {
			continue
		}
		number := func(field []byte) int { n, _ := strconv.Atoi(string(bytes.TrimSpace(field))); return n }
		parent := number(fields[1])
		all[parent] = append(all[parent], process{
			pid: number(text[:name]), group: number(fields[2]), name: string(text[name+1 : end]),
			ended: string(fields[0]) == "Z" && number(fields[17]) == 1, // else its first thread has ended, and others go on
		})
	}
	return all
}
