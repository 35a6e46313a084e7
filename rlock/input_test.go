package rlock_test

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// everyCall calls all methods of a lock that may fail, and returns their errors.
func everyCall(ctx context.Context, l *rlock.Lock) map[string]error {
	errs := maps.Collect(locktest.Acquiring(ctx, l))
	_, errs["IsLocked"] = l.IsLocked(ctx)
	_, errs["TTL"] = l.TTL(ctx)
	_, errs["HoldCount"] = l.HoldCount(ctx)
	_, errs["ForceUnlock"] = l.ForceUnlock(ctx)
	return errs
}

func TestBadArgumentsReachNoServer(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ctx := range []context.Context{t.Context(), cancelled} {
			for what, name := range locktest.BadNames() {
				for _, l := range []*rlock.Lock{p.GetLock(name), p.GetFencedLock(name)} {
					for verb, err := range everyCall(ctx, l) {
						require.ErrorIs(t, err, redlatch.ErrInvalid, "%s: %s", verb, what)
					}
				}
			}
			for what, opt := range locktest.BadOptions() {
				for verb, err := range locktest.Acquiring(ctx, p.GetLock("orders"), opt) {
					require.ErrorIs(t, err, redlatch.ErrInvalid, "%s: %s", verb, what)
				}
				for verb, err := range locktest.Acquiring(ctx, p.GetLock("orders"), rlock.WithWait(time.Second), opt) {
					require.ErrorIs(t, err, redlatch.ErrInvalid, "%s: a good option and %s", verb, what)
				}
			}
			require.ErrorIs(t, p.GetLock("orders").Do(ctx, nil), redlatch.ErrInvalid)
		}
		assert.Empty(t, p.Sent(), "nothing was sent")

		h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
		sent := len(p.Sent())
		for _, d := range []time.Duration{0, -time.Second, 9 * time.Millisecond, 24*time.Hour + 1} {
			require.ErrorIs(t, h.Extend(t.Context(), d), redlatch.ErrInvalid)
		}
		assert.Len(t, p.Sent(), sent)
		locktest.Unlock(t, h)
	})
}

func TestNoContextReachesNoServer(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		var none context.Context
		for _, l := range []*rlock.Lock{p.GetLock("orders"), p.GetFencedLock("orders")} {
			for verb, err := range everyCall(none, l) {
				require.ErrorIs(t, err, redlatch.ErrInvalid, verb)
			}
		}
		assert.Empty(t, p.Sent())
	})
}

func TestPrefixCountsInTheName(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithNamePrefix("app:"))
		for what, name := range map[string]string{
			"empty": "", "too long with the prefix": strings.Repeat("x", 509),
		} {
			for verb, err := range everyCall(t.Context(), p.GetLock(name)) {
				require.ErrorIs(t, err, redlatch.ErrInvalid, "%s: %s", verb, what)
			}
		}
		assert.Empty(t, p.Sent())
		locktest.Free(t, p.GetLock(strings.Repeat("x", 508)))
		assert.Equal(t, "orders", p.GetLock("orders").Name())
	})
}

func TestDoneContextReachesNoServer(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		errs := everyCall(ctx, p.GetLock("orders"))
		delete(errs, "HoldCount") // it has nothing to ask
		for verb, err := range errs {
			require.ErrorIs(t, err, context.Canceled, verb)
		}
		assert.Empty(t, p.Sent())
	})
}

func TestOtherDataIsErrWrongTypeAndStays(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"endless": 0, "with a TTL": time.Hour} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				for _, l := range []*rlock.Lock{p.GetLock("orders"), p.GetFencedLock("orders")} {
					require.NoError(t, b.Redis.Set(t.Context(), "orders", "data", ttl).Err())
					errs := everyCall(t.Context(), l)
					delete(errs, "HoldCount") // it has nothing to ask
					for verb, err := range errs {
						assert.ErrorIs(t, err, redlatch.ErrWrongType, verb)
						assert.ErrorContains(t, err, "WRONGTYPE", "Redis's own error stays reachable")
					}
					data, err := b.Redis.Get(t.Context(), "orders").Result()
					require.NoError(t, err)
					assert.Equal(t, "data", data)
					assert.Equal(t, []string{"orders"}, b.Keys(t))
				}
			})
		})
	}
}

func TestHoldThatOtherDataReplaced(t *testing.T) {
	for name, ttl := range map[string]time.Duration{"endless": 0, "with a TTL": time.Hour} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				l := b.Peer(t).GetLock("orders")
				replaced := func() *rlock.Hold {
					require.NoError(t, b.Redis.Del(t.Context(), "orders").Err())
					h := locktest.Acquire(t, t.Context(), l)
					require.NoError(t, b.Redis.Set(t.Context(), "orders", "data", ttl).Err())
					return h
				}
				h := replaced()
				assert.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrWrongType, "Unlock")
				assert.ErrorIs(t, h.Unlock(t.Context()), rlock.ErrNotHeld, "Unlock again")
				h = replaced()
				_, err := l.HoldCount(h.Context())
				assert.ErrorIs(t, err, redlatch.ErrWrongType, "HoldCount")
				_, err = l.Lock(h.Context())
				assert.ErrorIs(t, err, redlatch.ErrWrongType, "nested Lock")
				assert.ErrorIs(t, h.Extend(t.Context(), time.Minute), redlatch.ErrWrongType, "Extend")
				assert.ErrorIs(t, h.Unlock(t.Context()), redlatch.ErrWrongType, "Unlock")
				data, err := b.Redis.Get(t.Context(), "orders").Result()
				require.NoError(t, err)
				assert.Equal(t, "data", data)
			})
		})
	}
}

