package rid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
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
	"github.com/redlatch/redlatch/rid"
)

// monday is a moment for the clock of Redis, 12:00:00 UTC.
var monday = time.Date(2026, time.November, 23, 12, 0, 0, 0, time.UTC)

func next(t *testing.T, g *rid.Generator) int64 {
	t.Helper()
	id, err := g.Next(t.Context())
	require.NoError(t, err)
	return id
}

// timed is an id as it is composed.
func timed(at time.Time, counter int64) int64 {
	return int64(at.Sub(time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC))/time.Second)<<16 | counter
}

func TestBlocksFollowOneAnotherAndNeverFallBehindTheClock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Mini.SetTime(monday)
		p, other := b.Peer(t), b.Peer(t).GetIDGenerator("order", rid.WithBlock(10))
		g := p.GetIDGenerator("order", rid.WithBlock(3))
		next(t, p.GetIDGenerator("other")) // Redis knows the script
		sent, first := p.Scripts(), monday.UnixMicro()
		for i := range int64(3) {
			assert.Equal(t, first+i, next(t, g))
		}
		assert.Equal(t, 1, p.Scripts()-sent, "one for a block")
		assert.Equal(t, first+3, next(t, other))
		time.Sleep(time.Second) // else the next block is twice as large
		assert.Equal(t, first+13, next(t, g))
		time.Sleep(time.Second)
		b.Mini.SetTime(monday.Add(time.Second))
		assert.Equal(t, first+14, next(t, p.GetIDGenerator("order")), "generators of one name share the block")
		next(t, g)
		assert.Equal(t, first+1_000_000, next(t, g))
		b.Mini.SetTime(monday.Add(-time.Hour))
		for range 9 {
			next(t, other)
		}
		assert.Equal(t, first+1_000_003, next(t, other), "a clock that steps back changes nothing")
		assert.Equal(t, []string{"redlatch_id:{order}", "redlatch_id:{other}"}, b.Keys(t))
	})
}

func TestBlocksGrowWhileTheyLastLessThanAMicrosecondForEachId(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Mini.SetTime(monday)
		p := b.Peer(t)
		g, day := p.GetIDGenerator("order", rid.WithBlock(10)), p.GetIDGenerator("order", rid.WithBlock(10), rid.WithTimePrefix(16))
		blocks := func(g *rid.Generator, ids int) int {
			sent := p.Scripts()
			for range ids {
				next(t, g)
			}
			return p.Scripts() - sent
		}
		blocks(g, 10)
		blocks(day, 1)
		assert.Equal(t, 3, blocks(day, 2+4+8), "those with a time begin with one id")
		assert.Equal(t, 4, blocks(g, 20+40+80+160))
		assert.Equal(t, 2, blocks(g, 160+160))
		time.Sleep(160 * time.Microsecond)
		assert.Equal(t, 2, blocks(g, 10+20))
		assert.Equal(t, 3, blocks(day, 10+10+10), "those with a time do not get old")
	})
}

// F9
func TestIdsGoOnAboveTheClockAfterALossOfData(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Mini.SetTime(monday)
		g := b.Peer(t).GetIDGenerator("order", rid.WithBlock(2))
		day := b.Peer(t).GetIDGenerator("order", rid.WithTimePrefix(16), rid.WithBlock(1))
		for range 10 {
			next(t, g)
			next(t, day)
		}
		last := next(t, day)
		assert.Equal(t, timed(monday.Add(time.Second), 10), last, "a new key begins with the next second")
		b.Mini.SetTime(monday.Add(1500 * time.Millisecond))
		b.Mini.FlushAll()
		assert.Equal(t, monday.UnixMicro()+1_500_000, next(t, b.Peer(t).GetIDGenerator("order")))
		assert.Equal(t, timed(monday.Add(2*time.Second), 0), next(t, b.Peer(t).GetIDGenerator("order", rid.WithTimePrefix(16))),
			"no second is used again")
		b.Mini.SetTime(monday.Add(-48 * time.Hour))
		b.Mini.FlushAll()
		assert.Equal(t, monday.UnixMicro()+10, next(t, g), "in each client ids rise in any case")
		assert.Equal(t, last+1, next(t, day))
	})
}

