package rmap_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/gridtest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

const channel = "{m}:topic"

var errNotYet = errors.New("not yet")

// nearMap returns a map whose subscription is confirmed. It has an entry "warm".
func nearMap[V any](t *testing.T, c *redlatch.Client, warm V, opts ...rmap.Option) *rmap.Map[string, V] {
	t.Helper()
	m := rmap.New[string, V](c, "m", append([]rmap.Option{rmap.WithNear(100)}, opts...)...)
	require.NoError(t, m.Set(t.Context(), "warm", warm))
	redistest.Eventually(t, 10*time.Second, "the entry is near", func() error {
		_, _, err := m.Get(t.Context(), "warm")
		if err == nil && m.NearStats().Hits == 0 {
			err = errNotYet
		}
		return err
	})
	return m
}

// requireHit gets a value that is near, or is not.
func requireHit[V any](t *testing.T, m *rmap.Map[string, V], near bool, key string, want V) {
	t.Helper()
	before := m.NearStats()
	got, ok, err := m.Get(t.Context(), key)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, want, got)
	require.Equal(t, near, m.NearStats().Hits > before.Hits, "near")
}

// peers has two clients of a server in memory, in a bubble of fake time.
func peers(t *testing.T, test func(t *testing.T, b *locktest.Bubble, one, other *locktest.Peer)) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) { test(t, b, b.Peer(t), b.Peer(t)) })
}

func TestNearMapIsAnObjectOfTheGrid(t *testing.T) {
	gridtest.Suite(t, "rmap", "hash", func(c *redlatch.Client, name string) []gridtest.Call {
		return calls(c, name, rmap.WithNear(100))
	})
}

func TestNearMapThatKeepsNothingIsAnObjectOfTheGrid(t *testing.T) {
	gridtest.Suite(t, "rmap", "hash", func(c *redlatch.Client, name string) []gridtest.Call {
		return calls(c, name, rmap.WithNear(0))
	})
}

// change is a method that changes the entry "a", which is "1", or not.
type change struct {
	name    string
	do      func(ctx context.Context, m *rmap.Map[string, int]) error
	changes bool
	want    map[string]string
}

func changes() []change {
	type ints = *rmap.Map[string, int]
	one := map[string]string{"a": "1"}
	two := map[string]string{"a": "2"}
	none := map[string]string{}
	return []change{
		{"Set", func(ctx context.Context, m ints) error { return m.Set(ctx, "a", 2) }, true, two},
		{"Set with a fence", func(ctx context.Context, m ints) error { return m.Set(ctx, "a", 2, rmap.WithFence(1)) }, true, two},
		{"SetAll", func(ctx context.Context, m ints) error { return m.SetAll(ctx, map[string]int{"a": 2}) }, true, two},
		{"SetIfAbsent", func(ctx context.Context, m ints) error { _, err := m.SetIfAbsent(ctx, "b", 2); return err }, true, map[string]string{"a": "1", "b": "2"}},
		{"SetIfAbsent of one", func(ctx context.Context, m ints) error { _, err := m.SetIfAbsent(ctx, "a", 2); return err }, false, one},
		{"SetIfPresent", func(ctx context.Context, m ints) error { _, err := m.SetIfPresent(ctx, "a", 2); return err }, true, two},
		{"SetIfPresent of none", func(ctx context.Context, m ints) error { _, err := m.SetIfPresent(ctx, "b", 2); return err }, false, one},
		{"Swap", func(ctx context.Context, m ints) error { _, _, err := m.Swap(ctx, "a", 2); return err }, true, two},
		{"Pop", func(ctx context.Context, m ints) error { _, _, err := m.Pop(ctx, "a"); return err }, true, none},
		{"Pop of none", func(ctx context.Context, m ints) error { _, _, err := m.Pop(ctx, "b"); return err }, false, one},
		{"CompareAndSwap", func(ctx context.Context, m ints) error { _, err := m.CompareAndSwap(ctx, "a", 1, 2); return err }, true, two},
		{"CompareAndSwap of another", func(ctx context.Context, m ints) error { _, err := m.CompareAndSwap(ctx, "a", 3, 2); return err }, false, one},
		{"CompareAndDelete", func(ctx context.Context, m ints) error { _, err := m.CompareAndDelete(ctx, "a", 1); return err }, true, none},
		{"CompareAndDelete of another", func(ctx context.Context, m ints) error { _, err := m.CompareAndDelete(ctx, "a", 3); return err }, false, one},
		{"Update", func(ctx context.Context, m ints) error {
			_, err := m.Update(ctx, "a", func(v int, _ bool) (int, error) { return v + 1, nil })
			return err
		}, true, two},
		{"Add", func(ctx context.Context, m ints) error { _, err := m.Add(ctx, "a", 1); return err }, true, two},
		{"Remove", func(ctx context.Context, m ints) error { _, err := m.Remove(ctx, "b", "a"); return err }, true, none},
		{"Remove of none", func(ctx context.Context, m ints) error { _, err := m.Remove(ctx, "b", "c"); return err }, false, one},
		{"Delete", func(ctx context.Context, m ints) error { _, err := m.Delete(ctx); return err }, true, none},
		{"Expire", func(ctx context.Context, m ints) error { _, err := m.Expire(ctx, time.Hour); return err }, true, one},
		{"Persist", func(ctx context.Context, m ints) error { _, err := m.Persist(ctx); return err }, false, one},
	}
}

