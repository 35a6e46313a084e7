package rfairlock_test

import (
	"context"
	"errors"
	"fmt"
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

// listen returns what is published on all wake-up channels so far: channel and payload.
func listen(t *testing.T, rdb *redis.Client) func() [][2]string {
	t.Helper()
	sub := rdb.PSubscribe(t.Context(), "redisson_lock__channel*")
	t.Cleanup(func() { assert.NoError(t, sub.Close()) })
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	return func() [][2]string {
		var heard [][2]string
		for {
			m, err := sub.ReceiveTimeout(t.Context(), time.Millisecond)
			if err != nil {
				return heard
			}
			if m, ok := m.(*redis.Message); ok {
				heard = append(heard, [2]string{m.Channel, m.Payload})
			}
		}
	}
}

// wholeSecond waits until Redis's clock is at a whole number of milliseconds, so that scores can be told exactly.
func wholeSecond() time.Time {
	now := time.Now()
	time.Sleep(now.Truncate(time.Second).Add(time.Second).Sub(now))
	return time.Now()
}

func TestVectorFairQueueOfJava(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		java := redlatch.WithRedissonFairQueue()
		at := wholeSecond()
		a := locktest.Acquire(t, t.Context(), b.Peer(t, java).GetFairLock(key))
		first := locktest.Begin(func() (*rlock.Hold, error) { return b.Peer(t, java).GetFairLock(key).Lock(t.Context()) })
		synctest.Wait()
		second := locktest.Begin(func() (*rlock.Hold, error) { return b.Peer(t, java).GetFairLock(key).Lock(t.Context()) })
		synctest.Wait()
		queued := waiters(t, b.Redis)
		require.Len(t, queued, 2)
		require.Equal(t, at, time.Now())
		assert.Equal(t, at.Add(330*time.Second), score(t, b.Redis, queued[0]), "B's score")
		assert.Equal(t, at.Add(630*time.Second), score(t, b.Redis, queued[1]), "C's score")
		for _, k := range []string{queue, timeouts} {
			assert.Equal(t, time.Duration(-1), b.TTL(t, k), "no TTL")
		}

		time.Sleep(20 * time.Second)
		assert.Equal(t, at.Add(330*time.Second), score(t, b.Redis, queued[0]), "scores are not renewed")
		heard := listen(t, b.Redis)
		locktest.Unlock(t, a)
		h := locktest.Next(t, first)
		assert.Equal(t, queued[0], h.Owner())
		assert.Equal(t, [][2]string{{"redisson_lock__channel:{n}:" + queued[0], "0"}}, heard(), "a message to B alone")
		assert.Equal(t, queued[1:], waiters(t, b.Redis))
		assert.Equal(t, at.Add(330*time.Second), score(t, b.Redis, queued[1]), "C's score after a grant")
		locktest.Unlock(t, h)
		locktest.Unlock(t, locktest.Next(t, second))
		assert.Empty(t, b.Keys(t))
	})
}

func TestVectorLeavingJavasQueue(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		java := redlatch.WithRedissonFairQueue()
		p := b.Peer(t, java)
		l := p.GetFairLock(key)
		at := wholeSecond()
		h := locktest.Acquire(t, t.Context(), b.Peer(t, java).GetFairLock(key))
		ctx, cancel := context.WithCancel(t.Context())
		begin := func(ctx context.Context, opts ...rlock.Option) <-chan locktest.Outcome {
			waiting := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(ctx, opts...) })
			synctest.Wait()
			return waiting
		}
		limited := begin(t.Context(), rlock.WithWait(2*time.Second))
		leaving := begin(ctx)
		last := begin(t.Context())
		queued := waiters(t, b.Redis)
		require.Len(t, queued, 3)
		require.Equal(t, at, time.Now())
		scores := func(waiters ...string) (all []time.Duration) {
			for _, w := range waiters {
				all = append(all, score(t, b.Redis, w).Sub(at))
			}
			return all
		}
		assert.Equal(t, []time.Duration{32 * time.Second, 332 * time.Second, 632 * time.Second}, scores(queued...), "a limit of the wait stands for the timeout")
		cancel()
		locktest.Failed(t, leaving, context.Canceled)
		synctest.Wait()
		assert.Equal(t, []string{queued[0], queued[2]}, waiters(t, b.Redis))
		assert.Equal(t, []time.Duration{32 * time.Second, 332 * time.Second}, scores(queued[0], queued[2]), "those behind are lowered")
		locktest.Failed(t, limited, rlock.ErrNotAcquired)
		synctest.Wait()
		assert.Equal(t, queued[2:], waiters(t, b.Redis))
		assert.Equal(t, []time.Duration{330 * time.Second}, scores(queued[2]), "by the limit of the one that left")
		locktest.Unlock(t, h)
		locktest.Unlock(t, locktest.Next(t, last))
		assert.Empty(t, b.Keys(t))
	})
}

