package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"
)

// crew is where the workers work.
type crew struct {
	url, prefix string    // of the Redis; of the demo's keys and locks in it
	start       time.Time // of the demo
	processes   bool      // each worker is one
}

func (c crew) String() string {
	if c.processes {
		return "each worker is a process"
	}
	return "each worker is a client in this process"
}

// shift is what one worker is to do.
type shift struct {
	Worker, Prefix, Shop string // whose; before all its names; before those of its orders
	Locked               bool
	Start, First         time.Time // of the demo; of the first round
}

// work has three workers wake at the same times, and waits until they are done. One of them crashes.
func (c crew) work(ctx context.Context, s *shop, locked bool) error {
	first := time.Now().Add(500 * time.Millisecond) // processes take a moment to start
	if err := s.open(ctx, first); err != nil {
		return err
	}
	var workers sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		duty := shift{string(rune('A' + i)), c.prefix, s.prefix, locked, c.start, first}
		workers.Go(func() {
			if err := c.run(ctx, duty); !errors.Is(err, errCrash) {
				errs[i] = err
			}
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}

// run runs one worker to its end.
func (c crew) run(ctx context.Context, duty shift) error {
	if !c.processes {
		return duty.work(ctx, c)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(duty)
	if err != nil {
		return err
	}
	process := exec.CommandContext(ctx, program, "-shift", string(text))
	process.Env = append(os.Environ(), "REDIS_URL="+c.url)
	process.Stdout, process.Stderr = os.Stdout, os.Stderr
	err = process.Run()
	if process.ProcessState != nil && process.ProcessState.ExitCode() == crashCode {
		return errCrash
	}
	if err != nil {
		return fmt.Errorf("worker %s: %w", duty.Worker, err)
	}
	return nil
}

// workProcess is a worker process.
func workProcess(ctx context.Context, url, text string) error {
	var duty shift
	if err := json.Unmarshal([]byte(text), &duty); err != nil {
		return err
	}
	return duty.work(ctx, crew{url: url, prefix: duty.Prefix, start: duty.Start, processes: true})
}

// work is a worker's day: it wakes every second until all orders are closed.
func (duty shift) work(ctx context.Context, c crew) error {
	w, err := c.hire(ctx, duty.Worker)
	if err != nil {
		return err
	}
	defer w.leave()
	s := &shop{rdb: w.rdb, prefix: duty.Shop}
	task := w.closeOrders
	if duty.Locked {
		task = w.cleanUp
	}
	for wake := duty.First; ; wake = wake.Add(time.Second) {
		if err := pause(ctx, time.Until(wake)); err != nil {
			return err
		}
		if done, err := s.done(ctx); done || err != nil {
			return err
		}
		if err := task(ctx, s); err != nil {
			return err
		}
	}
}
