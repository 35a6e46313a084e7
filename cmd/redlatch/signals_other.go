//go:build !unix

package main

import "os"

// passedOn are the signals that the program of lock run gets too: none, where no process can send one to another.
func passedOn() []os.Signal { return []os.Signal{os.Interrupt} }

// sentToAll reports whether the program of lock run has got a signal too: the console sends what there is.
func sentToAll(os.Signal, *os.Process, string) bool { return true }

// terminate ends a process.
func terminate(p *os.Process) error { return p.Kill() }