func TestChangesArePublishedAndSeenAtOnce(t *testing.T) {
	for _, c := range changes() {
		t.Run(c.name, func(t *testing.T) {
			peers(t, func(t *testing.T, b *locktest.Bubble, one, other *locktest.Peer) {
				ctx := t.Context()
				writer, reader := nearMap(t, one.Client, 0), nearMap(t, other.Client, 0)
				for _, m := range []*rmap.Map[string, int]{writer, reader} {
					require.NoError(t, b.Redis.Del(ctx, "m").Err())
					require.NoError(t, writer.Set(ctx, "a", 1))
					synctest.Wait()
					requireHit(t, m, false, "a", 1)
					requireHit(t, m, true, "a", 1)
					heard := b.Redis.Subscribe(ctx, channel)
					_, err := heard.Receive(ctx)
					require.NoError(t, err)
					messages := heard.Channel()
					require.NoError(t, c.do(ctx, writer))
					if m == reader {
						synctest.Wait() // the message has come
					}
					all, before := map[string]string{}, m.NearStats()
					got, err := m.GetAll(ctx, []string{"a", "b"})
					require.NoError(t, err)
					for k, v := range got {
						all[k] = strconv.Itoa(v)
					}
					assert.Equal(t, c.want, all)
					assert.Equal(t, c.want, b.Redis.HGetAll(ctx, "m").Val())
					synctest.Wait()
					assert.Len(t, messages, map[bool]int{true: 1}[c.changes], "messages")
					if m == reader {
						stays := c.want["a"] == "1" && c.name != "Expire"
						assert.Equal(t, stays, m.NearStats().Hits > before.Hits, "the entry stays where nothing has changed")
					}
					require.NoError(t, heard.Close())
					synctest.Wait()
				}
			})
		})
	}
}

// F30
func TestLostReplyOfAChangeLeavesNothingOldNear(t *testing.T) {
	for _, c := range changes() {
		if c.name == "Update" { // what is lost is the reply of its read, which is repeated
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			peers(t, func(t *testing.T, b *locktest.Bubble, one, _ *locktest.Peer) {
				ctx, m := t.Context(), nearMap(t, one.Client, 0)
				require.NoError(t, c.do(ctx, m)) // Redis knows the script
				require.NoError(t, b.Redis.Del(ctx, "m").Err())
				require.NoError(t, m.Set(ctx, "a", 1))
				requireHit(t, m, false, "a", 1)
				one.LoseReplies(1)
				require.ErrorIs(t, c.do(ctx, m), redlatch.ErrUnknown)
				synctest.Wait()
				got, err := m.GetAll(ctx, []string{"a", "b"})
				require.NoError(t, err)
				all := map[string]string{}
				for k, v := range got {
					all[k] = strconv.Itoa(v)
				}
				assert.Equal(t, c.want, all)
			})
		})
	}
}

