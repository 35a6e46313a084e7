package rlatch_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlatch"
)

// claims hold on every kind of server.
var claims = map[string]func(*testing.T, *place){
	"zero lets everybody through":                 zeroOpens,
	"await before the count is set":               awaitBefore,
	"the count is set once":                       setOnlyOnce,
	"more countdowns than the count":              beyondZero,
	"many count down at a time":                   manyCountDown,
	"a latch used again":                          usedAgain,
	"a latch used again before anybody looked":    usedAgainAtOnce,
	"deletion while others wait":                  deleted,
	"a participant counts once":                   onceEach,
	"participants are forgotten with the count":   participantsForgotten,
	"a latch that stays open":                     staysOpen,
	"one that is deleted":                         staysOpenNoLonger,
	"one whose count is set nonetheless":          staysOpenForTrySetCountOnceAlone,
	"one that another program opens":              opensBehind,
	"other data is ErrWrongType, and stays":       otherData,
	"Close ends every wait":                       closeEndsWaits,
	"a context ends its own wait and no other":    contextEnds,
	"an idle latch leaves nothing without an end": leavesNothing,
}

func TestLatchInMemory(t *testing.T) { eachClaim(t, locktest.InMemory, claims) }
func TestLatchOnServer(t *testing.T) { eachClaim(t, locktest.OnServer, claims) }
func TestLatchOnCluster(t *testing.T) {
	redistest.Long(t)
	eachClaim(t, locktest.OnCluster, claims)
}

func zeroOpens(t *testing.T, p *place) {
	l, other := p.latch(t), p.latch(t)
	set(t, l, 3)
	var waiting []<-chan error
	for _, waiter := range []*rlatch.Latch{l, l, other, other} {
		waiting = append(waiting, begin(t.Context(), waiter))
	}
	p.subscribed(t, 2)
	down(t, l)
	require.NoError(t, other.CountDownBy(t.Context(), 1))
	requireCount(t, l, 1)
	for _, w := range waiting {
		waits(t, w)
	}
	lag := faulttest.MeasureLag(t, "")
	start := time.Now()
	down(t, other)
	for _, w := range waiting {
		require.NoError(t, ended(t, w))
	}
	assert.Less(t, time.Since(start), 700*time.Millisecond+lag.Late(), "sooner than by a look")
	requireCount(t, l, 0)
	require.NoError(t, l.Await(t.Context()))
}

func awaitBefore(t *testing.T, p *place) {
	l := p.latch(t)
	requireCount(t, l, 0)
	require.NoError(t, l.Await(t.Context()), "missing is zero")
	down(t, l)
	ok, err := l.CountDownOnce(t.Context(), "a")
	require.NoError(t, err)
	require.False(t, ok)
	gone, err := l.Delete(t.Context())
	require.NoError(t, err)
	require.False(t, gone)
	requireCount(t, l, 0)
}

func setOnlyOnce(t *testing.T, p *place) {
	l, other := p.latch(t), p.latch(t)
	set(t, l, 2)
	for _, again := range []*rlatch.Latch{l, other} {
		ok, err := again.TrySetCount(t.Context(), 5)
		require.NoError(t, err)
		require.False(t, ok)
	}
	requireCount(t, other, 2)
}

func beyondZero(t *testing.T, p *place) {
	l := p.latch(t)
	set(t, l, 2)
	waiting := begin(t.Context(), p.latch(t))
	p.subscribed(t, 1)
	require.NoError(t, l.CountDownBy(t.Context(), 5))
	require.NoError(t, ended(t, waiting))
	requireCount(t, l, 0)
	down(t, l)
	requireCount(t, l, 0)
	set(t, l, 1)
	requireCount(t, l, 1)
}

func manyCountDown(t *testing.T, p *place) {
	clients := []*rlatch.Latch{p.latch(t), p.latch(t)}
	set(t, clients[0], 101)
	var workers sync.WaitGroup
	for i := range 100 {
		workers.Go(func() { assert.NoError(t, clients[i%2].CountDown(t.Context())) })
	}
	workers.Wait()
	requireCount(t, clients[0], 1)
}

func usedAgain(t *testing.T, p *place) {
	l, other := p.latch(t), p.latch(t)
	for range 5 {
		set(t, l, 1)
		waiting := begin(t.Context(), other)
		p.subscribed(t, 1)
		waits(t, waiting)
		down(t, l)
		require.NoError(t, ended(t, waiting))
	}
}

