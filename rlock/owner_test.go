package rlock_test

import (
	"context"
	"strings"
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

// takeable are the locks that can be taken over.
var takeable = map[string]func(*redlatch.Client, string) rlock.Locker{
	"Lock": kinds["Lock"], "FencedLock": kinds["FencedLock"],
	"FairLock":  func(c *redlatch.Client, name string) rlock.Locker { return c.GetFairLock(name) },
	"WriteLock": func(c *redlatch.Client, name string) rlock.Locker { return c.GetReadWriteLock(name) },
}

// eachTakeable runs a test for each of these locks: before holds it as a process does that then dies.
func eachTakeable(t *testing.T, fn func(t *testing.T, b *locktest.Bubble, get func(*redlatch.Client, string) rlock.Locker, before *rlock.Hold)) {
	t.Helper()
	for name, get := range takeable {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				old := b.Peer(t, redlatch.WithAbandonOnClose(), redlatch.WithCloseGrace(0))
				before := locktest.Acquire(t, t.Context(), get(old.Client, "orders"))
				require.NoError(t, old.Close())
				fn(t, b, get, before)
			})
		})
	}
}

// owner returns the id that holds the lock; empty if nobody does.
func owner(t *testing.T, b *locktest.Bubble) string {
	t.Helper()
	fields := b.Hash(t, "orders")
	delete(fields, "mode")
	require.LessOrEqual(t, len(fields), 1, "%v", fields)
	for field, levels := range fields {
		assert.Equal(t, "1", levels)
		return strings.TrimSuffix(field, ":write")
	}
	return ""
}

func TestRestartedServiceTakesItsLockOver(t *testing.T) {
	eachTakeable(t, func(t *testing.T, b *locktest.Bubble, get func(*redlatch.Client, string) rlock.Locker, before *rlock.Hold) {
		time.Sleep(10 * time.Second)
		l := get(b.Peer(t).Client, "orders")
		h, err := l.TryLock(t.Context(), rlock.WithTakeOver(before.Owner()))
		require.NoError(t, err)
		assert.NotEqual(t, before.Owner(), h.Owner(), "no id is used twice")
		assert.Equal(t, h.Owner(), owner(t, b))
		assert.Equal(t, lease, b.TTL(t, "orders"))
		if h.Token() != 0 {
			assert.Greater(t, h.Token(), before.Token(), "a take-over is an acquisition")
		}
		time.Sleep(2 * lease)
		locktest.Live(t, h.Context())
		locktest.Unlock(t, h)
		assert.Empty(t, b.Hash(t, "orders"))
	})
}

func TestTakeOverSetsTheLevelsToOne(t *testing.T) {
	eachTakeable(t, func(t *testing.T, b *locktest.Bubble, get func(*redlatch.Client, string) rlock.Locker, before *rlock.Hold) {
		for field := range b.Hash(t, "orders") {
			if field != "mode" {
				require.NoError(t, b.Redis.HSet(t.Context(), "orders", field, 3).Err())
			}
		}
		h := locktest.Acquire(t, t.Context(), get(b.Peer(t).Client, "orders"), rlock.WithTakeOver(before.Owner()))
		assert.Equal(t, h.Owner(), owner(t, b), "levels are set to 1")
		locktest.Unlock(t, h)
	})
}

func TestTakeOverFromNobodyIsAnOrdinaryAcquisition(t *testing.T) {
	for name, get := range takeable {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				mine := rlock.WithTakeOver("web-3.4711.9f2c1a0b77d01e42:17")
				p, q := b.Peer(t), b.Peer(t)
				h := locktest.Acquire(t, t.Context(), get(p.Client, "orders"), mine)
				nested := locktest.Acquire(t, h.Context(), get(p.Client, "orders"), mine)
				locktest.Unlock(t, nested)
				waiting := queue(t, get(q.Client, "orders"), mine)
				time.Sleep(2 * lease)
				require.Empty(t, waiting)
				locktest.Live(t, h.Context())
				locktest.Unlock(t, h)
				locktest.Unlock(t, locktest.Next(t, waiting))
			})
		})
	}
}

