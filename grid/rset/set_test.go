package rset_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/rset"
	"github.com/redlatch/redlatch/internal/test/gridtest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func calls(c *redlatch.Client, name string) []gridtest.Call {
	s, other := rset.New[string](c, name), rset.New[string](c, "{"+name+"}o")
	return []gridtest.Call{
		{Verb: "add", Changes: true, Do: func(ctx context.Context) error { _, err := s.Add(ctx, "a", "b"); return err }},
		{Verb: "has", Do: func(ctx context.Context) error { _, err := s.Has(ctx, "a"); return err }},
		{Verb: "has all", Do: func(ctx context.Context) error { _, err := s.HasAll(ctx, "a"); return err }},
		{Verb: "len", Do: func(ctx context.Context) error { _, err := s.Len(ctx); return err }},
		{Verb: "random", Do: func(ctx context.Context) error { _, err := s.Random(ctx, 1); return err }},
		{Verb: "all", Do: func(ctx context.Context) (err error) {
			for _, err = range s.All(ctx) {
			}
			return err
		}},
		{Verb: "pop", Changes: true, Do: func(ctx context.Context) error { _, err := s.Pop(ctx, 1); return err }},
		{Verb: "move to", Changes: true, Do: func(ctx context.Context) error { _, err := s.MoveTo(ctx, other, "a"); return err }},
		{Verb: "remove", Changes: true, Do: func(ctx context.Context) error { _, err := s.Remove(ctx, "a"); return err }},
		{Verb: "expire", Changes: true, Do: func(ctx context.Context) error { _, err := s.Expire(ctx, time.Hour); return err }},
		{Verb: "persist", Changes: true, Do: func(ctx context.Context) error { _, err := s.Persist(ctx); return err }},
		{Verb: "ttl", Do: func(ctx context.Context) error { _, err := s.TTL(ctx); return err }},
		{Verb: "info", Do: func(ctx context.Context) error { _, err := s.Info(ctx); return err }},
		{Verb: "delete", Changes: true, Do: func(ctx context.Context) error { _, err := s.Delete(ctx); return err }},
	}
}

func expiringCalls(c *redlatch.Client, name string) []gridtest.Call {
	s := rset.NewExpiring[string](c, name)
	return []gridtest.Call{
		{Verb: "add", Changes: true, Do: func(ctx context.Context) error { _, err := s.Add(ctx, "a", time.Hour); return err }},
		{Verb: "renew", Changes: true, Do: func(ctx context.Context) error { _, err := s.Renew(ctx, "a", time.Hour); return err }},
		{Verb: "has", Do: func(ctx context.Context) error { _, err := s.Has(ctx, "a"); return err }},
		{Verb: "len", Do: func(ctx context.Context) error { _, err := s.Len(ctx); return err }},
		{Verb: "all", Do: func(ctx context.Context) (err error) {
			for _, err = range s.All(ctx) {
			}
			return err
		}},
		{Verb: "remove", Changes: true, Do: func(ctx context.Context) error { _, err := s.Remove(ctx, "a"); return err }},
		{Verb: "expire", Changes: true, Do: func(ctx context.Context) error { _, err := s.Expire(ctx, time.Hour); return err }},
		{Verb: "persist", Changes: true, Do: func(ctx context.Context) error { _, err := s.Persist(ctx); return err }},
		{Verb: "ttl", Do: func(ctx context.Context) error { _, err := s.TTL(ctx); return err }},
		{Verb: "info", Do: func(ctx context.Context) error { _, err := s.Info(ctx); return err }},
		{Verb: "delete", Changes: true, Do: func(ctx context.Context) error { _, err := s.Delete(ctx); return err }},
	}
}

// F2, F33
func TestSetIsAnObjectOfTheGrid(t *testing.T) { gridtest.Suite(t, "rset", "set", calls) }

// F2, F33
func TestExpiringSetIsAnObjectOfTheGrid(t *testing.T) {
	gridtest.Suite(t, "rset", "zset", expiringCalls)
}