func TestWaiterHearsOfOtherData(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Foreign(t, "orders", time.Minute)
		waiting := queue(t, b.Peer(t).GetLock("orders"))
		time.Sleep(5 * time.Second)
		require.NoError(t, b.Redis.Set(t.Context(), "orders", "data", 0).Err())
		locktest.Failed(t, waiting, redlatch.ErrWrongType)
	})
}

func TestForceUnlockSparesAReadWriteLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		require.NoError(t, b.Redis.HSet(t.Context(), "orders", "mode", "read", "a:1", 1).Err())
		before := b.Hash(t, "orders")
		_, err := b.Peer(t).GetLock("orders").ForceUnlock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrWrongType)
		assert.Equal(t, before, b.Hash(t, "orders"))
	})
}

func TestErrorTexts(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		ctx := t.Context()
		l := p.GetLock("orders")
		h := locktest.Acquire(t, ctx, l)
		nothing := func(context.Context) error { return nil }
		got := map[string]error{
			"rlock: do \"orders\": invalid argument: fn is nil":             l.Do(ctx, nil),
			"rlock: lock \"\": invalid argument: the name is empty":         second(p.GetLock("").Lock(ctx)),
			"rlock: is locked \"\": invalid argument: the name is empty":    second(p.GetLock("").IsLocked(ctx)),
			"rlock: ttl \"\": invalid argument: the name is empty":          second(p.GetLock("").TTL(ctx)),
			"rlock: hold count \"\": invalid argument: the name is empty":   second(p.GetLock("").HoldCount(ctx)),
			"rlock: force unlock \"\": invalid argument: the name is empty": second(p.GetLock("").ForceUnlock(ctx)),
			"rlock: lock \"orders\": invalid argument: an option is nil":    second(l.Lock(ctx, nil)),
			"rlock: lock \"orders\": invalid argument: lease 3ms is below 10ms": second(
				l.Lock(ctx, rlock.WithFixedLease(3*time.Millisecond))),
			"rlock: do \"orders\": invalid argument: lease 25h0m0s is above 24h0m0s": l.Do(ctx, nothing, rlock.WithFixedLease(25*time.Hour)),
			"rlock: try lock \"orders\": invalid argument: wait -1s is not between 0 and ten years": second(
				l.TryLock(ctx, rlock.WithWait(-time.Second))),
			"rlock: lock \"orders\": invalid argument: max hold 0s is not between 10ms and ten years": second(
				l.Lock(ctx, rlock.WithMaxHold(0))),
			"rlock: lock \"orders\": invalid argument: the owner id \"mode\" is not of the form <client id>:<number>": second(l.Lock(ctx, rlock.WithTakeOver("mode"))),
			"rlock: extend \"orders\": invalid argument: lease 0s is below 10ms":                                      h.Extend(ctx, 0),
			"rlock: try lock \"orders\": lock not acquired":                                                           second(l.TryLock(ctx)),
			"rlock: lock \"orders\": lock not acquired":                                                               second(l.Lock(ctx, rlock.WithWait(time.Second))),
			"rlock: do \"orders\": lock not acquired":                                                                 l.Do(ctx, nothing, rlock.WithWait(0)),
			"rlock: lock \"orders\": lock already held by this context": second(
				l.Lock(h.Context(), rlock.WithoutReentry())),
		}
		got["rlock: lock \""+strings.Repeat("x", 512)+"…\": invalid argument: the name has 1048576 bytes, more than 512"] = second(
			p.GetLock(strings.Repeat("x", 1<<20)).Lock(ctx))
		locktest.Unlock(t, h)
		got[`rlock: unlock "orders": lock not held`] = h.Unlock(ctx)
		got[`rlock: extend "orders": lock not held`] = h.Extend(ctx, time.Minute)
		got[`rlock: lock "orders": ended by its holder`] = context.Cause(h.Context())
		h = locktest.Acquire(t, ctx, l)
		b.Delete(t, "orders")
		<-h.Context().Done()
		got[`rlock: lock "orders": lock lost: Redis has it no longer: its lease ended there, or it was taken away`] = context.Cause(h.Context())
		got[`rlock: extend "orders": lock lost`] = h.Extend(ctx, time.Minute)
		h = locktest.Acquire(t, ctx, l, rlock.WithFixedLease(time.Second))
		<-h.Context().Done()
		got[`rlock: lock "orders": lock lost: the lease ended`] = context.Cause(h.Context())
		h = locktest.Acquire(t, ctx, l)
		p.Blackhole(true)
		<-h.Context().Done()
		got[`rlock: lock "orders": lock lost: it could not be renewed before the lease ended`] = context.Cause(h.Context())
		p.Blackhole(false)
		require.NoError(t, b.Redis.Set(ctx, "orders", "data", 0).Err())
		assert.ErrorContains(t, second(l.IsLocked(ctx)), `rlock: is locked "orders": name is used by another kind of object: `)
		h = locktest.Acquire(t, ctx, p.GetLock("closed"))
		require.NoError(t, p.Close())
		got[`rlock: lock "closed": client closed`] = context.Cause(h.Context())
		got[`rlock: try lock "orders": client closed`] = second(l.TryLock(ctx))
		for want, err := range got {
			assert.EqualError(t, err, want)
		}
	})
}

func second[T any](_ T, err error) error { return err }
