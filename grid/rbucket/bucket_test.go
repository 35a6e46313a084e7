package rbucket_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/grid/rbucket"
	"github.com/redlatch/redlatch/internal/test/gridtest"
)

func calls(c *redlatch.Client, name string) []gridtest.Call {
	b := rbucket.New[int](c, name)
	same := func(v int, _ bool) (int, error) { return v, nil }
	return []gridtest.Call{
		{Verb: "set", Changes: true, Do: func(ctx context.Context) error { return b.Set(ctx, 1) }},
		{Verb: "get", Do: func(ctx context.Context) error { _, _, err := b.Get(ctx); return err }},
		{Verb: "set", Changes: true, Do: func(ctx context.Context) error { return b.Set(ctx, 1, rbucket.WithFence(1), rbucket.KeepTTL()) }},
		{Verb: "set if absent", Changes: true, Do: func(ctx context.Context) error { _, err := b.SetIfAbsent(ctx, 1); return err }},
		{Verb: "set if present", Changes: true, Do: func(ctx context.Context) error { _, err := b.SetIfPresent(ctx, 1); return err }},
		{Verb: "swap", Changes: true, Do: func(ctx context.Context) error { _, _, err := b.Swap(ctx, 1); return err }},
		{Verb: "compare and swap", Changes: true, Do: func(ctx context.Context) error { _, err := b.CompareAndSwap(ctx, 1, 2); return err }},
		{Verb: "update", Do: func(ctx context.Context) error { _, err := b.Update(ctx, same); return err }},
		{Verb: "expire", Changes: true, Do: func(ctx context.Context) error { _, err := b.Expire(ctx, time.Hour); return err }},
		{Verb: "persist", Changes: true, Do: func(ctx context.Context) error { _, err := b.Persist(ctx); return err }},
		{Verb: "ttl", Do: func(ctx context.Context) error { _, err := b.TTL(ctx); return err }},
		{Verb: "info", Do: func(ctx context.Context) error { _, err := b.Info(ctx); return err }},
		{Verb: "compare and delete", Changes: true, Do: func(ctx context.Context) error { _, err := b.CompareAndDelete(ctx, 1); return err }},
		{Verb: "pop", Changes: true, Do: func(ctx context.Context) error { _, _, err := b.Pop(ctx); return err }},
		{Verb: "delete", Changes: true, Do: func(ctx context.Context) error { _, err := b.Delete(ctx); return err }},
	}
}

// F2, F33
func TestBucketIsAnObjectOfTheGrid(t *testing.T) { gridtest.Suite(t, "rbucket", "string", calls) }

// result is what a call returns besides its error.
type result struct {
	v  int
	ok bool
}

