package core

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/backoff"
)

// Sleep waits for d or for ctx, and returns ctx's error.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Margin is how long before the end of a lease its contexts end.
func Margin(lease time.Duration) time.Duration { return max(lease/100, 2*time.Millisecond) }

// Backoff returns how long to pause before another try, after so many that failed: 10 ms at first, 1 s at the most, jittered.
func Backoff(try int) time.Duration {
	return backoff.Pause(try, 10*time.Millisecond, time.Second)
}

// Jitter returns a random duration between three quarters of d and five quarters.
func Jitter(d time.Duration) time.Duration { return backoff.Jitter(d) }

// Pause waits before another try, after so many that failed, and returns ctx's error.
func Pause(ctx context.Context, try int) error { return Sleep(ctx, Backoff(try)) }

// PauseUntil waits as Pause does, but not beyond until, and reports whether there is time left for the try.
func (c *Core) PauseUntil(ctx context.Context, try int, until time.Duration) bool {
	pause, left := Backoff(try), until-c.Clock.Now()
	return Sleep(ctx, min(pause, left)) == nil && pause < left
}
