package rsemaphore_test

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func nothing(context.Context) error { return nil }

func TestSemaphoreDoGivesBackWhatItAcquired(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s, ctx := b.Peer(t).GetSemaphore("s", rsemaphore.WithMax(3)), t.Context()
		give(t, s, 3)
		require.NoError(t, s.Do(ctx, 2, func(context.Context) error { requireThere(t, s, 1); return nil }))
		requireThere(t, s, 3)
		assert.Equal(t, assert.AnError, s.Do(ctx, 3, func(context.Context) error { return assert.AnError }), "fn's error as it is")
		assert.PanicsWithValue(t, "boom", func() { _ = s.Do(ctx, 3, func(context.Context) error { panic("boom") }) })
		go func() { _ = s.Do(ctx, 3, func(context.Context) error { runtime.Goexit(); return nil }) }()
		synctest.Wait()
		cancelled, cancel := context.WithCancel(ctx)
		require.NoError(t, s.Do(cancelled, 1, func(context.Context) error { cancel(); return nil }), "it releases with a done context")
		require.ErrorIs(t, s.Do(cancelled, 1, nothing), context.Canceled)
		require.ErrorIs(t, s.Do(ctx, 1, nil), redlatch.ErrInvalid)
		require.ErrorIs(t, s.Do(ctx, 0, nothing), redlatch.ErrInvalid)
		require.ErrorIs(t, s.Do(ctx, 4, nothing), redlatch.ErrInvalid)
		requireThere(t, s, 3)

		err := s.Do(ctx, 1, func(context.Context) error {
			release(t, s, 1) // that of another one
			return assert.AnError
		})
		require.ErrorIs(t, err, assert.AnError)
		require.ErrorIs(t, err, rsemaphore.ErrOverRelease)
		require.ErrorContains(t, err, `rsemaphore: do "s": `)
	})
}

// F2
func TestDoReturnsWhatItsFunctionReturnedWhenTheReleaseIsNotAnswered(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log lines
		p := b.Peer(t, redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		s, permits := p.GetSemaphore("s"), p.GetPermitSemaphore("permits")
		give(t, s, 1)
		givePermits(t, permits, 1)
		silent := func(context.Context) error { p.Blackhole(true); return assert.AnError }
		for line, err := range map[string]error{
			"a release of permits was not answered": s.Do(t.Context(), 1, silent),
			"a permit was not released":             answered(p, func() error { return permits.Do(t.Context(), silent) }),
		} {
			assert.Equal(t, assert.AnError, err)
			synctest.Wait() // the log is written by another goroutine
			assert.Contains(t, log.String(), line)
		}
		p.Blackhole(false)
		time.Sleep(10 * time.Second)
		requireThere(t, s, 1)
		there, err := permits.Available(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, there, "the release goes on")
	})
}

// answered calls f when Redis answers again.
func answered(p *locktest.Peer, f func() error) error {
	p.Blackhole(false)
	return f()
}

// lines are what is logged.
type lines struct {
	mu   sync.Mutex // guards text
	text strings.Builder
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestPermitDoGivesBackWhatItAcquired(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s, ctx := b.Peer(t).GetPermitSemaphore("s"), t.Context()
		givePermits(t, s, 1)
		there := func() int {
			n, err := s.Available(ctx)
			require.NoError(t, err)
			return n
		}
		require.NoError(t, s.Do(ctx, func(inner context.Context) error {
			assert.Zero(t, there())
			assert.ErrorIs(t, s.Do(inner, nothing, rsemaphore.WithWait(0)), rsemaphore.ErrNotAcquired)
			return nil
		}))
		assert.Equal(t, assert.AnError, s.Do(ctx, func(context.Context) error { return assert.AnError }), "fn's error as it is")
		assert.PanicsWithValue(t, "boom", func() { _ = s.Do(ctx, func(context.Context) error { panic("boom") }) })
		go func() { _ = s.Do(ctx, func(context.Context) error { runtime.Goexit(); return nil }) }()
		synctest.Wait()
		cancelled, cancel := context.WithCancel(ctx)
		require.NoError(t, s.Do(cancelled, func(context.Context) error { cancel(); return nil }), "it releases with a done context")
		require.ErrorIs(t, s.Do(cancelled, nothing), context.Canceled)
		require.ErrorIs(t, s.Do(ctx, nil), redlatch.ErrInvalid)
		assert.Equal(t, 1, there())
	})
}

func TestPermitDoSaysThatItsPermitWasLost(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s, ctx := b.Peer(t).GetPermitSemaphore("s"), t.Context()
		givePermits(t, s, 1)
		err := s.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, rsemaphore.WithFixedLease(time.Second))
		require.ErrorIs(t, err, rsemaphore.ErrLost)
		require.ErrorIs(t, err, context.Canceled)
		err = s.Do(ctx, func(context.Context) error { b.Delete(t, "{s}:timeout"); return nil })
		require.ErrorIs(t, err, rsemaphore.ErrLost)
		require.ErrorContains(t, err, `rsemaphore: do "s": permit lost`)
	})
}