// F2
func TestBucketEqualsItsModel(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		b := rbucket.New[int](p.Client, "b")
		var is result // of the model
		set := func(v int, ok bool) any {
			if ok {
				is = result{v, true}
			}
			return ok
		}
		kinds := []func(r *rand.Rand) gridtest.Op{
			func(*rand.Rand) gridtest.Op {
				return gridtest.Op{
					Name: "Get",
					Do:   func(ctx context.Context) (any, error) { v, ok, err := b.Get(ctx); return result{v, ok}, err }, Model: func() any { return is },
				}
			},
			func(r *rand.Rand) gridtest.Op {
				v := r.IntN(3)
				return gridtest.Op{
					Name: "Set", Changes: true,
					Do: func(ctx context.Context) (any, error) { return true, b.Set(ctx, v) }, Model: func() any { return set(v, true) },
				}
			},
			func(r *rand.Rand) gridtest.Op {
				v := r.IntN(3)
				return gridtest.Op{
					Name: "SetIfAbsent", Changes: true,
					Do: func(ctx context.Context) (any, error) { return b.SetIfAbsent(ctx, v) }, Model: func() any { return set(v, !is.ok) },
				}
			},
			func(r *rand.Rand) gridtest.Op {
				v := r.IntN(3)
				return gridtest.Op{
					Name: "SetIfPresent", Changes: true,
					Do: func(ctx context.Context) (any, error) { return b.SetIfPresent(ctx, v) }, Model: func() any { return set(v, is.ok) },
				}
			},
			func(r *rand.Rand) gridtest.Op {
				v := r.IntN(3)
				return gridtest.Op{
					Name: "Swap", Changes: true,
					Do:    func(ctx context.Context) (any, error) { old, had, err := b.Swap(ctx, v); return result{old, had}, err },
					Model: func() any { old := is; set(v, true); return old },
				}
			},
			func(r *rand.Rand) gridtest.Op {
				old, v := r.IntN(3), r.IntN(3)
				return gridtest.Op{
					Name: "CompareAndSwap", Changes: true,
					Do: func(ctx context.Context) (any, error) { return b.CompareAndSwap(ctx, old, v) }, Model: func() any { return set(v, is == result{old, true}) },
				}
			},
			func(r *rand.Rand) gridtest.Op {
				old := r.IntN(3)
				return gridtest.Op{
					Name: "CompareAndDelete", Changes: true,
					Do: func(ctx context.Context) (any, error) { return b.CompareAndDelete(ctx, old) },
					Model: func() any {
						found := is == result{old, true}
						if found {
							is = result{}
						}
						return found
					},
				}
			},
			func(*rand.Rand) gridtest.Op {
				return gridtest.Op{
					Name: "Pop", Changes: true,
					Do:    func(ctx context.Context) (any, error) { v, had, err := b.Pop(ctx); return result{v, had}, err },
					Model: func() any { old := is; is = result{}; return old },
				}
			},
			func(*rand.Rand) gridtest.Op {
				return gridtest.Op{
					Name: "Delete", Changes: true,
					Do:    func(ctx context.Context) (any, error) { return b.Delete(ctx) },
					Model: func() any { had := is.ok; is = result{}; return had },
				}
			},
		}
		gridtest.Model(t, p, 300, kinds, func(ctx context.Context) (any, any) {
			text, err := p.Redis.Get(ctx, "b").Result()
			if err != nil {
				return "none", map[bool]string{true: fmt.Sprint(is.v), false: "none"}[is.ok]
			}
			return text, map[bool]string{true: fmt.Sprint(is.v), false: "none"}[is.ok]
		})
	})
}

func TestTTLIsRemovedKeptOrSet(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		ctx, b := t.Context(), rbucket.New[string](p.Client, "b")
		ttl := func() time.Duration {
			d, err := b.TTL(ctx)
			require.NoError(t, err)
			return d.Round(time.Minute)
		}
		assert.Zero(t, ttl(), "it is not there")
		require.NoError(t, b.Set(ctx, "a", rbucket.WithTTL(time.Hour)))
		assert.Equal(t, time.Hour, ttl())
		require.NoError(t, b.Set(ctx, "b", rbucket.KeepTTL()))
		_, _, err := b.Swap(ctx, "c")
		require.NoError(t, err)
		_, err = b.CompareAndSwap(ctx, "c", "d")
		require.NoError(t, err)
		_, err = b.Update(ctx, func(v string, _ bool) (string, error) { return v + "e", nil })
		require.NoError(t, err)
		assert.Equal(t, time.Hour, ttl())
		require.NoError(t, b.Set(ctx, "f"))
		d, err := b.TTL(ctx)
		require.NoError(t, err)
		assert.Negative(t, d)
		ok, err := b.Expire(ctx, time.Hour)
		require.NoError(t, err)
		assert.True(t, ok)
		ok, err = b.Persist(ctx)
		require.NoError(t, err)
		assert.True(t, ok)
		ok, err = b.Persist(ctx)
		require.NoError(t, err)
		assert.False(t, ok)
		info, err := b.Info(ctx)
		require.NoError(t, err)
		assert.Positive(t, info.Bytes)
		assert.Equal(t, rbucket.Info{Name: "b", Len: 1, TTL: -1, Bytes: info.Bytes}, info)
	})
}