// F30: the refused attempt has published its message.
func TestChangeThatIsRefusedAndSentAgainLeavesNothingOldNear(t *testing.T) {
	gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
		ctx, m := t.Context(), nearMap(t, p.Client, 0)
		get := func() map[string]string {
			got, err := m.GetAll(ctx, []string{"a", "b"})
			require.NoError(t, err)
			all := map[string]string{}
			for k, v := range got {
				all[k] = strconv.Itoa(v)
			}
			return all
		}
		for _, c := range changes() {
			if !c.changes || c.name == "Set with a fence" { // which is refused before its message
				continue
			}
			redistest.Eventually(t, time.Minute, c.name, func() error {
				require.NoError(t, m.Set(ctx, "a", 1))
				_, err := m.Remove(ctx, "b")
				require.NoError(t, err)
				catchUp(t, p, m.NearStats)
				before := m.NearStats().Invalidations
				p.RefuseWrites(t, true)
				done := make(chan error, 1)
				go func() { done <- c.do(ctx, m) }()
				redistest.Eventually(t, 10*time.Second, "the message", func() error {
					if m.NearStats().Invalidations == before {
						return errNotYet
					}
					return nil
				})
				get()
				p.RefuseWrites(t, false)
				if err := <-done; err != nil {
					require.ErrorIs(t, err, redlatch.ErrUnwritable)
					return err // it was given up before
				}
				assert.Equal(t, c.want, get(), c.name)
				return nil
			})
		}
	})
}

func TestOnlyNearMapsPublish(t *testing.T) {
	peers(t, func(t *testing.T, b *locktest.Bubble, one, other *locktest.Peer) {
		ctx := t.Context()
		heard := b.Redis.Subscribe(ctx, channel)
		_, err := heard.Receive(ctx)
		require.NoError(t, err)
		messages := heard.Channel()
		for _, c := range changes() {
			require.NoError(t, c.do(ctx, rmap.New[string, int](one.Client, "m")))
		}
		synctest.Wait()
		assert.Empty(t, messages)
		writer, reader := rmap.New[string, int](one.Client, "m", rmap.WithNear(0)), nearMap(t, other.Client, 0)
		require.NoError(t, writer.Set(ctx, "a", 1))
		synctest.Wait()
		requireHit(t, reader, false, "a", 1)
		requireHit(t, writer, false, "a", 1)
		requireHit(t, writer, false, "a", 1)
		require.NoError(t, writer.Set(ctx, "a", 2))
		synctest.Wait()
		requireHit(t, reader, false, "a", 2)
		assert.Equal(t, rmap.NearStats{}, writer.NearStats())
		assert.Equal(t, rmap.NearStats{}, rmap.New[string, int](one.Client, "m").NearStats())
		require.NoError(t, heard.Close())
	})
}

