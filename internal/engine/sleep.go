package engine

import (
	"context"
	"math/rand/v2"
	"time"
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

// Jitter returns a random duration between three quarters of d and five quarters.
func Jitter(d time.Duration) time.Duration {
	return d*3/4 + rand.N(d/2+1)
}