func TestVectorPruningOfJavasQueue(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t, redlatch.WithRedissonFairQueue()).GetFairLock(key)
		now := wholeSecond()
		corpse(t, b.Redis, "late", 0)
		corpse(t, b.Redis, "just in time", time.Millisecond)
		corpse(t, b.Redis, "late too, but not at the head", -time.Second)
		locktest.Refused(t, l)
		require.Equal(t, now, time.Now())
		assert.Equal(t, []string{"just in time", "late too, but not at the head"}, waiters(t, b.Redis))
		assert.Zero(t, score(t, b.Redis, "late"))
		time.Sleep(time.Millisecond)
		locktest.Free(t, l)
		assert.Empty(t, b.Keys(t))

		require.NoError(t, b.Redis.RPush(t.Context(), queue, "no score").Err())
		locktest.Refused(t, l)
		time.Sleep(time.Hour)
		locktest.Refused(t, l)
		assert.Equal(t, []string{"no score"}, waiters(t, b.Redis), "the pruning stops at it")
	})
}

func TestVectorNames(t *testing.T) {
	for name, v := range map[string]struct{ prefix, name, queue, timeouts, channel string }{
		"plain":  {"", "n", "redisson_lock_queue:{n}", "redisson_lock_timeout:{n}", "redisson_lock__channel:{n}:"},
		"tag":    {"", "{shop}:n", "redisson_lock_queue:{shop}:n", "redisson_lock_timeout:{shop}:n", "redisson_lock__channel:{shop}:n:"},
		"prefix": {"app:", "n", "redisson_lock_queue:{app:n}", "redisson_lock_timeout:{app:n}", "redisson_lock__channel:{app:n}:"},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p, other := b.Peer(t, redlatch.WithNamePrefix(v.prefix)), b.Peer(t, redlatch.WithNamePrefix(v.prefix))
				h := locktest.Acquire(t, t.Context(), p.GetFairLock(v.name))
				waiting := locktest.Begin(func() (*rlock.Hold, error) { return other.GetFairLock(v.name).Lock(t.Context()) })
				synctest.Wait()
				assert.ElementsMatch(t, []string{v.prefix + v.name, v.queue, v.timeouts}, b.Keys(t))
				heard := listen(t, b.Redis)
				locktest.Unlock(t, h)
				h = locktest.Next(t, waiting)
				assert.Equal(t, [][2]string{{v.channel + h.Owner(), "0"}}, heard())
				locktest.Unlock(t, h)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

func TestForceUnlockWakesTheNext(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetFairLock(key)
		freed, err := l.ForceUnlock(t.Context())
		require.NoError(t, err)
		assert.False(t, freed)
		b.Foreign(t, key, time.Hour)
		waiting := await(t, t.Context(), b.Redis, l)
		start := time.Now()
		freed, err = l.ForceUnlock(t.Context())
		require.NoError(t, err)
		assert.True(t, freed)
		locktest.Unlock(t, locktest.Next(t, waiting))
		assert.Less(t, time.Since(start), moment)
		assert.Empty(t, b.Keys(t))
	})
}

func TestDataOfOtherKindsIsLeftAlone(t *testing.T) {
	for _, k := range []string{key, queue, timeouts} {
		t.Run(k, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				l := p.GetFairLock(key)
				h := locktest.Acquire(t, t.Context(), b.Peer(t).GetFairLock("other"))
				require.NoError(t, b.Redis.Set(t.Context(), k, "a string", 0).Err())
				if k == timeouts { // looked at only when somebody waits
					b.Foreign(t, key, time.Minute)
				}
				_, err := l.Lock(t.Context())
				require.ErrorIs(t, err, redlatch.ErrWrongType)
				assert.Equal(t, "a string", b.Redis.Get(t.Context(), k).Val())
				locktest.Unlock(t, h)
			})
		})
	}
}

