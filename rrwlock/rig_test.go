package rrwlock_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// moment is longer than what needs no waiting takes, and shorter than what does.
const moment = 100 * time.Millisecond

// recheck is how long a waiter that heard of nothing may take.
const recheck = 2 * time.Second

// begin calls Lock on a goroutine of its own, and returns when it waits.
func begin(t *testing.T, ctx context.Context, l rlock.Locker, opts ...rlock.Option) <-chan locktest.Outcome {
	t.Helper()
	done := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(ctx, opts...) })
	synctest.Wait()
	return done
}

// clientAt returns a client of a real server. It is closed when the test ends.
func clientAt(t *testing.T, addr string, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	opts = append([]redlatch.Option{redlatch.WithLogger(slog.New(slog.DiscardHandler)), redlatch.WithCloseGrace(0)}, opts...)
	c, err := redlatch.New(rdb, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// listen returns what is published on a channel so far.
func listen(t *testing.T, b *locktest.Bubble, channel string) func() []string {
	t.Helper()
	sub := b.Redis.Subscribe(t.Context(), channel)
	t.Cleanup(func() { assert.NoError(t, sub.Close()) })
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	var heard []string
	return func() []string {
		for {
			m, err := sub.ReceiveTimeout(t.Context(), time.Millisecond)
			if err != nil {
				return heard
			}
			if m, ok := m.(*redis.Message); ok {
				heard = append(heard, m.Payload)
			}
		}
	}
}
