package rmap_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/internal/test/gridtest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func calls(c *redlatch.Client, name string, opts ...rmap.Option) []gridtest.Call {
	m := rmap.New[string, int](c, name, opts...)
	same := func(v int, _ bool) (int, error) { return v, nil }
	return []gridtest.Call{
		{Verb: "set", Changes: true, Do: func(ctx context.Context) error { return m.Set(ctx, "a", 1) }},
		{Verb: "set", Changes: true, Do: func(ctx context.Context) error { return m.Set(ctx, "a", 1, rmap.WithFence(1)) }},
		{Verb: "set all", Changes: true, Do: func(ctx context.Context) error { return m.SetAll(ctx, map[string]int{"a": 1}) }},
		{Verb: "get", Do: func(ctx context.Context) error { _, _, err := m.Get(ctx, "none"); return err }},
		{Verb: "get all", Do: func(ctx context.Context) error { _, err := m.GetAll(ctx, []string{"none"}); return err }},
		{Verb: "has", Do: func(ctx context.Context) error { _, err := m.Has(ctx, "a"); return err }},
		{Verb: "len", Do: func(ctx context.Context) error { _, err := m.Len(ctx); return err }},
		{Verb: "all", Do: func(ctx context.Context) (err error) {
			for _, err = range m.All(ctx) {
			}
			return err
		}},
		{Verb: "set if absent", Changes: true, Do: func(ctx context.Context) error { _, err := m.SetIfAbsent(ctx, "a", 1); return err }},
		{Verb: "set if absent", Changes: true, Do: func(ctx context.Context) error { _, err := m.SetIfAbsent(ctx, "a", 1, rmap.WithFence(1)); return err }},
		{Verb: "set if present", Changes: true, Do: func(ctx context.Context) error { _, err := m.SetIfPresent(ctx, "a", 1); return err }},
		{Verb: "swap", Changes: true, Do: func(ctx context.Context) error { _, _, err := m.Swap(ctx, "a", 1); return err }},
		{Verb: "compare and swap", Changes: true, Do: func(ctx context.Context) error { _, err := m.CompareAndSwap(ctx, "a", 1, 2); return err }},
		{Verb: "update", Do: func(ctx context.Context) error { _, err := m.Update(ctx, "a", same); return err }},
		{Verb: "add", Changes: true, Do: func(ctx context.Context) error { _, err := m.Add(ctx, "a", 1); return err }},
		{Verb: "expire", Changes: true, Do: func(ctx context.Context) error { _, err := m.Expire(ctx, time.Hour); return err }},
		{Verb: "persist", Changes: true, Do: func(ctx context.Context) error { _, err := m.Persist(ctx); return err }},
		{Verb: "ttl", Do: func(ctx context.Context) error { _, err := m.TTL(ctx); return err }},
		{Verb: "info", Do: func(ctx context.Context) error { _, err := m.Info(ctx); return err }},
		{Verb: "compare and delete", Changes: true, Do: func(ctx context.Context) error { _, err := m.CompareAndDelete(ctx, "a", 1); return err }},
		{Verb: "pop", Changes: true, Do: func(ctx context.Context) error { _, _, err := m.Pop(ctx, "a"); return err }},
		{Verb: "remove", Changes: true, Do: func(ctx context.Context) error { _, err := m.Remove(ctx, "a"); return err }},
		{Verb: "delete", Changes: true, Do: func(ctx context.Context) error { _, err := m.Delete(ctx); return err }},
	}
}

// F2, F33
func TestMapIsAnObjectOfTheGrid(t *testing.T) {
	gridtest.Suite(t, "rmap", "hash", func(c *redlatch.Client, name string) []gridtest.Call { return calls(c, name) })
}

// F2
func TestMapEqualsItsModel(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) { equalsModel(t, p, rmap.New[int, int](p.Client, "m")) })
}

