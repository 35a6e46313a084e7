package scenario_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
)

// F19: whoever holds something that Redis evicts is told at the next renewal, and what is released late takes nothing from who
// has it now.
func TestEvictedHoldsAreLostAndTakeNothingFromOthers(t *testing.T) {
	t.Parallel()
	const lease = 3 * time.Second
	server := redistest.Start(t, "--maxmemory-policy", "allkeys-random")
	rdb := server.Client(t)
	client := func() *redlatch.Client {
		c, err := redlatch.New(server.Client(t), redlatch.WithWatchdogTimeout(lease), redlatch.WithCloseGrace(0))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	var leased []guest
	for _, g := range guests(lease) {
		switch g.name {
		case "semaphore", "latch", "queue", "scheduler", "task": // they have no lease, or lose messages
		default:
			leased = append(leased, g)
		}
	}
	enter := func(c *redlatch.Client, round int) (all []heldGuest) {
		for _, g := range leased {
			h := heldGuest{guest: g}
			h.alive, h.release = g.enter(t, c, fmt.Sprint(g.name, "-", round)) // a value that was made once is there to stay
			all = append(all, h)
		}
		return all
	}
	first, second := client(), client()
	for round := range faulttest.Rounds(t, 1, 20) {
		old := enter(first, round)
		evictEverything(t, rdb)
		evicted := time.Now()
		present := enter(second, round)
		for _, h := range old {
			redistest.Eventually(t, lease, h.name+" is lost", func() error {
				if h.alive() == nil {
					return fmt.Errorf("it is held")
				}
				return nil
			})
			assert.ErrorIs(t, h.alive(), rlock.ErrLost, h.name)
			assert.Error(t, h.release(t.Context()), h.name)
		}
		t.Logf("all were told %v after the eviction", time.Since(evicted))
		for _, h := range present {
			assert.NoError(t, h.alive(), h.name)
			assert.NoError(t, h.release(t.Context()), h.name)
		}
	}
}

// evictEverything writes to a full server until it has evicted all keys that were there.
func evictEverything(t *testing.T, rdb *redis.Client) {
	t.Helper()
	before, err := rdb.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	// What an earlier round has written is written again.
	before = slices.DeleteFunc(before, func(key string) bool { return strings.HasPrefix(key, "filler:") })
	require.NotEmpty(t, before)
	info, err := rdb.InfoMap(t.Context(), "memory").Result()
	require.NoError(t, err)
	var used int
	_, err = fmt.Sscan(info["Memory"]["used_memory"], &used)
	require.NoError(t, err)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", fmt.Sprint(used+1<<20)).Err())
	defer func() {
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	}()
	value := strings.Repeat("x", 32<<10)
	for i := range 2000 {
		pipe := rdb.Pipeline()
		for j := range 10 {
			pipe.Set(t.Context(), fmt.Sprint("filler:", i, ":", j), value, time.Minute)
		}
		left := pipe.Exists(t.Context(), before...)
		_, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		if left.Val() == 0 {
			return
		}
	}
	require.Fail(t, "some keys stay")
}

// F19: an evicted latch is open, an evicted semaphore has no permits, and an evicted queue no messages. Who waits for one of those waits
// on until there is something; the handler of a message is notified.
func TestEvictedCountsAndMessagesGrantNothing(t *testing.T) {
	t.Parallel()
	const visibility = 3 * time.Second
	server := redistest.Start(t, "--maxmemory-policy", "allkeys-random")
	rdb := server.Client(t)
	c, err := redlatch.New(server.Client(t), redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	for round := range faulttest.Rounds(t, 1, 10) {
		ctx, stop := context.WithCancel(t.Context())
		name := fmt.Sprint("evicted ", round)
		semaphore, latch := c.GetSemaphore(name+" semaphore"), c.GetCountDownLatch(name+" latch")
		queue := redlatch.GetDelayedQueue[string](c, name+" queue", rdelayedqueue.WithVisibility(visibility))
		require.NoError(t, semaphore.AddPermits(t.Context(), 2))
		require.NoError(t, semaphore.Acquire(t.Context(), 2))
		_, err := latch.TrySetCount(t.Context(), 2)
		require.NoError(t, err)
		_, err = queue.Offer(t.Context(), "in flight", 0)
		require.NoError(t, err)
		handled, consumed := make(chan context.Context, 9), make(chan error, 1) // what Consume returns
		go func() {
			consumed <- queue.Consume(ctx, func(ctx context.Context, _ *rdelayedqueue.Message[string]) error {
				handled <- ctx
				<-ctx.Done()
				return nil
			}, rdelayedqueue.WithConcurrency(1), rdelayedqueue.WithPrefetch(0))
		}()
		handling := <-handled
		_, err = queue.Offer(t.Context(), "later", time.Hour)
		require.NoError(t, err)
		acquired, opened := make(chan error, 1), make(chan error, 1) // what Acquire and Await return
		go func() { acquired <- semaphore.Acquire(t.Context(), 1) }()
		go func() { opened <- latch.Await(t.Context()) }()
		redistest.AwaitChannels(t, rdb, 2)

		evictEverything(t, rdb)
		select {
		case <-handling.Done():
			assert.ErrorIs(t, context.Cause(handling), rdelayedqueue.ErrLost)
		case <-time.After(visibility):
			assert.Fail(t, "the message is still held")
		}
		stop()
		assert.NoError(t, <-consumed)
		assert.Empty(t, handled, "nothing else is delivered")
		stats, err := queue.Stats(t.Context())
		assert.NoError(t, err)
		assert.Zero(t, stats)
		select {
		case err := <-opened:
			assert.NoError(t, err)
		case <-time.After(15 * time.Second):
			assert.Fail(t, "nobody opens the latch")
		}
		n, err := latch.Count(t.Context())
		assert.NoError(t, err)
		assert.Zero(t, n)
		assert.NoError(t, latch.CountDown(t.Context()), "a late one does nothing")
		set, err := latch.TrySetCount(t.Context(), 1)
		assert.NoError(t, err)
		assert.True(t, set)
		n, err = semaphore.Available(t.Context())
		assert.NoError(t, err)
		assert.Zero(t, n)
		assert.Empty(t, acquired, "a semaphore without permits")
		require.NoError(t, semaphore.Release(t.Context(), 1)) // of a permit that was out
		assert.NoError(t, <-acquired)
		_, err = queue.Offer(t.Context(), "new", 0)
		require.NoError(t, err)
		m, err := queue.Take(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "new", m.Value)
		assert.NoError(t, m.Ack(t.Context()))
	}
}

// clientID is that of a client, which is another one each time.
var clientID = regexp.MustCompile(`[^:{}]+\.\d+\.[0-9a-f]{16}`)

// evictEach runs test once for each key of what begin has made. It evicts that key first, and returns those that it has evicted, without
// ids of clients.
func evictEach(t *testing.T, begin func(t *testing.T, b *locktest.Bubble) (check func(t *testing.T, key string))) (evicted []string) {
	t.Helper()
	for more := true; more; {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			check := begin(t, b)
			keys := b.Keys(t)
			slices.Sort(keys)
			left := slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
				return slices.Contains(evicted, clientID.ReplaceAllString(key, "ID"))
			})
			more = len(left) > 1
			key := append(left, keys[0])[0] // a scheduler has some keys only for a moment
			evicted = append(evicted, clientID.ReplaceAllString(key, "ID"))
			t.Logf("%s is evicted, %d are left", key, len(left))
			b.Delete(t, key)
			check(t, key)
		})
	}
	return evicted
}

