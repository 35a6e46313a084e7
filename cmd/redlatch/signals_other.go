//go:build !unix

package main

import "os"

// passedOn are the signals that the program of lock run gets too: none, where no process can send one to another.
func passedOn() []os.Signal { return []os.Signal{os.Interrupt} }

// terminate ends a process.
func terminate(p *os.Process) error { return p.Kill() }
