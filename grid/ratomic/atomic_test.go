package ratomic_test

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/grid/ratomic"
	"github.com/redlatch/redlatch/internal/test/gridtest"
)

// number is what both kinds have.
type number[T int64 | float64] interface {
	Load(ctx context.Context) (T, error)
	Store(ctx context.Context, v T) error
	Swap(ctx context.Context, v T) (T, error)
	Add(ctx context.Context, delta T) (T, error)
	CompareAndSwap(ctx context.Context, old, v T) (bool, error)
	StoreIfGreater(ctx context.Context, v T) (bool, error)
	StoreIfLess(ctx context.Context, v T) (bool, error)
	AddWithin(ctx context.Context, delta, least, most T) (T, bool, error)
	Delete(ctx context.Context) (bool, error)
	Expire(ctx context.Context, d time.Duration) (bool, error)
	Persist(ctx context.Context) (bool, error)
	TTL(ctx context.Context) (time.Duration, error)
	Info(ctx context.Context) (ratomic.Info, error)
	Name() string
	Key() string
}

func calls[T int64 | float64](of func(c *redlatch.Client, name string) number[T]) func(c *redlatch.Client, name string) []gridtest.Call {
	return func(c *redlatch.Client, name string) []gridtest.Call {
		n := of(c, name)
		return []gridtest.Call{
			{Verb: "store", Changes: true, Do: func(ctx context.Context) error { return n.Store(ctx, 1) }},
			{Verb: "load", Do: func(ctx context.Context) error { _, err := n.Load(ctx); return err }},
			{Verb: "swap", Changes: true, Do: func(ctx context.Context) error { _, err := n.Swap(ctx, 1); return err }},
			{Verb: "add", Changes: true, Do: func(ctx context.Context) error { _, err := n.Add(ctx, 1); return err }},
			{Verb: "compare and swap", Changes: true, Do: func(ctx context.Context) error { _, err := n.CompareAndSwap(ctx, 1, 2); return err }},
			{Verb: "store if greater", Changes: true, Do: func(ctx context.Context) error { _, err := n.StoreIfGreater(ctx, 1); return err }},
			{Verb: "store if less", Changes: true, Do: func(ctx context.Context) error { _, err := n.StoreIfLess(ctx, 1); return err }},
			{Verb: "add within", Changes: true, Do: func(ctx context.Context) error { _, _, err := n.AddWithin(ctx, 1, 0, 9); return err }},
			{Verb: "expire", Changes: true, Do: func(ctx context.Context) error { _, err := n.Expire(ctx, time.Hour); return err }},
			{Verb: "persist", Changes: true, Do: func(ctx context.Context) error { _, err := n.Persist(ctx); return err }},
			{Verb: "ttl", Do: func(ctx context.Context) error { _, err := n.TTL(ctx); return err }},
			{Verb: "info", Do: func(ctx context.Context) error { _, err := n.Info(ctx); return err }},
			{Verb: "delete", Changes: true, Do: func(ctx context.Context) error { _, err := n.Delete(ctx); return err }},
		}
	}
}

func newInt64(c *redlatch.Client, name string) number[int64] { return ratomic.NewInt64(c, name) }

func newFloat64(c *redlatch.Client, name string) number[float64] { return ratomic.NewFloat64(c, name) }

// F2, F33
func TestInt64IsAnObjectOfTheGrid(t *testing.T) {
	gridtest.Suite(t, "ratomic", "string", calls(newInt64))
}

// F2, F33
func TestFloat64IsAnObjectOfTheGrid(t *testing.T) {
	gridtest.Suite(t, "ratomic", "string", calls(newFloat64))
}

// edge are numbers at which texts, doubles or sums of 64 bits go wrong.
var edge = []int64{
	0, 1, -1, 9, 10, 11, -9, -10, -11, 1 << 53, 1<<53 + 1, -1<<53 - 1, math.MaxInt64, math.MaxInt64 - 1, math.MinInt64, math.MinInt64 + 1,
}

func ofEdge(r *rand.Rand) int64 { return edge[r.IntN(len(edge))] }

// F2
func TestInt64EqualsItsModel(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		model(t, p, newInt64(p.Client, "n"), ofEdge, func(r *rand.Rand) int64 { return r.Int64N(100) - 50 }, func(a, b int64) bool {
			sum := new(big.Int).Add(big.NewInt(a), big.NewInt(b))
			return sum.IsInt64()
		})
	})
}

