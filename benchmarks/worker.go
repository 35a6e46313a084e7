package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// A worker is this program in a process of its own. It reads its task as a line of JSON, says that it is ready, reads
// the time to start at, and answers with a line of JSON. It ends with its parent: at the latest when its input does.

// runWorker is a worker's main function.
func runWorker(ctx context.Context, kind string) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	in := bufio.NewReader(os.Stdin)
	switch kind {
	case "contend":
		return work(ctx, in, contend)
	case "hold":
		return work(ctx, in, holdMany)
	case "queue":
		return work(ctx, in, takeTurns)
	case "latch":
		return work(ctx, in, awaitLatches)
	case "permits":
		return work(ctx, in, holdPermits)
	case "jobs":
		return work(ctx, in, holdJobs)
	case "drain":
		return work(ctx, in, drainJobs)
	case "tasks":
		return work(ctx, in, workOnTasks)
	case "scheduled":
		return work(ctx, in, runScheduled)
	case "leader":
		return work(ctx, in, leadUntilKilled)
	case "once":
		return work(ctx, in, callOnce)
	case "missing":
		return work(ctx, in, askForMissing)
	case "gocron":
		return work(ctx, in, scheduleJobs)
	}
	return fmt.Errorf("no worker of kind %q", kind)
}

// work runs task on what the parent sends. The task calls ready once, and gets the time to start at.
func work[In, Out any](ctx context.Context, in *bufio.Reader, task func(context.Context, In, func() time.Time) (Out, error)) error {
	var input In
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(line, &input); err != nil {
		return err
	}
	output, err := task(ctx, input, func() time.Time { return awaitStart(in) })
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(output); err != nil {
		return err
	}
	<-ctx.Done() // the parent ends this process when it has looked at what it left in Redis
	return nil
}

// awaitStart reports that this worker is ready and waits for the parent's word. From then on a watcher, which ends
// with the process, ends the process when the parent is gone.
func awaitStart(in *bufio.Reader) time.Time {
	fmt.Println("ready")
	var nanos int64
	if _, err := fmt.Fscanln(in, &nanos); err != nil {
		os.Exit(1)
	}
	go func() {
		_, _ = io.Copy(io.Discard, in)
		os.Exit(1)
	}()
	return time.Unix(0, nanos)
}

// worker is the parent's side of one.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startWorker(ctx context.Context, kind string, task any) (*worker, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-worker", kind)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = &firstLines{left: 10}
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	w := &worker{cmd: cmd, in: in, out: bufio.NewReader(out)}
	return w, json.NewEncoder(in).Encode(task)
}

func (w *worker) awaitReady() error {
	line, err := w.out.ReadString('\n')
	if err != nil || line != "ready\n" {
		return fmt.Errorf("worker %d is not ready: %q, %w", w.cmd.Process.Pid, line, err)
	}
	return nil
}

func (w *worker) start(at time.Time) error {
	_, err := fmt.Fprintln(w.in, at.UnixNano())
	return err
}

// result waits for the worker's answer.
func (w *worker) result(into any) error {
	line, err := w.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("worker %d gave no answer: %w", w.cmd.Process.Pid, err)
	}
	return json.Unmarshal(line, into)
}

// end stops the worker, whatever it is doing, and waits for it.
func (w *worker) end() {
	_ = w.cmd.Process.Kill() // it has answered or failed; there is nothing to lose
	_ = w.cmd.Wait()         // it was killed, and says so
}

func endAll(workers []*worker) {
	for _, w := range workers {
		w.end()
	}
}

// firstLines passes a worker's first lines on to this program's standard error. A library in trouble may log a line for each
// of a million locks.
type firstLines struct{ left int }

func (f *firstLines) Write(p []byte) (int, error) {
	if f.left <= 0 {
		return len(p), nil
	}
	for line := range bytes.Lines(p) {
		if f.left--; f.left < 0 {
			return len(p), nil
		}
		if _, err := os.Stderr.Write(line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// together has several workers do the same task, and returns what they answer. They begin at the same moment; from then on
// meanwhile runs, unless it is nil.
func together[In, Out any](ctx context.Context, kind string, processes int, task In, meanwhile func() error) ([]Out, error) {
	var workers []*worker
	defer func() { endAll(workers) }()
	for range processes {
		w, err := startWorker(ctx, kind, task)
		if err != nil {
			return nil, err
		}
		workers = append(workers, w)
	}
	for _, w := range workers {
		if err := w.awaitReady(); err != nil {
			return nil, err
		}
	}
	start := time.Now().Add(20 * time.Millisecond)
	for _, w := range workers {
		if err := w.start(start); err != nil {
			return nil, err
		}
	}
	if meanwhile != nil {
		if err := meanwhile(); err != nil {
			return nil, err
		}
	}
	results := make([]Out, len(workers))
	for i, w := range workers {
		if err := w.result(&results[i]); err != nil {
			return nil, err
		}
	}
	return results, nil
}