func TestCounterBeginsAnewWithTheDayOfRedis(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		midnight := time.Date(2026, time.November, 24, 0, 0, 0, 0, time.UTC)
		b.Mini.SetTime(midnight.Add(-time.Minute))
		p := b.Peer(t)
		g := p.GetIDGenerator("order", rid.WithTimePrefix(16), rid.WithBlock(2))
		next(t, g)
		next(t, g) // of a block of two
		b.Mini.SetTime(midnight.Add(-time.Second))
		assert.Equal(t, timed(midnight.Add(-59*time.Second), 2), next(t, g), "no second has passed here")
		assert.Equal(t, timed(midnight.Add(-time.Second), 3), next(t, g))
		b.Mini.SetTime(midnight)
		assert.Equal(t, timed(midnight.Add(-time.Second), 4), next(t, g))
		assert.Equal(t, timed(midnight, 0), next(t, g))
		b.Mini.SetTime(midnight.Add(-time.Hour))
		assert.Equal(t, timed(midnight, 1), next(t, g))
		assert.Equal(t, timed(midnight, 2), next(t, g), "a clock that steps back waits for itself")
		assert.Equal(t, timed(midnight, 4), next(t, b.Peer(t).GetIDGenerator("order", rid.WithTimePrefix(16))), "for others too")
		assert.Equal(t, 6, p.Scripts(), "one more for the script itself")
	})
}

// delay is a hook that passes replies on so much later.
type delay time.Duration

func (delay) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d delay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer time.Sleep(time.Duration(d))
		return next(ctx, cmd)
	}
}

func (delay) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestIdHasASecondInWhichItsCallRan(t *testing.T) {
	epoch := rid.WithEpoch(time.Unix(0, 0))
	for _, late := range []time.Duration{0, 300 * time.Millisecond, 1700 * time.Millisecond} {
		t.Run(fmt.Sprint("replies after ", late), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				random := rand.New(rand.NewPCG(1, 2))
				g := b.Peer(t, redlatch.WithHooks(delay(late))).GetIDGenerator("order", rid.WithTimePrefix(32), epoch)
				next(t, g) // of a new key, which begins with the next second
				time.Sleep(time.Second)
				for range 1000 {
					began := time.Now().Unix()
					second := next(t, g) >> 32
					require.GreaterOrEqual(t, second, began)
					require.LessOrEqual(t, second, time.Now().Unix())
					time.Sleep(time.Duration(random.Int64N(int64(300 * time.Millisecond))))
				}
			})
		})
	}
}

// The server has the clock of this machine.
func TestIdOfAServerHasASecondInWhichItsCallRan(t *testing.T) {
	t.Parallel()
	c, err := redlatch.New(redistest.Shared(t).Client(t))
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	g := c.GetIDGenerator(fmt.Sprint(t.Name(), time.Now().UnixNano()), rid.WithTimePrefix(32), rid.WithEpoch(time.Unix(0, 0)))
	first := next(t, g) >> 32 // of a new key, which begins with the next second
	for second := first; second < first+2; {
		began := time.Now().Unix()
		second = next(t, g) >> 32
		require.GreaterOrEqual(t, second, began)
		require.LessOrEqual(t, second, max(first, time.Now().Unix()))
	}
}

func TestFewIdsLeaveTheCounterOfTheDayToOthers(t *testing.T) {
	for _, gap := range []time.Duration{10 * time.Second, time.Second, time.Second / 3, 10 * time.Millisecond} {
		t.Run(fmt.Sprint(gap), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				random := rand.New(rand.NewPCG(1, 2))
				p := b.Peer(t)
				g := p.GetIDGenerator("order", rid.WithTimePrefix(32), rid.WithEpoch(time.Unix(0, 0)))
				day := next(t, g) >> 32 / 86400
				const ids = 500
				sent, began, counter, used := p.Scripts(), time.Now(), int64(1), int64(0)
				for range ids {
					id := next(t, g)
					if today := id >> 32 / 86400; today != day {
						day, counter = today, 0
					}
					used += id&(1<<32-1) + 1 - counter
					counter = id&(1<<32-1) + 1
					time.Sleep(time.Duration(random.Int64N(int64(2 * gap))))
				}
				assert.LessOrEqual(t, used, int64(3*ids))
				assert.LessOrEqual(t, p.Scripts()-sent, min(ids, 10+3*int(time.Since(began)/time.Second)), "a few calls each second")
			})
		})
	}
}