func TestPlainAndFairLocksExclude(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := locktest.Acquire(t, t.Context(), p.GetLock(key))
		locktest.Refused(t, p.GetFairLock(key))
		waiting := await(t, t.Context(), b.Redis, p.GetFairLock(key))
		locktest.Unlock(t, h)
		h = locktest.Next(t, waiting)
		locktest.Refused(t, p.GetLock(key))
		locktest.Unlock(t, h)
	})
}

// javaWaiter puts a waiter of Java's at the end of the queue, as Redisson does with its fairLockWaitTimeout.
func javaWaiter(t *testing.T, rdb *redis.Client, timeout time.Duration) string {
	t.Helper()
	const java = "8743c9c0-0795-4907-87fd-6c719a6b4586:57"
	until := time.Now().Add(30 * time.Second)
	if queued := waiters(t, rdb); len(queued) > 0 {
		until = score(t, rdb, queued[len(queued)-1])
	}
	require.NoError(t, rdb.RPush(t.Context(), queue, java).Err())
	require.NoError(t, rdb.ZAdd(t.Context(), timeouts, redis.Z{Score: float64(until.Add(timeout).UnixMilli()), Member: java}).Err())
	return java
}

// F11
func TestDefaultLayoutRefusesAQueueOfRedisson(t *testing.T) {
	for _, timeout := range []time.Duration{5 * time.Minute, time.Minute, 5 * time.Second} {
		for _, behind := range []int{0, 1} {
			t.Run(fmt.Sprintf("Java waits behind %d of Go for %v", behind, timeout), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					p := b.Peer(t)
					holder := locktest.Acquire(t, t.Context(), p.GetFairLock(key))
					var inGo []<-chan locktest.Outcome
					for range behind {
						inGo = append(inGo, await(t, t.Context(), b.Redis, p.GetFairLock(key)))
					}
					java := javaWaiter(t, b.Redis, timeout)
					before, until := waiters(t, b.Redis), score(t, b.Redis, java)

					time.Sleep(timeout / 5) // it has waited for some time
					_, err := p.GetFairLock(key).Lock(t.Context(), rlock.WithWait(time.Second))
					require.ErrorIs(t, err, redlatch.ErrWrongType)
					require.ErrorContains(t, err, "waiters of Redisson queue for this fair lock: use redlatch.WithRedissonFairQueue")
					locktest.Refused(t, p.GetFairLock(key)) // it does not queue
					assert.Equal(t, before, waiters(t, b.Redis), "nothing is left of the waiter")
					assert.Equal(t, until, score(t, b.Redis, java))
					locktest.Unlock(t, holder)
					for _, waiting := range inGo {
						locktest.Unlock(t, locktest.Next(t, waiting))
					}
					assert.Equal(t, []string{java}, waiters(t, b.Redis))
				})
			})
		}
	}
}

// F11
func TestWaiterBeforeThoseOfRedissonKeepsItsPlaceWhenItAsksAgain(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		b.Foreign(t, key, time.Hour)
		waiting := await(t, t.Context(), b.Redis, p.GetFairLock(key))
		synctest.Wait()
		javaWaiter(t, b.Redis, 5*time.Minute)
		queued := waiters(t, b.Redis)
		before := p.Scripts()
		require.NoError(t, b.Redis.Publish(t.Context(), "redisson_lock__channel:{n}:"+queued[0], "0").Err())
		synctest.Wait()
		require.Equal(t, before+1, p.Scripts(), "it asks, and the lock is held")
		assert.Equal(t, queued, waiters(t, b.Redis))
		b.Delete(t, key)
		locktest.Unlock(t, locktest.Next(t, waiting))
	})
}

func TestMixtureOfModesExcludes(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		inside := 0
		var all []<-chan locktest.Outcome
		peers := []*locktest.Peer{b.Peer(t), b.Peer(t, redlatch.WithRedissonFairQueue())}
		for i := range 20 {
			l := peers[i%2].GetFairLock(key)
			all = append(all, locktest.Begin(func() (*rlock.Hold, error) {
				return nil, l.Do(t.Context(), func(context.Context) error {
					inside++
					assert.Equal(t, 1, inside)
					time.Sleep(100 * time.Millisecond)
					inside--
					return nil
				})
			}))
		}
		for i, waiting := range all {
			err := locktest.Fetch(t, waiting).Err
			if i%2 == 0 && errors.Is(err, redlatch.ErrWrongType) {
				continue // it met waiters of the other layout
			}
			require.NoError(t, err)
		}
		synctest.Wait()
		assert.Empty(t, b.Keys(t))
	})
}