func TestNearMapEqualsItsModel(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		m := rmap.New[int, int](p.Client, "m", rmap.WithNear(2), rmap.WithMaxStale(time.Hour))
		equalsModel(t, p, m)
		assert.NotZero(t, m.NearStats().Hits)
	})
}

// equalsModel makes random calls. After one whose reply was lost it waits until its message must have come.
func equalsModel(t *testing.T, p *gridtest.Place, m *rmap.Map[int, int]) {
	is := map[int]int{}
	type found = gridtest.Found[int]
	get := func(k int) found { v, ok := is[k]; return found{Value: v, OK: ok} }
	set := func(k, v int, ok bool) any {
		if ok {
			is[k] = v
		}
		return ok
	}
	// op returns an operation on a random key with random values.
	op := func(name string, do func(ctx context.Context, k, old, v int) (any, error), model func(k, old, v int) any) func(r *rand.Rand) gridtest.Op {
		return func(r *rand.Rand) gridtest.Op {
			k, old, v := r.IntN(4), r.IntN(3), r.IntN(3)
			return gridtest.Change(fmt.Sprint(name, " ", k, old, v), func(ctx context.Context) (any, error) {
				result, err := do(ctx, k, old, v)
				if errors.Is(err, redlatch.ErrUnknown) && m.NearStats() != (rmap.NearStats{}) {
					catchUp(t, p, m.NearStats)
				}
				return result, err
			},
				func() any { return model(k, old, v) })
		}
	}
	read := func(of func(r *rand.Rand) gridtest.Op) func(r *rand.Rand) gridtest.Op {
		return func(r *rand.Rand) gridtest.Op { o := of(r); o.Changes = false; return o }
	}
	all := func(ctx context.Context) (any, error) {
		found := map[int]int{}
		for e, err := range m.All(ctx) {
			if err != nil {
				return nil, err
			}
			found[e.Key] = e.Value
		}
		return found, nil
	}
	kinds := []func(r *rand.Rand) gridtest.Op{
		read(op("Get", func(ctx context.Context, k, _, _ int) (any, error) { return gridtest.Maybe(m.Get(ctx, k)) }, func(k, _, _ int) any { return get(k) })),
		read(op("Has", func(ctx context.Context, k, _, _ int) (any, error) { return gridtest.Any(m.Has(ctx, k)) }, func(k, _, _ int) any { return get(k).OK })),
		read(op("Len", func(ctx context.Context, _, _, _ int) (any, error) { return gridtest.Any(m.Len(ctx)) }, func(_, _, _ int) any { return len(is) })),
		read(op("GetAll", func(ctx context.Context, k, _, _ int) (any, error) {
			return gridtest.Any(m.GetAll(ctx, []int{k, k + 1}))
		}, func(k, _, _ int) any {
			two := map[int]int{}
			for _, k := range []int{k, k + 1} {
				if v, ok := is[k]; ok {
					two[k] = v
				}
			}
			return two
		})),
		read(op("All", func(ctx context.Context, _, _, _ int) (any, error) { return all(ctx) }, func(_, _, _ int) any { return maps.Clone(is) })),
		op("Set", func(ctx context.Context, k, _, v int) (any, error) { return true, m.Set(ctx, k, v) }, func(k, _, v int) any { return set(k, v, true) }),
		op("SetAll", func(ctx context.Context, k, old, v int) (any, error) {
			return true, m.SetAll(ctx, map[int]int{k: v, k + 1: old})
		}, func(k, old, v int) any { set(k, v, true); return set(k+1, old, true) }),
		op("SetIfAbsent", func(ctx context.Context, k, _, v int) (any, error) { return gridtest.Any(m.SetIfAbsent(ctx, k, v)) }, func(k, _, v int) any { return set(k, v, !get(k).OK) }),
		op("SetIfPresent", func(ctx context.Context, k, _, v int) (any, error) { return gridtest.Any(m.SetIfPresent(ctx, k, v)) }, func(k, _, v int) any { return set(k, v, get(k).OK) }),
		op("Swap", func(ctx context.Context, k, _, v int) (any, error) { return gridtest.Maybe(m.Swap(ctx, k, v)) }, func(k, _, v int) any { old := get(k); is[k] = v; return old }),
		op("CompareAndSwap", func(ctx context.Context, k, old, v int) (any, error) {
			return gridtest.Any(m.CompareAndSwap(ctx, k, old, v))
		}, func(k, old, v int) any { return set(k, v, get(k) == found{Value: old, OK: true}) }),
		op("Add", func(ctx context.Context, k, _, v int) (any, error) { return gridtest.Any(m.Add(ctx, k, v-1)) }, func(k, _, v int) any { is[k] += v - 1; return is[k] }),
		op("Pop", func(ctx context.Context, k, _, _ int) (any, error) { return gridtest.Maybe(m.Pop(ctx, k)) }, func(k, _, _ int) any { old := get(k); delete(is, k); return old }),
		op("CompareAndDelete", func(ctx context.Context, k, old, _ int) (any, error) {
			return gridtest.Any(m.CompareAndDelete(ctx, k, old))
		}, func(k, old, _ int) any {
			ok := get(k) == found{Value: old, OK: true}
			if ok {
				delete(is, k)
			}
			return ok
		}),
		op("Remove", func(ctx context.Context, k, _, _ int) (any, error) { return gridtest.Any(m.Remove(ctx, k, k+1)) }, func(k, _, _ int) any {
			before := len(is)
			delete(is, k)
			delete(is, k+1)
			return before - len(is)
		}),
		op("Delete", func(ctx context.Context, _, _, _ int) (any, error) { return gridtest.Any(m.Delete(ctx)) }, func(_, _, _ int) any { had := len(is) > 0; clear(is); return had }),
	}
	gridtest.Model(t, p, 600, kinds, func(ctx context.Context) (any, any) {
		want := map[string]string{}
		for k, v := range is {
			want[fmt.Sprint(k)] = fmt.Sprint(v)
		}
		return p.Redis.HGetAll(ctx, "m").Val(), want
	})
}