func TestDayOfFewBitsIsNotUsedUpByClientsThatStart(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		opts := []rid.Option{rid.WithTimePrefix(10), rid.WithEpoch(time.Unix(0, 0))}
		const clients, each = 16, 64
		for range clients {
			g := b.Peer(t).GetIDGenerator("order", opts...)
			for range each {
				next(t, g)
				time.Sleep(10 * time.Second)
			}
		}
		_, err := b.Peer(t).GetIDGenerator("order", opts...).Next(t.Context())
		require.ErrorIs(t, err, rid.ErrExhausted, "the day has had all 1024")
	})
}

func TestDayThatIsUsedUpHasNoIdUntilMidnight(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Mini.SetTime(monday)
		g := b.Peer(t).GetIDGenerator("order", rid.WithTimePrefix(4), rid.WithBlock(10))
		for range 16 {
			next(t, g)
		}
		for range 2 {
			_, err := g.Next(t.Context())
			require.ErrorIs(t, err, rid.ErrExhausted)
			require.EqualError(t, err, `rid: next "order": no id is left: the day has had 16`)
		}
		b.Mini.SetTime(monday.Add(12 * time.Hour))
		assert.Zero(t, next(t, g)&15)
		_, err := b.Peer(t).GetIDGenerator("early", rid.WithTimePrefix(4), rid.WithEpoch(monday.AddDate(1, 0, 0))).Next(t.Context())
		require.ErrorIs(t, err, rid.ErrExhausted)
		long := b.Peer(t).GetIDGenerator("late", rid.WithTimePrefix(32), rid.WithEpoch(time.Unix(0, 0)))
		assert.Positive(t, next(t, long))
		b.Mini.SetTime(time.Unix(1<<31, 0))
		_, err = long.Next(t.Context())
		require.ErrorIs(t, err, rid.ErrExhausted, "31 bits are for the seconds")
	})
}

// F2
func TestLostReplyLosesItsBlock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Mini.SetTime(monday)
		p := b.Peer(t)
		next(t, p.GetIDGenerator("other"))                         // Redis knows the script
		next(t, p.GetIDGenerator("other", rid.WithTimePrefix(16))) // and this one
		g := p.GetIDGenerator("order", rid.WithBlock(10))
		p.LoseReplies(2)
		assert.Equal(t, monday.UnixMicro()+20, next(t, g))
		day := p.GetIDGenerator("order", rid.WithTimePrefix(16), rid.WithBlock(10))
		p.LoseReplies(2)
		assert.Equal(t, timed(monday.Add(time.Second), 2), next(t, day))
		p.Withhold(1)
		late := p.GetIDGenerator("late", rid.WithBlock(10))
		assert.Equal(t, monday.UnixMicro(), next(t, late), "asked for again")
		require.Equal(t, 1, p.Deliver(t))
		for i := range int64(9) {
			assert.Equal(t, monday.UnixMicro()+1+i, next(t, late))
		}
		assert.Equal(t, monday.UnixMicro()+20, next(t, late), "what came late has taken a block")
	})
}

// A call that ends without a block is certain to have returned no id, so its error is not ErrUnknown.
//
// F2, F25
func TestNoIdComesTwiceWhateverIsLost(t *testing.T) {
	for form, opts := range map[string][]rid.Option{"plain": {rid.WithBlock(2)}, "timed": {rid.WithTimePrefix(32), rid.WithBlock(2)}} {
		t.Run(form, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				b.Mini.SetTime(monday)
				random := rand.New(rand.NewPCG(1, 2))
				peers := []*locktest.Peer{b.Peer(t), b.Peer(t)}
				last, ids, unavailable := make([]int64, len(peers)), map[int64]bool{}, 0
				for range faulttest.Rounds(t, 300, 5000) {
					i := random.IntN(len(peers))
					p := peers[i]
					switch random.IntN(6) {
					case 0:
						p.LoseReplies(1 + random.IntN(3))
					case 1:
						p.Withhold(1 + random.IntN(3))
					case 2:
						p.HangReplies(1)
					case 3:
						p.Cut()
					case 4:
						p.Down(true)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					id, err := p.GetIDGenerator("order", opts...).Next(ctx)
					cancel()
					p.Down(false)
					if random.IntN(2) == 0 {
						peers[random.IntN(len(peers))].Deliver(t)
					}
					if err != nil {
						require.ErrorIs(t, err, redlatch.ErrUnavailable)
						require.NotErrorIs(t, err, redlatch.ErrUnknown)
						unavailable++
						continue
					}
					require.False(t, ids[id], "%d comes twice", id)
					require.Greater(t, id, last[i])
					ids[id], last[i] = true, id
				}
				assert.Positive(t, unavailable)
				assert.NotEmpty(t, ids)
			})
		})
	}
}

