// Startline shows countdown latches across processes: three runners get ready in their own time and start at one instant,
// and the starter waits until all of them have finished.
//
//	go run ./examples/startline
//	go run ./examples/startline -redis redis://localhost:6379
//
// With a Redis each runner is a process of its own; without one, a client of its own on a server inside this process.
//
// Three latches make the race: "ready" is counted down by each runner, "gun" by the starter, "finished" by each runner
// again. Watch how far apart the starts are, although the runners get ready up to a second apart. Runners count down by
// name, so that one which is restarted does not count twice; runner B says twice that it is ready.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
)

func main() {
	url := flag.String("redis", os.Getenv("REDIS_URL"), "`URL` of a Redis; without one, a server of its own")
	race := flag.String("race", "", "set by the program itself for its runners")
	runner := flag.String("runner", "", "as -race")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // it takes about 2 s
	defer cancel()
	part := start
	if *runner != "" {
		part = func(ctx context.Context, url string) error { return run(ctx, url, *race, *runner) }
	}
	if err := part(ctx, *url); err != nil {
		fmt.Fprintln(os.Stderr, "startline:", err)
		os.Exit(1) //nolint:gocritic // the context ends with the process
	}
}

// start is the starter's part.
func start(ctx context.Context, url string) error {
	race, begin := "startline:"+uuid.NewString()[:8]+":", runProcess
	if url == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		url, begin = server.URL(), run
	}
	client, err := redlatch.Open(ctx, url, redlatch.WithNamePrefix(race))
	if err != nil {
		return err
	}
	defer client.Close()

	runners := []string{"A", "B", "C"}
	ready, gun, finished := client.GetCountDownLatch("ready"), client.GetCountDownLatch("gun"), client.GetCountDownLatch("finished")
	_, err1 := ready.TrySetCount(ctx, len(runners)) // before anybody awaits them: a missing latch is open
	_, err2 := gun.TrySetCount(ctx, 1)
	_, err3 := finished.TrySetCount(ctx, len(runners))
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	racing, abandon := context.WithCancelCause(ctx) // a runner that fails ends the race
	defer abandon(nil)
	ended := make(chan error, len(runners)) // one from each
	for _, name := range runners {
		go func() {
			err := begin(racing, url, race, name)
			if err != nil {
				abandon(fmt.Errorf("runner %s: %w", name, err))
			}
			ended <- err
		}()
	}
	if err := ready.Await(racing); err != nil {
		return cmp.Or(context.Cause(racing), err)
	}
	fmt.Println("all are ready; the gun fires at", time.Now().Format("05.000"))
	if err := gun.CountDown(ctx); err != nil {
		return err
	}
	if err := finished.Await(racing); err != nil {
		return cmp.Or(context.Cause(racing), err)
	}
	fmt.Println("all have finished")
	for range runners {
		err = errors.Join(err, <-ended)
	}
	return err
}

// runProcess runs a runner in a process of its own.
func runProcess(ctx context.Context, url, race, name string) error {
	process := exec.CommandContext(ctx, os.Args[0], "-race", race, "-runner", name)
	process.Env = append(os.Environ(), "REDIS_URL="+url)
	process.Stdout, process.Stderr = os.Stdout, os.Stderr
	return process.Run()
}