// F2
func TestSetEqualsItsModel(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		s, other := rset.New[int](p.Client, "{s}"), rset.New[int](p.Client, "{s}other")
		is, moved := map[int]bool{}, map[int]bool{}
		count := func(vs []int, there bool) (n int) {
			for _, v := range vs {
				if is[v] == there {
					n++
				}
				if delete(is, v); !there {
					is[v] = true
				}
			}
			return n
		}
		some := func(r *rand.Rand) []int { return []int{r.IntN(4), 4 + r.IntN(3)} }
		kinds := []func(r *rand.Rand) gridtest.Op{
			func(r *rand.Rand) gridtest.Op {
				vs := some(r)
				return gridtest.Change("Add", func(ctx context.Context) (any, error) { return gridtest.Any(s.Add(ctx, vs...)) }, func() any { return count(vs, false) })
			},
			func(r *rand.Rand) gridtest.Op {
				vs := some(r)
				return gridtest.Change("Remove", func(ctx context.Context) (any, error) { return gridtest.Any(s.Remove(ctx, vs...)) }, func() any { return count(vs, true) })
			},
			func(r *rand.Rand) gridtest.Op {
				vs := some(r)
				return gridtest.Read("HasAll", func(ctx context.Context) (any, error) { return gridtest.Any(s.HasAll(ctx, vs...)) }, func() any { return []bool{is[vs[0]], is[vs[1]]} })
			},
			func(r *rand.Rand) gridtest.Op {
				v := some(r)[0]
				return gridtest.Read("Has", func(ctx context.Context) (any, error) { return gridtest.Any(s.Has(ctx, v)) }, func() any { return is[v] })
			},
			func(*rand.Rand) gridtest.Op {
				return gridtest.Read("Len", func(ctx context.Context) (any, error) { return gridtest.Any(s.Len(ctx)) }, func() any { return len(is) })
			},
			func(*rand.Rand) gridtest.Op {
				return gridtest.Read("Random", func(ctx context.Context) (any, error) {
					vs, err := s.Random(ctx, 100)
					return slices.Sorted(slices.Values(vs)), err
				}, func() any { return slices.Sorted(maps.Keys(is)) })
			},
			func(r *rand.Rand) gridtest.Op {
				v := some(r)[0]
				return gridtest.Change("MoveTo", func(ctx context.Context) (any, error) { return gridtest.Any(s.MoveTo(ctx, other, v)) }, func() any {
					ok := is[v]
					if delete(is, v); ok {
						moved[v] = true
					}
					return ok
				})
			},
			func(*rand.Rand) gridtest.Op {
				return gridtest.Change("Pop", func(ctx context.Context) (any, error) {
					vs, err := s.Pop(ctx, 100)
					return slices.Sorted(slices.Values(vs)), err
				}, func() any {
					all := slices.Sorted(maps.Keys(is))
					clear(is)
					return all
				})
			},
		}
		texts := func(of map[int]bool) []string {
			all := []string{}
			for v := range of {
				all = append(all, fmt.Sprint(v))
			}
			slices.Sort(all)
			return all
		}
		gridtest.Model(t, p, 400, kinds, func(ctx context.Context) (any, any) {
			a, b := p.Redis.SMembers(ctx, "{s}").Val(), p.Redis.SMembers(ctx, "{s}other").Val()
			slices.Sort(a)
			slices.Sort(b)
			return append(append([]string{}, a...), b...), append(texts(is), texts(moved)...)
		})
	})
}