// catchUp waits until a client has every message that was published for a near map, by one about a thousand keys.
func catchUp(t *testing.T, p *gridtest.Place, stats func() rmap.NearStats) {
	t.Helper()
	marker := "\x01" + strings.Repeat("\xca", 16) + "\x00\x00\x03\xe8" + strings.Repeat("\x00", 1000*16)
	before := stats().Invalidations
	redistest.Eventually(t, 10*time.Second, "the message", func() error {
		if err := p.Redis.Publish(t.Context(), "{m}:topic", marker).Err(); err != nil || stats().Invalidations >= before+1000 {
			return err
		}
		return errNotYet
	})
}

// withTTLs returns a map on a server that has times to live of entries.
func withTTLs(t *testing.T, p *gridtest.Place) *rmap.Map[string, string] {
	m := rmap.New[string, string](p.Client, "m")
	if _, err := m.ExpireEntry(t.Context(), "a", time.Hour); errors.Is(err, redlatch.ErrUnsupported) {
		redistest.Skip(t, "the server has no times to live of hash fields")
	}
	return m
}

func TestEntriesHaveTimesToLive(t *testing.T) {
	gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
		m, ctx := withTTLs(t, p), t.Context()
		left := func() time.Duration {
			d, ok, err := m.EntryTTL(ctx, "a")
			require.NoError(t, err)
			require.True(t, ok)
			return d.Round(time.Minute)
		}
		_, ok, err := m.EntryTTL(ctx, "a")
		require.NoError(t, err)
		assert.False(t, ok)
		ok, err = m.ExpireEntry(ctx, "a", time.Hour)
		require.NoError(t, err)
		assert.False(t, ok)
		require.NoError(t, m.Set(ctx, "a", "1", rmap.WithTTL(time.Hour)))
		assert.Equal(t, time.Hour, left())
		require.NoError(t, m.Set(ctx, "a", "1", rmap.WithTTL(2*time.Hour)))
		assert.Equal(t, 2*time.Hour, left())
		_, _, err = m.Swap(ctx, "a", "2")
		require.NoError(t, err)
		_, err = m.CompareAndSwap(ctx, "a", "2", "3")
		require.NoError(t, err)
		_, err = m.Update(ctx, "a", func(string, bool) (string, error) { return "4", nil })
		require.NoError(t, err)
		_, err = rmap.New[string, int](p.Client, "m").Add(ctx, "a", 1)
		require.NoError(t, err)
		assert.Equal(t, 2*time.Hour, left(), "they keep it")
		ok, err = m.ExpireEntry(ctx, "a", 3*time.Hour)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, 3*time.Hour, left())
		ok, err = m.SetIfPresent(ctx, "a", "6")
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, time.Duration(0), left(), "none")
		ok, err = m.SetIfAbsent(ctx, "b", "1", rmap.WithTTL(time.Millisecond))
		require.NoError(t, err)
		assert.True(t, ok)
		redistest.Eventually(t, 10*time.Second, "it is over", func() error {
			if ok, err := m.Has(ctx, "b"); ok || err != nil {
				return fmt.Errorf("%t %w", ok, err)
			}
			return nil
		})
	})
}

