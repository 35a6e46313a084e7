package rdelayedqueue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// steps is the life of a message. The counts are those of the queue after each step.
var steps = []struct {
	name string
	do   func(t *testing.T, l *life)
	want rdelayedqueue.Stats
}{
	{"OfferNew", func(t *testing.T, l *life) {
		id, outcome, err := l.q.OfferNew(t.Context(), job{Name: "a"}, 0)
		require.NoError(t, err)
		assert.Equal(t, rdelayedqueue.Added, outcome)
		l.id = id
	}, rdelayedqueue.Stats{Ready: 1}},
	{"Take", func(t *testing.T, l *life) { l.take(t, 1) }, rdelayedqueue.Stats{InFlight: 1}},
	{"Extend", func(t *testing.T, l *life) { require.NoError(t, l.m.Extend(t.Context(), patience)) }, rdelayedqueue.Stats{InFlight: 1}},
	{"Nack", func(t *testing.T, l *life) { require.NoError(t, l.m.Nack(t.Context(), 0)) }, rdelayedqueue.Stats{Ready: 1}},
	{"Take again", func(t *testing.T, l *life) { l.take(t, 2) }, rdelayedqueue.Stats{InFlight: 1}},
	{"Snooze", func(t *testing.T, l *life) { require.NoError(t, l.m.Snooze(t.Context(), 0)) }, rdelayedqueue.Stats{Ready: 1}},
	{"Take after the snooze", func(t *testing.T, l *life) { l.take(t, 2) }, rdelayedqueue.Stats{InFlight: 1}},
	{"Reject", func(t *testing.T, l *life) { require.NoError(t, l.m.Reject(t.Context(), "x")) }, rdelayedqueue.Stats{Dead: 1}},
	{"Redrive", func(t *testing.T, l *life) {
		ok, err := l.q.Redrive(t.Context(), l.id)
		require.NoError(t, err)
		assert.True(t, ok)
	}, rdelayedqueue.Stats{Ready: 1}},
	{"Take anew", func(t *testing.T, l *life) { l.take(t, 1) }, rdelayedqueue.Stats{InFlight: 1}},
	{"Ack", func(t *testing.T, l *life) { require.NoError(t, l.m.Ack(t.Context())) }, rdelayedqueue.Stats{}},
	{"OfferBatch", func(t *testing.T, l *life) {
		ids, err := l.q.OfferBatch(t.Context(), []rdelayedqueue.Item[job]{{Delay: patience}, {Delay: patience}})
		require.NoError(t, err)
		l.id = ids[0]
		assert.NotEqual(t, ids[0], ids[1])
	}, rdelayedqueue.Stats{Delayed: 2}},
	{"Cancel", func(t *testing.T, l *life) {
		ok, err := l.q.Cancel(t.Context(), l.id)
		require.NoError(t, err)
		assert.True(t, ok)
	}, rdelayedqueue.Stats{Delayed: 1}},
}

// life is a queue whose client loses replies, and the message in it.
type life struct {
	q, sound *rdelayedqueue.Queue[job]
	id       string
	m        *rdelayedqueue.Message[job]
}

func (l *life) take(t *testing.T, attempt int) {
	t.Helper()
	m, err := l.q.Take(t.Context())
	require.NoError(t, err)
	require.Equal(t, l.id, m.ID)
	assert.Equal(t, attempt, m.Attempt, "a claim whose reply was lost does not count")
	l.m = m
}

// F2
func TestLostReplyChangesNoOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, sound := r.client(t), r.direct(t)
	for sick, step := range steps {
		for n := 1; n <= 4; n++ {
			name := fmt.Sprintf("%s:%d", step.name, n)
			before := r.proxy.Dropped()
			l := &life{
				q:     redlatch.GetDelayedQueue[job](c, name),
				sound: redlatch.GetDelayedQueue[job](sound, name),
			}
			for i, step := range steps {
				if i == sick {
					r.proxy.DropReply(faulttest.Script, n)
				}
				step.do(t, l)
				require.False(t, t.Failed(), "%s, in %s", name, step.name)
				s, err := l.sound.Stats(t.Context())
				require.NoError(t, err)
				s.Oldest = 0 // it changes with the time
				require.Equal(t, step.want, s, "%s, after %s", name, step.name)
			}
			redistest.Eventually(t, patience, "the reply is lost", func() error {
				if r.proxy.Dropped() == before {
					_, _ = l.q.Stats(t.Context()) // its reply may be the one
					return fmt.Errorf("%d", before)
				}
				return nil
			})
		}
	}
}

// F2
func TestOfferUnderOneIDIsOneMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	q := queue(r.client(t))
	n := faulttest.Rounds(t, 50, 400)
	for i := range n {
		if i%3 == 0 {
			r.proxy.DropReplies(faulttest.Script, 1+i%2)
		}
		_, outcome, err := q.OfferNew(t.Context(), job{N: i}, patience, rdelayedqueue.WithID(fmt.Sprint(i)))
		require.NoError(t, err)
		assert.Equal(t, rdelayedqueue.Added, outcome, i)
		_, outcome, err = q.OfferNew(t.Context(), job{N: i}, patience, rdelayedqueue.WithID(fmt.Sprint(i)))
		require.NoError(t, err)
		assert.Equal(t, rdelayedqueue.Kept, outcome, i)
	}
	assert.Equal(t, n, stats(t, q).Delayed)
}

// F2, F25
func TestNackWhoseReplyIsLostDoesNotDenyThatItWasDone(t *testing.T) {
	t.Parallel()
	lostEnd(t, (*rdelayedqueue.Message[job]).Nack)
}

// F2, F25
func TestSnoozeWhoseReplyIsLostDoesNotDenyThatItWasDone(t *testing.T) {
	t.Parallel()
	lostEnd(t, (*rdelayedqueue.Message[job]).Snooze)
}

// lostEnd ends an attempt. The reply is lost, and the call is repeated when another consumer has the message.
func lostEnd(t *testing.T, end func(m *rdelayedqueue.Message[job], ctx context.Context, d time.Duration) error) {
	t.Helper()
	r := newRig(t)
	q, other := queue(r.client(t)), queue(r.direct(t))
	offer(t, q, "a", 0)
	require.NoError(t, take(t, q).Nack(t.Context(), 0)) // the server knows the script
	m := take(t, q)
	taken, again := make(chan *rdelayedqueue.Message[job], 1), make(chan *rdelayedqueue.Message[job], 1)
	go func() { taken <- take(t, other) }()
	var calls atomic.Int32
	r.proxy.DropReply(faulttest.Script, 1)
	r.proxy.OnCommand(func(cmd []string) {
		if faulttest.Script(cmd) && calls.Add(1) == 2 { // the repetition comes late
			again <- <-taken
		}
	})
	err := end(m, t.Context(), 0)
	require.ErrorIs(t, err, redlatch.ErrUnknown)
	require.ErrorIs(t, err, rdelayedqueue.ErrNotHeld)
	require.NoError(t, (<-again).Ack(t.Context()))
}