// F3, F10
func TestConcurrentCallsWaitForOneBlock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		b.Mini.SetTime(monday)
		p := b.Peer(t)
		p.Blackhole(true)
		g := p.GetIDGenerator("order", rid.WithBlock(10))
		ctx, giveUp := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() {
			_, err := g.Next(ctx)
			first <- err
		}()
		synctest.Wait()
		var mu sync.Mutex
		ids := map[int64]bool{}
		var all sync.WaitGroup
		for range 25 {
			all.Go(func() {
				id, err := g.Next(t.Context())
				mu.Lock()
				defer mu.Unlock()
				assert.NoError(t, err)
				ids[id] = true
			})
		}
		synctest.Wait()
		giveUp()
		require.ErrorIs(t, <-first, context.Canceled)
		synctest.Wait()
		p.Blackhole(false)
		sent := p.Scripts()
		all.Wait()
		assert.Len(t, ids, 25)
		assert.LessOrEqual(t, p.Scripts()-sent, 4, "three blocks, and one that was lost with its connection")
	})
}

// F16
func TestNextEndsWithoutRedis(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		g := p.GetIDGenerator("order", rid.WithBlock(2))
		next(t, g)
		p.Blackhole(true)
		next(t, g)
		begin := func(ctx context.Context) (ended chan error) {
			ended = make(chan error, 1)
			go func() {
				_, err := g.Next(ctx)
				ended <- err
			}()
			return ended
		}
		start := time.Now()
		short, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		calls := []chan error{begin(t.Context()), begin(t.Context()), begin(short)}
		err := <-calls[2]
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		assert.Equal(t, time.Second, time.Since(start))
		for _, ended := range calls[:2] {
			require.ErrorIs(t, <-ended, redlatch.ErrUnavailable)
		}
		assert.LessOrEqual(t, time.Since(start), 10*time.Second)
		p.Blackhole(false)
		next(t, g)
		p.Blackhole(true)
		next(t, g)
		calls = []chan error{begin(t.Context()), begin(t.Context())}
		synctest.Wait()
		require.NoError(t, p.Close())
		for _, ended := range calls {
			require.ErrorIs(t, <-ended, redlatch.ErrClosed)
		}
		_, err = g.Next(t.Context())
		require.ErrorIs(t, err, redlatch.ErrClosed)
	})
}

// F19
func TestGeneratorsThatAreNotUsedLeaveNoMemory(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		heap := func() int64 {
			runtime.GC()
			runtime.GC()
			var s runtime.MemStats
			runtime.ReadMemStats(&s)
			return int64(s.HeapAlloc)
		}
		const names = 100_000
		before := heap()
		for i := range names {
			p.GetIDGenerator(fmt.Sprint("tenant ", i))
		}
		assert.Less(t, heap()-before, int64(10*names))
		next(t, p.GetIDGenerator("tenant 0")) // the client is alive
	})
}

