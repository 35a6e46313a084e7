package rfairlock_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rfairlock"
	"github.com/redlatch/redlatch/rlock"
)

const (
	key      = "n"
	queue    = "redisson_lock_queue:{n}"
	timeouts = "redisson_lock_timeout:{n}"

	good   = 5 * time.Second       // how long a waiter is good, by default
	moment = 50 * time.Millisecond // what may pass between a cause and its effect when nobody has to wait for a timer
)

// waiters returns who stands in the queue, the next one first.
func waiters(t *testing.T, rdb redis.UniversalClient) []string {
	t.Helper()
	list, err := rdb.LRange(t.Context(), queue, 0, -1).Result()
	require.NoError(t, err)
	return list
}

// score returns until when a waiter is good; the zero time for one that has no score.
func score(t *testing.T, rdb redis.UniversalClient, waiter string) time.Time {
	t.Helper()
	ms, err := rdb.ZScore(t.Context(), timeouts, waiter).Result()
	if errors.Is(err, redis.Nil) {
		return time.Time{}
	}
	require.NoError(t, err)
	return time.UnixMilli(int64(ms))
}

// await begins to wait for the lock, and returns once it stands in the queue.
func await(t *testing.T, ctx context.Context, rdb redis.UniversalClient, l *rfairlock.Lock, opts ...rlock.Option) <-chan locktest.Outcome {
	t.Helper()
	before := len(waiters(t, rdb))
	waiting := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(ctx, opts...) })
	synctest.Wait()
	time.Sleep(10 * time.Millisecond) // the subscription is confirmed, and Redis has been asked again
	synctest.Wait()
	require.Len(t, waiters(t, rdb), before+1, "the waiter queues")
	return waiting
}

// corpse puts a waiter into the queue that nobody looks after.
func corpse(t *testing.T, rdb redis.UniversalClient, id string, left time.Duration) {
	t.Helper()
	require.NoError(t, rdb.RPush(t.Context(), queue, id).Err())
	require.NoError(t, rdb.ZAdd(t.Context(), timeouts, redis.Z{Score: float64(time.Now().Add(left).UnixMilli()), Member: id}).Err())
}

func TestOrderIsThatOfTheQueue(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		peers := []*locktest.Peer{b.Peer(t), b.Peer(t), b.Peer(t)}
		h := locktest.Acquire(t, t.Context(), b.Peer(t).GetFairLock(key))
		var mu sync.Mutex
		var served []string
		var wg sync.WaitGroup
		for i := range 24 {
			l := peers[i*7%3].GetFairLock(key)
			waiting := await(t, t.Context(), b.Redis, l)
			wg.Go(func() {
				o := <-waiting
				if assert.NoError(t, o.Err) {
					mu.Lock()
					served = append(served, o.Hold.Owner())
					mu.Unlock()
					assert.NoError(t, o.Hold.Unlock(t.Context()))
				}
			})
		}
		queued := waiters(t, b.Redis)
		time.Sleep(time.Minute) // long after a waiter that nobody looks after would be taken for dead
		require.Equal(t, queued, waiters(t, b.Redis), "all keep their places")
		start := time.Now()
		locktest.Unlock(t, h)
		wg.Wait()
		assert.Equal(t, queued, served)
		assert.Less(t, time.Since(start), moment, "nobody waited for a timer")
		assert.Empty(t, b.Keys(t), "the queue does not outlive its use")
	})
}

