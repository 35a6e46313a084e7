package near_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/near"
	"github.com/redlatch/redlatch/internal/pipe"
)

// F30
func TestReplyThatCrossedAnInvalidationIsNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		ticket := r.Ask([]byte("k"))
		r.publish(r.other(t).Write([]byte("k")).Message())
		r.Store("k", "old", nil, 0, ticket)
		r.requireNone(t, "k")
		assert.Zero(t, r.Stats().Entries)

		ticket = r.Ask([]byte("k"))
		r.Write([]byte("k")).Answered()
		r.Store("k", "old", nil, 0, ticket)
		r.requireNone(t, "k")

		ticket = r.Ask([]byte("k"))
		r.publish(r.other(t).Clear().Message())
		r.Store("k", "old", nil, 0, ticket)
		r.requireNone(t, "k")

		r.keep("k", "new")
		r.requireKept(t, "k", "new")
	})
}

// F30
func TestNothingIsServedWhileTheSubscriptionIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.keep("k", "v")
		r.requireKept(t, "k", "v")
		before := r.Ask([]byte("x"))

		r.Down(true)
		synctest.Wait()
		r.requireNone(t, "k")
		r.keep("k", "v")
		r.requireNone(t, "k")
		time.Sleep(time.Second)
		r.requireNone(t, "k")

		r.Down(false)
		time.Sleep(time.Second)
		synctest.Wait()
		r.requireNone(t, "k") // it may have changed meanwhile
		r.Store("x", "old", nil, 0, before)
		r.requireNone(t, "x")
		r.keep("k", "v")
		r.requireKept(t, "k", "v")
	})
}

// F30
func TestSilentConnectionEndsEntriesWithinTwentySeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.Blackhole(true)
		start := time.Now()
		time.Sleep(10 * time.Second)
		r.keep("k", "v")
		for {
			if _, ok := r.Get("k"); !ok {
				break
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		assert.InDelta(t, 20, time.Since(start).Seconds(), 0.2, "entries are younger than MaxStale")
		r.Blackhole(false)
	})
}

// F30
func TestEntryIsServedForItsTimeOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		ticket := r.Ask([]byte("k"))
		time.Sleep(10 * time.Second) // a slow reply
		r.Store("k", "v", nil, 0, ticket)
		r.Store("short", "v", nil, 12*time.Second, r.Ask([]byte("short")))
		r.Store("long", "v", nil, time.Hour, r.Ask([]byte("long")))
		time.Sleep(12*time.Second - time.Millisecond)
		r.requireKept(t, "short", "v")
		time.Sleep(time.Millisecond)
		r.requireNone(t, "short")
		time.Sleep(8*time.Second - time.Millisecond)
		r.requireKept(t, "k", "v")
		time.Sleep(time.Millisecond)
		r.requireNone(t, "k") // MaxStale after it was asked for
		time.Sleep(10 * time.Second)
		r.requireNone(t, "long")
	})
}

func TestMessageAfterTheAnswerEndsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for _, w := range []*near.Write{r.Write([]byte("k"), []byte("l")), r.Clear()} {
			r.keep("k", "old")
			w.Answered()
			r.requireNone(t, "k")
			r.keep("k", "new")
			r.publish(w.Message())
			r.requireKept(t, "k", "new")
		}
		assert.EqualValues(t, 3, r.Stats().Invalidations, "two keys and a clear")
	})
}

// F30: Redis may refuse the write after the message, and the client sends it again.
func TestWriteThatIsSentAgainEndsEntriesAgain(t *testing.T) {
	for second, end := range map[string]func(r *rig, w *near.Write){"answer": answered, "message": published} {
		t.Run(second, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				for _, w := range []*near.Write{r.Write([]byte("k")), r.Clear()} {
					r.publish(w.Message())
					r.keep("k", "old")
					end(r, w)
					r.requireNone(t, "k")
				}
			})
		})
	}
}

func answered(_ *rig, w *near.Write)  { w.Answered() }
func published(r *rig, w *near.Write) { r.publish(w.Message()) }

func TestMessageEndsEntriesAfterALostReply(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		require.NoError(t, r.set(t, "k", "1"))
		_, _, err := r.get(t, "k")
		require.NoError(t, err)
		r.LoseReplies(1)
		require.Error(t, r.set(t, "k", "2"))
		// The connection of the write is cut, not that of the messages.
		synctest.Wait()
		v, hit, err := r.get(t, "k")
		require.NoError(t, err)
		assert.False(t, hit)
		assert.Equal(t, "2", v)
	})
}

func TestLostOwnMessageCostsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for range 5000 { // more than are remembered
			w := r.Write([]byte("k"))
			r.keep("k", "old")
			w.Answered()
			r.requireNone(t, "k")
		}
		r.keep("k", "new")
		r.requireKept(t, "k", "new")
	})
}

func TestWriteIsSeenByOtherClients(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		other := r.other(t)
		require.NoError(t, r.set(t, "k", "1"))
		for _, n := range []*node{r.node, other} {
			v, _, err := n.get(t, "k")
			require.NoError(t, err)
			require.Equal(t, "1", v)
		}
		require.NoError(t, r.set(t, "k", "2"))
		synctest.Wait()
		for _, n := range []*node{r.node, other} {
			v, hit, err := n.get(t, "k")
			require.NoError(t, err)
			require.False(t, hit)
			require.Equal(t, "2", v)
			v, hit, err = n.get(t, "k")
			require.NoError(t, err)
			require.True(t, hit)
			require.Equal(t, "2", v)
		}
	})
}

