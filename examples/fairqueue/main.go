// Fairqueue is a ticket counter: three clerks share one printer of numbers, which only one may use at a time, and stand in
// line for it whenever they have a customer. The line is a fair lock's, in Redis.
//
//	go run ./examples/fairqueue
//	go run ./examples/fairqueue -redis redis://localhost:6379
//
// With a Redis each clerk is a process of its own; without one, a client of its own on a server inside this process.
//
// Watch that the clerks are served in the order in which they came, again and again, though nothing but Redis knows of
// all three. Half-way B is killed while it stands in line: it is passed over once it has not been heard of for a second,
// and A and C go on. The program ends with an error if a number was printed twice, or somebody was served out of turn.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/embedded"
)

func main() {
	url := flag.String("redis", "", "`URL` of a Redis; default $REDIS_URL, and without that a server of its own")
	prefix := flag.String("counter", "", "set by the program itself for its clerks")
	name := flag.String("clerk", "", "set by the program itself for its clerks")
	flag.Parse()
	if *url == "" {
		*url = os.Getenv("REDIS_URL")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, 14*time.Second) // it takes 6 s
	run := demo
	if *name != "" {
		run = func(ctx context.Context, url string) error { return inProcess(ctx, counter{url, *prefix}, *name) }
	}
	err := run(ctx, *url)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fairqueue:", err)
		os.Exit(1)
	}
}

// demo has three clerks work until 30 numbers are printed, and kills one of them in the line.
func demo(ctx context.Context, url string) error {
	start := inProcess
	if url != "" {
		start = asProcess
	} else {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		url = server.URL()
	}
	c := counter{url, "fairqueue:{" + uuid.NewString()[:8] + "}:"}
	var clerks sync.WaitGroup
	results := make(chan error, 3) // one each
	kills := map[string]context.CancelFunc{}
	for _, name := range []string{"A", "B", "C"} {
		ctx, kill := context.WithCancel(ctx)
		defer kill()
		kills[name] = kill
		clerks.Go(func() {
			err := start(ctx, c, name)
			if ctx.Err() != nil && name == "B" {
				err = nil // killed, as it was to be
			}
			results <- err
		})
	}
	if err := c.killInLine(ctx, "B", kills["B"]); err != nil {
		return err
	}
	clerks.Wait()
	for range kills {
		if err := <-results; err != nil {
			return err
		}
	}
	return c.check(ctx)
}

// asProcess runs a clerk as a process, which is killed when ctx ends.
func asProcess(ctx context.Context, c counter, name string) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	process := exec.CommandContext(ctx, program, "-counter", c.prefix, "-clerk", name)
	process.Env = append(os.Environ(), "REDIS_URL="+c.url)
	process.Stdout, process.Stderr = os.Stdout, os.Stderr
	return process.Run()
}