// F19, F24: whichever key of an object Redis evicts, its holder has it alone or is notified at the next renewal, and whoever waits gets it
// in the end, once.
func TestEvictionOfASingleKeyGrantsNothingTwice(t *testing.T) {
	const lease = 6 * time.Second
	for _, g := range guests(lease) {
		if g.name == "queue" || g.name == "scheduler" || g.name == "task" {
			continue // it delivers again what is lost
		}
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			evictEach(t, func(t *testing.T, b *locktest.Bubble) func(t *testing.T, key string) {
				t.Helper()
				peer := func() *redlatch.Client {
					return b.Peer(t, redlatch.WithWatchdogTimeout(lease), redlatch.WithCloseGrace(0)).Client
				}
				holder, waiter, third := peer(), peer(), peer()
				h := enterAll(t, holder, waiter, []guest{g}, func(guest) string { return "n" })[0]
				time.Sleep(lease / 10) // it waits
				return func(t *testing.T, key string) {
					t.Helper()
					time.Sleep(lease / 2) // the holder has had to renew
					lost := h.alive()
					switch open := g.name == "latch" && key == "n"; {
					case open: // as documented
					case lost == nil:
						assert.Empty(t, h.waited, "two have it")
					default:
						assert.Regexp(t, " lost", lost)
					}
					err := h.release(t.Context())
					if lost == nil {
						assert.NoError(t, err)
					}
					if lost != nil && g.name == "permit" {
						time.Sleep(2 * lease)
						assert.Empty(t, h.waited, "its lease alone said that there is one")
						require.NoError(t, third.GetPermitSemaphore("n").SetPermits(t.Context(), 1))
					}
					h.gotten(t)
					again := enterAll(t, third, holder, []guest{g}, func(guest) string { return "n" })[0]
					time.Sleep(lease)
					assert.NoError(t, again.alive())
					assert.Empty(t, again.waited, "two have it")
					assert.NoError(t, again.release(t.Context()))
					again.gotten(t)
				}
			})
		})
	}
}