// F19
func TestQueueEndsByItselfWithItsWaiters(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		h := locktest.Acquire(t, t.Context(), b.Peer(t).GetFairLock(key))
		p := b.Peer(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		waiting := await(t, ctx, b.Redis, p.GetFairLock(key))
		for range 20 {
			time.Sleep(time.Second)
			left := time.Until(score(t, b.Redis, waiters(t, b.Redis)[0]))
			assert.Greater(t, left, good/2, "its score is renewed")
			for _, k := range []string{queue, timeouts} {
				assert.Greater(t, b.TTL(t, k), left, "%s lives longer than the waiter", k)
				assert.LessOrEqual(t, b.TTL(t, k), 2*good, k)
			}
		}
		p.Blackhole(true)
		p.Refuse(true)
		time.Sleep(2*good + time.Second)
		assert.Equal(t, []string{key}, b.Keys(t))
		p.Refuse(false)
		p.Blackhole(false)
		time.Sleep(good)
		require.Len(t, waiters(t, b.Redis), 1, "it was taken for dead, is alive, and queues again")
		locktest.Unlock(t, h)
		locktest.Unlock(t, locktest.Next(t, waiting))
	})
}

func TestWaiterThatGivesUpLeavesAtOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetFairLock(key)
		h := locktest.Acquire(t, t.Context(), b.Peer(t).GetFairLock(key))
		ctx, cancel := context.WithCancel(t.Context())
		first := await(t, ctx, b.Redis, l)
		limited := await(t, t.Context(), b.Redis, l, rlock.WithWait(time.Second))
		last := await(t, t.Context(), b.Redis, b.Peer(t).GetFairLock(key))
		queued := waiters(t, b.Redis)
		cancel()
		locktest.Failed(t, first, context.Canceled)
		synctest.Wait()
		assert.Equal(t, queued[1:], waiters(t, b.Redis), "cancelled")
		locktest.Failed(t, limited, rlock.ErrNotAcquired)
		synctest.Wait()
		assert.Equal(t, queued[2:], waiters(t, b.Redis), "its wait is over")
		start := time.Now()
		locktest.Unlock(t, h)
		locktest.Unlock(t, locktest.Next(t, last))
		assert.Less(t, time.Since(start), moment)
		assert.Empty(t, b.Keys(t))
	})
}

func TestCloseEmptiesTheQueue(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		h := locktest.Acquire(t, t.Context(), b.Peer(t).GetFairLock(key))
		for range 5 {
			waiting := await(t, t.Context(), b.Redis, p.GetFairLock(key))
			defer locktest.Failed(t, waiting, redlatch.ErrClosed)
		}
		require.NoError(t, p.Close())
		assert.Empty(t, waiters(t, b.Redis))
		locktest.Unlock(t, h)
	})
}

func TestSingleTryNeverOvertakes(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetFairLock(key)
		corpse(t, b.Redis, "somebody", good)
		for _, name := range []string{queue, timeouts} { // as the library leaves them
			require.NoError(t, b.Redis.PExpire(t.Context(), name, 2*good).Err())
		}
		locktest.Refused(t, l)
		assert.Equal(t, []string{"somebody"}, waiters(t, b.Redis), "a single try does not queue")
		_, err := l.Lock(t.Context(), rlock.WithWait(good/2))
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		time.Sleep(good)
		locktest.Free(t, l)
		assert.Empty(t, b.Keys(t))
	})
}

// silently breaks the queue so that no message tells of it. Each waiter must come to its turn within about a second.
var silently = map[string]func(t *testing.T, b *locktest.Bubble){
	"the lock is deleted":       func(t *testing.T, b *locktest.Bubble) { b.Delete(t, key) },
	"the lock ends":             func(t *testing.T, b *locktest.Bubble) { b.Mini.SetTTL(key, time.Millisecond) },
	"the queue is deleted":      func(t *testing.T, b *locktest.Bubble) { b.Delete(t, queue); b.Delete(t, key) },
	"the scores are deleted":    func(t *testing.T, b *locktest.Bubble) { b.Delete(t, timeouts); b.Delete(t, key) },
	"everything is deleted":     func(t *testing.T, b *locktest.Bubble) { b.Mini.FlushAll() },
	"a scoreless one is next":   func(t *testing.T, b *locktest.Bubble) { b.Redis.LPush(t.Context(), queue, "x"); b.Delete(t, key) },
	"a stranger's key takes it": func(t *testing.T, b *locktest.Bubble) { b.Delete(t, key); b.Foreign(t, key, time.Millisecond) },
}

