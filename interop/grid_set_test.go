package interop_test

import (
	"errors"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/grid/rset"
	"github.com/redlatch/redlatch/grid/rsortedset"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestGridSetIsShared(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		t.Run("text", func(t *testing.T) { setIsShared(t, p, words) })
		t.Run("JSON", func(t *testing.T) { setIsShared(t, p, priced) })
	})
}

func setIsShared[T any](t *testing.T, p *place, s sample[T]) {
	t.Helper()
	ctx, client, tag := t.Context(), p.goSide(t).clients[0], "{"+unused("set")+"}"
	set, other := rset.New[T](client, tag), rset.New[T](client, tag+"other")
	java := p.object(t, "set", s.codec, tag)
	v, text := s.values, s.texts
	count := func(want int) func(n int, err error) {
		return func(n int, err error) {
			t.Helper()
			require.NoError(t, err)
			assert.Equal(t, want, n)
		}
	}

	count(2)(set.Add(ctx, v[0], v[1]))
	assert.Equal(t, "false", java.do("add", text[0]))
	assert.Equal(t, "1", java.do("addAll", text[:]...))
	assert.ElementsMatch(t, text[:], java.all("all"))
	assert.ElementsMatch(t, v[:], gathered(t, set.All(ctx)))
	assert.Equal(t, "true", java.do("contains", text[1]))
	said(t, true)(set.Has(ctx, v[2]))
	assert.Contains(t, text[:], java.do("random", "1"))
	random, err := set.Random(ctx, 1)
	require.NoError(t, err)
	assert.Subset(t, v[:], random)

	said(t, true)(set.MoveTo(ctx, other, v[0]))
	assert.Equal(t, "false", java.do("contains", text[0]))
	assert.Equal(t, "true", java.do("move", tag+"other", text[1]))
	count(2)(other.Len(ctx))
	assert.Equal(t, "1", java.do("size"))
	assert.Equal(t, "true", java.do("remove", text[2]))
	said(t, false)(set.Has(ctx, v[2]))
	count(1)(other.Remove(ctx, v[1]))
	java.name = tag + "other"
	assert.Equal(t, text[0], java.do("removeRandom", "5"))
	assert.Equal(t, "true", java.do("add", text[2]))
	popped, err := other.Pop(ctx, 5)
	require.NoError(t, err)
	assert.Equal(t, []T{v[2]}, popped)
}

// Members are bytes: Java reads an object whose members are in another order than its own, and does not find it.
func TestGridMemberInAnotherOrderIsAnotherMember(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx, name := t.Context(), unused("set")
		set, java := rset.New[price](p.goSide(t).clients[0], name), p.object(t, "set", "json", name)
		_, err := set.Add(ctx, price{"tea", 250})
		require.NoError(t, err)
		assert.Equal(t, []string{"tea,250"}, java.all("all"))
		assert.Equal(t, "false", java.do("contains", "tea,250"))
		assert.Equal(t, "true", java.do("add", "tea,250"))
		said(t, true)(set.Has(ctx, price{"tea", 250}))
		assert.Equal(t, []price{{"tea", 250}, {"tea", 250}}, gathered(t, set.All(ctx)))
	})
}

func TestGridExpiringSetIsShared(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		t.Run("text", func(t *testing.T) { expiringSetIsShared(t, p, words) })
		t.Run("JSON", func(t *testing.T) { expiringSetIsShared(t, p, priced) })
	})
}

func expiringSetIsShared[T any](t *testing.T, p *place, s sample[T]) {
	t.Helper()
	ctx, name := t.Context(), unused("setcache")
	set, java := rset.NewExpiring[T](p.goSide(t).clients[0], name), p.object(t, "setcache", s.codec, name)
	v, text := s.values, s.texts

	said(t, true)(set.Add(ctx, v[0], time.Minute))
	assert.Equal(t, "false", java.do("add", text[0], "60000"))
	assert.Equal(t, "true", java.do("add", text[1], "60000"))
	said(t, false)(set.Add(ctx, v[1], time.Minute))
	assert.Equal(t, "true", java.do("add", text[2]), "for ever")
	said(t, false)(set.Add(ctx, v[2], time.Minute))
	// Redisson takes the time twice for a member without an end: if it was slow between, neither all nor size finds it.
	said(t, true)(set.Renew(ctx, v[2], time.Minute))
	assert.ElementsMatch(t, text[:], java.all("all"))
	assert.ElementsMatch(t, v[:], gathered(t, set.All(ctx)))
	n, err := set.Len(ctx)
	require.NoError(t, err)
	assert.Equal(t, 3, n)
	assert.Equal(t, "3", java.do("size"))
	assert.Equal(t, "true", java.do("remove", text[2]))
	said(t, false)(set.Has(ctx, v[2]))
	n, err = set.Remove(ctx, v[1])
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, "false", java.do("contains", text[1]))

	// A member that is over is there for neither side. Both have one clock here.
	said(t, true)(set.Add(ctx, v[1], time.Millisecond))
	redistest.Eventually(t, limit, "Java sees that it is over", func() error { return ended(java.do("contains", text[1]) == "false") })
	assert.Equal(t, "true", java.do("add", text[1], "1"))
	redistest.Eventually(t, limit, "Go sees that it is over", func() error {
		ok, err := set.Has(ctx, v[1])
		require.NoError(t, err)
		return ended(!ok)
	})
	assert.Equal(t, text[:1], java.all("all"))
	assert.Equal(t, v[:1], gathered(t, set.All(ctx)))
	said(t, true)(set.Add(ctx, v[1], time.Minute))
	assert.Equal(t, "true", java.do("contains", text[1]))
}