func usedAgainAtOnce(t *testing.T, p *place) {
	a, b := p.Client(t), p.Client(t)
	for i := range 10 {
		round := &place{Server: p.Server, name: fmt.Sprint(p.name, i)} // so that who is subscribed has looked
		l, other := a.GetCountDownLatch(round.name), b.GetCountDownLatch(round.name)
		set(t, l, 1)
		early := begin(t.Context(), other)
		round.subscribed(t, 1)
		down(t, l)
		set(t, l, 1)
		late := begin(t.Context(), other)
		require.NoError(t, ended(t, early), "its count was at zero")
		waits(t, late)
		down(t, l)
		require.NoError(t, ended(t, late))
	}
}

func deleted(t *testing.T, p *place) {
	l, other := p.latch(t), p.latch(t)
	set(t, l, 2)
	waiting := []<-chan error{begin(t.Context(), l), begin(t.Context(), other)}
	p.subscribed(t, 2)
	gone, err := other.Delete(t.Context())
	require.NoError(t, err)
	require.True(t, gone)
	for _, w := range waiting {
		require.NoError(t, ended(t, w))
	}
	requireCount(t, l, 0)
}

func onceEach(t *testing.T, p *place) {
	l, other := p.latch(t), p.latch(t)
	set(t, l, 3)
	for i, who := range []struct {
		name    string
		counted bool
		left    int
	}{{"a", true, 2}, {"a", false, 2}, {"b", true, 1}, {"a", false, 1}, {"b", false, 1}, {"c 1", true, 0}, {"c 1", false, 0}} {
		ok, err := []*rlatch.Latch{l, other}[i%2].CountDownOnce(t.Context(), who.name)
		require.NoError(t, err)
		require.Equal(t, who.counted, ok, "step %d", i)
		requireCount(t, l, who.left)
	}
}

func participantsForgotten(t *testing.T, p *place) {
	l := p.latch(t)
	once := func() bool {
		ok, err := l.CountDownOnce(t.Context(), "a")
		require.NoError(t, err)
		return ok
	}
	set(t, l, 2)
	require.True(t, once())
	down(t, l)
	set(t, l, 2)
	require.True(t, once(), "after zero")
	_, err := l.Delete(t.Context())
	require.NoError(t, err)
	set(t, l, 2)
	require.True(t, once(), "after Delete")
	require.NoError(t, p.Redis.Del(t.Context(), p.name).Err())
	set(t, l, 2)
	require.True(t, once(), "after somebody took the count away")
}

// takePart is what each of some participants does. It returns whether it has set the count, and whether it has counted down.
func takePart(t *testing.T, l *rlatch.Latch, n int, who string) (set, counted bool) {
	t.Helper()
	set, err := l.TrySetCountOnce(t.Context(), n, time.Hour)
	require.NoError(t, err)
	counted, err = l.CountDownOnce(t.Context(), who)
	require.NoError(t, err)
	return set, counted
}

// requireOpen requires that a participant that restarts finds the latch open, and that it stays so for at most an hour.
func (p *place) requireOpen(t *testing.T, who string) {
	t.Helper()
	l := p.latch(t)
	set, counted := takePart(t, l, 2, who)
	require.False(t, set)
	require.False(t, counted)
	require.NoError(t, ended(t, begin(t.Context(), l)))
	require.NoError(t, l.AwaitSet(t.Context()))
	requireCount(t, l, 0)
	left := p.Redis.PTTL(t.Context(), p.openKey()).Val()
	require.Positive(t, left)
	require.LessOrEqual(t, left, time.Hour)
}

func (p *place) openKey() string { return "redlatch_latch_open:{" + p.name + "}" }

func staysOpen(t *testing.T, p *place) {
	one, two := p.latch(t), p.latch(t)
	set, counted := takePart(t, one, 2, "one")
	require.True(t, set)
	require.True(t, counted)
	waiting := begin(t.Context(), one)
	p.subscribed(t, 1)
	set, counted = takePart(t, p.latch(t), 2, "one")
	require.False(t, set, "it has restarted")
	require.False(t, counted)
	waits(t, waiting)
	set, counted = takePart(t, two, 2, "two")
	require.False(t, set)
	require.True(t, counted)
	require.NoError(t, ended(t, waiting))
	for _, who := range []string{"one", "two"} {
		p.requireOpen(t, who)
	}
	require.NoError(t, p.Redis.Del(t.Context(), p.openKey()).Err()) // the hour is over
	set, counted = takePart(t, one, 2, "one")
	require.True(t, set)
	require.True(t, counted)
	requireCount(t, two, 1)
}

func staysOpenNoLonger(t *testing.T, p *place) {
	l := p.latch(t)
	for _, n := range []int{1, 2} { // 1: it is open
		set, _ := takePart(t, l, n, "one")
		require.True(t, set)
		gone, err := l.Delete(t.Context())
		require.NoError(t, err)
		require.Equal(t, n == 2, gone)
		require.Zero(t, p.Redis.Exists(t.Context(), p.openKey()).Val())
	}
}