func TestMembersExpireByTheClockOfRedis(t *testing.T) {
	gridtest.InMemory(t, func(t *testing.T, p *gridtest.Place) {
		s, is := rset.NewExpiring[int](p.Client, "seen"), map[int]time.Time{}
		r, ctx := rand.New(rand.NewPCG(1, 2)), t.Context()
		live := func(v int) bool { return is[v].After(time.Now()) }
		for range 1000 {
			v, ttl := r.IntN(5), time.Duration(1+r.IntN(100))*time.Millisecond
			var got, want any
			var err error
			switch r.IntN(6) {
			case 0:
				got, err = s.Add(ctx, v, ttl)
				if want = !live(v); want == true {
					is[v] = time.Now().Truncate(time.Millisecond).Add(ttl)
				}
			case 1:
				got, err = s.Renew(ctx, v, ttl)
				if want = live(v); want == true {
					is[v] = time.Now().Truncate(time.Millisecond).Add(ttl)
				}
			case 2:
				got, err = s.Remove(ctx, v, 7)
				if want = 0; live(v) {
					want = 1
				}
				delete(is, v)
			case 3:
				got, err = s.Has(ctx, v)
				want = live(v)
			case 4:
				got, err = s.Len(ctx)
				n := 0
				for v := range is {
					if live(v) {
						n++
					}
				}
				want = n
			default:
				all := []int{}
				for v, err := range s.All(ctx) {
					require.NoError(t, err)
					all = append(all, v)
				}
				slices.Sort(all)
				there := []int{}
				for v := range is {
					if live(v) {
						there = append(there, v)
					}
				}
				slices.Sort(there)
				got, want = all, there
			}
			require.NoError(t, err)
			require.Equal(t, want, got)
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
		}
	})
}

func TestAddRemovesMembersThatAreOver(t *testing.T) {
	gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
		ctx, s := t.Context(), rset.NewExpiring[string](p.Client, "seen")
		gridtest.Fill(t, p, "seen", "zadd", 1000, func(i int) []any { return []any{1, i} })
		added, err := s.Add(ctx, "5", time.Hour)
		require.NoError(t, err)
		assert.True(t, added, "it was over")
		assert.EqualValues(t, 900, p.Redis.ZCard(ctx, "seen").Val())
		n, err := s.Len(ctx)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		for v, err := range s.All(ctx) {
			require.NoError(t, err)
			assert.Equal(t, "5", v)
		}
		at := time.UnixMilli(int64(p.Redis.ZScore(ctx, "seen", "5").Val()))
		assert.WithinDuration(t, time.Now().Add(time.Hour), at, time.Minute)
	})
}

// F34
func TestBigSetsGoInSteps(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		ctx, s := t.Context(), rset.New[int](p.Client, "s")
		var all []int
		for i := range 2500 {
			all = append(all, i)
		}
		before := p.Calls()
		n, err := s.Add(ctx, all...)
		require.NoError(t, err)
		assert.Equal(t, 2500, n)
		assert.Equal(t, 3, p.Calls()-before)
		there, err := s.HasAll(ctx, append(all, -1)...)
		require.NoError(t, err)
		assert.Equal(t, 2500, slices.Index(there, false))
		found := map[int]bool{}
		for v, err := range s.All(ctx) {
			require.NoError(t, err)
			found[v] = true
		}
		assert.Len(t, found, 2500)
		p.Lose()
		n, err = s.Remove(ctx, all...)
		require.ErrorIs(t, err, redlatch.ErrUnknown)
		assert.Equal(t, 0, n)
		n, err = s.Add(ctx)
		require.NoError(t, err)
		assert.Zero(t, n)
	})
}

