package main

import (
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// witness sees, in memory that all processes share, whether more are inside a section at once than may be.
type witness struct {
	memory   []byte
	inside   *atomic.Int32
	overlaps *atomic.Int64
}

const witnessSize = 4096

// newWitness makes the file that the processes map.
func newWitness() (path string, err error) {
	file, err := os.CreateTemp("", "redlatch-witness-")
	if err != nil {
		return "", err
	}
	defer file.Close() // the file is read through another descriptor, and only while this program runs
	return file.Name(), file.Truncate(witnessSize)
}

func openWitness(path string) (*witness, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() // a mapping outlives its descriptor
	memory, err := syscall.Mmap(int(file.Fd()), 0, witnessSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &witness{
		memory:   memory,
		inside:   (*atomic.Int32)(unsafe.Pointer(&memory[0])),
		overlaps: (*atomic.Int64)(unsafe.Pointer(&memory[64])),
	}, nil
}

// enter takes one in where capacity is how many may be inside.
func (w *witness) enter(capacity int) {
	if int(w.inside.Add(1)) > capacity {
		w.overlaps.Add(1)
	}
}

func (w *witness) leave() { w.inside.Add(-1) }

func (w *witness) close() error { return syscall.Munmap(w.memory) }
