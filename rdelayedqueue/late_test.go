package rdelayedqueue_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// late is a call whose first try stays on its way, so that it is repeated, and arrives after the user has gone on.
type late struct {
	before func(t *testing.T, q *rdelayedqueue.Queue[job])
	call   func(t *testing.T, q *rdelayedqueue.Queue[job])
	after  func(t *testing.T, q *rdelayedqueue.Queue[job])
	want   rdelayedqueue.Stats
}

func skip(*testing.T, *rdelayedqueue.Queue[job]) {}

func offerA(t *testing.T, q *rdelayedqueue.Queue[job]) {
	t.Helper()
	_, outcome, err := q.OfferNew(t.Context(), job{}, time.Hour, rdelayedqueue.WithID("a"))
	require.NoError(t, err)
	require.Equal(t, rdelayedqueue.Added, outcome, "the id is free")
}

func cancelA(t *testing.T, q *rdelayedqueue.Queue[job]) {
	t.Helper()
	ok, err := q.Cancel(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, ok)
}

func rejectOne(t *testing.T, q *rdelayedqueue.Queue[job]) {
	t.Helper()
	require.NoError(t, take(t, q).Reject(t.Context(), "x"))
}

func purgeDelayed(t *testing.T, q *rdelayedqueue.Queue[job]) {
	t.Helper()
	n, err := q.Purge(t.Context(), rdelayedqueue.Delayed)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

func resume(t *testing.T, q *rdelayedqueue.Queue[job]) {
	t.Helper()
	require.NoError(t, q.Resume(t.Context()))
}

var lates = map[string]late{
	"Cancel": {offerA, cancelA, offerA, rdelayedqueue.Stats{Delayed: 1}},
	"Purge":  {offerA, purgeDelayed, offerA, rdelayedqueue.Stats{Delayed: 1}},
	"Reschedule": {offerA, func(t *testing.T, q *rdelayedqueue.Queue[job]) {
		ok, err := q.Reschedule(t.Context(), "a", 0)
		require.NoError(t, err)
		require.True(t, ok)
	}, func(t *testing.T, q *rdelayedqueue.Queue[job]) {
		ok, err := q.Reschedule(t.Context(), "a", time.Hour)
		require.NoError(t, err)
		require.True(t, ok)
	}, rdelayedqueue.Stats{Delayed: 1}},
	"Pause": {skip, func(t *testing.T, q *rdelayedqueue.Queue[job]) {
		require.NoError(t, q.Pause(t.Context()))
	}, resume, rdelayedqueue.Stats{}},
	"PauseFor": {skip, func(t *testing.T, q *rdelayedqueue.Queue[job]) {
		require.NoError(t, q.PauseFor(t.Context(), time.Hour))
	}, resume, rdelayedqueue.Stats{}},
	"Pause that was given up": {skip, func(t *testing.T, q *rdelayedqueue.Queue[job]) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
		defer cancel()
		require.ErrorIs(t, q.Pause(ctx), context.DeadlineExceeded)
	}, resume, rdelayedqueue.Stats{}},
	"Redrive": {func(t *testing.T, q *rdelayedqueue.Queue[job]) {
		offer(t, q, "a", 0, rdelayedqueue.WithID("a"))
		rejectOne(t, q)
	}, func(t *testing.T, q *rdelayedqueue.Queue[job]) {
		ok, err := q.Redrive(t.Context(), "a")
		require.NoError(t, err)
		require.True(t, ok)
	}, rejectOne, rdelayedqueue.Stats{Dead: 1}},
	"RedriveAll": {func(t *testing.T, q *rdelayedqueue.Queue[job]) {
		offer(t, q, "a", 0)
		rejectOne(t, q)
	}, func(t *testing.T, q *rdelayedqueue.Queue[job]) {
		n, err := q.RedriveAll(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}, rejectOne, rdelayedqueue.Stats{Dead: 1}},
	"Offer before Cancel": {skip, offerA, cancelA, rdelayedqueue.Stats{}},
	"Offer before Purge":  {skip, offerA, purgeDelayed, rdelayedqueue.Stats{}},
	"Offer without an id": {skip, func(t *testing.T, q *rdelayedqueue.Queue[job]) {
		offer(t, q, "x", time.Hour)
	}, purgeDelayed, rdelayedqueue.Stats{}},
	"Offer before Cancel and another Offer": {skip, offerA, func(t *testing.T, q *rdelayedqueue.Queue[job]) {
		cancelA(t, q)
		offerA(t, q)
		cancelA(t, q)
	}, rdelayedqueue.Stats{}},
}

// F2
func TestLateOriginalActsNoSecondTime(t *testing.T) {
	for name, l := range lates {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				q := jobs(p)
				learn(t, q)
				l.before(t, q)
				p.Withhold(1)
				l.call(t, q)
				l.after(t, q)
				require.Equal(t, 1, p.Deliver(t))
				assert.Equal(t, l.want, stats(t, q))
			})
		})
	}
}

