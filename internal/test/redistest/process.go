package redistest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopLimit bounds the wait for a server that was asked to stop; afterwards it is killed.
const stopLimit = 5 * time.Second

// process is a server's process, which can be started again after it ended.
//
// It owns no goroutine while the server runs, so that a server that outlives a test does not show up as a leak of it.
type process struct {
	path string
	args []string
	env  []string // beside that of the test
	dir  string

	mu    sync.Mutex // guards all below
	cmd   *exec.Cmd  // nil while nothing runs
	alive *os.File   // reads EOF once the process has ended
	log   *os.File   // output of the process, already unlinked
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	log, err := os.CreateTemp(p.dir, "server-*.log")
	if err != nil {
		return err
	}
	if err := os.Remove(log.Name()); err != nil {
		return errors.Join(err, log.Close())
	}
	alive, held, err := os.Pipe()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	cmd.Env = append(os.Environ(), p.env...)
	cmd.ExtraFiles = []*os.File{held}
	DieWithParent(cmd)
	err = errors.Join(cmd.Start(), held.Close())
	if err != nil {
		return errors.Join(err, alive.Close(), log.Close())
	}
	p.cmd, p.alive, p.log = cmd, alive, log
	return nil
}

// pid is the id of the running process, or 0.
func (p *process) pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// ended reports whether the process is gone, looking for at most d.
func (p *process) ended(d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.endedLocked(d)
}

func (p *process) endedLocked(d time.Duration) bool {
	if p.cmd == nil {
		return true
	}
	if err := p.alive.SetReadDeadline(time.Now().Add(d)); err != nil {
		return true
	}
	_, err := p.alive.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// output is what the process wrote so far, and empty once it was reaped.
func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.log == nil {
		return ""
	}
	text, err := io.ReadAll(io.NewSectionReader(p.log, 0, 1<<20))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// terminate asks the process to end, and kills it where that takes too long.
func (p *process) terminate() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	err := errors.Join(Thaw(p.cmd.Process), p.cmd.Process.Signal(syscall.SIGTERM))
	if err != nil || !p.endedLocked(stopLimit) {
		return p.killLocked()
	}
	return p.reapLocked()
}

// kill ends the process at once. It is no error if it has ended already.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.killLocked()
}

func (p *process) killLocked() error {
	if p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return p.reapLocked()
}

func (p *process) reapLocked() error {
	err := p.cmd.Wait()
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		err = nil
	}
	err = errors.Join(err, p.alive.Close(), p.log.Close())
	p.cmd, p.alive, p.log = nil, nil, nil
	return err
}

// signal calls send with the running process.
func (p *process) signal(send func(*os.Process) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("%s: %w", p.path, os.ErrProcessDone)
	}
	return send(p.cmd.Process)
}
