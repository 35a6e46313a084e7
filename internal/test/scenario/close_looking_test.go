package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/ratomic"
	"github.com/redlatch/redlatch/grid/rbucket"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/grid/rset"
	"github.com/redlatch/redlatch/grid/rsortedset"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rratelimiter"
)

// looks are the calls that only look. They change nothing, and go on until they are told to end.
func looks() map[string]func(ctx context.Context, c *redlatch.Client) error {
	return map[string]func(ctx context.Context, c *redlatch.Client) error{
		"objects": func(ctx context.Context, c *redlatch.Client) error {
			for _, err := range c.Objects(ctx, "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"clients": func(ctx context.Context, c *redlatch.Client) error { _, err := c.Clients(ctx); return err },
		"ask":     func(ctx context.Context, c *redlatch.Client) error { _, err := c.Ask(ctx, c.ID()); return err },
		"lock":    func(ctx context.Context, c *redlatch.Client) error { _, err := c.GetLock("lock").Info(ctx); return err },
		"semaphore": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetSemaphore("s").Available(ctx)
			return err
		},
		"latch": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetCountDownLatch("l").Info(ctx)
			return err
		},
		"barrier": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetBarrier("b", 2).Info(ctx)
			return err
		},
		"limiter": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetRateLimiter("r", rratelimiter.Per(1, time.Hour)).Info(ctx, "k", 1)
			return err
		},
		"topic": func(ctx context.Context, c *redlatch.Client) error {
			_, err := redlatch.GetTopic[string](c, "t").Info(ctx)
			return err
		},
		"subscription": func(ctx context.Context, c *redlatch.Client) error {
			sub, err := redlatch.GetTopic[string](c, "t").Subscribe(ctx)
			if err != nil {
				return err
			}
			for _, err := range sub.All() {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"stats": func(ctx context.Context, c *redlatch.Client) error {
			_, err := redlatch.GetDelayedQueue[string](c, "q").Stats(ctx)
			return err
		},
		"jobs": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetScheduler("jobs").Jobs(ctx)
			return err
		},
		"observe": func(ctx context.Context, c *redlatch.Client) error {
			for _, err := range c.GetElection("e").Observe(ctx) {
				if isError(redlatch.ErrClosed)(err) {
					return err
				}
			}
			return nil
		},
		"peek": func(ctx context.Context, c *redlatch.Client) error {
			_, _, err := redlatch.GetOnce[string](c, "o").Peek(ctx, "k")
			return err
		},
		"ping": func(ctx context.Context, c *redlatch.Client) error { return c.Ping(ctx) },
		"bucket": func(ctx context.Context, c *redlatch.Client) error {
			_, _, err := rbucket.New[int](c, "v").Get(ctx)
			return err
		},
		"number": func(ctx context.Context, c *redlatch.Client) error {
			_, err := ratomic.NewInt64(c, "n").Load(ctx)
			return err
		},
		"map": func(ctx context.Context, c *redlatch.Client) error {
			for _, err := range rmap.New[string, int](c, "m").All(ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"near map": func(ctx context.Context, c *redlatch.Client) error {
			_, _, err := rmap.New[string, int](c, "near", rmap.WithNear(10)).Get(ctx, "k")
			return err
		},
		"set": func(ctx context.Context, c *redlatch.Client) error {
			_, err := rset.New[int](c, "set").Has(ctx, 1)
			return err
		},
		"sorted set": func(ctx context.Context, c *redlatch.Client) error {
			_, err := rsortedset.New[int](c, "z").Len(ctx)
			return err
		},
		"cache": func(ctx context.Context, c *redlatch.Client) error {
			_, _, err := rcache.New[string, int](c, "cache", nil).Peek(ctx, "k")
			return err
		},
	}
}

// F16: each goes on until Close, also with the connections that Close ends.
func TestCallsThatLookEndWithErrClosed(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	for i := range 300 {
		require.NoError(t, admin.HSet(t.Context(), fmt.Sprint("lock", i), "x", 1).Err())
	}
	for range 30 {
		c, err := redlatch.Open(t.Context(), server.URL(), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		var all, begun sync.WaitGroup
		for kind, look := range looks() {
			begun.Add(1)
			all.Go(func() {
				for i := 0; ; i++ {
					if i == 1 || i == 0 && (kind == "subscription" || kind == "observe") {
						begun.Done()
					}
					err := look(t.Context(), c)
					if err != nil && !errors.Is(err, redlatch.ErrNotListening) {
						assert.ErrorIs(t, err, redlatch.ErrClosed, kind)
						return
					}
				}
			})
		}
		begun.Wait()
		require.NoError(t, c.Close())
		all.Wait()
	}
}

// F16
func TestCallsThatLookEndWithCloseOnASilentRedis(t *testing.T) {
	for kind, look := range looks() {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t, redlatch.WithCloseGrace(0))
				p.Blackhole(true)
				ended := make(chan error, 1)
				go func() { ended <- look(t.Context(), p.Client) }()
				synctest.Wait()
				began := time.Now()
				closed := make(chan error, 1)
				go func() { closed <- p.Close() }()
				require.ErrorIs(t, <-ended, redlatch.ErrClosed)
				assert.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
				require.NoError(t, <-closed)
				assert.LessOrEqual(t, time.Since(began), tail)
				p.Blackhole(false)
			})
		})
	}
}
