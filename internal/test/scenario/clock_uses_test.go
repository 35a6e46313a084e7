package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/rid"
	"github.com/redlatch/redlatch/rratelimiter"
)

// uses returns what two clients do with objects that nobody holds. The server may give the tokens back once. check looks at what all uses
// have got together.
func (s *clocked) uses(t *testing.T) (all []use, check func()) {
	t.Helper()
	clients := []*redlatch.Client{s.client(t, s.Addr()), s.client(t, s.Addr())}
	all, adds := allUses(t, clients[0], clients[1], 1)
	all = append(all, idsInTurn(clients, "plain ids"), idsInTurn(clients, "timed ids", rid.WithTimePrefix(20)))
	return all, func() { adds(0) }
}

// idsInTurn takes ids from one client after another, each from a block above the last one.
func idsInTurn(clients []*redlatch.Client, name string, opts ...rid.Option) use {
	var n int
	var newest int64
	return use{name, func(ctx context.Context) error {
		n++
		id, err := clients[n%len(clients)].GetIDGenerator(name, append(opts, rid.WithBlock(1))...).Next(ctx)
		if err == nil && id <= newest {
			err = fmt.Errorf("id %d after %d", id, newest)
		}
		newest = id
		return err
	}}
}

// useEach has each use succeed n times, all side by side.
func useEach(t *testing.T, all []use, n int) {
	t.Helper()
	locktest.Each(t, all, func(ctx context.Context, u use) {
		for range n {
			if !assert.NoError(t, u.once(ctx), u.kind) {
				return
			}
		}
	})
}

// F18
func TestNoUseNoticesThatTheServersClockIsOff(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			s := startClocked(t, ahead)
			all, check := s.uses(t)
			useEach(t, all, 50)
			check()
		})
	}
}

// F18: whichever way a clock steps, ids rise, topics lose nothing, and tokens come back once at most. A step back breaks no round of a
// barrier; a step ahead breaks it for all.
func TestStepOfTheServersClockPartsNoRoundAndRepeatsNoID(t *testing.T) {
	for _, step := range []time.Duration{-24 * time.Hour, -time.Hour, time.Hour, 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			s := startClocked(t, 0)
			all, check := s.uses(t)
			useEach(t, all, 20)
			one, two := s.client(t, s.Addr()), s.client(t, s.Addr())
			met := meetings(t, s.Client(t), one, two)
			s.clock.Set(step)
			for _, m := range met {
				m.end(t, step > 0)
				together(t, one, two, m.name)
			}
			if step < 0 { // see TestStepBackKeepsTokensAwayForAsLong
				all = slices.DeleteFunc(all, func(u use) bool { return u.kind == "limiter" })
			}
			useEach(t, all, 20)
			check()
		})
	}
}

// meeting is a call that waits for a second participant at barriers of a name, see together.
type meeting struct {
	name   string
	first  <-chan error
	second func(ctx context.Context) error
}

// passing returns how a participant of a double barrier enters and leaves it.
func passing(d *rbarrier.DoubleBarrier) func(ctx context.Context) error {
	return func(ctx context.Context) error { return errors.Join(d.Enter(ctx), d.Leave(ctx)) }
}

// meetings has one client wait at a barrier, to enter a double barrier, and to leave another one.
func meetings(t *testing.T, rdb redis.UniversalClient, one, two *redlatch.Client) []meeting {
	t.Helper()
	begin := func(name, key string, first, second func(ctx context.Context) error) meeting {
		waited := make(chan error, 1)
		go func() { waited <- first(t.Context()) }()
		redistest.Eventually(t, 10*time.Second, key+" has a place", func() error {
			n, err := rdb.ZCard(t.Context(), key).Result()
			if err == nil && n != 1 {
				err = fmt.Errorf("it has %d", n)
			}
			return err
		})
		return meeting{name, waited, second}
	}
	single := func(c *redlatch.Client) *rbarrier.Barrier { return c.GetBarrier("await barrier", 2) }
	double := func(c *redlatch.Client, name string) *rbarrier.DoubleBarrier {
		return c.GetDoubleBarrier(name+"double", 2)
	}
	mine, theirs := double(one, "leave "), double(two, "leave ")
	entered := begin("", "redlatch_double_arrived:{leave double}", mine.Enter, nil)
	require.NoError(t, theirs.Enter(t.Context()))
	require.NoError(t, <-entered.first)
	return []meeting{
		begin("await ", "redlatch_barrier_arrived:{await barrier}", single(one).Await, single(two).Await),
		begin("enter ", "redlatch_double_arrived:{enter double}", passing(double(one, "enter ")), passing(double(two, "enter "))),
		begin("leave ", "redlatch_double_leaving:{leave double}", mine.Leave, theirs.Leave),
	}
}

// end has both participants learn how their round has ended, and leave.
func (m meeting) end(t *testing.T, broken bool) {
	t.Helper()
	if broken {
		require.ErrorIs(t, <-m.first, rbarrier.ErrBroken, m.name)
		if m.name == "leave " {
			require.ErrorIs(t, m.second(t.Context()), rbarrier.ErrBroken, m.name)
		}
		return
	}
	require.NoError(t, m.second(t.Context()), m.name)
	require.NoError(t, <-m.first, m.name)
}

// F18
func TestStepBackKeepsTokensAwayForAsLong(t *testing.T) {
	t.Parallel()
	s := startClocked(t, 0)
	l := s.client(t, s.Addr()).GetRateLimiter("limiter", rratelimiter.Per(10, time.Minute))
	allow := func(key string, n int) rratelimiter.Result {
		res, err := l.Allow(t.Context(), key, n)
		require.NoError(t, err)
		return res
	}
	require.True(t, allow("used", 10).Allowed)
	s.clock.Set(-time.Hour)
	res := allow("used", 1)
	assert.False(t, res.Allowed)
	assert.InDelta(t, time.Hour.Seconds(), res.RetryAfter.Seconds(), 10)
	assert.True(t, allow("unused", 10).Allowed)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.ErrorIs(t, l.Wait(ctx, "used", 1), rratelimiter.ErrExceeds)
	s.clock.Set(0)
	assert.False(t, allow("used", 10).Allowed)
	assert.True(t, allow("unused", 10).Allowed, "the hour brings all tokens back")
	assert.False(t, allow("unused", 10).Allowed, "once")
}
