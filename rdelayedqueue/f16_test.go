package rdelayedqueue_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func TestF16_CallsEndWithTheirContextsWhenRedisIsSilent(t *testing.T) {
	t.Parallel()
	const limit, slack = 300 * time.Millisecond, 150 * time.Millisecond
	calls := map[string]func(ctx context.Context, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) error{
		"Offer": func(ctx context.Context, q *rdelayedqueue.Queue[job], _ *rdelayedqueue.Message[job]) error {
			_, err := q.Offer(ctx, job{}, 0)
			return err
		},
		"Take": func(ctx context.Context, q *rdelayedqueue.Queue[job], _ *rdelayedqueue.Message[job]) error {
			_, err := q.Take(ctx)
			return err
		},
		"Stats": func(ctx context.Context, q *rdelayedqueue.Queue[job], _ *rdelayedqueue.Message[job]) error {
			_, err := q.Stats(ctx)
			return err
		},
		"Extend": func(ctx context.Context, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) error {
			return m.Extend(ctx, time.Minute)
		},
		"Ack": func(ctx context.Context, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) error {
			return m.Ack(ctx)
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := r.client(t)
			q := queue(c)
			_, err := q.Offer(t.Context(), job{}, 0)
			require.NoError(t, err)
			m, err := q.Take(t.Context())
			require.NoError(t, err)
			r.proxy.Blackhole(true)
			defer r.proxy.Blackhole(false)
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			start := time.Now()
			err = call(ctx, q, m)
			assert.Less(t, time.Since(start), limit+slack)
			require.Error(t, err)
			if name == "Ack" {
				assert.ErrorIs(t, err, redlatch.ErrUnknown)
			} else {
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
			start = time.Now()
			require.NoError(t, c.Close())
			assert.Less(t, time.Since(start), 100*time.Millisecond+3*time.Second+slack, "grace + 3 s")
		})
	}
}

func TestF16_ConsumerOutlivesARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	handled := make(chan string, 10)
	q := queue(r.direct(t))
	stop := consume(t, q, func(_ context.Context, m *rdelayedqueue.Message[job]) error {
		handled <- m.Value.Name
		return nil
	})
	for _, name := range []string{"before", "after"} {
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if _, err = q.Offer(t.Context(), job{Name: name}, 0); err == nil {
				break
			}
		}
		require.NoError(t, err)
		assert.Equal(t, name, <-handled)
		if name == "before" {
			r.server.Restart()
		}
	}
	assert.NoError(t, stop())
}
