package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// oneScript are the calls that wait for a single script.
var oneScript = map[string]bool{
	"Offer": true, "OfferAt": true, "OfferNew": true, "Cancel": true, "Reschedule": true, "Get": true, "Dead": true, "Stats": true, "Redrive": true,
	"RedriveAll": true, "Purge": true, "Pause": true, "PauseFor": true, "Resume": true, "Extend": true, "Ack": true, "Nack": true, "Snooze": true,
	"Reject": true,
}

// stocked returns a queue with a message of each state, of which the caller has one, and a client that sleeps.
func stocked(t *testing.T, b *locktest.Bubble, p *locktest.Peer) held {
	t.Helper()
	q, other := jobs(p, rdelayedqueue.WithVisibility(time.Hour)), jobs(b.Peer(t))
	learn(t, other)
	offer(t, other, "x", 0)
	m := take(t, other)
	require.NoError(t, m.Extend(t.Context(), time.Minute))
	require.NoError(t, m.Nack(t.Context(), 0))
	require.NoError(t, take(t, other).Ack(t.Context()))
	_, err := other.Get(t.Context(), "x")
	require.ErrorIs(t, err, rdelayedqueue.ErrNotFound)
	_, err = other.Dead(t.Context(), 1)
	require.NoError(t, err)
	offer(t, q, "dead", 0, rdelayedqueue.WithID("dead"))
	require.NoError(t, take(t, q).Reject(t.Context(), "x"))
	offer(t, q, "held", 0)
	held := held{q, take(t, q)}
	offer(t, q, "later", time.Hour, rdelayedqueue.WithID("id"))
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { _, _ = other.Take(ctx) }()
	time.Sleep(time.Second)
	synctest.Wait()
	return held
}

// F26
func TestCallsOutliveNeitherTheirContextNorTheirAnswer(t *testing.T) {
	const limit, slack = 300 * time.Millisecond, 50 * time.Millisecond
	for _, c := range blocking {
		for n := 1; n <= 3; n++ {
			t.Run(fmt.Sprintf("%s, reply %d kept back", c.name, n), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					p := b.Peer(t, redlatch.WithCloseGrace(0))
					h := stocked(t, b, p)
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					p.HangReply(n)
					start := time.Now()
					err := c.call(ctx, h)
					took := time.Since(start)
					assert.LessOrEqual(t, took, limit+slack)
					if n > 1 && oneScript[c.name] {
						assert.NoError(t, err)
						assert.LessOrEqual(t, took, slack, "it was answered")
					}
				})
			})
		}
	}
}

// F2, F7
func TestOfferWhoseReplyIsLostWakesASleeper(t *testing.T) {
	ends := map[string]func(t *testing.T, p *locktest.Peer, q *rdelayedqueue.Queue[job]){
		"reply lost": func(t *testing.T, p *locktest.Peer, q *rdelayedqueue.Queue[job]) {
			p.LoseReplies(1)
			offer(t, q, "x", 0)
		},
		"producer gone": func(t *testing.T, p *locktest.Peer, q *rdelayedqueue.Queue[job]) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			p.HangReplies(1)
			_, err := q.Offer(ctx, job{}, 0)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, redlatch.ErrUnknown)
			p.Blackhole(true)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := sleepers(t, b, 2)
				p := b.Peer(t, redlatch.WithCloseGrace(0))
				q := jobs(p)
				offer(t, q, "makes the script known", time.Hour)
				time.Sleep(time.Second)
				synctest.Wait()
				start := time.Now()
				end(t, p, q)
				defer p.Blackhole(false)
				assert.WithinDuration(t, start, <-s.handled, 5*time.Millisecond)
			})
		})
	}
}

// F27
func TestCallsWithoutADeadlineEndWithTheCallTimeout(t *testing.T) {
	unbounded := map[string]bool{"Take": true, "TakeBatch": true, "Consume": true}
	for _, c := range blocking {
		if unbounded[c.name] {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t, redlatch.WithCloseGrace(0), redlatch.WithCallTimeout(2*time.Second))
				h := stocked(t, b, p)
				p.Blackhole(true)
				defer p.Blackhole(false)
				start := time.Now()
				err := c.call(t.Context(), h)
				assert.InDelta(t, 2, time.Since(start).Seconds(), 0.6)
				unknown, unavailable := errors.Is(err, redlatch.ErrUnknown), errors.Is(err, redlatch.ErrUnavailable)
				assert.True(t, unknown != unavailable, "%v", err)
			})
		})
	}
}

// F27
func TestTakeThatNobodyAnsweredIsUnavailable(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCloseGrace(0))
		q := jobs(p)
		offer(t, q, "x", time.Hour)
		p.Blackhole(true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := q.Take(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorIs(t, err, redlatch.ErrUnavailable)
		p.Blackhole(false)
		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err = q.Take(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.NotErrorIs(t, err, redlatch.ErrUnavailable, "nothing is due")
	})
}
