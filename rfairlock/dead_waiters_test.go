package rfairlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// slack is how much later than the last of the dead the next one may come to its turn.
const slack = 300 * time.Millisecond

// F11
func TestDeadWaitersArePassedOverInOneCall(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		holder, p := b.Peer(t), b.Peer(t)
		locktest.Free(t, holder.GetFairLock(key)) // Redis knows the scripts
		h := locktest.Acquire(t, t.Context(), holder.GetFairLock(key))
		waiting := await(t, t.Context(), b.Redis, p.GetFairLock(key))
		for i := range 100 {
			dead := fmt.Sprint("corpse", i)
			require.NoError(t, b.Redis.LPush(t.Context(), queue, dead).Err())
			require.NoError(t, b.Redis.ZAdd(t.Context(), timeouts, redis.Z{Score: float64(i), Member: dead}).Err())
		}
		heard := listen(t, b.Redis)
		before := holder.Scripts()
		start := time.Now()
		locktest.Unlock(t, h)
		h = locktest.Next(t, waiting)
		assert.Less(t, time.Since(start), moment)
		assert.Equal(t, before+1, holder.Scripts())
		assert.Len(t, heard(), 1)
		locktest.Unlock(t, h)
		assert.Empty(t, b.Keys(t))
	})
}

// The lock is held when the others look, and free when the dead head's time is over.
//
// F11
func TestDeadHeadCostsNoMoreThanItsTime(t *testing.T) {
	for i := range 10 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				holder, p := b.Peer(t), b.Peer(t)
				h := locktest.Acquire(t, t.Context(), holder.GetFairLock(key))
				waiting := await(t, t.Context(), b.Redis, p.GetFairLock(key))
				dead := b.Redis.PSubscribe(t.Context(), "redisson_lock__channel*") // its connection is there yet
				defer dead.Close()
				dead.Channel()
				synctest.Wait()
				over := time.Now().Add(4500 * time.Millisecond)
				require.NoError(t, b.Redis.LPush(t.Context(), queue, "corpse").Err())
				require.NoError(t, b.Redis.ZAdd(t.Context(), timeouts, redis.Z{Score: float64(over.UnixMilli()), Member: "corpse"}).Err())
				time.Sleep(time.Until(over) - 50*time.Millisecond)
				locktest.Unlock(t, h)
				h = locktest.Next(t, waiting)
				assert.Less(t, time.Since(over), 50*time.Millisecond)
				locktest.Unlock(t, h)
			})
		})
	}
}

// F11
func TestDeadWaitersCostOneTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{100 * time.Millisecond, good, 15 * time.Second} {
		t.Run(timeout.String(), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				const all, dead = 40, 30
				opt := redlatch.WithFairWaitTimeout(timeout)
				holder := b.Peer(t)
				h := locktest.Acquire(t, t.Context(), holder.GetFairLock(key))
				peers := make([]*locktest.Peer, all)
				waiting := make([]<-chan locktest.Outcome, all)
				for i := range all {
					peers[i] = b.Peer(t, opt)
					waiting[i] = await(t, t.Context(), b.Redis, peers[i].GetFairLock(key))
					time.Sleep(rand.N(timeout / 10))
				}
				queued := waiters(t, b.Redis)
				require.Len(t, queued, all)
				killed := rand.Perm(all)[:dead]
				if !slices.Contains(killed, 0) {
					killed[0] = 0 // the head of the queue at least
				}
				for _, i := range killed {
					peers[i].Refuse(true)
					peers[i].Blackhole(true)
				}
				time.Sleep(rand.N(timeout / 2))
				start, most := time.Now(), timeout+slack
				locktest.Unlock(t, h)
				for i := range all {
					if slices.Contains(killed, i) {
						continue
					}
					h := locktest.Next(t, waiting[i])
					assert.LessOrEqual(t, time.Since(start), most)
					most = timeout + recheck + slack // the message of a release may have gone to a dead one
					assert.Equal(t, queued[i], h.Owner(), "in order")
					locktest.Unlock(t, h)
				}
				for _, i := range killed { // they queue again
					peers[i].Refuse(false)
					peers[i].Blackhole(false)
				}
				var again sync.WaitGroup
				for _, i := range killed {
					again.Go(func() {
						if o := <-waiting[i]; o.Err == nil {
							assert.NoError(t, o.Hold.Unlock(t.Context()))
						}
					})
				}
				again.Wait()
				time.Sleep(time.Minute)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

// F11
func TestWaiterTakenForDeadQueuesAgain(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Foreign(t, key, time.Hour)
		p := b.Peer(t)
		first := await(t, t.Context(), b.Redis, p.GetFairLock(key))
		second := await(t, t.Context(), b.Redis, b.Peer(t).GetFairLock(key))
		queued := waiters(t, b.Redis)
		// What a script of another client does when this one stood still for too long.
		require.NoError(t, b.Redis.LRem(t.Context(), queue, 0, queued[0]).Err())
		require.NoError(t, b.Redis.ZRem(t.Context(), timeouts, queued[0]).Err())
		time.Sleep(2 * time.Second)
		assert.Equal(t, []string{queued[1], queued[0]}, waiters(t, b.Redis), "at the end")
		b.Delete(t, key)
		locktest.Unlock(t, locktest.Next(t, second))
		locktest.Unlock(t, locktest.Next(t, first))
		assert.Empty(t, b.Keys(t))
	})
}

