//go:build unix

package redistest

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// freezeLimit bounds the wait until a process has stopped.
const freezeLimit = 5 * time.Second

// Freeze stops a process with SIGSTOP. On Linux it returns once the process stands still.
func Freeze(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if runtime.GOOS != "linux" {
		return nil
	}
	limit := time.Now().Add(freezeLimit)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !frozen(p.Pid) {
		if time.Now().After(limit) {
			return fmt.Errorf("process %d still runs %v after SIGSTOP", p.Pid, freezeLimit)
		}
		<-tick.C
	}
	return nil
}

// frozen reads the state letter that follows the name in parentheses, which may itself hold blanks.
func frozen(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	i := bytes.LastIndexByte(stat, ')')
	return i >= 0 && i+2 < len(stat) && stat[i+2] == 'T'
}

// Thaw lets a process go on that [Freeze] stopped. It does nothing to a running one.
func Thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