func TestGridSortedSetIsShared(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		t.Run("text", func(t *testing.T) { sortedSetIsShared(t, p, words) })
		t.Run("JSON", func(t *testing.T) { sortedSetIsShared(t, p, priced) })
	})
}

func sortedSetIsShared[T any](t *testing.T, p *place, s sample[T]) {
	t.Helper()
	ctx, name := t.Context(), unused("sorted")
	set, java := rsortedset.New[T](p.goSide(t).clients[0], name), p.object(t, "sorted", s.codec, name)
	v, text := s.values, s.texts

	for _, score := range []float64{0, -0.1, 1e21, 1e300, 1e-300, math.MaxFloat64, 1<<53 + 2} {
		_, err := set.Add(ctx, v[0], score)
		require.NoError(t, err)
		assert.InDelta(t, score, java.number("getScore", text[0]), 0)
		java.do("remove", text[0])
		java.do("add", text[0], shortest(score))
		got(t, score)(set.Score(ctx, v[0]))
	}

	said(t, true)(set.Add(ctx, v[0], 1))
	assert.Equal(t, "true", java.do("add", text[1], "2"))
	assert.Equal(t, "false", java.do("add", text[1], "2.5"))
	said(t, true)(set.Add(ctx, v[2], 3.5))
	assert.Equal(t, []string{text[0] + "=1.0", text[1] + "=2.5", text[2] + "=3.5"}, java.all("entryRange", "0", "-1"))
	assert.Equal(t, []string{text[2] + "=3.5", text[1] + "=2.5"}, java.all("entryRangeReversed", "0", "1"))
	ordered := []rsortedset.Entry[T]{{Value: v[0], Score: 1}, {Value: v[1], Score: 2.5}, {Value: v[2], Score: 3.5}}
	entries, err := set.Range(ctx, 0, -1)
	require.NoError(t, err)
	assert.Equal(t, ordered, entries)
	assert.ElementsMatch(t, ordered, gathered(t, set.All(ctx)))
	assert.ElementsMatch(t, []string{text[0] + "=1.0", text[1] + "=2.5", text[2] + "=3.5"}, java.all("all"))
	entries, err = set.RangeByScore(ctx, 1, 2.5, 10)
	require.NoError(t, err)
	assert.Equal(t, ordered[:2], entries)
	assert.Equal(t, text[:2], java.all("valueRange", "1", "2.5"))
	assert.Equal(t, "2", java.do("count", "1", "2.5"))
	for i := range v {
		got(t, i)(set.Rank(ctx, v[i]))
		assert.Equal(t, strconv.Itoa(i), java.do("rank", text[i]))
		got(t, 2-i)(set.RankDesc(ctx, v[i]))
		assert.Equal(t, strconv.Itoa(2-i), java.do("revRank", text[i]))
	}

	assert.Equal(t, "false", java.do("addIfAbsent", text[0], "9"))
	said(t, false)(set.Add(ctx, v[0], 9, rsortedset.IfAbsent()))
	assert.Equal(t, "true", java.do("addIfGreater", text[0], "9"))
	said(t, true)(set.Add(ctx, v[0], 10, rsortedset.IfGreater()))
	assert.Equal(t, "true", java.do("addIfLess", text[0], "1"))
	said(t, true)(set.Add(ctx, v[0], 0.5, rsortedset.IfLess()))
	assert.InDelta(t, 0.75, java.number("addScore", text[0], "0.25"), 0)
	score, err := set.AddScore(ctx, v[0], 0.25)
	require.NoError(t, err)
	assert.InDelta(t, 1, score, 0)

	assert.Equal(t, text[0], java.do("pollFirst"))
	popped, err := set.PopMax(ctx, 1)
	require.NoError(t, err)
	assert.Equal(t, ordered[2:], popped)
	said(t, true)(set.Add(ctx, v[0], 9))
	assert.Equal(t, []string{text[1] + "=2.5"}, java.all("pollFirstEntries", "1"))
	assert.Equal(t, text[0], java.do("pollLast"))
	java.do("add", text[2], "7")
	popped, err = set.PopMin(ctx, 5)
	require.NoError(t, err)
	assert.Equal(t, []rsortedset.Entry[T]{{Value: v[2], Score: 7}}, popped)

	taken := java.j.send(java.j.thread(), java.words("takeFirst", nil)...)
	said(t, true)(set.Add(ctx, v[1], 1))
	select {
	case r := <-taken:
		require.NoError(t, r.err)
		assert.Equal(t, text[1], r.value)
	case <-time.After(limit):
		require.Fail(t, "a thread of Java that waits takes what Go adds")
	}
}

var errStillThere = errors.New("it is still there")

// ended is an error unless something has.
func ended(ok bool) error {
	if ok {
		return nil
	}
	return errStillThere
}