// F2
func TestFloat64EqualsItsModel(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		some := []float64{0, 0.5, -0.5, 1e10, -1e10, 0.25, 1 << 40}
		model(t, p, newFloat64(p.Client, "n"), func(r *rand.Rand) float64 { return some[r.IntN(len(some))] },
			func(r *rand.Rand) float64 { return float64(r.IntN(9)) / 4 }, func(float64, float64) bool { return true })
	})
}

func model[T int64 | float64](t *testing.T, p *gridtest.Place, n number[T], pick, small func(r *rand.Rand) T, adds func(a, b T) bool) {
	var is T
	set := func(v T, ok bool) any {
		if ok {
			is = v
		}
		return ok
	}
	gridtest.Model(t, p, 600, []func(r *rand.Rand) gridtest.Op{
		func(*rand.Rand) gridtest.Op {
			return gridtest.Read("Load", func(ctx context.Context) (any, error) { return gridtest.Any(n.Load(ctx)) }, func() any { return is })
		},
		func(r *rand.Rand) gridtest.Op {
			v := pick(r)
			return gridtest.Change("Store", func(ctx context.Context) (any, error) { return true, n.Store(ctx, v) }, func() any { return set(v, true) })
		},
		func(r *rand.Rand) gridtest.Op {
			v := pick(r)
			return gridtest.Change("Swap", func(ctx context.Context) (any, error) { return gridtest.Any(n.Swap(ctx, v)) },
				func() any { old := is; is = v; return old })
		},
		func(r *rand.Rand) gridtest.Op {
			delta := small(r)
			if !adds(is, delta) {
				delta = 0
			}
			return gridtest.Change("Add", func(ctx context.Context) (any, error) { return gridtest.Any(n.Add(ctx, delta)) },
				func() any { is += delta; return is })
		},
		func(r *rand.Rand) gridtest.Op {
			old, v := pick(r), pick(r)
			if r.IntN(2) == 0 {
				old = is
			}
			return gridtest.Change(fmt.Sprint("CompareAndSwap ", old, " ", v), func(ctx context.Context) (any, error) { return gridtest.Any(n.CompareAndSwap(ctx, old, v)) },
				func() any { return set(v, is == old) })
		},
		func(r *rand.Rand) gridtest.Op {
			v := pick(r)
			return gridtest.Change(fmt.Sprint("StoreIfGreater ", v), func(ctx context.Context) (any, error) { return gridtest.Any(n.StoreIfGreater(ctx, v)) },
				func() any { return set(v, v > is) })
		},
		func(r *rand.Rand) gridtest.Op {
			v := pick(r)
			return gridtest.Change(fmt.Sprint("StoreIfLess ", v), func(ctx context.Context) (any, error) { return gridtest.Any(n.StoreIfLess(ctx, v)) },
				func() any { return set(v, v < is) })
		},
		func(r *rand.Rand) gridtest.Op {
			delta, least, most := pick(r), pick(r), pick(r)
			least, most = min(least, most), max(least, most)
			return gridtest.Change(fmt.Sprint("AddWithin ", delta, least, most), func(ctx context.Context) (any, error) { return gridtest.Maybe(n.AddWithin(ctx, delta, least, most)) },
				func() any {
					ok := adds(is, delta) && is+delta >= least && is+delta <= most
					if ok {
						is += delta
					}
					return gridtest.Found[T]{Value: is, OK: ok}
				})
		},
	}, func(ctx context.Context) (any, any) {
		v, err := n.Load(ctx)
		require.NoError(t, err)
		return v, is
	})
}

func TestNumbersKeepTheirTTL(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		ctx, n := t.Context(), ratomic.NewFloat64(p.Client, "n")
		require.NoError(t, n.Store(ctx, 1))
		_, err := n.Expire(ctx, time.Hour)
		require.NoError(t, err)
		_, err = n.StoreIfGreater(ctx, 5)
		require.NoError(t, err)
		_, ok, err := n.AddWithin(ctx, 1, 0, 5)
		require.NoError(t, err)
		assert.False(t, ok, "it is taken back")
		_, err = n.Swap(ctx, 2)
		require.NoError(t, err)
		d, err := n.TTL(ctx)
		require.NoError(t, err)
		assert.Equal(t, time.Hour, d.Round(time.Minute))
		_, ok, err = ratomic.NewFloat64(p.Client, "other").AddWithin(ctx, 1, 5, math.Inf(1))
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Zero(t, p.Redis.Exists(ctx, "other").Val())
	})
}