// learn has the server know the scripts that are sent late: it would refuse their digests otherwise.
func learn(t *testing.T, q *rdelayedqueue.Queue[job]) {
	t.Helper()
	offer(t, q, "x", 0)
	rejectOne(t, q)
	for _, call := range []func() error{
		func() error { _, err := q.RedriveAll(t.Context()); return err },
		func() error { _, err := q.Reschedule(t.Context(), "b", 0); return err },
		func() error { _, err := q.Cancel(t.Context(), "b"); return err },
		func() error { _, err := q.Purge(t.Context(), rdelayedqueue.Ready); return err },
		func() error { return q.Pause(t.Context()) },
		func() error { return q.Resume(t.Context()) },
	} {
		require.NoError(t, call())
	}
	require.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
}

// F2
func TestOfferIsNotRepeatedIntoACancelledID(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q, other := jobs(p), jobs(b.Peer(t))
		learn(t, other)
		p.LoseReplies(2)
		added := make(chan bool, 1)
		go func() {
			_, outcome, err := q.OfferNew(t.Context(), job{}, time.Hour, rdelayedqueue.WithID("a"))
			assert.NoError(t, err)
			added <- outcome == rdelayedqueue.Added
		}()
		synctest.Wait() // until the offer is to be sent again
		cancelA(t, other)
		assert.True(t, <-added, "it was there")
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
	})
}

// F2
func TestLostReplyChangesNoNumber(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		learn(t, q)
		for range 120 {
			offer(t, q, "x", 0)
			rejectOne(t, q)
		}
		for _, call := range []func(context.Context) (int, error){
			q.RedriveAll,
			func(ctx context.Context) (int, error) { return q.Purge(ctx, rdelayedqueue.Ready) },
		} {
			p.LoseReplies(1)
			n, err := call(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 120, n)
		}
	})
}

// F19
func TestWhatIsKeptOfCallsStaysSmall(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		for range 50 {
			offerA(t, q)
			cancelA(t, q)
		}
		for _, key := range b.Keys(t) {
			assert.Positive(t, b.TTL(t, key), "%s stays for ever", key)
			if strings.Contains(key, ":asked:") {
				text, err := b.Redis.Get(t.Context(), key).Result()
				require.NoError(t, err)
				assert.Less(t, len(text), 50, key)
			}
		}
	})
}

func TestOfferReturnsItsIDAlsoWhenNobodyKnows(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		offer(t, q, "first", 0) // Redis knows the scripts
		p.HangReplies(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		id, err := q.Offer(ctx, job{Name: "a"}, 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotEmpty(t, id)
		again, outcome, err := q.OfferNew(t.Context(), job{Name: "a"}, 0, rdelayedqueue.WithID(id))
		require.NoError(t, err)
		assert.Equal(t, id, again)
		assert.Equal(t, rdelayedqueue.Kept, outcome)
	})
}