// F11
func TestLongWaitsStayValid(t *testing.T) {
	for mode, opt := range map[string]redlatch.Option{"liveness": redlatch.WithFairWaitTimeout(good), "java": redlatch.WithRedissonFairQueue()} {
		t.Run(mode, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t, opt)
				h := locktest.Acquire(t, t.Context(), p.GetFairLock(key))
				first := await(t, t.Context(), b.Redis, p.GetFairLock(key))
				second := await(t, t.Context(), b.Redis, p.GetFairLock(key))
				queued := waiters(t, b.Redis)
				time.Sleep(20 * time.Minute) // four times as long as a place in the queue of Java is good
				require.Len(t, waiters(t, b.Redis), 2)
				if mode == "liveness" {
					assert.Equal(t, queued, waiters(t, b.Redis))
				}
				start := time.Now()
				locktest.Unlock(t, h)
				for range 2 {
					select {
					case o := <-first:
						locktest.Unlock(t, o.Hold)
					case o := <-second:
						locktest.Unlock(t, o.Hold)
					}
				}
				assert.Less(t, time.Since(start), 2*time.Second)
			})
		})
	}
}

// F11
func TestTimeoutsAndFailuresLeaveNoEntry(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Foreign(t, key, time.Hour)
		p := b.Peer(t)
		for range 20 {
			_, err := p.GetFairLock(key).TryLock(t.Context(), rlock.WithWait(rand.N(20*time.Millisecond)))
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
			_, err = p.GetFairLock(key).Lock(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
			synctest.Wait()
			require.Empty(t, waiters(t, b.Redis))
		}
	})
}

// fairWaiter queues for a lock, says so when it has got it, and gives it back. Args: the server's address, the name.
func fairWaiter(args []string) {
	client, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[0]}), redlatch.WithFairWaitTimeout(childTimeout))
	if err != nil {
		panic(err)
	}
	hold, err := client.GetFairLock(args[1]).Lock(context.Background())
	if err != nil {
		panic(err)
	}
	faulttest.Emit("got %s", hold.Owner())
	if err := hold.Unlock(context.Background()); err != nil {
		panic(err)
	}
}

const childTimeout = 3 * time.Second

// F11
func TestKilledProcessesArePassedOver(t *testing.T) {
	redistest.Long(t)
	all, dead := faulttest.Rounds(t, 8, 200), faulttest.Rounds(t, 6, 150)
	server := redistest.Start(t)
	faulttest.LeakCheck(t, server.Addr())
	rdb := server.Client(t)
	h := locktest.Acquire(t, t.Context(), crowdClient(t, rdb).GetFairLock(key))
	running := make([]*faulttest.Child, all)
	for i := range running {
		running[i] = faulttest.StartChild(t, "rfairlock-waiter", server.Addr(), key)
		awaitQueue(t, rdb, i+1)
	}
	queued := waiters(t, rdb)
	killed := rand.Perm(all)[:dead]
	if !slices.Contains(killed, 0) {
		killed[0] = 0 // the head of the queue at least
	}
	for _, i := range killed {
		running[i].Kill()
	}
	lag := faulttest.MeasureLag(t, server.Addr())
	start := time.Now()
	locktest.Unlock(t, h)
	worst, last := time.Duration(0), start
	for i, c := range running {
		if slices.Contains(killed, i) {
			continue
		}
		require.Equal(t, "got "+queued[i], c.WaitFor("got"), "in order")
		worst, last = max(worst, time.Since(last)), time.Now()
		require.NoError(t, c.Wait())
	}
	t.Logf("%v until the next live one of %d had it, %v for all", worst, all, time.Since(start))
	assert.Less(t, worst, childTimeout+slack+10*lag.Worst(), "not one timeout for each corpse")
	redistest.Eventually(t, 3*childTimeout, "the queue ends", func() error {
		if keys := rdb.Keys(t.Context(), "*").Val(); len(keys) > 0 {
			return fmt.Errorf("%v are left", keys)
		}
		return nil
	})
}