func TestNearOptionsAreChecked(t *testing.T) {
	gridtest.InMemory(t, func(t *testing.T, p *gridtest.Place) {
		_, _, below := rmap.New[string, int](p.Client, "m", rmap.WithNear(-1)).Get(t.Context(), "a")
		assert.EqualError(t, below, `rmap: get "m": invalid argument: -1 near entries are not between 0 and 16777216`)
		_, _, many := rmap.New[string, int](p.Client, "m", rmap.WithNear(1<<24+1)).Get(t.Context(), "a")
		assert.EqualError(t, many, `rmap: get "m": invalid argument: 16777217 near entries are not between 0 and 16777216`)
		_, _, late := rmap.New[string, int](p.Client, "m", rmap.WithMaxStale(math.MaxInt64)).Get(t.Context(), "a")
		assert.EqualError(t, late, `rmap: get "m": invalid argument: max stale 2562047h47m16.854775807s is above 24h0m0s`)
		_, _, short := rmap.New[string, int](p.Client, "m", rmap.WithMaxStale(time.Microsecond)).Get(t.Context(), "a")
		assert.EqualError(t, short, `rmap: get "m": invalid argument: max stale 1µs is below 1ms`)
		_, _, long := rmap.New[string, int](p.Client, "m", rmap.WithNear(1)).Get(t.Context(), strings.Repeat("x", 64<<10+1))
		assert.EqualError(t, long, `rmap: get "m": invalid argument: the encoded key has 65537 bytes, more than 65536`)
		for _, err := range []error{below, many, short, late, long} {
			require.ErrorIs(t, err, redlatch.ErrInvalid)
		}
		assert.Zero(t, p.Calls())
	})
}

// slowly decodes as codec.Text does, but each time only when it is let.
type slowly struct {
	codec.Text
	begun, end chan struct{}
}

func (s slowly) Decode(data []byte, v any) error {
	s.begun <- struct{}{}
	<-s.end
	return s.Text.Decode(data, v)
}

// F30
func TestReplyThatCrossesAChangeIsNotKept(t *testing.T) {
	peers(t, func(t *testing.T, _ *locktest.Bubble, one, other *locktest.Peer) {
		ctx := t.Context()
		writer := nearMap(t, one.Client, 0)
		slow := slowly{begun: make(chan struct{}), end: make(chan struct{})}
		reader := rmap.New[string, int](other.Client, "m", rmap.WithNear(100), rmap.WithCodec(slow))
		get := func() (v int) {
			v, ok, err := reader.Get(ctx, "a")
			assert.NoError(t, err)
			assert.True(t, ok)
			return v
		}
		require.NoError(t, writer.Set(ctx, "a", 1))
		nearMap(t, other.Client, 0) // the subscription of the map is confirmed
		before := reader.NearStats().Hits
		got := make(chan int)
		go func() { got <- get() }()
		<-slow.begun // Redis has replied
		require.NoError(t, writer.Set(ctx, "a", 2))
		synctest.Wait()
		slow.end <- struct{}{}
		assert.Equal(t, 1, <-got, "it was asked for before")
		go func() { got <- get() }()
		<-slow.begun
		slow.end <- struct{}{}
		assert.Equal(t, 2, <-got, "the first reply was not kept")
		assert.Equal(t, 2, get(), "the second was")
		assert.EqualValues(t, 1, reader.NearStats().Hits-before)
	})
}