// The server still finds an entry in its last millisecond, but says that it has no time to live.
func TestChangeInTheLastMillisecondOfAnEntryKeepsItsTime(t *testing.T) {
	gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
		m, ctx := withTTLs(t, p), t.Context()
		for range 20 {
			require.NoError(t, m.Set(ctx, "a", "1", rmap.WithTTL(20*time.Millisecond)))
			began, there := time.Now(), true
			for there && time.Since(began) < 10*time.Second {
				var err error
				there, err = m.CompareAndSwap(ctx, "a", "1", "1")
				require.NoError(t, err)
			}
			require.False(t, there, "it is over")
		}
	})
}

func TestServerWithoutTimesOfEntriesIsErrUnsupported(t *testing.T) {
	gridtest.InMemory(t, func(t *testing.T, p *gridtest.Place) {
		ctx, m := t.Context(), rmap.New[string, string](p.Client, "m")
		require.ErrorIs(t, m.Set(ctx, "a", "1", rmap.WithTTL(time.Hour)), redlatch.ErrUnsupported)
		_, err := m.ExpireEntry(ctx, "a", time.Hour)
		require.ErrorIs(t, err, redlatch.ErrUnsupported)
		assert.Empty(t, p.Redis.Keys(ctx, "*").Val(), "nothing was set")
	})
	t.Run("server", func(t *testing.T) {
		gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
			ctx, m := t.Context(), rmap.New[string, string](p.Client, "m")
			_, err := m.ExpireEntry(ctx, "a", time.Hour)
			if err == nil {
				redistest.Skip(t, "the server has them")
			}
			require.ErrorContains(t, err, `rmap: expire entry "m": the server is too old for this call: times to live of entries need Redis 7.4 or Valkey 9: ERR unknown command`)
			_, _, err = m.EntryTTL(ctx, "a")
			require.ErrorIs(t, err, redlatch.ErrUnsupported)
			require.ErrorIs(t, m.Set(ctx, "a", "1", rmap.WithTTL(time.Hour), rmap.WithFence(1)), redlatch.ErrUnsupported)
			assert.Empty(t, p.Redis.Keys(ctx, "*").Val(), "nothing was set")
		})
	})
}

