package rdelayedqueue_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// F19
func TestFullRedisCanBeEmptied(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	q := queue(r.client(t), rdelayedqueue.WithVisibility(2*time.Second), rdelayedqueue.WithMaxAttempts(0))
	const n = 6
	for i := range n {
		_, err := q.Offer(t.Context(), job{N: i}, 0)
		require.NoError(t, err)
	}
	lost, err := q.Take(t.Context()) // its visibility will be over
	require.NoError(t, err)
	require.NoError(t, r.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = q.Offer(t.Context(), job{}, 0)
	require.ErrorIs(t, err, redlatch.ErrUnwritable)
	<-lost.Context().Done()
	r.proxy.DropReply(faulttest.Script, 1) // that of a claim, which has to be returned
	for i := range n {
		m, err := q.Take(t.Context())
		require.NoError(t, err, i)
		require.NoError(t, m.Extend(t.Context(), time.Minute))
		if i == 0 {
			require.NoError(t, m.Nack(t.Context(), 0))
			continue
		}
		require.NoError(t, m.Ack(t.Context()))
	}
	m, err := q.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Reject(t.Context(), "no place"))
	assert.Equal(t, rdelayedqueue.Stats{Dead: 1}, stats(t, q))
	for range 2 {
		ok, err := q.Cancel(t.Context(), "none")
		require.NoError(t, err)
		assert.False(t, ok)
	}
	removed, err := q.Purge(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, removed)
}

// F8
func TestClaimWhoseReplyIsLostWhileClosingGoesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t)
	sound := queue(r.direct(t))
	for range 2 { // the scripts are known, and nothing is due
		_, err := sound.Offer(t.Context(), job{}, 0)
		require.NoError(t, err)
		m, err := queue(c).Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Ack(t.Context()))
	}
	_, err := sound.Offer(t.Context(), job{}, 0)
	require.NoError(t, err)
	r.proxy.Delay(50 * time.Millisecond)
	r.proxy.DropReply(faulttest.Script, 1)
	ended := make(chan error, 1)
	go func() {
		_, err := queue(c).Take(t.Context())
		ended <- err
	}()
	redistest.Eventually(t, patience, "the message is claimed", func() error {
		if s := stats(t, sound); s.InFlight == 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-ended, redlatch.ErrClosed)
	assert.Equal(t, rdelayedqueue.Stats{Ready: 1}, stats(t, sound))
}

// F28
func TestMessageIsRenewedWhileRedisIsFull(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	const visibility = 2 * time.Second
	r := newRig(t)
	q := queue(r.direct(t), rdelayedqueue.WithVisibility(visibility))
	began, finish := make(chan *rdelayedqueue.Message[job], 10), make(chan struct{})
	stop := consume(t, q, func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
		began <- m
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-finish:
			return nil
		}
	})
	offer(t, q, "a", 0)
	m := <-began
	require.NoError(t, r.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	time.Sleep(3 * visibility) // by the clock of a real server the visibility has to be over three times
	assert.NoError(t, m.Context().Err(), "%v", context.Cause(m.Context()))
	close(finish)
	redistest.Eventually(t, patience, "the message is acknowledged", func() error {
		s, err := q.Stats(t.Context())
		if err == nil && s != (rdelayedqueue.Stats{}) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	assert.NoError(t, stop())
	assert.Empty(t, began, "a second delivery")
}

func TestCloseGivesBackMessagesOfTakeAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, err := redlatch.New(r.redis, redlatch.WithCloseGrace(time.Minute))
	require.NoError(t, err)
	other := queue(r.direct(t))
	_, err = other.Offer(t.Context(), job{}, 0)
	require.NoError(t, err)
	m, err := queue(c).Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.ErrorIs(t, m.Ack(t.Context()), redlatch.ErrClosed)
	again, err := other.Take(t.Context())
	require.NoError(t, err)
	assert.NoError(t, again.Ack(t.Context()))
}