// What the server adds with more digits than a float64 has.
func TestDecimalSumsAreThoseOfTheServer(t *testing.T) {
	gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
		ctx, n := t.Context(), ratomic.NewFloat64(p.Client, "n")
		require.NoError(t, n.Store(ctx, 0.1))
		sum, ok, err := n.AddWithin(ctx, 0.2, 0, 0.3)
		require.NoError(t, err)
		assert.True(t, ok)
		assert.Equal(t, 0.3, sum)
		require.NoError(t, p.Redis.Set(ctx, "n", "0.30000000000000000001", 0).Err())
		ok, err = n.CompareAndSwap(ctx, 0.3, 1)
		require.NoError(t, err)
		assert.True(t, ok, "they are one float64")
	})
}

func TestSumsThatAreInfiniteChangeNothing(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		ctx, n := t.Context(), ratomic.NewFloat64(p.Client, "n")
		for _, most := range []float64{math.MaxFloat64, -math.MaxFloat64} {
			require.NoError(t, n.Store(ctx, most))
			_, err := n.Add(ctx, most)
			require.EqualError(t, err, `ratomic: add "n": the sum is infinite`)
			for range 3 {
				sum, err := n.Add(ctx, math.Copysign(1e200, most))
				require.NoError(t, err)
				assert.Equal(t, most, sum)
			}
			sum, err := n.Add(ctx, math.Copysign(1e300, -most))
			require.NoError(t, err)
			assert.Equal(t, most-math.Copysign(1e300, most), sum)
			sum, err = n.Add(ctx, -sum)
			require.NoError(t, err)
			assert.Zero(t, sum)
		}
	})
}

func TestTextsOfErrors(t *testing.T) {
	gridtest.InMemory(t, func(t *testing.T, p *gridtest.Place) {
		ctx, n, f := t.Context(), ratomic.NewInt64(p.Client, "n"), ratomic.NewFloat64(p.Client, "n")
		_, _, crossed := n.AddWithin(ctx, 1, 2, 1)
		_, _, nan := f.AddWithin(ctx, 1, math.NaN(), 1)
		require.Zero(t, p.Calls())
		require.NoError(t, n.Store(ctx, math.MaxInt64))
		_, overflow := n.Add(ctx, 1)
		require.NoError(t, p.Redis.Set(ctx, "n", "x", 0).Err())
		_, decode := n.Load(ctx)
		_, foreign := n.StoreIfLess(ctx, 0)
		_, foreignAdd := n.Add(ctx, 1)
		_, foreignFloatAdd := f.Add(ctx, 1)
		_, foreignFloat := f.StoreIfLess(ctx, 0)
		for want, err := range map[string]error{
			`ratomic: add within "n": invalid argument: 2 is above 1`:                                                          crossed,
			`ratomic: add within "n": invalid argument: a bound is NaN`:                                                        nan,
			`ratomic: add "n": ERR increment or decrement would overflow`:                                                      overflow,
			`ratomic: load "n": bytes cannot be decoded: codec.Text into a *int64: invalid syntax`:                             decode,
			`ratomic: store if less "n": bytes cannot be decoded: ERR value is not an integer or out of range`:                 foreign,
			`ratomic: add "n": bytes cannot be decoded: ERR value is not an integer or out of range`:                           foreignAdd,
			`ratomic: store if less "n": bytes cannot be decoded: ERR value is not a valid float`:                              foreignFloat,
			`ratomic: store "n": invalid argument: value cannot be encoded: codec.Text on a float64: the number is not finite`: f.Store(ctx, math.Inf(1)),
		} {
			assert.EqualError(t, err, want)
		}
		assert.ErrorIs(t, crossed, redlatch.ErrInvalid)
		for _, err := range []error{decode, foreign, foreignAdd, foreignFloat, foreignFloatAdd} {
			assert.ErrorIs(t, err, codec.ErrDecode)
		}
	})
}