// F19, F24
func TestEvictedTokenIsFollowedByAHigherOne(t *testing.T) {
	evictEach(t, func(t *testing.T, b *locktest.Bubble) func(t *testing.T, key string) {
		t.Helper()
		l := b.Peer(t).GetFencedLock("n")
		earlier := held(t, l)
		return func(t *testing.T, _ string) {
			t.Helper()
			_ = earlier.Unlock(t.Context()) // it may be lost
			time.Sleep(time.Millisecond)    // Redis's clock goes on
			for range 3 {
				next := held(t, l)
				assert.Greater(t, next.Token(), earlier.Token())
				locktest.Unlock(t, next)
				earlier = next
			}
		}
	})
}

// F8, F19: whichever key of a queue Redis evicts, no message is delivered again while it is held, its holder is notified of a loss, a message
// without a body is a dead letter, and the queue goes on.
func TestEvictionOfASingleKeyLeavesAQueueThatWorks(t *testing.T) {
	const visibility = 6 * time.Second
	type outcome struct {
		lost bool
		got  string // by another consumer than the holder of the first message
		dead int
	}
	usual := outcome{false, "due later new", 1}
	outcomes := map[string]outcome{
		"claims": {true, "due first later new", 1},
		"flight": {true, "due later new", 1}, // the first message is gone
		"bodies": {false, "new", 3},
		"due":    {false, "new", 1},
		"dead":   {false, "due later new", 0},
	}
	evicted := evictEach(t, func(t *testing.T, b *locktest.Bubble) func(t *testing.T, key string) {
		t.Helper()
		holder, other := b.Peer(t, redlatch.WithCloseGrace(0)), b.Peer(t, redlatch.WithCloseGrace(0))
		queue := func(p *locktest.Peer) *rdelayedqueue.Queue[string] {
			return redlatch.GetDelayedQueue[string](p.Client, "n", rdelayedqueue.WithVisibility(visibility))
		}
		q := queue(holder)
		offer := func(value string, delay time.Duration) {
			_, err := q.Offer(t.Context(), value, delay)
			require.NoError(t, err)
		}
		offer("dead", 0)
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Reject(t.Context(), "why"))
		ctx, stop := context.WithCancel(t.Context())
		consumed := make(chan error, 2) // what Consume returns
		handled, finish := make(chan context.Context, 1), make(chan struct{})
		go func() {
			consumed <- q.Consume(ctx, func(ctx context.Context, _ *rdelayedqueue.Message[string]) error {
				handled <- ctx
				<-finish
				return nil
			}, rdelayedqueue.WithConcurrency(1), rdelayedqueue.WithPrefetch(0))
		}()
		offer("first", 0)
		handling := <-handled
		offer("due", 0)
		offer("later", time.Minute)
		return func(t *testing.T, key string) {
			t.Helper()
			got := make(chan string, 100)
			go func() {
				consumed <- queue(other).Consume(ctx, func(_ context.Context, m *rdelayedqueue.Message[string]) error {
					if m.Value == "first" {
						assert.ErrorIs(t, ended(handling), rdelayedqueue.ErrLost, "two have it")
					}
					got <- m.Value
					return nil
				})
			}()
			time.Sleep(2 * time.Minute)
			lost := ended(handling)
			if lost != nil {
				assert.ErrorIs(t, lost, rdelayedqueue.ErrLost)
			}
			assert.Less(t, holder.Scripts()+other.Scripts(), 200, "scripts")
			offer("new", 0)
			time.Sleep(time.Second)
			stop()
			close(finish)
			assert.NoError(t, <-consumed)
			assert.NoError(t, <-consumed)
			close(got)
			values := slices.Sorted(func(yield func(string) bool) {
				for value := range got {
					if !yield(value) {
						return
					}
				}
			})
			want, special := outcomes[strings.TrimPrefix(key, "redlatch_dq:{n}:")]
			if !special {
				want = usual
			}
			stats, err := q.Stats(t.Context())
			assert.NoError(t, err)
			assert.Equal(t, want, outcome{lost != nil, strings.Join(values, " "), stats.Dead})
			stats.Dead, stats.Failed = 0, 0 // what was said of a message outlives a dead letter that was evicted
			assert.Zero(t, stats)
		}
	})
	for key := range outcomes {
		assert.Contains(t, evicted, "redlatch_dq:{n}:"+key)
	}
}
