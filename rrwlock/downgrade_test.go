package rrwlock_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rrwlock"
)

func TestDowngradeKeepsReading(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l, far := p.GetReadWriteLock("n"), b.Peer(t).GetReadWriteLock("n")
		w := locktest.Acquire(t, t.Context(), l)
		near, remote := begin(t, t.Context(), l.RLocker()), begin(t, t.Context(), far.RLocker())
		second := begin(t, t.Context(), l.RLocker())
		r, err := l.TryRLock(w.Context())
		require.NoError(t, err, "granted at once, past those who wait")
		locktest.Refused(t, far.RLocker())
		time.Sleep(40 * time.Second) // both leases are renewed
		locktest.Unlock(t, w)
		start := time.Now()
		locktest.Ended(t, w.Context(), rlock.ErrUnlocked)
		locktest.Live(t, r.Context())

		n1, n2 := locktest.Next(t, near), locktest.Next(t, second)
		f := locktest.Next(t, remote)
		assert.Less(t, time.Since(start), moment, "all are notified, in other clients too")
		locktest.Refused(t, far)
		for _, h := range []*rlock.Hold{n1, n2, f} {
			locktest.Unlock(t, h)
		}
		time.Sleep(time.Minute)
		locktest.Live(t, r.Context())
		locktest.Refused(t, far)
		inner := locktest.Acquire(t, r.Context(), l.RLocker())
		locktest.Unlock(t, inner)
		locktest.Unlock(t, r)
		locktest.Free(t, far)
		assert.Empty(t, b.Keys(t))
	})
}

// F6, F25: a reader that cannot enter under its own writer yet costs the writer nothing.
func TestWriterIsRenewedWhileItsReaderEnters(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetReadWriteLock("n")
		w := locktest.Acquire(t, t.Context(), l)
		b.Mini.Server().SetPreHook(func(conn *server.Peer, _ string, args ...string) bool {
			reads := strings.Contains(strings.Join(args, " "), "rwlock_timeout")
			if reads {
				conn.WriteError("LOADING Redis is loading the dataset in memory")
			}
			return reads
		})
		r := begin(t, w.Context(), l.RLocker())
		time.Sleep(25 * time.Second)
		locktest.Live(t, w.Context())
		assert.Greater(t, time.Until(w.ExpiresAt()), 15*time.Second, "it was renewed")
		b.Mini.Server().SetPreHook(nil)
		reader := locktest.Next(t, r)
		locktest.Unlock(t, w)
		time.Sleep(time.Minute)
		locktest.Live(t, reader.Context())
		locktest.Unlock(t, reader)
		assert.Empty(t, b.Keys(t))
	})
}

// The writer is unlocked while its reader has not entered yet: until then Redis has the writer, and that is what is renewed.
//
// F6, F25
func TestWriterThatIsUnlockedIsRenewedWhileItsReaderEnters(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetReadWriteLock("n")
		w := locktest.Acquire(t, t.Context(), l)
		b.Mini.Server().SetPreHook(func(conn *server.Peer, _ string, args ...string) bool {
			enters := strings.Contains(strings.Join(args, " "), "rwlock_timeout:1") && strings.Contains(strings.Join(args, " "), "redisson_rwlock")
			if enters {
				conn.WriteError("LOADING Redis is loading the dataset in memory")
			}
			return enters
		})
		r := locktest.Begin(func() (*rlock.Hold, error) { return l.RLock(context.WithoutCancel(w.Context())) })
		time.Sleep(time.Second)
		require.ErrorIs(t, w.Unlock(t.Context()), redlatch.ErrUnknown)
		time.Sleep(20 * time.Second)
		assert.Contains(t, b.Hash(t, "n"), w.Owner()+":write")
		b.Mini.Server().SetPreHook(nil)
		reader := locktest.Next(t, r)
		time.Sleep(time.Minute)
		locktest.Live(t, reader.Context())
		locktest.Unlock(t, reader)
		assert.Empty(t, b.Keys(t))
	})
}