// F33: a short value is written by SET, a long one by the script.
func TestSetDoesTheSameForShortAndLongValues(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		ctx, b := t.Context(), rbucket.New[string](p.Client, "b")
		require.NoError(t, p.Redis.RPush(ctx, "list", "x").Err())
		for _, v := range []string{"", "short", strings.Repeat("x", 4<<10), strings.Repeat("x", 4<<10+1)} {
			for opt, want := range map[rbucket.SetOption]time.Duration{rbucket.WithTTL(time.Hour): time.Hour, rbucket.KeepTTL(): time.Minute} {
				require.NoError(t, p.Redis.Set(ctx, "b", "old", time.Minute).Err())
				require.NoError(t, b.Set(ctx, v, opt))
				assert.Equal(t, want, p.Redis.TTL(ctx, "b").Val().Round(time.Minute))
			}
			require.NoError(t, b.Set(ctx, v))
			assert.Negative(t, p.Redis.TTL(ctx, "b").Val())
			got, ok, err := b.Get(ctx)
			require.NoError(t, err)
			assert.Equal(t, []any{v, true}, []any{got, ok})
			require.ErrorIs(t, rbucket.New[string](p.Client, "list").Set(ctx, v), redlatch.ErrWrongType)
		}
		assert.Equal(t, "list", p.Redis.Type(ctx, "list").Val())
	})
}

// F1
func TestLowerTokensAreFencedOff(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		ctx, b := t.Context(), rbucket.New[int](p.Client, "b")
		high, low := rbucket.WithFence(math.MaxInt64), rbucket.WithFence(math.MaxInt64-1) // one double
		require.NoError(t, b.Set(ctx, 1, rbucket.WithFence(9)))
		require.NoError(t, b.Set(ctx, 1, rbucket.WithFence(10)), "as a number, and not as a text")
		ok, err := b.SetIfAbsent(ctx, 2, high)
		require.NoError(t, err)
		require.False(t, ok, "but the token was seen")
		require.ErrorIs(t, b.Set(ctx, 3, low), redlatch.ErrFenced)
		_, err = b.SetIfPresent(ctx, 3, low)
		require.ErrorIs(t, err, redlatch.ErrFenced)
		_, err = b.CompareAndSwap(ctx, 1, 3, low)
		require.ErrorIs(t, err, redlatch.ErrFenced)
		_, err = b.Update(ctx, func(int, bool) (int, error) { return 3, nil }, low)
		require.ErrorIs(t, err, redlatch.ErrFenced)
		v, _, err := b.Get(ctx)
		require.NoError(t, err)
		assert.Equal(t, 1, v)
		_, err = b.Delete(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, b.Set(ctx, 3, low), redlatch.ErrFenced, "Delete leaves the fence")
		require.NoError(t, b.Set(ctx, 3, high), "the same token, again")
		require.NoError(t, b.Set(ctx, 4), "without one")
		assert.Equal(t, "9223372036854775807", p.Redis.Get(ctx, "redlatch_fence:{b}").Val())
		assert.Equal(t, time.Duration(-1), p.Redis.TTL(ctx, "redlatch_fence:{b}").Val())
	})
}

func TestConcurrentUpdatesLoseNothing(t *testing.T) {
	gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
		b := rbucket.New[map[string]int](p.Client, "b")
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for range 10 {
					_, err := b.Update(t.Context(), func(v map[string]int, ok bool) (map[string]int, error) {
						if !ok {
							v = map[string]int{}
						}
						v[fmt.Sprint(i)]++
						return v, nil
					})
					assert.NoError(t, err)
				}
			})
		}
		all.Wait()
		v, _, err := b.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, map[string]int{"0": 10, "1": 10, "2": 10, "3": 10}, v)
	})
}

var errOwn = errors.New("own")

func TestUpdateEndsWithErrConflictOrTheErrorOfItsFunction(t *testing.T) {
	gridtest.InMemory(t, func(t *testing.T, p *gridtest.Place) {
		b, tries := rbucket.New[int](p.Client, "b"), 0
		_, err := b.Update(t.Context(), func(int, bool) (int, error) {
			tries++
			return 0, p.Redis.Set(t.Context(), "b", tries, 0).Err()
		})
		require.EqualError(t, err, `rbucket: update "b": others changed it at every try`)
		assert.ErrorIs(t, err, redlatch.ErrConflict)
		assert.Equal(t, 20, tries)
		_, err = b.Update(t.Context(), func(int, bool) (int, error) { return 0, errOwn })
		assert.Equal(t, errOwn, err)
	})
}