func TestEarlierHolderLearnsOfATakeOver(t *testing.T) {
	for name, get := range takeable {
		t.Run(name, func(t *testing.T) {
			for where, same := range map[string]bool{"in another client": false, "in its own client": true} {
				t.Run(where, func(t *testing.T) {
					locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
						p := b.Peer(t)
						q := p
						if !same {
							q = b.Peer(t)
						}
						before := locktest.Acquire(t, t.Context(), get(p.Client, "orders"))
						after := locktest.Acquire(t, t.Context(), get(q.Client, "orders"), rlock.WithTakeOver(before.Owner()))
						if !same {
							time.Sleep(lease / 3)
							synctest.Wait()
						}
						require.ErrorIs(t, context.Cause(before.Context()), rlock.ErrLost)
						require.ErrorIs(t, before.Unlock(t.Context()), rlock.ErrNotHeld)
						assert.Equal(t, after.Owner(), owner(t, b))
						time.Sleep(2 * lease)
						locktest.Live(t, after.Context())
						locktest.Unlock(t, after)
						assert.Empty(t, b.Hash(t, "orders"))
					})
				})
			}
		})
	}
}

// hashes are the locks whose holds are fields of a hash without a mode: each may be taken over by any of them.
var hashes = []string{"Lock", "FencedLock", "FairLock"}

func TestHolderLearnsAtOnceThatItsOwnClientTookItsLock(t *testing.T) {
	takes := map[string]func(t *testing.T, p *locktest.Peer, kind string, before *rlock.Hold) (after *rlock.Hold){
		"over": func(t *testing.T, p *locktest.Peer, kind string, before *rlock.Hold) *rlock.Hold {
			after := locktest.Acquire(t, t.Context(), takeable[kind](p.Client, "orders"), rlock.WithTakeOver(before.Owner()))
			require.ErrorIs(t, context.Cause(before.Context()), rlock.ErrLost)
			return after
		},
		"over, and its answer is lost": func(t *testing.T, p *locktest.Peer, kind string, before *rlock.Hold) *rlock.Hold {
			p.LoseReplies(1)
			_, err := takeable[kind](p.Client, "orders").TryLock(t.Context(), rlock.WithTakeOver(before.Owner()))
			require.ErrorIs(t, err, redlatch.ErrUnknown)
			return nil
		},
		"by force": func(t *testing.T, p *locktest.Peer, kind string, _ *rlock.Hold) *rlock.Hold {
			forced, err := takeable[kind](p.Client, "orders").(interface {
				ForceUnlock(ctx context.Context) (bool, error)
			}).ForceUnlock(t.Context())
			require.NoError(t, err)
			require.True(t, forced)
			return nil
		},
	}
	for how, take := range takes {
		for _, kind := range hashes {
			for _, other := range hashes {
				t.Run(how+", "+kind+" by "+other, func(t *testing.T) {
					locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
						p := b.Peer(t)
						locktest.Free(t, takeable[other](p.Client, "others")) // Redis knows the scripts
						for _, opts := range [][]rlock.Option{nil, {rlock.WithFixedLease(time.Hour)}} {
							before := locktest.Acquire(t, t.Context(), takeable[kind](p.Client, "orders"), opts...)
							inner := locktest.Acquire(t, before.Context(), takeable[kind](p.Client, "orders"))
							start := time.Now()
							after := take(t, p, other, before)
							<-before.Context().Done()
							<-inner.Context().Done()
							assert.LessOrEqual(t, time.Since(start), 100*time.Millisecond)
							require.ErrorIs(t, before.Unlock(t.Context()), rlock.ErrNotHeld)
							if after != nil {
								assert.Equal(t, after.Owner(), owner(t, b))
								time.Sleep(2 * lease)
								locktest.Live(t, after.Context())
								locktest.Unlock(t, after)
							}
							time.Sleep(settled)
							assert.Empty(t, b.Hash(t, "orders"))
						}
					})
				})
			}
		}
	}
}

