package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// F16, F23: calls that wait for their turn behind others, whose call timeouts all end at one instant. The caller has set no deadline.
func TestCallTimeoutIsNoDeadlineOfTheCaller(t *testing.T) {
	states := maps.Clone(sweptCounters)
	maps.Copy(states, sweptGenerics)
	for _, kind := range []string{"fair", "reader", "multi"} {
		maps.Copy(states, sweptLocks(kind))
	}
	const callers, callTimeout = 20, 300 * time.Millisecond
	for name, state := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				theirs := b.Peer(t, redlatch.WithCloseGrace(0))
				object := state(t, b.Peer(t, redlatch.WithCloseGrace(0), redlatch.WithoutPresence()).Client, theirs.Client, "n").object
				for i, c := range sweptCalls(t, object) {
					for round := range faulttest.Rounds(t, 1, 20) {
						mine := b.Peer(t, redlatch.WithCloseGrace(0), redlatch.WithoutPresence(), redlatch.WithCallTimeout(callTimeout))
						s := state(t, mine.Client, theirs.Client, fmt.Sprint("n", i, "round", round))
						synctest.Wait()
						mine.Blackhole(true)
						ctx, cancel := context.WithCancel(t.Context())
						ended := make(chan error, callers)
						for range callers {
							go func() { ended <- c.do(t, ctx, s) }()
						}
						giveUp := time.AfterFunc(5*time.Second, cancel) // a wait for somebody
						for range callers {
							err := <-ended
							assert.NotErrorIs(t, err, context.DeadlineExceeded, "%s: %v", c.method.Name, err)
							silent := errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrUnknown)
							other := errors.Is(err, context.Canceled) || errors.Is(err, rlock.ErrNotHeld) || errors.Is(err, rlock.ErrNotAcquired) || errors.Is(err, redlatch.ErrInvalid)
							assert.True(t, err == nil || silent || other, "%s: %v", c.method.Name, err)
						}
						giveUp.Stop()
						cancel()
						mine.Blackhole(false)
						mine.Cut()
						require.NoError(t, mine.Close())
					}
				}
			})
		})
	}
}

// F16, F23
func TestTurnThatDoesNotComeIsUnavailable(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	c, err := redlatch.New(rdb, quiet, redlatch.WithCallTimeout(200*time.Millisecond), redlatch.WithCloseGrace(0))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	q := redlatch.GetDelayedQueue[string](c, "jobs")
	require.NoError(t, q.Resume(t.Context()))
	proxy.Blackhole(true)
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			err := q.Resume(t.Context())
			assert.NotErrorIs(t, err, context.DeadlineExceeded)
			assert.True(t, errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrUnknown), "%v", err)
		})
	}
	all.Wait()
	proxy.Blackhole(false)
}
