package rdelayedqueue_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// badInputs are calls that must fail before any I/O.
var badInputs = map[string]func(ctx context.Context, c *redlatch.Client) error{
	"empty name": func(ctx context.Context, c *redlatch.Client) error {
		_, err := redlatch.GetDelayedQueue[job](c, "").Take(ctx)
		return err
	},
	"negative delay": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).Offer(ctx, job{}, -1)
		return err
	},
	"endless delay": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).Offer(ctx, job{}, 1<<63-1)
		return err
	},
	"empty id": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).Offer(ctx, job{}, 0, rdelayedqueue.WithID(""))
		return err
	},
	"id with a line": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).Cancel(ctx, "a\nb")
		return err
	},
	"long id in a batch": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).OfferBatch(ctx, []rdelayedqueue.Item[job]{{}, {ID: strings.Repeat("x", 513)}})
		return err
	},
	"large payload": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c, rdelayedqueue.WithMaxPayload(10)).Offer(ctx, job{Name: "more than ten bytes"}, 0)
		return err
	},
	"payload that the codec refuses": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c, rdelayedqueue.WithCodec(codec.Bytes{})).Offer(ctx, job{}, 0)
		return err
	},
	"no codec": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c, rdelayedqueue.WithCodec(nil)).Offer(ctx, job{}, 0)
		return err
	},
	"nil pointer for a codec": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c, rdelayedqueue.WithCodec((*codec.JSON)(nil))).Take(ctx)
		return err
	},
	"short visibility": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c, rdelayedqueue.WithVisibility(time.Second-1)).Stats(ctx)
		return err
	},
	"time that never comes": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).OfferAt(ctx, job{}, time.Now().Add(101*365*24*time.Hour))
		return err
	},
	"nil option of a queue": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c, nil).Stats(ctx)
		return err
	},
	"nil option of a consumer": func(ctx context.Context, c *redlatch.Client) error { return consumeWith(ctx, c, nil) },
	"nil option": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).Offer(ctx, job{}, 0, nil)
		return err
	},
	"nil handler": func(ctx context.Context, c *redlatch.Client) error { return queue(c).Consume(ctx, nil) },
	"no concurrency": func(ctx context.Context, c *redlatch.Client) error {
		return consumeWith(ctx, c, rdelayedqueue.WithConcurrency(0))
	},
	"bad prefetch": func(ctx context.Context, c *redlatch.Client) error {
		return consumeWith(ctx, c, rdelayedqueue.WithPrefetch(-1))
	},
	"bad attempts": func(ctx context.Context, c *redlatch.Client) error {
		return consumeWith(ctx, c, rdelayedqueue.WithMaxAttempts(-1))
	},
	"nil back-off": func(ctx context.Context, c *redlatch.Client) error {
		return consumeWith(ctx, c, rdelayedqueue.WithBackoff(nil))
	},
	"no handler time": func(ctx context.Context, c *redlatch.Client) error {
		return consumeWith(ctx, c, rdelayedqueue.WithTimeout(0))
	},
	"bad stop grace": func(ctx context.Context, c *redlatch.Client) error {
		return consumeWith(ctx, c, rdelayedqueue.WithStopGrace(-1))
	},
	"priority of 10": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).Offer(ctx, job{}, 0, rdelayedqueue.WithPriority(10))
		return err
	},
	"negative priority": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).OfferBatch(ctx, []rdelayedqueue.Item[job]{{}, {Priority: -1}})
		return err
	},
	"empty group": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).Offer(ctx, job{}, 0, rdelayedqueue.WithGroup(""))
		return err
	},
	"group with a line break": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).OfferBatch(ctx, []rdelayedqueue.Item[job]{{Group: "a\nb"}})
		return err
	},
	"groups of none": func(ctx context.Context, c *redlatch.Client) error {
		_, err := redlatch.GetDelayedQueue[job](c, "jobs", rdelayedqueue.WithGroupLimit(0)).Offer(ctx, job{}, 0)
		return err
	},
	"batch of none": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).TakeBatch(ctx, 0)
		return err
	},
	"page of none": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).Dead(ctx, 0)
		return err
	},
	"bad state of all": func(ctx context.Context, c *redlatch.Client) (failed error) {
		for _, err := range queue(c).All(ctx, 7) {
			failed = err
		}
		return failed
	},
	"bad state": func(ctx context.Context, c *redlatch.Client) error {
		_, err := queue(c).Purge(ctx, 7)
		return err
	},
	"nil context": func(_ context.Context, c *redlatch.Client) error {
		var none context.Context
		_, err := queue(c).Take(none)
		return err
	},
}

func consumeWith(ctx context.Context, c *redlatch.Client, opt rdelayedqueue.ConsumeOption) error {
	return queue(c).Consume(ctx, func(context.Context, *rdelayedqueue.Message[job]) error { return nil }, opt)
}

// F23
func TestBadInputIsInvalidBeforeAnyIO(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		for name, call := range badInputs {
			assert.ErrorIs(t, call(t.Context(), p.Client), redlatch.ErrInvalid, name)
		}
		assert.Empty(t, p.Sent())
	})
}

