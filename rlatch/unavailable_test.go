package rlatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

func TestAwaitSetWaitsForACount(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.Peer(t).GetCountDownLatch("l"), b.Peer(t).GetCountDownLatch("l")
		done := make(chan error, 2) // room for both
		for range 2 {
			go func() { done <- l.AwaitSet(t.Context()) }()
		}
		time.Sleep(10 * time.Second)
		waits(t, done)
		start := time.Now()
		set(t, other, 2)
		require.NoError(t, ended(t, done))
		require.NoError(t, ended(t, done))
		require.Less(t, time.Since(start), moment)
		require.NoError(t, l.AwaitSet(t.Context()), "at once")
	})
}

// F4
func TestAwaitSetSeesACountThatIsGoneAgain(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l, other := p.GetCountDownLatch("l"), b.Peer(t).GetCountDownLatch("l")
		done := make(chan error, 1) // room for it
		go func() { done <- l.AwaitSet(t.Context()) }()
		time.Sleep(10 * time.Second)
		waits(t, done)
		p.Refuse(true)
		p.Cut()
		set(t, other, 1)
		down(t, other)
		p.Refuse(false)
		require.NoError(t, ended(t, done))
	})
}

// F27
func TestAwaitThatEndsInAnOutageSaysWhy(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetCountDownLatch("l")
		set(t, l, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		done := make(chan error, 1) // room for it
		go func() { done <- l.Await(ctx) }()
		time.Sleep(time.Second)
		p.Refuse(true)
		p.Cut()
		err := <-done
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.ErrorContains(t, err, "connection refused")
		p.Refuse(false)
	})
}

// F27
func TestLatchCallsOnASilentRedisEndWithTheCallTimeout(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCallTimeout(2*time.Second))
		l := p.GetCountDownLatch("l")
		set(t, l, 2)
		p.HangReplies(1000)
		start := time.Now()
		require.ErrorIs(t, l.CountDown(t.Context()), redlatch.ErrUnknown)
		require.LessOrEqual(t, time.Since(start), 2*time.Second+moment)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Await(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		start = time.Now()
		require.ErrorIs(t, l.Await(t.Context()), redlatch.ErrUnavailable)
		require.LessOrEqual(t, time.Since(start), 40*time.Second, "a lease, and a flush")
	})
}
