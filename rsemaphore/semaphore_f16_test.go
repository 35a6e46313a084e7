package rsemaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestF16_SemaphoreWaitEndsInTimeWithoutAContext(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetSemaphore("s")
		give(t, s, 1)
		for _, wait := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 2 * time.Second} {
			p.Blackhole(true)
			start := time.Now()
			ok, err := s.TryAcquire(context.WithoutCancel(t.Context()), 1, rsemaphore.WithWait(wait))
			require.NoError(t, err)
			require.False(t, ok)
			require.LessOrEqual(t, time.Since(start), wait+50*time.Millisecond, "a silent Redis")
			p.Blackhole(false)
			time.Sleep(10 * time.Second) // what was given up is settled
			require.Equal(t, 1, counter(t, b.Redis, "s"))
		}
	})
}