func TestReaderUnderAWriterEndsWithWhatItWasGiven(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetReadWriteLock("n")
		request, cancel := context.WithCancelCause(t.Context())
		w1 := locktest.Acquire(t, request, l)
		w2 := locktest.Acquire(t, w1.Context(), l)
		r1 := locktest.Acquire(t, w1.Context(), l.RLocker())
		r2 := locktest.Acquire(t, w2.Context(), l.RLocker())
		w3 := locktest.Acquire(t, r1.Context(), l) // nests in the writer
		locktest.Unlock(t, w1)
		locktest.Unlock(t, r1)
		locktest.Unlock(t, w2)
		synctest.Wait()
		locktest.Live(t, r2.Context())
		locktest.Live(t, w3.Context())
		locktest.Unlock(t, w3)
		cancel(assert.AnError)
		locktest.Ended(t, r2.Context(), assert.AnError)
		locktest.Refused(t, b.Peer(t).GetReadWriteLock("n"))
		locktest.Unlock(t, r2)
		assert.Empty(t, b.Keys(t))
	})
}

func TestDowngradedOwnerIDIsNotHandedOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t, redlatch.WithHandoffBudget(time.Second)).GetReadWriteLock("n")
		w := locktest.Acquire(t, t.Context(), l)
		r := locktest.Acquire(t, w.Context(), l.RLocker())
		waiting := begin(t, t.Context(), l)
		locktest.Unlock(t, w)
		time.Sleep(5 * time.Second)
		select {
		case <-waiting:
			require.Fail(t, "a writer got in beside a reader")
		default:
		}
		locktest.Unlock(t, r)
		next := locktest.Next(t, waiting)
		assert.NotEqual(t, w.Owner(), next.Owner())
		locktest.Unlock(t, next)
	})
}

func TestReaderAsksForTheWriteLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetReadWriteLock("n")
		for what, opts := range map[string][]rlock.Option{
			"plain": nil, "patient": {rlock.WithWait(time.Hour)}, "a take-over": {rlock.WithTakeOver("me:1")}, "no nesting": {rlock.WithoutReentry()},
		} {
			r := locktest.Acquire(t, t.Context(), l.RLocker())
			inner := locktest.Acquire(t, context.WithValue(r.Context(), t, 1), l.RLocker())
			sent := p.Scripts()
			for verb, err := range locktest.Acquiring(inner.Context(), l, opts...) {
				require.ErrorIs(t, err, rrwlock.ErrUpgrade, "%s: %s", verb, what)
				require.NotErrorIs(t, err, assert.AnError)
			}
			assert.Equal(t, sent, p.Scripts(), "nobody was asked")
			_, err := l.TryLock(rlock.Detach(inner.Context()))
			require.ErrorIs(t, err, rlock.ErrNotAcquired, "a stranger")
			locktest.Refused(t, b.Peer(t).GetReadWriteLock("n"))
			other := locktest.Acquire(t, r.Context(), p.GetReadWriteLock("another"))
			locktest.Unlock(t, other)
			locktest.Unlock(t, inner)
			locktest.Unlock(t, r)
			_, err = l.TryLock(context.WithoutCancel(inner.Context()), opts...)
			require.NoError(t, err, "the readers are gone")
			freed, err := l.ForceUnlock(t.Context())
			require.NoError(t, err)
			assert.True(t, freed)
			synctest.Wait()
		}
		w := locktest.Acquire(t, t.Context(), l)
		r := locktest.Acquire(t, w.Context(), l.RLocker())
		locktest.Unlock(t, w)
		_, err := l.Lock(r.Context())
		require.ErrorIs(t, err, rrwlock.ErrUpgrade, "after a downgrade too")
		locktest.Unlock(t, r)
	})
}

func TestWithoutReentryUnderTheOtherMode(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetReadWriteLock("n")
		w := locktest.Acquire(t, t.Context(), l)
		_, err := l.RLock(w.Context(), rlock.WithoutReentry())
		require.ErrorIs(t, err, rlock.ErrHeld)
		_, err = l.TryRLock(rlock.Detach(w.Context()))
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		locktest.Unlock(t, w)
	})
}