func staysOpenForTrySetCountOnceAlone(t *testing.T, p *place) {
	l := p.latch(t)
	takePart(t, l, 1, "one")
	set(t, l, 1)
	requireCount(t, l, 1)
	down(t, l)
	again, _ := takePart(t, l, 2, "one")
	require.True(t, again, "of the last use it is not known")
	set, err := l.TrySetCount(t.Context(), 2)
	require.NoError(t, err)
	require.False(t, set)
	down(t, l)
	p.requireOpen(t, "one")
}

func opensBehind(t *testing.T, p *place) {
	l := p.latch(t)
	for _, first := range []func(){
		func() { p.requireOpen(t, "one") },
		func() { down(t, l) },
		func() { once(t, l, "one", false) },
	} {
		takePart(t, l, 2, "one")
		require.EqualValues(t, -1, p.Redis.PTTL(t.Context(), p.openKey()).Val(), "it has not opened")
		require.NoError(t, p.Redis.Del(t.Context(), p.name).Err()) // as Java does at zero
		first()
		p.requireOpen(t, "one")
		_, err := l.Delete(t.Context())
		require.NoError(t, err)
	}
}

// F19
func TestLatchStaysOpenForItsTimeAndNoLonger(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetCountDownLatch("n")
		sets := func(ttl time.Duration) bool {
			set, err := l.TrySetCountOnce(t.Context(), 2, ttl)
			require.NoError(t, err)
			return set
		}
		require.True(t, sets(time.Minute))
		time.Sleep(time.Hour)
		require.False(t, sets(time.Second))
		require.NoError(t, l.CountDownBy(t.Context(), 2))
		for range 59 {
			time.Sleep(time.Second)
			require.False(t, sets(time.Hour), "asking makes it no longer")
		}
		time.Sleep(time.Second)
		require.True(t, sets(time.Millisecond))
		require.NoError(t, l.CountDownBy(t.Context(), 2))
		time.Sleep(2 * time.Hour)
		assert.Empty(t, b.Keys(t))
	})
}

func otherData(t *testing.T, p *place) {
	l := p.latch(t)
	for what, fill := range map[string]func() error{
		"a list": func() error { return p.Redis.RPush(t.Context(), p.name, "x").Err() },
		"a word": func() error { return p.Redis.Set(t.Context(), p.name, "word", 0).Err() },
		"a number that a script would round": func() error {
			return p.Redis.Set(t.Context(), p.name, "9223372036854775807", 0).Err()
		},
	} {
		require.NoError(t, fill())
		for verb, call := range calls {
			require.ErrorIs(t, call(t.Context(), l), redlatch.ErrWrongType, "%s: %s", what, verb)
		}
		n, err := p.Redis.Del(t.Context(), p.name).Result()
		require.NoError(t, err)
		require.EqualValues(t, 1, n, what)
	}
}

func closeEndsWaits(t *testing.T, p *place) {
	l := p.latch(t)
	set(t, l, 1)
	c := p.Client(t)
	waiter := c.GetCountDownLatch(p.name)
	var waiting []<-chan error
	for range 20 {
		waiting = append(waiting, begin(context.WithoutCancel(t.Context()), waiter))
	}
	p.subscribed(t, 1)
	lag := faulttest.MeasureLag(t, "")
	start := time.Now()
	require.NoError(t, c.Close())
	assert.Less(t, time.Since(start), time.Second+lag.Late(), "nothing is held")
	for _, w := range waiting {
		require.ErrorIs(t, ended(t, w), redlatch.ErrClosed)
	}
	for verb, call := range calls {
		require.ErrorIs(t, call(t.Context(), waiter), redlatch.ErrClosed, verb)
	}
	requireCount(t, l, 1)
}

func contextEnds(t *testing.T, p *place) {
	l := p.latch(t)
	set(t, l, 1)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := begin(ctx, l), begin(t.Context(), l)
	p.subscribed(t, 1)
	cancel()
	require.ErrorIs(t, ended(t, first), context.Canceled)
	waits(t, second)
	down(t, l)
	require.NoError(t, ended(t, second))
}

func leavesNothing(t *testing.T, p *place) {
	l := p.latch(t)
	set(t, l, 2)
	_, err := l.CountDownOnce(t.Context(), "a")
	require.NoError(t, err)
	down(t, l)
	keys := []string{p.name, "redlatch_latch_once:{" + p.name + "}", "redlatch_latch_set:{" + p.name + "}"}
	for i, key := range keys {
		left, err := p.Redis.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		if i < 2 {
			require.EqualValues(t, -2, left, "%s is gone", key)
			continue
		}
		require.LessOrEqual(t, left, time.Hour, fmt.Sprint(key))
		require.Positive(t, left, fmt.Sprint(key))
	}
}