// Errors that a server counts make somebody look.
func TestServerWithoutTimesOfEntriesIsNotAskedForThem(t *testing.T) {
	gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
		ctx, near := t.Context(), rmap.New[string, int](p.Client, "m", rmap.WithNear(9))
		require.NoError(t, near.Set(ctx, "a", 1))
		_, _, err := near.Get(ctx, "b")
		require.NoError(t, err)
		redistest.AwaitSubscribers(t, p.Redis, "{m}:topic", 1) // its connection has asked for all that it asks for
		require.NoError(t, p.Redis.ConfigResetStat(ctx).Err())
		for _, m := range []*rmap.Map[string, int]{rmap.New[string, int](p.Client, "m"), near} {
			_, _, err := m.Swap(ctx, "a", 1)
			require.NoError(t, err)
			_, err = m.CompareAndSwap(ctx, "a", 1, 2)
			require.NoError(t, err)
			_, err = m.Update(ctx, "a", func(v int, _ bool) (int, error) { return v, nil })
			require.NoError(t, err)
			_, _, err = m.Get(ctx, "a")
			require.NoError(t, err)
			_, err = m.GetAll(ctx, []string{"a", "b"})
			require.NoError(t, err)
		}
		count := func(section, of string) (n int) {
			info, err := p.Redis.Info(ctx, section).Result()
			require.NoError(t, err)
			if _, rest, found := strings.Cut(info, of); found {
				_, err = fmt.Sscan(rest, &n)
				require.NoError(t, err)
			}
			return n
		}
		refused := count("errorstats", "errorstat_ERR:count=")
		assert.LessOrEqual(t, refused, count("stats", "total_connections_received:"), "a new connection asks for what an old server lacks")
	})
}

// F1
func TestLowerTokensAreFencedOff(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		ctx, m := t.Context(), rmap.New[string, int](p.Client, "m")
		require.NoError(t, m.Set(ctx, "a", 1, rmap.WithFence(10)))
		low := rmap.WithFence(9)
		require.ErrorIs(t, m.Set(ctx, "b", 1, low), redlatch.ErrFenced)
		_, err := m.SetIfAbsent(ctx, "b", 1, low)
		require.ErrorIs(t, err, redlatch.ErrFenced)
		_, err = m.SetIfPresent(ctx, "a", 2, low)
		require.ErrorIs(t, err, redlatch.ErrFenced)
		_, err = m.CompareAndSwap(ctx, "a", 1, 2, low)
		require.ErrorIs(t, err, redlatch.ErrFenced)
		_, err = m.Update(ctx, "a", func(int, bool) (int, error) { return 2, nil }, low)
		require.ErrorIs(t, err, redlatch.ErrFenced)
		assert.Equal(t, map[string]string{"a": "1"}, p.Redis.HGetAll(ctx, "m").Val())
	})
}

// F34
func TestBigMapsGoInSteps(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		ctx, m, all := t.Context(), rmap.New[int, string](p.Client, "m"), map[int]string{}
		var keys []int
		for i := range 2500 {
			all[i], keys = strings.Repeat("x", i%7), append(keys, i)
		}
		require.NoError(t, m.SetAll(ctx, all))
		got, err := m.GetAll(ctx, append(keys, -1))
		require.NoError(t, err)
		assert.Equal(t, all, got)
		found, before := map[int]string{}, p.Calls()
		for e, err := range m.All(ctx) {
			require.NoError(t, err)
			found[e.Key] = e.Value
		}
		assert.Equal(t, all, found)
		assert.Positive(t, p.Calls()-before)
		for _, err := range m.All(ctx) {
			require.NoError(t, err)
			break
		}
		n, err := m.Remove(ctx, keys...)
		require.NoError(t, err)
		assert.Equal(t, len(keys), n)
		require.NoError(t, m.SetAll(ctx, map[int]string{1: strings.Repeat("x", 900<<10), 2: strings.Repeat("y", 900<<10)}))
		n, err = m.Len(ctx)
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		require.NoError(t, m.SetAll(ctx, nil))
	})
}

func TestIterationEndsWithItsFirstError(t *testing.T) {
	gridtest.InMemory(t, func(t *testing.T, p *gridtest.Place) {
		require.NoError(t, p.Redis.HSet(t.Context(), "m", "a", "x", "b", "y").Err())
		n := 0
		for _, err := range rmap.New[string, int](p.Client, "m").All(t.Context()) {
			n++
			require.ErrorIs(t, err, codec.ErrDecode)
		}
		assert.Equal(t, 1, n)
	})
}

