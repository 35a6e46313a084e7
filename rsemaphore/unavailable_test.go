package rsemaphore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// F16, F27
func TestSemaphoreWaitEndsInTimeWithoutAContext(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetSemaphore("s")
		give(t, s, 1)
		for _, wait := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 2 * time.Second} {
			p.Blackhole(true)
			start := time.Now()
			ok, err := s.TryAcquire(context.WithoutCancel(t.Context()), 1, rsemaphore.WithWait(wait))
			if wait > 50*time.Millisecond { // less is no time to answer
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
			}
			require.False(t, ok)
			require.LessOrEqual(t, time.Since(start), wait+50*time.Millisecond, "a silent Redis")
			p.Blackhole(false)
			time.Sleep(10 * time.Second) // what was given up is settled
			require.Equal(t, 1, counter(t, b.Redis, "s"))
		}
	})
}

// F27
func TestSemaphoreWaitThatEndsInAnOutageSaysWhy(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetSemaphore("s")
		give(t, s, 1)
		take(t, s, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		ends := make(chan error, 3) // room for all
		go func() { ends <- s.Acquire(ctx, 1) }()
		for range 2 { // the second one has asked nobody
			go func() {
				_, err := s.TryAcquire(t.Context(), 1, rsemaphore.WithWait(4*time.Second))
				ends <- err
			}()
		}
		time.Sleep(time.Second)
		p.Refuse(true)
		p.Cut()
		for range 3 {
			err := <-ends
			require.ErrorIs(t, err, redlatch.ErrUnavailable)
			require.ErrorContains(t, err, "connection refused")
		}
		p.Refuse(false)
	})
}

// F27
func TestSemaphoreTellsBusyFromDown(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCallTimeout(2*time.Second))
		s := p.GetSemaphore("s")
		give(t, s, 1)
		take(t, s, 1)
		for _, wait := range []time.Duration{0, 3 * time.Second} {
			got, err := s.TryAcquire(t.Context(), 1, rsemaphore.WithWait(wait))
			require.NoError(t, err, "it is busy")
			require.False(t, got)
		}
		p.HangReplies(1000)
		for _, wait := range []time.Duration{0, 3 * time.Second} {
			start := time.Now()
			got, err := s.TryAcquire(t.Context(), 1, rsemaphore.WithWait(wait))
			require.ErrorIs(t, err, redlatch.ErrUnavailable)
			require.False(t, got)
			require.LessOrEqual(t, time.Since(start), 3*time.Second+semaphoreMoment)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Acquire(ctx, 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		start := time.Now()
		err = s.AddPermits(t.Context(), 1)
		require.True(t, lost(err) || errors.Is(err, redlatch.ErrUnavailable), "%v", err)
		require.LessOrEqual(t, time.Since(start), 2*time.Second+semaphoreMoment)
		start = time.Now()
		require.ErrorIs(t, s.Acquire(t.Context(), 1), redlatch.ErrUnavailable)
		require.LessOrEqual(t, time.Since(start), 70*time.Second, "a lease for the batch in front, and one for its own")
	})
}
