package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func history(t *testing.T, q *rdelayedqueue.Queue[job], id string) []rdelayedqueue.Attempt {
	t.Helper()
	e, err := q.Get(t.Context(), id)
	require.NoError(t, err)
	return e.History
}

func TestLastFiveAttemptsAreKept(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithBackoff(func(int) time.Duration { return time.Minute }), rdelayedqueue.WithMaxAttempts(7))
		start, n := time.Now(), 0
		consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
			n++
			time.Sleep(time.Duration(n) * time.Second)
			return fmt.Errorf("error\x01 %d\nof %s", n, strings.Repeat("x", 600))
		})
		id := offer(t, q, "1", 0)
		time.Sleep(3 * time.Minute)
		got := history(t, q, id)
		require.Len(t, got, 3)
		assert.Equal(t, []time.Duration{3 * time.Second, 2 * time.Second, time.Second}, []time.Duration{got[0].Took.Round(time.Second), got[1].Took.Round(time.Second), got[2].Took.Round(time.Second)})
		assert.WithinDuration(t, start.Add(time.Minute+time.Second), got[1].Started, time.Second)
		assert.Equal(t, got[0].Where, got[1].Where)
		assert.NotEmpty(t, got[0].Where)
		assert.True(t, strings.HasPrefix(got[2].Err, "error  1\nof xxx"), got[2].Err)
		assert.Len(t, got[2].Err, 512)
		time.Sleep(time.Hour)
		e, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, rdelayedqueue.Dead, e.State)
		assert.True(t, strings.HasPrefix(e.Error, "error  7\n") && len(e.Error) > 600, "the last error whole")
		require.Len(t, e.History, 5)
		assert.True(t, strings.HasPrefix(e.History[0].Err, "error  7") && strings.HasPrefix(e.History[4].Err, "error  3"))
		_, err = q.Redrive(t.Context(), id)
		require.NoError(t, err)
		time.Sleep(30 * time.Second)
		assert.Len(t, history(t, q, id), 1, "as if it had never been tried")
	})
}

func TestCrashIsAnAttemptWithoutAnEnd(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		dying, q := jobs(p, rdelayedqueue.WithVisibility(time.Second)), jobs(b.Peer(t), rdelayedqueue.WithVisibility(time.Second))
		id := offer(t, q, "1", 0)
		m := take(t, dying)
		time.Sleep(2 * time.Second)
		second := take(t, q)
		got := history(t, q, id)
		require.Len(t, got, 1)
		assert.Equal(t, rdelayedqueue.Attempt{Started: got[0].Started, Took: -1, Where: p.ID()}, got[0])
		require.NoError(t, second.Snooze(t.Context(), 0))
		require.ErrorIs(t, m.Nack(t.Context(), 0), rdelayedqueue.ErrNotHeld)
		assert.Len(t, history(t, q, id), 1, "a snooze is none")
		take(t, q)
		time.Sleep(2 * time.Second)
		take(t, q) // which finds the claim of the one before over
		assert.Len(t, history(t, q, id), 2)
	})
}

func TestLateEndTakesThePlaceOfTheCrash(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithVisibility(time.Second))
		id := offer(t, q, "1", 0)
		m := take(t, q)
		require.NoError(t, q.Pause(t.Context()))
		time.Sleep(2 * time.Second)
		consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error { return errors.New("paused") }) // its claim finds the other over
		time.Sleep(time.Second)
		require.Len(t, history(t, q, id), 1)
		require.NoError(t, m.Reject(t.Context(), "late"))
		got := history(t, q, id)
		require.Len(t, got, 1)
		assert.Positive(t, got[0].Took)
	})
}
