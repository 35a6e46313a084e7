// Quickstart shows redlatch at the job that locks are most used for: a clean-up that several workers wake up for, and
// that one of them should do. Three workers of an order service wake every second to close unpaid orders and to put
// their stock back.
//
//	go run ./examples/quickstart
//	go run ./examples/quickstart -redis redis://localhost:6379
//
// With a Redis each worker is a process of its own; without one, a client of its own on a server inside this process.
//
// Watch who gets the lock each second; how long it stays taken after its holder crashed in the middle of an order; and
// that every order is closed once even so. Then come a job that outlives its lease, a lock that is taken away, and
// nesting. Step 5 repeats step 1 without the lock, and the table compares the two. The program ends with an error if an
// order was not closed exactly once under the lock. The code to look at first is in cleanup.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/embedded"
)

func main() {
	if err := start(19 * time.Second); err != nil { // it takes 13 s
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// start runs the program, or the worker that it is started as, for so long at most.
func start(limit time.Duration) error {
	url := flag.String("redis", "", "`URL` of a Redis; default $REDIS_URL, and without that a server of its own")
	process := flag.String("shift", "", "set by the program itself for its worker processes")
	flag.Parse()
	if *url == "" {
		*url = os.Getenv("REDIS_URL")
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if *process != "" {
		return workProcess(ctx, *url, *process)
	}
	return demo(ctx, *url)
}

func demo(ctx context.Context, url string) error {
	three := crew{url: url, prefix: "quickstart:{" + uuid.NewString()[:8] + "}:", start: time.Now(), processes: url != ""}
	if url == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		three.url = server.URL()
	}
	boss, err := three.hire(ctx, "-")
	if err != nil {
		return err
	}
	defer boss.leave()

	locked := &shop{rdb: boss.rdb, prefix: three.prefix + "with-lock:"}
	unlocked := &shop{rdb: boss.rdb, prefix: three.prefix + "without-lock:"}
	defer locked.clear(context.WithoutCancel(ctx))
	defer unlocked.clear(context.WithoutCancel(ctx))

	heading("1. Three workers, one lock: %s", three)
	if err := three.work(ctx, locked, true); err != nil {
		return err
	}
	if err := scenes(ctx, three); err != nil {
		return err
	}
	heading("5. The first step again, without the lock")
	if err := three.work(ctx, unlocked, false); err != nil {
		return err
	}
	return compare(ctx, locked, unlocked)
}
