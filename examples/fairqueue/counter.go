package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

const (
	numbers = 30          // to be printed in all
	killAt  = 12          // B is killed in the line after so many
	silence = time.Second // after which a clerk in the line counts as gone
	toPrint = 100 * time.Millisecond
)

// counter is where the clerks work.
type counter struct{ url, prefix string }

// dial returns a client of the counter, and the connection below it.
func (c counter) dial() (*redlatch.Client, *redis.Client, error) {
	options, err := redis.ParseURL(c.url)
	if err != nil {
		return nil, nil, err
	}
	rdb := redis.NewClient(options)
	client, err := redlatch.New(rdb, redlatch.WithNamePrefix(c.prefix),
		redlatch.WithFairWaitTimeout(silence), redlatch.WithWatchdogTimeout(2*time.Second), redlatch.WithCloseGrace(0))
	return client, rdb, err
}

// inProcess runs a clerk in this process, until ctx ends: then all its connections break for good, so that it can say
// good-bye to nobody.
func inProcess(ctx context.Context, c counter, name string) error {
	client, rdb, err := c.dial()
	if err != nil {
		return err
	}
	defer rdb.Close()
	defer client.Close()
	stop := context.AfterFunc(ctx, func() { rdb.Close() })
	defer stop()
	return work(context.WithoutCancel(ctx), c, name, client, rdb)
}

// work prints numbers until all are printed. This is what to look at: the rest of the program is scenery.
func work(ctx context.Context, c counter, name string, client *redlatch.Client, rdb *redis.Client) error {
	printer := client.GetFairLock("printer")
	for last := 0; last < numbers; {
		err := printer.Do(ctx, func(ctx context.Context) error { // waits in line; this ctx ends when the lock is lost
			printed, err := rdb.RPush(ctx, c.prefix+"printed", name).Result()
			last = int(printed)
			if err == nil && last <= numbers {
				fmt.Printf("number %2d  %s\n", last, name)
			}
			return errors.Join(err, pause(ctx, toPrint))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// killInLine waits until enough numbers are printed and somebody else has the printer, and kills the clerk then.
func (c counter) killInLine(ctx context.Context, name string, kill func()) error {
	client, rdb, err := c.dial()
	if err != nil {
		return err
	}
	defer rdb.Close()
	defer client.Close()
	for {
		printed, err := rdb.LRange(ctx, c.prefix+"printed", 0, -1).Result()
		if err != nil {
			return err
		}
		if len(printed) >= killAt && printed[len(printed)-1] != name {
			fmt.Printf("           %s is killed while it stands in line\n", name)
			kill()
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// check requires that those who were alive took turns, and takes the counter down.
func (c counter) check(ctx context.Context) error {
	client, rdb, err := c.dial()
	if err != nil {
		return err
	}
	defer rdb.Close()
	defer client.Close()
	printed, err := rdb.LRange(ctx, c.prefix+"printed", 0, numbers-1).Result()
	if err != nil {
		return err
	}
	fmt.Printf("\nserved: %s\n", strings.Join(printed, " "))
	for i, name := range printed[3:] { // the first ones may have come before the others did
		if slices.Contains(printed[i+2:i+3], name) {
			return fmt.Errorf("number %d went to %s twice in a row", i+4, name)
		}
	}
	return rdb.Del(ctx, c.prefix+"printed").Err()
}

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