func TestBadInputIsErrInvalidBeforeIO(t *testing.T) {
	gridtest.InMemory(t, func(t *testing.T, p *gridtest.Place) {
		ctx := t.Context()
		texts := rbucket.New[string](p.Client, "b", rbucket.WithMaxValue(3))
		_, swap := texts.CompareAndSwap(ctx, "abcd", "a")
		_, nilFn := texts.Update(ctx, nil)
		for want, err := range map[string]error{
			"the encoded value has 4 bytes, more than 3":                                                        texts.Set(ctx, "abcd"),
			"the encoded value has 4 bytes, more than 3 ":                                                       swap,
			"the TTL 999.999µs is not between 1ms and 100 years":                                                texts.Set(ctx, "a", rbucket.WithTTL(time.Millisecond-1)),
			"the token 0 is below 1: a hold of a plain lock has none, use a fenced lock (Client.GetFencedLock)": texts.Set(ctx, "a", rbucket.WithFence(0)),
			"an option is nil": texts.Set(ctx, "a", nil),
			"fn is nil":        nilFn,
			"value cannot be encoded: codec.Text on a float64: the number is not finite": rbucket.New[float64](p.Client, "b").Set(ctx, math.NaN()),
			"the codec is nil": rbucket.New[int](p.Client, "b", rbucket.WithCodec(nil)).Set(ctx, 1),
			"the limit of a value 0 is not between 1 and 536870912 bytes": rbucket.New[int](p.Client, "b", rbucket.WithMaxValue(0)).Set(ctx, 1),
			"an option is nil ": rbucket.New[int](p.Client, "b", rbucket.Option{}).Set(ctx, 1),
		} {
			require.ErrorIs(t, err, redlatch.ErrInvalid, want)
			assert.True(t, strings.HasSuffix(err.Error(), ": invalid argument: "+strings.TrimSpace(want)), "%v", err)
		}
		_, expire := texts.Expire(ctx, 0)
		require.ErrorIs(t, expire, redlatch.ErrInvalid)
		assert.Zero(t, p.Calls())
	})
}

func TestTextsOfErrors(t *testing.T) {
	gridtest.InMemory(t, func(t *testing.T, p *gridtest.Place) {
		ctx, b := t.Context(), rbucket.New[int](p.Client, "b")
		require.NoError(t, p.Redis.Set(ctx, "b", "x", 0).Err())
		require.NoError(t, p.Redis.RPush(ctx, "list", "x").Err())
		require.NoError(t, b.Set(ctx, 1, rbucket.WithFence(2)))
		fenced := b.Set(ctx, 1, rbucket.WithFence(1))
		require.NoError(t, p.Redis.Set(ctx, "b", "x", 0).Err())
		_, _, decode := b.Get(ctx)
		wrong := rbucket.New[int](p.Client, "list").Set(ctx, 1)
		p.Lose()
		unknown := b.Set(ctx, 1)
		for want, err := range map[string]error{
			`rbucket: set "b": a later holder of the lock has been here: FENCED token 1 is below 2`:                                          fenced,
			`rbucket: get "b": bytes cannot be decoded: codec.Text into a *int: invalid syntax`:                                              decode,
			`rbucket: set "list": name is used by another kind of object: WRONGTYPE Operation against a key holding the wrong kind of value`: wrong,
		} {
			assert.EqualError(t, err, want)
		}
		assert.ErrorIs(t, decode, codec.ErrDecode)
		assert.ErrorContains(t, unknown, `rbucket: set "b": outcome unknown: `)
	})
}

// F2, F9
func TestChangesOfABucketHaveOneOrder(t *testing.T) {
	gridtest.Linearizable(t, 0, func(c *redlatch.Client, name string) gridtest.Register {
		b := rbucket.New[int](c, name)
		return gridtest.Register{
			Get:            b.Get,
			CompareAndSwap: func(ctx context.Context, old, v int) (bool, error) { return b.CompareAndSwap(ctx, old, v) },
			Update: func(ctx context.Context, fn func(int, bool) (int, error)) (int, error) {
				return b.Update(ctx, fn)
			},
		}
	})
}
