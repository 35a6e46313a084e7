package backoff_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/backoff"
)

func TestPausesDoubleUpToTheirMost(t *testing.T) {
	for n, want := range []time.Duration{10, 20, 40, 80, 100, 100} {
		assert.Equal(t, want*time.Millisecond, backoff.Doubled(n, 10*time.Millisecond, 100*time.Millisecond))
	}
	for _, n := range []int{30, 64, math.MaxInt} {
		assert.Equal(t, 15*time.Minute, backoff.Doubled(n, time.Second, 15*time.Minute))
	}
}

func TestPausesAreJitteredByAQuarter(t *testing.T) {
	shortest, longest := time.Hour, time.Duration(0)
	for range 10_000 {
		d := backoff.Pause(1, time.Second, time.Minute)
		shortest, longest = min(shortest, d), max(longest, d)
	}
	assert.GreaterOrEqual(t, shortest, 1500*time.Millisecond)
	assert.LessOrEqual(t, longest, 2500*time.Millisecond)
	assert.Greater(t, longest-shortest, 900*time.Millisecond)
	assert.Zero(t, backoff.Jitter(0))
}
