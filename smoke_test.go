package redlatch_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rlock"
)

func TestSmoke(t *testing.T) {
	s, err := embedded.Start()
	require.NoError(t, err)
	defer s.Close()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer rdb.Close()
	c, err := redlatch.New(rdb)
	require.NoError(t, err)
	defer c.Close()
	l := c.GetLock("orders")
	ctx := t.Context()
	h, err := l.Lock(ctx)
	require.NoError(t, err)
	h2, err := l.Lock(h.Context())
	require.NoError(t, err)
	n, err := l.HoldCount(h2.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	_, err = l.TryLock(ctx)
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	require.NoError(t, h.Unlock(ctx))
	require.NoError(t, h2.Context().Err())
	require.NoError(t, h2.Unlock(ctx))
	require.ErrorIs(t, context.Cause(h2.Context()), rlock.ErrUnlocked)
	locked, err := l.IsLocked(ctx)
	require.NoError(t, err)
	require.False(t, locked)
	f, err := c.GetFencedLock("f").Lock(ctx)
	require.NoError(t, err)
	require.Positive(t, f.Token())
	require.NoError(t, f.Unlock(ctx))

	done := make(chan error, 1)
	h, err = l.Lock(ctx)
	require.NoError(t, err)
	c2, err := redlatch.Open(ctx, s.URL())
	require.NoError(t, err)
	go func() {
		h, err := c2.GetLock("orders").Lock(ctx)
		if err == nil {
			err = h.Unlock(ctx)
		}
		done <- err
	}()
	select {
	case <-done:
		t.Fatal("acquired")
	case <-time.After(100 * time.Millisecond):
	}
	start := time.Now()
	require.NoError(t, h.Unlock(ctx))
	require.NoError(t, <-done)
	t.Log(time.Since(start))
	require.NoError(t, c2.Close())
	err = errors.Join(err)
	require.NoError(t, err)
}