func TestAddIsForNumbersInDecimal(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		ctx := t.Context()
		f, err := rmap.New[string, float64](p.Client, "f").Add(ctx, "a", 1.5)
		require.NoError(t, err)
		assert.Equal(t, 1.5, f)
		g, err := rmap.New[string, float32](p.Client, "f").Add(ctx, "b", 0.1)
		require.NoError(t, err)
		assert.Equal(t, float32(0.1), g)
		u, err := rmap.New[string, uint8](p.Client, "u", rmap.WithCodec(codec.JSON{})).Add(ctx, "a", 250)
		require.NoError(t, err)
		assert.Equal(t, uint8(250), u)
		_, err = rmap.New[string, uint8](p.Client, "u").Add(ctx, "a", 250)
		require.ErrorIs(t, err, codec.ErrDecode)
		_, err = rmap.New[string, float64](p.Client, "f").Add(ctx, "c", math.MaxFloat64)
		require.NoError(t, err)
		_, err = rmap.New[string, float64](p.Client, "f").Add(ctx, "c", math.MaxFloat64)
		require.ErrorIs(t, err, codec.ErrDecode)
		require.NoError(t, rmap.New[string, string](p.Client, "d").Set(ctx, "b", "x"))
		_, err = rmap.New[string, int](p.Client, "d").Add(ctx, "b", 1)
		require.ErrorIs(t, err, codec.ErrDecode)
		_, err = rmap.New[string, float64](p.Client, "d").Add(ctx, "b", 1)
		require.ErrorIs(t, err, codec.ErrDecode)
		d, err := rmap.New[string, time.Duration](p.Client, "d").Add(ctx, "a", time.Second)
		require.NoError(t, err)
		assert.Equal(t, time.Second, d)
	})
}

func TestTextsOfErrors(t *testing.T) {
	gridtest.InMemory(t, func(t *testing.T, p *gridtest.Place) {
		ctx, m := t.Context(), rmap.New[string, string](p.Client, "m")
		_, notNumber := m.Add(ctx, "a", "1")
		_, packed := rmap.New[string, int](p.Client, "m", rmap.WithCodec(codec.MsgPack{})).Add(ctx, "a", 48)
		_, nan := rmap.New[string, float64](p.Client, "m").Add(ctx, "a", math.NaN())
		_, expire := m.ExpireEntry(ctx, "a", 0)
		_, _, long := m.Get(ctx, strings.Repeat("x", 64<<10+1))
		invalid := map[string]error{
			`rmap: add "m": invalid argument: a string is no number`:                                                                              notNumber,
			`rmap: add "m": invalid argument: the codec does not write a int in decimal`:                                                          packed,
			`rmap: add "m": invalid argument: value cannot be encoded: codec.Text on a float64: the number is not finite`:                         nan,
			`rmap: expire entry "m": invalid argument: the TTL 0s is not between 1ms and 100 years`:                                               expire,
			`rmap: get "m": invalid argument: the encoded key has 65537 bytes, more than 65536`:                                                   long,
			`rmap: set "m": invalid argument: an option is nil`:                                                                                   m.Set(ctx, "a", "b", nil),
			`rmap: set "m": invalid argument: the token -1 is below 1: a hold of a plain lock has none, use a fenced lock (Client.GetFencedLock)`: m.Set(ctx, "a", "b", rmap.WithFence(-1)),
			`rmap: set all "m": invalid argument: the encoded value has 2 bytes, more than 1`:                                                     rmap.New[int, string](p.Client, "m", rmap.WithMaxValue(1)).SetAll(ctx, map[int]string{1: "x", 2: "xx"}),
			`rmap: len "m": invalid argument: the codec is nil`:                                                                                   lenOf(ctx, rmap.New[int, int](p.Client, "m", rmap.WithKeyCodec(nil))),
		}
		for want, err := range invalid {
			assert.EqualError(t, err, want)
			assert.ErrorIs(t, err, redlatch.ErrInvalid)
		}
		assert.Zero(t, p.Calls())
		require.NoError(t, m.Set(ctx, "a", "x"))
		_, decode := rmap.New[string, int](p.Client, "m").GetAll(ctx, []string{"a"})
		assert.EqualError(t, decode, `rmap: get all "m": bytes cannot be decoded: codec.Text into a *int: invalid syntax`)
	})
}

