package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/rsemaphore"
)

// process is a running one, or what stands for it.
type process struct {
	kill func() error // it gets no chance to release anything
	wait func() error
}

// startProcess starts a process of its own.
func startProcess(ctx context.Context, url, prefix string, number int) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-redis", url, "-prefix", prefix, "-process", strconv.Itoa(number))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	kill := func() error {
		err := cmd.Process.Kill() // kill -9
		_ = cmd.Wait()            // that it was killed is no news
		return err
	}
	return &process{kill: kill, wait: cmd.Wait}, cmd.Start()
}

// startClient starts a client in this process, which dies when its connections break for good.
func startClient(ctx context.Context, url, prefix string, number int) (*process, error) {
	options, err := redis.ParseURL(url)
	if err != nil {
		return nil, err
	}
	rdb := redis.NewClient(options)
	ended := make(chan error, 1)
	go func() { ended <- workOn(ctx, rdb, prefix, number) }() // ends with the files, or with its connections
	return &process{kill: rdb.Close, wait: func() error { return errors.Join(<-ended, rdb.Close()) }}, nil
}

// watch kills a process while it downloads, and sees its permits return.
func watch(ctx context.Context, rdb *redis.Client, prefix string, victim *process) error {
	for rdb.SCard(ctx, prefix+"done").Val() < permits { // all processes are at work
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	if err := victim.kill(); err != nil {
		return err
	}
	killed := time.Now()
	fmt.Printf("\nProcess 1 is killed. Its permits come back when their leases of %v end.\n\n", lease)
	dead := rdb.HGetAll(ctx, prefix+"busy").Val() // permit -> worker
	maps.DeleteFunc(dead, func(_, worker string) bool { return !strings.HasPrefix(worker, "process 1,") })
	for {
		out := rdb.ZRange(ctx, "{"+prefix+"slots}:timeout", 0, -1).Val() // what Redis has: raw ids
		if len(out) > permits {
			return fmt.Errorf("%d permits are out, not at most %d", len(out), permits)
		}
		for id, worker := range dead {
			raw, _ := hex.DecodeString(id) // it is hexadecimal
			if !slices.Contains(out, string(raw)) {
				fmt.Printf("%.2f s after the kill permit %s of %s is back\n", time.Since(killed).Seconds(), id[:8], worker)
				delete(dead, id)
			}
		}
		if rdb.SCard(ctx, prefix+"done").Val() == files && len(dead) == 0 {
			fmt.Printf("\nAll files are there %.1f s after the kill.\n", time.Since(killed).Seconds())
			return nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// compare tells whether all went as promised.
func compare(ctx context.Context, rdb *redis.Client, slots *rsemaphore.PermitSemaphore, prefix string) error {
	for left := 0; left < permits; {
		var err error
		if left, err = slots.Available(ctx); err != nil {
			return err
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("%d of %d permits are back: %w", left, permits, err)
		}
	}
	fmt.Printf("%d of %d files were fetched, and all %d permits are back.\n", rdb.SCard(ctx, prefix+"done").Val(), files, permits)
	return nil
}

func clean(ctx context.Context, rdb *redis.Client, prefix string) {
	rdb.Del(ctx, prefix+"slots", "{"+prefix+"slots}:timeout", prefix+"next", prefix+"done", prefix+"busy")
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
