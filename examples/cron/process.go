package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rscheduler"
)

// serve is what a process does.
func serve(ctx context.Context, url string) error {
	client, err := redlatch.Open(ctx, url)
	if err != nil {
		return err
	}
	defer client.Close()
	s := client.GetScheduler("billing", rscheduler.WithLease(lease))
	err = s.Register("close-orders", rscheduler.MustCron("* * * * * *"), closeOrders,
		rscheduler.WithOverlap(rscheduler.Allow)) // the next tick does not wait for the repetition of one
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// closeOrders is the job.
func closeOrders(ctx context.Context, run rscheduler.Run) error {
	fmt.Println("begins", run.Scheduled.Unix(), run.Attempt)
	select {
	case <-time.After(700 * time.Millisecond): // the work
	case <-ctx.Done():
		return context.Cause(ctx) // another process may repeat the run
	}
	fmt.Println("ends", run.Scheduled.Unix(), run.Attempt)
	return nil
}

// event is a line of a process.
type event struct {
	process, what string
	tick          int64
	attempt       int
}

// process is a running one.
type process struct{ end func() }

// start starts this program as a process that serves, and sends what it prints to events until it has ended.
func start(ctx context.Context, name, url string, events chan<- event) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-serve", url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	killed := make(chan struct{})
	go func() { // ends with the process
		for lines := bufio.NewScanner(out); lines.Scan(); {
			e := event{process: name}
			if _, err := fmt.Sscan(lines.Text(), &e.what, &e.tick, &e.attempt); err != nil {
				continue
			}
			select {
			case events <- e:
			case <-killed:
				return
			}
		}
	}()
	end := func() {
		if cmd.ProcessState == nil {
			close(killed)
			_ = cmd.Process.Kill() // kill -9: it releases nothing
			_ = cmd.Wait()         // that it was killed is no news
		}
	}
	return &process{end}, cmd.Start()
}