func TestBadInputIsRefused(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t, redlatch.WithNamePrefix("app:"))
		for what, g := range map[string]*rid.Generator{
			"no name":     c.GetIDGenerator(""),
			"nil option":  c.GetIDGenerator("order", nil),
			"bad name":    c.GetIDGenerator("{"),
			"no block":    c.GetIDGenerator("order", rid.WithBlock(0)),
			"large block": c.GetIDGenerator("order", rid.WithBlock(1_000_001)),
			"no bits":     c.GetIDGenerator("order", rid.WithTimePrefix(0)),
			"many bits":   c.GetIDGenerator("order", rid.WithTimePrefix(33)),
			"only epoch":  c.GetIDGenerator("order", rid.WithEpoch(monday)),
			"odd epoch":   c.GetIDGenerator("order", rid.WithTimePrefix(16), rid.WithEpoch(monday.Add(1))),
			"early epoch": c.GetIDGenerator("order", rid.WithTimePrefix(16), rid.WithEpoch(time.Unix(-1, 0))),
			"late epoch":  c.GetIDGenerator("order", rid.WithTimePrefix(16), rid.WithEpoch(monday.AddDate(100, 0, 0))),
		} {
			_, err := g.Next(t.Context())
			assert.ErrorIs(t, err, redlatch.ErrInvalid, what)
		}
		g := c.GetIDGenerator("order")
		assert.Equal(t, "order", g.Name())
		_, err := c.GetIDGenerator("order", rid.WithBlock(0)).Next(t.Context())
		require.EqualError(t, err, `rid: next "order": invalid argument: a block of 0 ids is not between 1 and 1000000`)
		_, err = g.Next(nil) //nolint:staticcheck // that is the test
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = g.Next(ctx)
		require.ErrorIs(t, err, context.Canceled)
		assert.Empty(t, b.Keys(t))
		for key, wrong := range map[string]*rid.Generator{
			"redlatch_id:{app:order}":     g,
			"redlatch_id:app:{shop}":      c.GetIDGenerator("{shop}"),
			"redlatch_id_day:{app:order}": c.GetIDGenerator("order", rid.WithTimePrefix(16)),
		} {
			for _, text := range []string{"word", "9000000000000000"} {
				require.NoError(t, b.Redis.Set(t.Context(), key, text, 0).Err())
				_, err = wrong.Next(t.Context())
				assert.ErrorIs(t, err, redlatch.ErrWrongType, key)
			}
		}
	})
}

// Many clients on real servers: all ids differ, and those of each goroutine rise.
func TestIdsAreUniqueOverAllClients(t *testing.T) {
	for where, connect := range map[string]func(t *testing.T) *redlatch.Client{
		"server": func(t *testing.T) *redlatch.Client {
			t.Helper()
			c, err := redlatch.New(redistest.Shared(t).Client(t))
			require.NoError(t, err)
			return c
		},
		"cluster": func(t *testing.T) *redlatch.Client {
			t.Helper()
			c, err := redlatch.New(redistest.SharedCluster(t).Client(t))
			require.NoError(t, err)
			return c
		},
	} {
		for form, opts := range map[string][]rid.Option{"plain": {rid.WithBlock(20)}, "timed": {rid.WithTimePrefix(32), rid.WithBlock(20)}} {
			t.Run(where+" "+form, func(t *testing.T) {
				const clients, goroutines = 4, 10
				name := strings.ReplaceAll(t.Name(), "/", ":") + fmt.Sprint(time.Now().UnixNano())
				each := faulttest.Rounds(t, 100, 5000)
				var mu sync.Mutex
				ids := map[int64]bool{}
				var all sync.WaitGroup
				for range clients {
					c := connect(t)
					defer func() { assert.NoError(t, c.Close()) }()
					for range goroutines {
						all.Go(func() {
							last := int64(0)
							for range each {
								id, err := c.GetIDGenerator(name, opts...).Next(t.Context())
								if !assert.NoError(t, err) || !assert.Greater(t, id, last) {
									return
								}
								last = id
								mu.Lock()
								ids[id] = true
								mu.Unlock()
							}
						})
					}
				}
				all.Wait()
				assert.Len(t, ids, clients*goroutines*each)
			})
		}
	}
}

func BenchmarkNext(b *testing.B) {
	c, err := redlatch.New(redistest.Shared(b).Client(b))
	require.NoError(b, err)
	defer func() { assert.NoError(b, c.Close()) }()
	for form, opts := range map[string][]rid.Option{"plain": nil, "timed": {rid.WithTimePrefix(32)}} {
		b.Run(form, func(b *testing.B) {
			g := c.GetIDGenerator(b.Name()+fmt.Sprint(time.Now().UnixNano()), append(opts, rid.WithBlock(1_000_000))...)
			for b.Loop() {
				if _, err := g.Next(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