func TestLostWriterTakesItsReaderAlong(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.Peer(t).GetReadWriteLock("n"), b.Peer(t).GetReadWriteLock("n")
		w := locktest.Acquire(t, t.Context(), l)
		r := locktest.Acquire(t, w.Context(), l.RLocker())
		_, err := l.ForceUnlock(t.Context())
		require.NoError(t, err)
		next := locktest.Acquire(t, t.Context(), other)
		synctest.Wait()
		locktest.Ended(t, w.Context(), rlock.ErrLost)
		locktest.Ended(t, r.Context(), rlock.ErrLost)
		require.ErrorIs(t, r.Unlock(t.Context()), rlock.ErrNotHeld)
		locktest.Live(t, next.Context())
		locktest.Unlock(t, next)

		w = locktest.Acquire(t, t.Context(), l)
		b.Delete(t, "n")
		_, err = l.RLock(w.Context())
		require.ErrorIs(t, err, rlock.ErrLost, "there is no writer any more")
		locktest.Ended(t, w.Context(), rlock.ErrLost)
	})
}

func TestWriterLeaseEndsBeforeItsReaders(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l, other := b.Peer(t).GetReadWriteLock("n"), b.Peer(t).GetReadWriteLock("n")
		w := locktest.Acquire(t, t.Context(), l, rlock.WithFixedLease(time.Second))
		r := locktest.Acquire(t, w.Context(), l.RLocker())
		locktest.Ended(t, w.Context(), rlock.ErrLost)
		synctest.Wait()
		locktest.Ended(t, r.Context(), rlock.ErrLost)
		time.Sleep(moment)
		locktest.Refused(t, other)
		locktest.Free(t, other.RLocker())
		require.ErrorIs(t, w.Unlock(t.Context()), rlock.ErrNotHeld)
		locktest.Unlock(t, r)
		assert.Empty(t, b.Keys(t))
	})
}

func TestReaderLeaseUnderAWriterEndsAlone(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetReadWriteLock("n")
		w := locktest.Acquire(t, t.Context(), l)
		r := locktest.Acquire(t, w.Context(), l.RLocker(), rlock.WithFixedLease(time.Second))
		locktest.Ended(t, r.Context(), rlock.ErrLost)
		locktest.Live(t, w.Context())
		time.Sleep(moment)
		assert.Equal(t, map[string]string{"mode": "write", w.Owner() + ":write": "1"}, b.Hash(t, "n"))
		r = locktest.Acquire(t, w.Context(), l.RLocker())
		locktest.Unlock(t, w)
		locktest.Live(t, r.Context())
		locktest.Unlock(t, r)
		assert.Empty(t, b.Keys(t))
	})
}

func TestQueriesTellOfBothModes(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetReadWriteLock("n")
		look := func(ctx context.Context, locked bool, levels int, left time.Duration) {
			t.Helper()
			is, err := l.IsLocked(t.Context())
			require.NoError(t, err)
			assert.Equal(t, locked, is)
			n, err := l.HoldCount(ctx)
			require.NoError(t, err)
			assert.Equal(t, levels, n)
			ttl, err := l.TTL(t.Context())
			require.NoError(t, err)
			assert.Equal(t, left, ttl)
		}
		look(t.Context(), false, 0, 0)
		w := locktest.Acquire(t, t.Context(), l)
		w2 := locktest.Acquire(t, w.Context(), l)
		r := locktest.Acquire(t, w2.Context(), l.RLocker())
		look(t.Context(), true, 0, 30*time.Second)
		look(w.Context(), true, 2, 30*time.Second)
		look(r.Context(), true, 1, 30*time.Second)
		locktest.Unlock(t, w2)
		locktest.Unlock(t, w)
		look(r.Context(), true, 1, 30*time.Second)
		locktest.Unlock(t, r)
		look(r.Context(), false, 0, 0)
	})
}