// They are one lease, whose owner id both have.
func TestTakeOverEndsTheHoldThatWasHandedOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		first := locktest.Acquire(t, t.Context(), l)
		waiting := queue(t, l)
		locktest.Unlock(t, first)
		second := locktest.Next(t, waiting)
		require.Equal(t, first.Owner(), second.Owner())
		after := locktest.Acquire(t, t.Context(), l, rlock.WithTakeOver(first.Owner()))
		require.ErrorIs(t, context.Cause(first.Context()), rlock.ErrUnlocked)
		require.ErrorIs(t, context.Cause(second.Context()), rlock.ErrLost)
		locktest.Unlock(t, after)
	})
}

func TestTakeOverEndsTheHoldOfItsClientAtOnceOnServer(t *testing.T) {
	s := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	c, err := redlatch.New(rdb)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	for kind, get := range takeable {
		before := locktest.Acquire(t, t.Context(), get(c, kind), rlock.WithFixedLease(time.Hour))
		after := locktest.Acquire(t, t.Context(), get(c, kind), rlock.WithTakeOver(before.Owner()))
		require.ErrorIs(t, context.Cause(before.Context()), rlock.ErrLost, kind)
		locktest.Unlock(t, after)
	}
}

// F2
func TestTakeOverWhoseNoScriptAnswerWasLostShutsNobodyOut(t *testing.T) {
	eachTakeable(t, func(t *testing.T, b *locktest.Bubble, get func(*redlatch.Client, string) rlock.Locker, before *rlock.Hold) {
		p := b.Peer(t)
		require.NoError(t, b.Redis.ScriptFlush(t.Context()).Err())
		p.LoseReplies(1)
		l := get(p.Client, "orders")
		_, err := l.TryLock(t.Context(), rlock.WithTakeOver(before.Owner()))
		require.ErrorIs(t, err, redlatch.ErrUnknown)
		assert.Equal(t, before.Owner(), owner(t, b), "nothing had run")
		h, err := l.TryLock(t.Context(), rlock.WithTakeOver(before.Owner()))
		require.NoError(t, err)
		time.Sleep(2 * lease)
		locktest.Live(t, h.Context())
		assert.Equal(t, h.Owner(), owner(t, b))
		locktest.Unlock(t, h)
	})
}

// F2
func TestTakeOverWhoseReplyWasLostIsHeldByTheCallerOrFreeSoon(t *testing.T) {
	eachTakeable(t, func(t *testing.T, b *locktest.Bubble, get func(*redlatch.Client, string) rlock.Locker, before *rlock.Hold) {
		warm, p := b.Peer(t), b.Peer(t)
		locktest.Free(t, get(warm.Client, "others")) // Redis knows the scripts
		p.LoseReplies(1)
		_, err := get(p.Client, "orders").TryLock(t.Context(), rlock.WithTakeOver(before.Owner()))
		require.ErrorIs(t, err, redlatch.ErrUnknown)
		time.Sleep(settled)
		assert.Empty(t, b.Hash(t, "orders"), "what nobody waits for was released")

		before = locktest.Acquire(t, t.Context(), get(warm.Client, "orders"))
		p.LoseReplies(1)
		h := locktest.Acquire(t, t.Context(), get(p.Client, "orders"), rlock.WithTakeOver(before.Owner()))
		assert.Equal(t, h.Owner(), owner(t, b))
		time.Sleep(2 * lease)
		locktest.Live(t, h.Context())
		locktest.Unlock(t, h)
		assert.Empty(t, b.Hash(t, "orders"))
	})
}