// What two keys would share an entry by, as their bytes are the same.
func TestKeysThatCannotBeToldApartAreErrInvalid(t *testing.T) {
	type pair struct{ A, b int } //nolint:unused // that is the case
	type point struct{ X, Y float64 }
	type named struct {
		point
		S string
		_ int
	}
	gridtest.InMemory(t, func(t *testing.T, p *gridtest.Place) {
		ctx := t.Context()
		require.ErrorIs(t, rmap.New[named, int](p.Client, "m").Set(ctx, named{S: "\xff"}, 1), redlatch.ErrInvalid)
		left := ": JSON leaves it out, so that keys which differ by it alone would be one"
		for want, err := range map[string]error{
			"the key has the field A.b": setZero(ctx, rmap.New[struct{ A pair }, int](p.Client, "m")),
			"the key has the field b":   setZero(ctx, rmap.New[[2]pair, int](p.Client, "m")),
			"the key has the field X": setZero(ctx, rmap.New[struct {
				X int `json:"-"`
			}, int](p.Client, "m", rmap.WithKeyCodec(codec.JSON{}))),
		} {
			require.EqualError(t, err, `rmap: set "m": invalid argument: `+want+left)
		}
		assert.Zero(t, p.Calls())

		m := rmap.New[named, int](p.Client, "m")
		require.NoError(t, m.SetAll(ctx, map[named]int{{point{1, 2}, "a", 0}: 1, {point{1, 3}, "a", 0}: 2}))
		n, err := m.Len(ctx)
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		require.NoError(t, setZero(ctx, rmap.New[netip.Addr, time.Time](p.Client, "m")), "they have a text")
		require.NoError(t, setZero(ctx, rmap.New[struct{}, pair](p.Client, "m")), "as a value JSON may leave out what it does")
	})
}

func setZero[K comparable, V any](ctx context.Context, m *rmap.Map[K, V]) error {
	var k K
	var v V
	return m.Set(ctx, k, v)
}

func lenOf[K comparable, V any](ctx context.Context, m *rmap.Map[K, V]) error {
	_, err := m.Len(ctx)
	return err
}

// F34: each method over a map of a million entries takes the server no more than 5 ms a call.
func TestNoCallOverABigMapHoldsTheServerUp(t *testing.T) {
	redistest.Long(t)
	gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
		for _, opts := range [][]rmap.Option{nil, {rmap.WithNear(100)}} {
			gridtest.Fill(t, p, "big", "hset", 1_000_000, func(i int) []any { return []any{i, i} })
			gridtest.NoLongCalls(t, p, "big", func(c *redlatch.Client, name string) []gridtest.Call {
				return append(longestCalls(c, name, opts...), calls(c, name, opts...)...)
			})
		}
	})
}

// longestCalls are calls of as many elements as a round trip has, of a map of a million.
func longestCalls(c *redlatch.Client, name string, opts ...rmap.Option) []gridtest.Call {
	m, keys, all := rmap.New[string, int](c, name, opts...), gridtest.Thousand(), map[string]int{}
	for i, k := range keys {
		all[k] = i
	}
	return []gridtest.Call{
		{Verb: "get all, 1,000", Do: func(ctx context.Context) error { _, err := m.GetAll(ctx, keys); return err }},
		{Verb: "set all, 1,000", Do: func(ctx context.Context) error { return m.SetAll(ctx, all) }},
		{Verb: "remove, 1,000", Do: func(ctx context.Context) error { _, err := m.Remove(ctx, keys...); return err }},
	}
}