func TestBadOptionIsErrInvalid(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetReadWriteLock("n", nil)
		for _, side := range []rlock.Locker{l, l.RLocker()} {
			for verb, err := range locktest.Acquiring(t.Context(), side) {
				require.ErrorIs(t, err, redlatch.ErrInvalid, verb)
			}
		}
		_, err := l.IsLocked(t.Context())
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		_, err = l.ForceUnlock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		require.ErrorIs(t, l.RDo(t.Context(), nil), redlatch.ErrInvalid)
		assert.Zero(t, p.Scripts())
		require.EqualError(t, l.RDo(t.Context(), nil), `rrwlock: read do "n": invalid argument: fn is nil`)
	})
}

func TestManyReadUnderOneWriterWhileItLeaves(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetReadWriteLock("n")
		w := locktest.Acquire(t, t.Context(), l)
		var users sync.WaitGroup
		for i := range 8 {
			users.Go(func() {
				for range 20 {
					r, err := l.RLock(w.Context())
					if w.Context().Err() != nil && err != nil {
						return // the writer was gone first
					}
					assert.NoError(t, err)
					time.Sleep(time.Duration(i) * time.Millisecond)
					assert.NoError(t, r.Context().Err())
					assert.NoError(t, r.Unlock(t.Context()))
				}
			})
		}
		time.Sleep(10 * time.Millisecond)
		assert.Equal(t, "1", b.Hash(t, "n")[w.Owner()+":write"])
		locktest.Unlock(t, w)
		users.Wait()
		synctest.Wait()
		assert.Empty(t, b.Keys(t))
		locktest.Free(t, l)
	})
}

// The reader's lease outlives an outage in which its writer has left. Redis has the writer until it hears of that.
//
// F1
func TestDowngradeIsSettledAfterALongOutage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l, far := p.GetReadWriteLock("n"), b.Peer(t).GetReadWriteLock("n")
		w := locktest.Acquire(t, t.Context(), l)
		r := locktest.Acquire(t, w.Context(), l.RLocker(), rlock.WithFixedLease(time.Hour))
		p.Down(true)
		require.ErrorIs(t, w.Unlock(t.Context()), redlatch.ErrUnknown)
		time.Sleep(50 * time.Second)
		p.Down(false)

		time.Sleep(30 * time.Second)
		locktest.Live(t, r.Context())
		assert.Equal(t, "read", b.Hash(t, "n")["mode"])
		locktest.Free(t, far.RLocker())
		locktest.Unlock(t, r)
	})
}

// The writer's Unlock gives up while it waits for another operation of the lease. It goes on in the background.
//
// F2
func TestDowngradeThatGivesUpIsSettled(t *testing.T) {
	for what, operation := range map[string]func(t *testing.T, r *rlock.Hold, l rlock.Locker) error{
		"Extend": func(t *testing.T, r *rlock.Hold, _ rlock.Locker) error { return r.Extend(t.Context(), time.Hour) },
		"nested RLock": func(t *testing.T, r *rlock.Hold, l rlock.Locker) error {
			_, err := l.Lock(r.Context())
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				l, far := b.Peer(t).GetReadWriteLock("n"), b.Peer(t).GetReadWriteLock("n")
				w := locktest.Acquire(t, t.Context(), l)
				r := locktest.Acquire(t, w.Context(), l.RLocker())
				b.Mini.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
					if cmd == "EVALSHA" {
						time.Sleep(time.Second)
					}
					return false
				})
				other := locktest.Begin(func() (*rlock.Hold, error) { return nil, operation(t, r, l.RLocker()) })
				time.Sleep(100 * time.Millisecond)
				soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				require.ErrorIs(t, w.Unlock(soon), redlatch.ErrUnknown)
				require.NoError(t, locktest.Fetch(t, other).Err)
				b.Mini.Server().SetPreHook(nil)

				time.Sleep(time.Minute)
				locktest.Live(t, r.Context())
				assert.Equal(t, "read", b.Hash(t, "n")["mode"])
				locktest.Free(t, far.RLocker())
			})
		})
	}
}