// A try that was given up may arrive when its settlement has been tried several times.
// F2
func TestLateTakeOverIsReleasedAndItsSettlementSparesTheEarlierHold(t *testing.T) {
	eachTakeable(t, func(t *testing.T, b *locktest.Bubble, get func(*redlatch.Client, string) rlock.Locker, before *rlock.Hold) {
		p := b.Peer(t)
		locktest.Free(t, get(p.Client, "others")) // Redis knows the scripts
		p.Withhold(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := get(p.Client, "orders").TryLock(ctx, rlock.WithTakeOver(before.Owner()))
		require.Error(t, err)
		time.Sleep(3 * time.Second)
		require.Equal(t, before.Owner(), owner(t, b), "only the fresh id is released")
		require.Equal(t, 1, p.Deliver(t))
		require.NotEqual(t, before.Owner(), owner(t, b), "it arrived late, and was granted")
		time.Sleep(5 * time.Second)
		assert.Empty(t, b.Hash(t, "orders"), "nobody holds it for a lease")
	})
}

func TestTakeOverSparesAReadWriteLock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, q := b.Peer(t), b.Peer(t)
		rw := p.GetReadWriteLock("orders")
		reader := locktest.Acquire(t, t.Context(), rw.RLocker())
		stranger := locktest.Acquire(t, t.Context(), rw.RLocker())
		mine := rlock.WithTakeOver(reader.Owner())
		before := b.Hash(t, "orders")
		for _, l := range []rlock.Locker{q.GetLock("orders"), q.GetFencedLock("orders"), q.GetFairLock("orders")} {
			for verb, err := range locktest.Acquiring(t.Context(), l, mine, rlock.WithWait(time.Minute)) {
				require.ErrorIs(t, err, redlatch.ErrWrongType, verb)
			}
		}
		assert.Equal(t, before, b.Hash(t, "orders"))
		locktest.Unlock(t, reader)
		locktest.Unlock(t, stranger)
	})
}

func TestWriterTakesOverFromOneThatReadAsWell(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		old := b.Peer(t, redlatch.WithAbandonOnClose(), redlatch.WithCloseGrace(0))
		l := old.GetReadWriteLock("orders")
		w := locktest.Acquire(t, t.Context(), l)
		locktest.Acquire(t, w.Context(), l.RLocker())
		require.NoError(t, old.Close())
		h := locktest.Acquire(t, t.Context(), b.Peer(t).GetReadWriteLock("orders"), rlock.WithTakeOver(w.Owner()))
		assert.Equal(t, map[string]string{"mode": "write", h.Owner() + ":write": "1"}, b.Hash(t, "orders"))
		locktest.Unlock(t, h)
		locktest.Free(t, b.Peer(t).GetReadWriteLock("orders"))
	})
}

func TestTakeOverPassesThoseWhoQueue(t *testing.T) {
	eachTakeable(t, func(t *testing.T, b *locktest.Bubble, get func(*redlatch.Client, string) rlock.Locker, before *rlock.Hold) {
		waiting := queue(t, get(b.Peer(t).Client, "orders"))
		time.Sleep(time.Second)
		h := locktest.Acquire(t, t.Context(), get(b.Peer(t).Client, "orders"), rlock.WithTakeOver(before.Owner()))
		time.Sleep(2 * lease)
		require.Empty(t, waiting)
		locktest.Unlock(t, h)
		locktest.Unlock(t, locktest.Next(t, waiting))
	})
}

func TestTakeOverIsTriedAgainAfterAnErrorThatPasses(t *testing.T) {
	for name, here := range map[string]bool{"held by its own client": true, "behind a waiter of its client": false} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				l, holder := p.GetLock("orders"), p
				if !here {
					holder = b.Peer(t)
				}
				before := locktest.Acquire(t, t.Context(), holder.GetLock("orders"))
				var waiting <-chan locktest.Outcome
				if !here {
					waiting = queue(t, l)
					time.Sleep(time.Second)
				}
				b.Mini.SetError("LOADING Redis is loading the dataset in memory")
				taking := queue(t, l, rlock.WithTakeOver(before.Owner()))
				b.Mini.SetError("")
				time.Sleep(time.Second)
				synctest.Wait()
				require.Len(t, taking, 1)
				locktest.Unlock(t, locktest.Next(t, taking))
				if !here {
					locktest.Unlock(t, locktest.Next(t, waiting))
				}
			})
		})
	}
}

func TestOwnerIDsNameTheClient(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		a, other := locktest.Acquire(t, t.Context(), p.GetLock("a")), locktest.Acquire(t, t.Context(), p.GetLock("b"))
		id, sequence, ok := strings.Cut(a.Owner(), ":")
		require.True(t, ok)
		assert.Equal(t, p.ID(), id)
		assert.Regexp(t, `^[0-9]+$`, sequence)
		assert.True(t, strings.HasPrefix(other.Owner(), id+":"))
		assert.NotEqual(t, a.Owner(), other.Owner())
		locktest.Unlock(t, a)
		locktest.Unlock(t, other)
	})
}