// F30
func TestNothingIsNearWhileTheSubscriptionIsLost(t *testing.T) {
	peers(t, func(t *testing.T, _ *locktest.Bubble, one, other *locktest.Peer) {
		ctx := t.Context()
		writer, reader := nearMap(t, one.Client, 0), nearMap(t, other.Client, 0)
		requireHit(t, reader, true, "warm", 0)
		other.Refuse(true)
		other.Cut()
		synctest.Wait()
		require.NoError(t, writer.Set(ctx, "warm", 1))
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, _, err := reader.Get(short, "warm")
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		other.Refuse(false)
		requireHit(t, reader, false, "warm", 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		requireHit(t, reader, false, "warm", 1)
		requireHit(t, reader, true, "warm", 1)
	})
}

func TestClientSaysHowItsNearMapsDo(t *testing.T) {
	peers(t, func(t *testing.T, _ *locktest.Bubble, one, other *locktest.Peer) {
		m := nearMap(t, one.Client, 0)
		far := rmap.New[string, int](one.Client, "far")
		require.NoError(t, far.Set(t.Context(), "a", 1))
		requireHit(t, m, true, "warm", 0)
		second := nearMap(t, one.Client, 0) // it has entries of its own
		requireHit(t, second, true, "warm", 0)
		time.Sleep(4 * time.Second)
		r, err := other.Ask(t.Context(), one.ID())
		require.NoError(t, err)
		require.Len(t, r.Caches, 1)
		said, s := r.Caches[0], m.NearStats()
		assert.Equal(t, []any{"map", "m"}, []any{said.Kind, said.Name})
		assert.Equal(t, []uint64{s.Hits, s.Misses, s.Invalidations}, []uint64{said.NearHits, said.Misses, said.Near.Invalidations})
		assert.Equal(t, 2, said.Near.Entries)
		assert.True(t, said.Near.Connected)
		assert.False(t, said.Near.Heard.IsZero(), "its own writes come back")
		runtime.KeepAlive([]any{m, second})
	})
}

func TestNearCacheEndsWithItsCallers(t *testing.T) {
	peers(t, func(t *testing.T, _ *locktest.Bubble, one, _ *locktest.Peer) {
		m := nearMap(t, one.Client, 0)
		requireHit(t, m, true, "warm", 0)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := m.Get(done, "warm")
		require.ErrorIs(t, err, context.Canceled)
		_, err = m.GetAll(done, []string{"warm"})
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, one.Close())
		_, _, err = m.Get(t.Context(), "warm")
		require.ErrorIs(t, err, redlatch.ErrClosed)
		_, err = m.GetAll(t.Context(), []string{"warm"})
		require.ErrorIs(t, err, redlatch.ErrClosed)
	})
}

// F30
func TestUnpublishedChangeIsSeenAfterMaxStale(t *testing.T) {
	peers(t, func(t *testing.T, b *locktest.Bubble, one, _ *locktest.Peer) {
		m := nearMap(t, one.Client, 0, rmap.WithMaxStale(5*time.Second))
		require.NoError(t, m.Set(t.Context(), "a", 1))
		requireHit(t, m, false, "a", 1)
		require.NoError(t, b.Redis.HSet(t.Context(), "m", "a", 2).Err())
		time.Sleep(4999 * time.Millisecond)
		requireHit(t, m, true, "a", 1)
		time.Sleep(time.Millisecond)
		requireHit(t, m, false, "a", 2)
	})
}

func TestEntryIsNotNearForLongerThanTheMap(t *testing.T) {
	peers(t, func(t *testing.T, b *locktest.Bubble, one, other *locktest.Peer) {
		ctx, m := t.Context(), nearMap(t, one.Client, 0)
		expire := func(d time.Duration) {
			ok, err := rmap.New[string, int](other.Client, "m", rmap.WithNear(0)).Expire(ctx, d)
			require.NoError(t, err)
			require.True(t, ok)
			synctest.Wait()
		}
		requireHit(t, m, true, "warm", 0)
		expire(20 * time.Second)
		requireHit(t, m, false, "warm", 0)
		expire(10 * time.Second)
		requireHit(t, m, false, "warm", 0)
		expire(20 * time.Second)
		requireHit(t, m, true, "warm", 0)
		time.Sleep(10 * time.Second)
		requireHit(t, m, false, "warm", 0)
		requireHit(t, m, true, "warm", 0)
		time.Sleep(10 * time.Second)
		_, ok, err := m.Get(ctx, "warm")
		require.NoError(t, err)
		assert.False(t, ok)
		heard := m.NearStats().Invalidations
		expire2, err := m.Expire(ctx, time.Second)
		require.NoError(t, err)
		assert.False(t, expire2)
		assert.Equal(t, heard, m.NearStats().Invalidations)
		assert.Empty(t, b.Keys(t))
	})
}