func TestSilentChangesCostASecond(t *testing.T) {
	for what, change := range silently {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				b.Foreign(t, key, time.Hour)
				var all []<-chan locktest.Outcome
				for i := range 6 {
					all = append(all, await(t, t.Context(), b.Redis, []*locktest.Peer{b.Peer(t), b.Peer(t)}[i%2].GetFairLock(key)))
				}
				change(t, b)
				start := time.Now()
				for _, waiting := range all {
					go func() {
						if o := <-waiting; assert.NoError(t, o.Err) {
							assert.Less(t, time.Since(start), 3*time.Second)
							assert.NoError(t, o.Hold.Unlock(context.WithoutCancel(t.Context())))
						}
					}()
				}
				time.Sleep(3 * time.Second)
				synctest.Wait()
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

func TestDeletedQueueIsFoundWhileTheLockIsHeld(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Foreign(t, key, time.Hour)
		p := b.Peer(t)
		first := await(t, t.Context(), b.Redis, p.GetFairLock(key))
		second := await(t, t.Context(), b.Redis, p.GetFairLock(key))
		before := waiters(t, b.Redis)
		b.Delete(t, queue)
		time.Sleep(2 * time.Second)
		assert.ElementsMatch(t, before, waiters(t, b.Redis), "they queue again")
		b.Delete(t, key)
		for range 2 {
			select {
			case o := <-first:
				locktest.Unlock(t, o.Hold)
			case o := <-second:
				locktest.Unlock(t, o.Hold)
			}
		}
	})
}

func TestHandOffCostsThreeScripts(t *testing.T) {
	for _, n := range []int{10, 100} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				const rounds = 10
				peers := []*locktest.Peer{b.Peer(t), b.Peer(t)}
				work := func(rounds int) {
					var wg sync.WaitGroup
					for i := range n {
						l := peers[i%2].GetFairLock(key)
						wg.Go(func() {
							for range rounds {
								assert.NoError(t, l.Do(t.Context(), func(context.Context) error {
									time.Sleep(time.Millisecond)
									return nil
								}))
							}
						})
					}
					wg.Wait()
				}
				work(2) // Redis knows the scripts
				sent := func() int { return peers[0].Scripts() + peers[1].Scripts() }
				before := sent()
				work(rounds)
				each := float64(sent()-before) / float64(n*rounds)
				t.Logf("%.3f scripts for a hand-off", each)
				assert.LessOrEqual(t, each, 3.1, "a refusal, an acquisition and a release; sweeps go by time")
			})
		})
	}
}

func TestWaitersCostOneCallASecondForAHundred(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Foreign(t, key, time.Hour)
		p := b.Peer(t)
		ctx, cancel := context.WithCancel(t.Context())
		var all []<-chan locktest.Outcome
		for range 100 {
			all = append(all, locktest.Begin(func() (*rlock.Hold, error) { return p.GetFairLock(key).Lock(ctx) }))
		}
		time.Sleep(time.Second)
		before := p.Scripts()
		time.Sleep(time.Minute)
		assert.InDelta(t, 60, p.Scripts()-before, 20)
		cancel()
		for _, waiting := range all {
			locktest.Failed(t, waiting, context.Canceled)
		}
		synctest.Wait()
		assert.Equal(t, []string{key}, b.Keys(t))
	})
}

func TestOwnerIDsOfWaitersAreUsedOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		seen := map[string]bool{}
		for range 20 {
			b.Foreign(t, key, time.Hour)
			waiting := await(t, t.Context(), b.Redis, p.GetFairLock(key))
			queued := waiters(t, b.Redis)
			b.Delete(t, key)
			h := locktest.Next(t, waiting)
			assert.Equal(t, []string{h.Owner()}, queued, "it queued under the id that it holds the lock by")
			seen[h.Owner()] = true
			locktest.Unlock(t, h)
		}
		assert.Len(t, seen, 20)
	})
}
