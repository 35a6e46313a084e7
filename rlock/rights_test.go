package rlock_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// F20
func TestUserOfOnePrefixNeedsNoMore(t *testing.T) {
	server := serve(t)
	rules := "ACL SETUSER app on >secret resetchannels +@all -@dangerous " +
		"~pfx:* ~{pfx:* ~redisson_*{pfx:* ~redlatch_*{pfx:* &redisson_*{pfx:* " +
		"~redisson_*:pfx:* ~redlatch_*:pfx:* &redisson_*:pfx:*"
	var args []any
	for word := range strings.FieldsSeq(rules) {
		args = append(args, word)
	}
	require.NoError(t, server.Client(t).Do(t.Context(), args...).Err())
	log, logger := newComplaints(t)
	app := redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"}
	prefix := redlatch.WithNamePrefix("pfx:")
	var lost sync.Map
	observer := redlatch.WithObserver(redlatch.Observer{Renewed: func(_, gone int, err error) {
		if gone > 0 || err != nil {
			lost.Store(err, gone)
		}
	}})
	one := clientOver(t, &app, prefix, logger, observer, redlatch.WithWatchdogTimeout(shortLease))
	two := clientOver(t, &app, prefix, logger)

	for _, name := range []string{"plain", "with{a tag}"} {
		t.Run(name, func(t *testing.T) {
			for _, get := range []func(*redlatch.Client, string) *rlock.Lock{(*redlatch.Client).GetLock, (*redlatch.Client).GetFencedLock} {
				require.NoError(t, wholeLife(t.Context(), get(one, name)))
				contended(t, get(one, name), get(two, name))
			}
		})
	}
	assert.Empty(t, log.all())
	lost.Range(func(err, gone any) bool {
		return assert.Fail(t, "renewal failed", "%v, %v gone", err, gone)
	})
	_, err := clientOver(t, &app).GetLock("outside").TryLock(t.Context())
	assert.True(t, redis.HasErrorPrefix(err, "NOPERM"), "%v", err)
}

// contended has a lock renewed and waited for, passed on by a release, and then taken away.
func contended(t *testing.T, mine, theirs *rlock.Lock) {
	t.Helper()
	hold, err := mine.Lock(t.Context())
	require.NoError(t, err)
	first := hold.ExpiresAt()
	_, err = theirs.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired)
	got := make(chan *rlock.Hold) // taken once, below
	go func() {
		next, err := theirs.Lock(t.Context())
		assert.NoError(t, err)
		got <- next
	}()
	redistest.Eventually(t, longWait, "renewal", func() error {
		if hold.ExpiresAt().Before(first.Add(shortLease / 12)) {
			return errNotYet
		}
		return nil
	})
	require.NoError(t, hold.Unlock(t.Context()))
	next := <-got
	require.NotNil(t, next)
	freed, err := mine.ForceUnlock(t.Context())
	require.NoError(t, err)
	assert.True(t, freed)
	assert.ErrorIs(t, next.Unlock(context.WithoutCancel(t.Context())), rlock.ErrNotHeld)
}
