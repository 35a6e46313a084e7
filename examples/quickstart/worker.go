package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// lease is how long a lock outlives a holder that has died. It is short, so that the demo is. The default is 30 s.
const lease = 1500 * time.Millisecond

// worker is one participant, in a process of its own or not.
type worker struct {
	name   string
	start  time.Time // of the demo
	rdb    *redis.Client
	client *redlatch.Client
	alone  bool // in a process of its own
}

// hire makes a worker, or the client of one.
func (c crew) hire(ctx context.Context, name string) (*worker, error) {
	options, err := redis.ParseURL(c.url)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(options)
	if err := rdb.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	client, err := redlatch.New(rdb, redlatch.WithNamePrefix(c.prefix), redlatch.WithWatchdogTimeout(lease), redlatch.WithCloseGrace(0))
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &worker{name: name, start: c.start, rdb: rdb, client: client, alone: c.processes}, nil
}

func (w *worker) leave() {
	w.client.Close()
	w.rdb.Close()
}

// say prints one line: the time since the demo began, who speaks, and what.
func (w *worker) say(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Printf("%8s  %s  %s\n", seconds(time.Since(w.start)), w.name, text)
}

// crashCode is the exit code of a worker process that crashed on purpose.
const crashCode = 9

var errCrash = errors.New("crashed on purpose")

// crash ends the worker where it stands. A process dies; in a shared one, all connections of the worker break for good.
// Either way nobody unlocks, and nobody renews.
func (w *worker) crash() error {
	if w.alone {
		os.Exit(crashCode)
	}
	return errors.Join(errCrash, w.rdb.Close())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// pause waits, or returns why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