// F23
func TestOptionsThatApplyAreTaken(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		q := jobs(b.Peer(t), rdelayedqueue.WithCodec(codec.JSON{}), rdelayedqueue.WithMaxPayload(100), rdelayedqueue.WithDedupe(time.Second),
			rdelayedqueue.WithVisibility(time.Second), rdelayedqueue.WithMaxAttempts(0), rdelayedqueue.WithBackoff(func(int) time.Duration { return 0 }))
		assert.NoError(t, q.Consume(ctx, func(context.Context, *rdelayedqueue.Message[job]) error { return nil },
			rdelayedqueue.WithConcurrency(2), rdelayedqueue.WithPrefetch(0), rdelayedqueue.WithStopGrace(0), rdelayedqueue.WithTimeout(time.Second)))
	})
}

// F23
func TestErrorsSayWhatWasDoneToWhat(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		_, err := q.Offer(t.Context(), job{}, -time.Second)
		assert.EqualError(t, err, `rdelayedqueue: offer to "jobs": invalid argument: delay -1s is below 0s`)
		offer(t, q, "a", 0)
		m := take(t, q)
		require.NoError(t, m.Nack(t.Context(), 0))
		assert.EqualError(t, m.Ack(t.Context()), `rdelayedqueue: ack a message of "jobs": message not held`)
	})
}

// F25
func TestBatchThatIsAddedInPartIsNotCalledUnconfirmed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithReplicas(1, 10*time.Millisecond))
		items := make([]rdelayedqueue.Item[job], 150) // two calls
		_, err := queue(p.Client).OfferBatch(t.Context(), items)
		require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
		items[149].ID = "refused"
		b.Mini.Server().SetPreHook(func(p *server.Peer, _ string, args ...string) bool {
			refused := slices.Contains(args, "refused")
			if refused {
				p.WriteError("ERR refused")
			}
			return refused
		})
		_, err = queue(p.Client).OfferBatch(t.Context(), items)
		require.ErrorContains(t, err, "ERR refused")
		require.NotErrorIs(t, err, redlatch.ErrNotConfirmed)
	})
}

// F23
func TestForeignDataIsOfTheWrongType(t *testing.T) {
	for _, part := range []string{"meta", "due", "bodies"} {
		t.Run(part, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				q := jobs(b.Peer(t))
				require.NoError(t, b.Redis.Set(t.Context(), "redlatch_dq:{jobs}:"+part, "x", 0).Err())
				_, err := q.Offer(t.Context(), job{}, 0)
				assert.ErrorIs(t, err, redlatch.ErrWrongType)
				written := slices.DeleteFunc(b.Keys(t), func(key string) bool { return key == seriesKey }) // it may count what then fails
				assert.Equal(t, []string{"redlatch_dq:{jobs}:" + part}, written, "nothing was written")
			})
		})
	}
}

// calls are those that ask Redis.
var calls = map[string]func(ctx context.Context, q *rdelayedqueue.Queue[job]) error{
	"Offer": func(ctx context.Context, q *rdelayedqueue.Queue[job]) error {
		_, err := q.Offer(ctx, job{}, 0)
		return err
	},
	"Take":   func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { _, err := q.Take(ctx); return err },
	"Cancel": func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { _, err := q.Cancel(ctx, "a"); return err },
	"Reschedule": func(ctx context.Context, q *rdelayedqueue.Queue[job]) error {
		_, err := q.Reschedule(ctx, "a", 0)
		return err
	},
	"Redrive": func(ctx context.Context, q *rdelayedqueue.Queue[job]) error {
		_, err := q.Redrive(ctx, "a")
		return err
	},
	"RedriveAll": func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { _, err := q.RedriveAll(ctx); return err },
	"Purge":      func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { _, err := q.Purge(ctx); return err },
	"Pause":      func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { return q.Pause(ctx) },
	"PauseFor":   func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { return q.PauseFor(ctx, time.Second) },
	"Resume":     func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { return q.Resume(ctx) },
	"Get":        func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { _, err := q.Get(ctx, "a"); return err },
	"List":       func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { _, err := q.Dead(ctx, 1); return err },
	"Stats":      func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { _, err := q.Stats(ctx); return err },
	"Series":     func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { _, err := q.Series(ctx); return err },
	"Consume": func(ctx context.Context, q *rdelayedqueue.Queue[job]) error {
		return q.Consume(ctx, func(context.Context, *rdelayedqueue.Message[job]) error { return nil })
	},
}

// F23
func TestNewerLayoutIsRefused(t *testing.T) {
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				const meta = "redlatch_dq:{jobs}:meta"
				require.NoError(t, b.Redis.HSet(t.Context(), meta, "layout", 3).Err())
				start := time.Now()
				err := call(t.Context(), jobs(b.Peer(t)))
				assert.ErrorIs(t, err, rdelayedqueue.ErrLayout)
				assert.NotErrorIs(t, err, redlatch.ErrUnknown)
				assert.ErrorContains(t, err, "version 3")
				assert.Less(t, time.Since(start), time.Second, "it cannot pass")
				assert.Equal(t, []string{meta}, b.Keys(t), "nothing was written")
				assert.Equal(t, map[string]string{"layout": "3"}, b.Hash(t, meta))
			})
		})
	}
}

// F23
func TestNewerLayoutEndsAnIdleConsume(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ended := make(chan error, 1)
		go func() { ended <- calls["Consume"](t.Context(), jobs(b.Peer(t))) }()
		time.Sleep(5 * time.Second)
		start := time.Now()
		require.NoError(t, b.Redis.HSet(t.Context(), "redlatch_dq:{jobs}:meta", "layout", 3).Err())
		require.ErrorIs(t, <-ended, rdelayedqueue.ErrLayout)
		assert.LessOrEqual(t, time.Since(start), 15*time.Second)
	})
}