func TestTextsOfErrors(t *testing.T) {
	gridtest.InMemory(t, func(t *testing.T, p *gridtest.Place) {
		ctx, s, x := t.Context(), rset.New[string](p.Client, "s"), rset.NewExpiring[string](p.Client, "x")
		_, pop := s.Pop(ctx, 0)
		_, random := s.Random(ctx, 101)
		_, slot := s.MoveTo(ctx, rset.New[string](p.Client, "other"), "a")
		other, err := redlatch.New(p.Redis)
		require.NoError(t, err)
		_, foreign := s.MoveTo(ctx, rset.New[string](other, "s"), "a")
		require.NoError(t, other.Close())
		_, none := s.MoveTo(ctx, nil, "a")
		_, bad := s.MoveTo(ctx, rset.New[string](p.Client, ""), "a")
		_, ttl := x.Add(ctx, "a", 0)
		_, utf8 := s.Add(ctx, "a", "\xff")
		_, field := rset.New[struct{ a int }](p.Client, "s").Len(ctx)
		for want, err := range map[string]error{
			`pop "s": invalid argument: 0 elements are not between 1 and 100`:                                                                  pop,
			`random "s": invalid argument: 101 elements are not between 1 and 100`:                                                             random,
			`move to "s": invalid argument: "s" and "other" have no common hash tag`:                                                           slot,
			`move to "s": invalid argument: "s" is of another client`:                                                                          foreign,
			`move to "s": invalid argument: the other object is nil`:                                                                           none,
			`move to "s": invalid argument: the name is empty`:                                                                                 bad,
			`add "x": invalid argument: the TTL 0s is not between 1ms and 100 years`:                                                           ttl,
			`len "s": invalid argument: the member has the field a: JSON leaves it out, so that members which differ by it alone would be one`: field,
			`add "s": invalid argument: value cannot be encoded: codec.Text on a string: the text is not valid UTF-8`:                          utf8,
		} {
			assert.EqualError(t, err, "rset: "+want)
			assert.ErrorIs(t, err, redlatch.ErrInvalid)
		}
		assert.Zero(t, p.Calls())
		assert.True(t, strings.HasPrefix(s.Key(), "s"))
	})
}

// F33
func TestMoveToAKeyOfAnotherKindChangesNothing(t *testing.T) {
	gridtest.Everywhere(t, func(t *testing.T, p *gridtest.Place) {
		ctx, s := t.Context(), rset.New[string](p.Client, "{s}")
		_, err := s.Add(ctx, "a")
		require.NoError(t, err)
		require.NoError(t, p.Redis.Set(ctx, "{s}:text", "x", 0).Err())
		_, err = s.MoveTo(ctx, rset.New[string](p.Client, "{s}:text"), "a")
		require.ErrorIs(t, err, redlatch.ErrWrongType)
		assert.Equal(t, []string{"a"}, p.Redis.SMembers(ctx, "{s}").Val())
		assert.Equal(t, "x", p.Redis.Get(ctx, "{s}:text").Val())
	})
}

// F34: each method over a set of a million members takes the server no more than 5 ms a call.
func TestNoCallOverABigSetHoldsTheServerUp(t *testing.T) {
	redistest.Long(t)
	gridtest.OnServer(t, func(t *testing.T, p *gridtest.Place) {
		gridtest.Fill(t, p, "big", "sadd", 1_000_000, func(i int) []any { return []any{i} })
		gridtest.NoLongCalls(t, p, "big", func(c *redlatch.Client, name string) []gridtest.Call {
			s, vs := rset.New[string](c, name), gridtest.Thousand()
			return append([]gridtest.Call{
				{Verb: "has all, 1,000", Do: func(ctx context.Context) error { _, err := s.HasAll(ctx, vs...); return err }},
				{Verb: "remove, 1,000", Do: func(ctx context.Context) error { _, err := s.Remove(ctx, vs...); return err }},
				{Verb: "add, 1,000", Do: func(ctx context.Context) error { _, err := s.Add(ctx, vs...); return err }},
				{Verb: "pop", Do: func(ctx context.Context) error { _, err := s.Pop(ctx, 100); return err }},
				{Verb: "random", Do: func(ctx context.Context) error { _, err := s.Random(ctx, 100); return err }},
			}, calls(c, name)...)
		})
		gridtest.Fill(t, p, "seen", "zadd", 1_000_000, func(i int) []any { return []any{1, i} })
		gridtest.NoLongCalls(t, p, "seen", func(c *redlatch.Client, name string) []gridtest.Call {
			s, vs := rset.NewExpiring[string](c, name), gridtest.Thousand()
			return append([]gridtest.Call{
				{Verb: "remove, 1,000", Do: func(ctx context.Context) error { _, err := s.Remove(ctx, vs...); return err }},
			}, expiringCalls(c, name)...)
		})
	})
}
