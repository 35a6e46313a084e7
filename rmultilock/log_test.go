package rmultilock_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// losses are the lines of a log that say that something was lost.
type losses struct {
	mu    sync.Mutex
	lines []map[string]any
}

func (l *losses) Write(line []byte) (int, error) {
	said := map[string]any{}
	if err := json.Unmarshal(line, &said); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if said["msg"] == "redlatch: a lock was lost" {
		l.lines = append(l.lines, said)
	}
	return len(line), nil
}

func (l *losses) option() redlatch.Option {
	return redlatch.WithLogger(slog.New(slog.NewJSONHandler(l, nil)))
}

// names returns the names that were logged, in order.
func (l *losses) names() []any {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := []any{}
	for _, line := range l.lines {
		names = append(names, line["name"])
	}
	return names
}

func TestLostLockIsOneLineOfTheLog(t *testing.T) {
	forgotten := func(s servers, _ peers) {
		for _, b := range s {
			b.Mini.FlushAll()
		}
	}
	for kind := range needed {
		for how, fault := range map[string]func(s servers, p peers){
			"forgotten": forgotten,
			"refused":   func(_ servers, p peers) { p.down(true) },
			"silent":    func(_ servers, p peers) { faults["silent"](p, true) },
		} {
			t.Run(kind+", "+how, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					var log losses
					s := newServers(t, b, 3)
					p := s.peers(t, log.option(), redlatch.WithCallSites())
					h := locktest.Acquire(t, t.Context(), both(p[0].Client, p.locks("a")...)[kind])
					inner := locktest.Acquire(t, h.Context(), both(p[0].Client, p.locks("a")...)[kind])
					time.Sleep(2 * lease)
					fault(s, p)
					<-h.Context().Done()
					<-inner.Context().Done()
					time.Sleep(2 * lease)
					require.Equal(t, []any{"a"}, log.names())
					line := log.lines[0]
					assert.Equal(t, "WARN", line["level"])
					assert.Equal(t, "multi_lock", line["kind"])
					assert.Equal(t, h.Owner(), line["owner"])
					assert.Equal(t, p[0].ID(), line["client"])
					assert.Equal(t, context.Cause(h.Context()).Error(), line["cause"])
					assert.NotEmpty(t, line["site"])
					p.down(false)
					faults["silent"](p, false)
				})
			})
		}
	}
}

func TestLossIsLoggedUnderTheNameOfTheWhole(t *testing.T) {
	for what, tc := range map[string]struct {
		lose func(t *testing.T, b *locktest.Bubble, c *redlatch.Client)
		want []any
	}{
		"of locks made of others": {func(t *testing.T, b *locktest.Bubble, c *redlatch.Client) {
			red := c.GetRedLock(c.GetLock("c"), c.GetLock("d"), c.GetLock("e"))
			h := locktest.Acquire(t, t.Context(), c.GetMultiLock(c.GetMultiLock(c.GetLock("a"), c.GetFairLock("b")), red))
			b.Mini.FlushAll()
			<-h.Context().Done()
		}, []any{"a,b,c,d,e"}},
		"when it is unlocked": {func(t *testing.T, b *locktest.Bubble, c *redlatch.Client) {
			h := locktest.Acquire(t, t.Context(), c.GetMultiLock(c.GetLock("a"), c.GetLock("b")))
			b.Mini.FlushAll()
			require.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld)
		}, []any{"a,b"}},
		"of an inner level": {func(t *testing.T, b *locktest.Bubble, c *redlatch.Client) {
			l := c.GetMultiLock(c.GetLock("a"), c.GetLock("b"))
			outer := locktest.Acquire(t, t.Context(), l)
			h := locktest.Acquire(t, outer.Context(), l)
			locktest.Unlock(t, outer)
			b.Mini.FlushAll()
			<-h.Context().Done()
		}, []any{"a,b"}},
		"of a lock that was held before": {func(t *testing.T, b *locktest.Bubble, c *redlatch.Client) {
			outer := locktest.Acquire(t, t.Context(), c.GetLock("a"))
			h := locktest.Acquire(t, outer.Context(), c.GetMultiLock(c.GetLock("a"), c.GetLock("b")))
			b.Mini.FlushAll()
			<-h.Context().Done()
		}, []any{"a", "a,b"}},
		"of a minority": {func(t *testing.T, b *locktest.Bubble, c *redlatch.Client) {
			h := locktest.Acquire(t, t.Context(), c.GetRedLock(c.GetLock("a"), c.GetLock("b"), c.GetLock("c")))
			b.Delete(t, "a")
			time.Sleep(lease)
			locktest.Live(t, h.Context())
			locktest.Unlock(t, h)
		}, []any{}},
		"that is lost no more": {func(t *testing.T, b *locktest.Bubble, c *redlatch.Client) {
			locktest.Unlock(t, locktest.Acquire(t, t.Context(), c.GetMultiLock(c.GetLock("a"), c.GetLock("b"))))
			h := locktest.Acquire(t, t.Context(), c.GetLock("a"))
			b.Mini.FlushAll()
			<-h.Context().Done()
		}, []any{"a"}},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				var log losses
				tc.lose(t, b, b.Peer(t, log.option(), redlatch.WithWatchdogTimeout(lease)).Client)
				time.Sleep(lease)
				synctest.Wait()
				assert.ElementsMatch(t, tc.want, log.names())
			})
		})
	}
}

// A lease passes from a multi-lock to a plain lock of the client and back: what counts is whose it is at its end.
func TestLossOfALeaseThatWasHandedOnIsThatOfItsHolder(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log losses
		c := b.Peer(t, log.option(), redlatch.WithWatchdogTimeout(lease))
		multi := c.GetMultiLock(c.GetLock("a"), c.GetLock("b"))
		first := locktest.Acquire(t, t.Context(), multi)
		plain := locktest.Begin(func() (*rlock.Hold, error) { return c.GetLock("a").Lock(t.Context()) })
		synctest.Wait()
		locktest.Unlock(t, first)
		h := locktest.Next(t, plain)
		b.Mini.FlushAll()
		<-h.Context().Done()
		synctest.Wait()
		assert.Equal(t, []any{"a"}, log.names())

		h = locktest.Acquire(t, t.Context(), c.GetLock("a"))
		all := locktest.Begin(func() (*rlock.Hold, error) { return multi.Lock(t.Context()) })
		synctest.Wait()
		locktest.Unlock(t, h)
		h = locktest.Next(t, all)
		b.Mini.FlushAll()
		<-h.Context().Done()
		time.Sleep(lease)
		assert.Equal(t, []any{"a", "a,b"}, log.names())
	})
}

func TestLostLockIsOneLineOfTheLogOnServer(t *testing.T) {
	s := redistest.Start(t)
	for kind := range needed {
		var log losses
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		c, err := redlatch.New(rdb, log.option(), redlatch.WithWatchdogTimeout(fiveLease))
		require.NoError(t, err)
		h := locktest.Acquire(t, t.Context(), both(c, c.GetLock("a"), c.GetFairLock("b"), c.GetReadWriteLock("c"))[kind])
		require.NoError(t, s.Client(t).FlushAll(t.Context()).Err())
		locktest.Ended(t, h.Context(), rlock.ErrLost)
		require.NoError(t, c.Close()) // all is logged
		assert.Equal(t, []any{"a,b,c"}, log.names(), kind)
	}
}