func TestCachesOfOneObjectShareItsChannel(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		second := near.New[string](r.core, near.MapTopic(name), options(10))
		writer := near.New[string](r.core, near.MapTopic(name), options(0))
		second.Store("k", "v", nil, 0, second.Ask([]byte("k")))
		_, ok := second.Get("k")
		require.True(t, ok)
		assert.Equal(t, map[string]int{channel: 1}, r.server.PubSubNumSub(channel))
		writer.Write([]byte("k")).Answered()
		_, ok = second.Get("k")
		assert.False(t, ok)
	})
}

func TestCacheOfNoEntriesJoinsNoChannel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		t.Cleanup(server.Close)
		n := newNode(t, pipe.Client(server.Dial))
		w := near.New[string](n.core, near.MapTopic(name), options(0))
		_, ok := w.Get("k")
		assert.False(t, ok)
		w.Store("k", "v", nil, 0, w.Ask([]byte("k")))
		w.Write([]byte("k")).Answered()
		assert.Zero(t, w.Stats())
		synctest.Wait()
		assert.Nil(t, server.Server(), "nobody has connected, nor the client's other cache, which is not used")
	})
}

func TestClosedClientServesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.keep("k", "v")
		r.core.Close()
		r.requireNone(t, "k")
		r.keep("k", "v")
		r.requireNone(t, "k")
	})
}

func TestCacheKeepsWhatWasUsedLast(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for i := range 1000 {
			r.keep(fmt.Sprint(i), "v")
			r.requireKept(t, fmt.Sprint(i), "v")
			r.requireKept(t, "0", "v")
		}
		assert.Equal(t, 100, r.Stats().Entries)
		assert.EqualValues(t, 2000, r.Stats().Hits)
		large := near.New[string](r.core, near.MapTopic(name), options(10_000))
		for i := range 100_000 {
			key := fmt.Sprint(i)
			large.Store(key, key, nil, 0, large.Ask([]byte(key)))
		}
		assert.LessOrEqual(t, large.Stats().Entries, 10_000)
		assert.Greater(t, large.Stats().Entries, 9_900)
	})
}

func TestStatsCount(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.keep("k", "v")
		r.requireKept(t, "k", "v")
		r.publish(r.other(t).Write([]byte("k")).Message())
		assert.Equal(t, near.Stats{Hits: 1, Misses: 1, Invalidations: 1, Entries: 1}, r.Stats(), "the miss is of the first use")
		r.requireNone(t, "k")
		assert.Equal(t, near.Stats{Hits: 1, Misses: 2, Invalidations: 1}, r.Stats())
	})
}

// Some programs make a cache for each request, though they should not.
func TestCacheThatIsGoneIsNotReported(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		reported := func() int {
			_, n := near.Report(r.core, near.MapTopic(name))
			return n.Entries
		}
		func() {
			for range 10 {
				c := near.New[string](r.core, near.MapTopic(name), options(100))
				c.Get("")
				c.Store("k", "v", nil, 0, c.Ask([]byte("k")))
			}
		}()
		r.keep("k", "v")
		for range 10 {
			runtime.GC()
		}
		assert.Equal(t, 1, reported())
	})
}

func TestReportSaysSinceWhenTheSubscriptionIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, n := near.Report(r.core, near.MapTopic("other"))
		assert.Nil(t, n)
		_, n = near.Report(r.core, near.MapTopic(name))
		assert.True(t, n.Connected)
		time.Sleep(time.Minute)
		lost := time.Now()
		r.Refuse(true)
		r.Cut()
		time.Sleep(time.Second)
		_, n = near.Report(r.core, near.MapTopic(name))
		assert.False(t, n.Connected)
		assert.WithinDuration(t, lost, n.Since, 0)
		r.Refuse(false)
		time.Sleep(time.Minute)
		_, n = near.Report(r.core, near.MapTopic(name))
		assert.True(t, n.Connected)
		assert.True(t, n.Since.After(lost))
	})
}

func TestValueWithPointersIsDecodedForEachCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		own := near.New[string](r.core, near.MapTopic(name), near.Options[order]{Entries: 10, MaxStale: maxStale, Decode: decodeOrder})
		shared := near.New[string](r.core, near.MapTopic(name), near.Options[order]{Entries: 10, MaxStale: maxStale, Shared: true})
		given := order{[]string{"tea"}}
		for _, c := range []*near.Cache[string, order]{own, shared} {
			c.Store("k", given, []byte(`{"Items":["tea"]}`), 0, c.Ask([]byte("k")))
		}
		first, _ := own.Get("k")
		first.Items[0] = "milk"
		second, ok := own.Get("k")
		require.True(t, ok)
		assert.Equal(t, []string{"tea"}, second.Items)
		one, _ := shared.Get("k")
		assert.Same(t, &given.Items[0], &one.Items[0])
	})
}

func TestHitAllocatesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.keep("k", "v")
		assert.Zero(t, testing.AllocsPerRun(100, func() { r.Get("k") }))
		assert.Zero(t, testing.AllocsPerRun(100, func() { r.Get("none") }))
	})
}

// F10
func TestGoroutinesDoNotGrowWithObjectsOrEntries(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		before := runtime.NumGoroutine()
		for i := range 200 {
			c := near.New[string](r.core, near.MapTopic(fmt.Sprint("map:", i)), options(2000))
			c.Get("")
			synctest.Wait()
			for k := range 20 {
				key := fmt.Sprint(k)
				c.Store(key, key, nil, 0, c.Ask([]byte(key)))
			}
			require.Equal(t, 20, c.Stats().Entries)
		}
		assert.LessOrEqual(t, runtime.NumGoroutine(), before)
	})
}