func TestEntryIsNotNearForLongerThanItsTime(t *testing.T) {
	gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
		withTTLs(t, p)
		ctx, m := t.Context(), nearMap(t, p.Client, "x")
		require.NoError(t, m.SetAll(ctx, map[string]string{"a": "1", "b": "1"}))
		require.NoError(t, m.Set(ctx, "a", "1", rmap.WithTTL(time.Hour)))
		requireHit(t, m, false, "a", "1")
		requireHit(t, m, true, "a", "1")
		for i := range 20 { // several may be read in their last millisecond, in which they have no time to live
			require.NoError(t, m.Set(ctx, "a", strconv.Itoa(i), rmap.WithTTL(time.Hour)))
			requireHit(t, m, false, "a", strconv.Itoa(i))
			began := time.Now()
			there, err := m.ExpireEntry(ctx, "a", 20*time.Millisecond)
			require.NoError(t, err)
			require.True(t, there)
			for there && time.Since(began) < 10*time.Second {
				_, there, err = m.Get(ctx, "a")
				require.NoError(t, err)
			}
			require.False(t, there, "it is over; MaxStale is 30 s")
		}
		before := m.NearStats().Invalidations
		ok, err := m.ExpireEntry(ctx, "a", time.Hour)
		require.NoError(t, err)
		require.False(t, ok)
		requireHit(t, m, false, "b", "1")
		requireHit(t, m, true, "b", "1")
		assert.Equal(t, before, m.NearStats().Invalidations, "nothing was published")
	})
}

func TestCallersShareAValueOnlyIfTheySaySo(t *testing.T) {
	peers(t, func(t *testing.T, _ *locktest.Bubble, one, _ *locktest.Peer) {
		ctx := t.Context()
		for _, shared := range []bool{false, true} {
			opts := []rmap.Option{rmap.WithNear(100)}
			if shared {
				opts = append(opts, rmap.WithSharedValues())
			}
			m := nearMap(t, one.Client, []string{"x"}, opts...)
			first, _, err := m.Get(ctx, "warm")
			require.NoError(t, err)
			first[0] = "y"
			second, err := m.GetAll(ctx, []string{"warm"})
			require.NoError(t, err)
			assert.Equal(t, shared, second["warm"][0] == "y")
		}
	})
}

func TestGetAllAsksForWhatIsNotNear(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		ctx, m := t.Context(), nearMap(t, p.Client, 0, rmap.WithNear(3000))
		keys, all := []string{"none"}, map[string]int{}
		for i := range 2500 {
			keys = append(keys, strconv.Itoa(i))
			all[strconv.Itoa(i)] = i
		}
		require.NoError(t, m.SetAll(ctx, all))
		for range 2 {
			got, err := m.GetAll(ctx, keys)
			require.NoError(t, err)
			require.Equal(t, all, got)
		}
		assert.Greater(t, m.NearStats().Hits, uint64(1000), "stripes are shared, and shards are not equally full")
		n, err := m.Remove(ctx, keys...)
		require.NoError(t, err)
		assert.Equal(t, 2500, n)
		got, err := m.GetAll(ctx, keys)
		require.NoError(t, err)
		assert.Empty(t, got)
		require.NoError(t, p.Redis.HSet(ctx, "m", "bad", "x").Err())
		_, err = m.GetAll(ctx, []string{"bad"})
		require.ErrorIs(t, err, codec.ErrDecode)
		_, _, err = m.Get(ctx, "bad")
		require.ErrorIs(t, err, codec.ErrDecode)
	})
}

func TestNearHitAllocatesNothing(t *testing.T) {
	gridtest.InMemory(t, func(t *testing.T, p *gridtest.Place) {
		ctx := t.Context()
		m := nearMap(t, p.Client, 1)
		assert.Zero(t, testing.AllocsPerRun(100, func() { _, _, _ = m.Get(ctx, "warm") }))
		shared := nearMap(t, p.Client, 1, rmap.WithSharedValues())
		assert.Zero(t, testing.AllocsPerRun(100, func() { _, _, _ = shared.Get(ctx, "warm") }))
	})
}

