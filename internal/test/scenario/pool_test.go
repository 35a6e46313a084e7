package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// F25: what finds no connection in the pool was not sent, and did nothing.
func TestCallWithoutAConnectionInThePoolIsUnavailable(t *testing.T) {
	t.Parallel()
	calls := map[string]func(ctx context.Context, c *redlatch.Client) error{
		"permit": func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetPermitSemaphore("permit").Acquire(ctx)
			return err
		},
		"semaphore": func(ctx context.Context, c *redlatch.Client) error {
			return c.GetSemaphore("semaphore").Acquire(ctx, 1)
		},
		"latch": func(ctx context.Context, c *redlatch.Client) error {
			return c.GetCountDownLatch("latch").CountDown(ctx)
		},
		"queue": func(ctx context.Context, c *redlatch.Client) error {
			_, err := redlatch.GetDelayedQueue[int](c, "queue").Offer(ctx, 1, time.Hour)
			return err
		},
		"latch to set": func(ctx context.Context, c *redlatch.Client) error {
			return did(c.GetCountDownLatch("latch").TrySetCount(ctx, 1))
		},
		"latch, waiting": func(ctx context.Context, c *redlatch.Client) error {
			return c.GetCountDownLatch("latch").Await(ctx)
		},
		"queue, waiting": func(ctx context.Context, c *redlatch.Client) error {
			_, err := redlatch.GetDelayedQueue[int](c, "queue").Take(ctx)
			return err
		},
		"once": func(ctx context.Context, c *redlatch.Client) error {
			_, _, err := redlatch.GetOnce[int](c, "once").Do(ctx, "k", func(context.Context) (int, error) { return 1, nil })
			return err
		},
	}
	for kind, get := range allKinds() {
		calls[kind] = func(ctx context.Context, c *redlatch.Client) error {
			_, err := get(c, kind).TryLock(ctx, rlock.WithFixedLease(time.Minute))
			return err
		}
		calls[kind+", waiting"] = func(ctx context.Context, c *redlatch.Client) error {
			_, err := get(c, kind+"-waiting").Lock(ctx, rlock.WithFixedLease(time.Minute))
			return err
		}
	}
	for kind, call := range calls {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, err := embedded.Start()
			require.NoError(t, err)
			t.Cleanup(s.Close)
			options, err := redis.ParseURL(s.URL())
			require.NoError(t, err)
			options.PoolSize, options.PoolTimeout, options.MaxRetries = 1, 20*time.Millisecond, -1
			// In newer go-redis pipelines, which carry RedLocks, have a pool of their own.
			if size := reflect.ValueOf(options).Elem().FieldByName("PipelinePoolSize"); size.IsValid() {
				size.SetInt(-1)
			}
			rdb := redis.NewClient(options)
			c, err := redlatch.New(rdb, redlatch.WithoutPresence(), redlatch.WithAbandonOnClose(), redlatch.WithCloseGrace(0))
			require.NoError(t, err)
			t.Cleanup(func() {
				assert.NoError(t, c.Close())
				assert.NoError(t, rdb.Close())
			})
			if kind == "permit" || kind == "semaphore" {
				require.NoError(t, c.GetPermitSemaphore("permit").SetPermits(t.Context(), 1))
				_, err = c.GetSemaphore("semaphore").TrySetPermits(t.Context(), 1)
				require.NoError(t, err)
			}
			if kind == "latch" {
				_, err = c.GetCountDownLatch("latch").TrySetCount(t.Context(), 1)
				require.NoError(t, err)
			}
			if kind == "queue, waiting" {
				_, err = redlatch.GetDelayedQueue[int](c, "queue").Offer(t.Context(), 1, 0)
				require.NoError(t, err)
			}
			busy := rdb.Conn()
			require.NoError(t, busy.Ping(t.Context()).Err())
			// On a busy machine a call may end before it is known how its last try ended, and that one may be carried out later.
			maybe := false
			redistest.Eventually(t, 2*time.Second, "a call whose outcome is known", func() error {
				short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				if err = call(short, c); errors.Is(err, redlatch.ErrUnknown) {
					maybe = true
					return err
				}
				return nil
			})
			require.ErrorIs(t, err, redlatch.ErrUnavailable, fmt.Sprint(err))
			require.NotErrorIs(t, err, redlatch.ErrUnknown)
			require.NoError(t, busy.Close())
			if maybe {
				return
			}
			// A member of a multi-lock that was asked after all is released in the background.
			redistest.Eventually(t, 5*time.Second, "nothing was done, so it can be done again", func() error { return call(t.Context(), c) })
		})
	}
}