// attacked returns a map of an attack, and a node of it.
func attacked(c *redlatch.Client, a *gridtest.Attack) (*rmap.Map[string, string], gridtest.Calls) {
	m := rmap.New[string, string](c, "m", rmap.WithNear(100), rmap.WithMaxStale(a.MaxStale))
	return m, gridtest.Calls{
		Write: func(ctx context.Context, key, text string) error { return m.Set(ctx, key, text) },
		Read: func(ctx context.Context, key string) (string, error) {
			text, _, err := m.Get(ctx, key)
			return text, err
		},
	}
}

// F30
func TestStalenessIsBoundedUnderFaultsInMemory(t *testing.T) {
	peers(t, func(t *testing.T, _ *locktest.Bubble, one, other *locktest.Peer) {
		a := &gridtest.Attack{MaxStale: 2 * time.Second, Length: 5 * time.Second, Pause: 10 * time.Millisecond}
		a.InMemory(one.Wires, other.Wires)
		_, writes := attacked(one.Client, a)
		reader, reads := attacked(other.Client, a)
		a.Run(t, writes, reads)
		assert.NotZero(t, reader.NearStats().Hits)
	})
}

// F30
func TestStalenessIsBoundedUnderFaultsOnAServer(t *testing.T) {
	server := redistest.Start(t)
	client := func() (*faulttest.Proxy, *redlatch.Client) {
		p := faulttest.NewProxy(t, server.Addr())
		rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: 300 * time.Millisecond, MaxRetries: -1})
		c, err := redlatch.New(rdb)
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = c.Close()
			_ = rdb.Close()
		})
		return p, c
	}
	w, writer := client()
	r, other := client()
	a := &gridtest.Attack{MaxStale: 500 * time.Millisecond, Length: time.Duration(faulttest.Rounds(t, 2, 60)) * time.Second, Pause: 4 * time.Millisecond}
	a.OnServer(w, r)
	_, writes := attacked(writer, a)
	reader, reads := attacked(other, a)
	a.Run(t, writes, reads)
	assert.NotZero(t, reader.NearStats().Hits)
}

func TestNearMapOnACluster(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	client := func() *redlatch.Client {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
		c, err := redlatch.New(rdb)
		require.NoError(t, err)
		t.Cleanup(func() {
			_ = c.Close()
			_ = rdb.Close()
		})
		return c
	}
	reader, writer := nearMap(t, client(), 0), rmap.New[string, int](client(), "m", rmap.WithNear(0))
	for _, c := range changes() {
		require.NoError(t, writer.Set(t.Context(), "a", 1))
		_, err := writer.Remove(t.Context(), "b")
		require.NoError(t, err)
		redistest.Eventually(t, 10*time.Second, "the entry is near", func() error {
			before := reader.NearStats().Hits
			if v, _, err := reader.Get(t.Context(), "a"); err != nil || v != 1 || reader.NearStats().Hits == before {
				return errNotYet
			}
			return nil
		})
		require.NoError(t, c.do(t.Context(), writer), c.name)
		redistest.Eventually(t, 10*time.Second, c.name, func() error {
			if v, _, err := reader.Get(t.Context(), "a"); err != nil || c.want["a"] != "" && strconv.Itoa(v) != c.want["a"] {
				return errNotYet
			}
			return nil
		})
	}
}

// F2, F9, F30
func TestChangesOfANearMapHaveOneOrder(t *testing.T) {
	const maxStale = 500 * time.Millisecond
	gridtest.Linearizable(t, maxStale, func(c *redlatch.Client, name string) gridtest.Register {
		m := rmap.New[string, int](c, "m", rmap.WithNear(100), rmap.WithMaxStale(maxStale))
		return gridtest.Register{
			Get:            func(ctx context.Context) (int, bool, error) { return m.Get(ctx, name) },
			CompareAndSwap: func(ctx context.Context, old, v int) (bool, error) { return m.CompareAndSwap(ctx, name, old, v) },
			Update: func(ctx context.Context, fn func(int, bool) (int, error)) (int, error) {
				return m.Update(ctx, name, fn)
			},
		}
	})
}
