package rbarrier_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rbarrier"
)

func TestParticipantsWorkTogether(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		clients := clientsOf(peers(t, b, 2))
		start := time.Now()
		pass(t, clients, double("work"), 3, 10)
		assert.Zero(t, time.Since(start), "no message is missed")
		time.Sleep(time.Minute)
		assert.Empty(t, b.Keys(t))
	})
}

func TestPlacesAreKeptDuringTheWork(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ds := participants(peers(t, b, 2))
		enter(t, ds...)
		time.Sleep(time.Minute)
		first := begin(func() error { return ds[0].Leave(t.Context()) })
		time.Sleep(time.Minute)
		waits(t, first)
		require.NoError(t, ds[1].Leave(t.Context()))
		require.NoError(t, <-first)
	})
}

func TestNumberOfParticipantsStaysDuringTheWork(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		ds := participants(all)
		enter(t, ds...)
		time.Sleep(5 * time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		require.ErrorIs(t, all[0].GetDoubleBarrier("work", 3).Enter(ctx), redlatch.ErrInvalid)
		leave(t, ds...)
		time.Sleep(time.Minute)
		require.NoError(t, all[0].GetDoubleBarrier("work", 1).Enter(t.Context()), "but not for ever")
	})
}

func TestNumberOfParticipantsThatRedisHasLostComesBack(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ds := participants(peers(t, b, 2))
		enter(t, ds...)
		require.Equal(t, int64(1), b.Redis.Del(t.Context(), "redlatch_double:{work}").Val())
		i := info(t, ds[0])
		assert.Equal(t, []int{0, 2}, []int{i.Participants, i.Inside.Count})
		time.Sleep(recheck)
		i = info(t, ds[0])
		assert.Equal(t, []int{2, 2}, []int{i.Participants, i.Inside.Count})
		leave(t, ds...)
		time.Sleep(time.Minute)
		assert.Empty(t, b.Keys(t))
	})
}

func TestNextRoundEntersWhenTheLastOneHasLeft(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		ds, next, third := participants(all), participants(all), participants(all)
		enter(t, ds...)
		var ended, later []<-chan error
		for _, d := range next {
			ended = append(ended, begin(func() error { return d.Enter(t.Context()) }))
		}
		for _, d := range third {
			later = append(later, begin(func() error { return d.Enter(t.Context()) }))
		}
		time.Sleep(time.Minute)
		waits(t, ended[0])
		leave(t, ds...)
		for i := range ended {
			require.NoError(t, <-ended[i])
			waits(t, later[i])
		}
		leave(t, next...)
		for i := range later {
			require.NoError(t, <-later[i])
		}
		leave(t, third...)
	})
}

// F3
func TestOneThatGivesUpBreaksTheRoundOfADoubleBarrier(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		ds := participants(all)
		ctx, giveUp := context.WithCancel(t.Context())
		first := begin(func() error { return ds[0].Enter(ctx) })
		giveUp()
		require.ErrorIs(t, <-first, context.Canceled)
		synctest.Wait() // the round is broken in the background
		enter(t, ds...)

		ctx, giveUp = context.WithCancel(t.Context())
		first = begin(func() error { return ds[0].Leave(ctx) })
		giveUp()
		require.ErrorIs(t, <-first, context.Canceled)
		time.Sleep(10 * time.Second)
		require.ErrorIs(t, ds[1].Leave(t.Context()), rbarrier.ErrBroken)
		enter(t, ds...)
		leave(t, ds...)
	})
}

func TestOneThatIsGoneAfterAllHaveEnteredBreaksNoEnter(t *testing.T) {
	gone := map[string]func(t *testing.T, p *locktest.Peer, d *rbarrier.DoubleBarrier){
		"closed": func(t *testing.T, p *locktest.Peer, _ *rbarrier.DoubleBarrier) {
			t.Helper()
			require.NoError(t, p.Close())
		},
		"gives up": func(t *testing.T, _ *locktest.Peer, d *rbarrier.DoubleBarrier) {
			t.Helper()
			ctx, giveUp := context.WithCancel(t.Context())
			leaves := begin(func() error { return d.Leave(ctx) })
			giveUp()
			require.ErrorIs(t, <-leaves, context.Canceled)
			synctest.Wait() // the round is broken in the background
		},
	}
	for how, goes := range gone {
		t.Run(how, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				all := peers(t, b, 3)
				ds := participants(all)
				enter(t, ds...)
				leave(t, ds...) // Redis knows the scripts
				first := begin(func() error { return ds[0].Enter(t.Context()) })
				all[0].HangReplies(1)
				time.Sleep(recheck) // it asks, and does not hear that all have entered
				second := begin(func() error { return ds[1].Enter(t.Context()) })
				require.NoError(t, ds[2].Enter(t.Context()))
				finish(t, second)
				goes(t, all[2], ds[2])
				waits(t, first)
				finish(t, first)
				for _, d := range ds[:2] {
					require.ErrorIs(t, d.Leave(t.Context()), rbarrier.ErrBroken)
				}
			})
		})
	}
}

func TestOneThatClosesAsItHasEnteredBreaksNoEnterOnAServer(t *testing.T) {
	connect := func() *redlatch.Client {
		c, err := redlatch.New(redistest.Shared(t).Client(t))
		require.NoError(t, err)
		return c
	}
	name := fmt.Sprint("closes", time.Now().UnixNano())
	one, two := connect(), connect()
	defer func() { assert.NoError(t, errors.Join(one.Close(), two.Close())) }()
	for range faulttest.Rounds(t, 20, 1000) {
		entered, left := make(chan error, 2), make(chan error, 2)
		for _, c := range []*redlatch.Client{one, two} {
			d := c.GetDoubleBarrier(name, 3)
			go func() {
				entered <- d.Enter(t.Context())
				left <- d.Leave(t.Context())
			}()
		}
		closes := connect()
		require.NoError(t, closes.GetDoubleBarrier(name, 3).Enter(t.Context()))
		require.NoError(t, closes.Close())
		finish(t, entered, entered)
		require.ErrorIs(t, <-left, rbarrier.ErrBroken)
		require.ErrorIs(t, <-left, rbarrier.ErrBroken)
	}
}

// F1, F11
func TestDeathDuringTheWorkBreaksTheRound(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 3)
		ds := participants(all)
		enter(t, ds...)
		time.Sleep(time.Minute)
		start := time.Now()
		all[2].Blackhole(true)
		first := begin(func() error { return ds[0].Leave(t.Context()) })
		require.ErrorIs(t, <-first, rbarrier.ErrBroken)
		assert.GreaterOrEqual(t, time.Since(start), place-recheck)
		assert.LessOrEqual(t, time.Since(start), place+recheck)
		require.ErrorIs(t, ds[1].Leave(t.Context()), rbarrier.ErrBroken, "one that has not waited learns of it too")
		next := []<-chan error{begin(func() error { return ds[0].Enter(t.Context()) }), begin(func() error { return ds[1].Enter(t.Context()) })}
		all[2].Blackhole(false)
		require.ErrorIs(t, ds[2].Leave(t.Context()), rbarrier.ErrBroken)
		require.NoError(t, ds[2].Enter(t.Context()))
		finish(t, next...)
		for _, p := range all {
			p.Blackhole(true) // all die
		}
		time.Sleep(10 * time.Second)
		others := participants(peers(t, b, 3))
		start = time.Now()
		enter(t, others...)
		assert.Zero(t, time.Since(start), "the places of the dead are free")
		leave(t, others...)
		for i, p := range all {
			p.Blackhole(false)
			require.ErrorIs(t, ds[i].Leave(t.Context()), rbarrier.ErrBroken)
		}
	})
}

// F1, F11
func TestPlacesInsideAreGoodForTheLeasesOfTheirOwnClients(t *testing.T) {
	const short = 500 * time.Millisecond
	mixed := func(t *testing.T, b *locktest.Bubble) (long, brief *locktest.Peer, ds []*rbarrier.DoubleBarrier) {
		t.Helper()
		long, brief = b.Peer(t), b.Peer(t, redlatch.WithWatchdogTimeout(short))
		ds = participants([]*locktest.Peer{long, brief})
		enter(t, ds...)
		leave(t, ds...) // Redis knows the scripts
		return long, brief, ds
	}
	t.Run("a slow link of a long lease", func(t *testing.T) {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			long, _, ds := mixed(t, b)
			first := begin(func() error { return ds[0].Enter(t.Context()) })
			time.Sleep(time.Minute)
			long.Blackhole(true) // it hears late that all have entered
			require.NoError(t, ds[1].Enter(t.Context()))
			leaves := begin(func() error { return ds[1].Leave(t.Context()) })
			time.Sleep(place - 2*recheck)
			waits(t, first)
			waits(t, leaves)
			long.Blackhole(false)
			finish(t, first)
			require.NoError(t, ds[0].Leave(t.Context()))
			finish(t, leaves)
		})
	})
	t.Run("a death of a short lease", func(t *testing.T) {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			_, brief, ds := mixed(t, b)
			first := begin(func() error { return ds[1].Enter(t.Context()) })
			time.Sleep(time.Minute)
			brief.Blackhole(true) // it dies as all enter
			require.NoError(t, ds[0].Enter(t.Context()))
			start := time.Now()
			require.ErrorIs(t, ds[0].Leave(t.Context()), rbarrier.ErrBroken)
			assert.LessOrEqual(t, time.Since(start), short+recheck)
			brief.Blackhole(false)
			finish(t, first) // all had entered
			require.ErrorIs(t, ds[1].Leave(t.Context()), rbarrier.ErrBroken)
		})
	})
}

// F1
func TestOneOfARoundThatIsForgottenBreaksNoOther(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		old := peers(t, b, 2)
		late := participants(old)
		enter(t, late...)
		require.NoError(t, old[1].Close()) // the other one goes on working
		time.Sleep(65 * time.Second)
		ds := participants(peers(t, b, 3))
		enter(t, ds...)
		time.Sleep(3 * time.Second)
		require.ErrorIs(t, late[0].Leave(t.Context()), rbarrier.ErrBroken)
		leave(t, ds...)
	})
}

func TestOneOfABrokenRoundAsksNoMore(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		ds := participants(all)
		enter(t, ds...)
		require.NoError(t, all[1].Close())
		time.Sleep(recheck)
		var asked atomic.Int64
		b.Mini.Server().SetPreHook(func(_ *server.Peer, _ string, args ...string) bool {
			if slices.Contains(args, "redlatch_double_inside:{work}") {
				asked.Add(1)
			}
			return false
		})
		time.Sleep(time.Minute)
		assert.Zero(t, asked.Load())
		require.ErrorIs(t, ds[0].Leave(t.Context()), rbarrier.ErrBroken)
		both := []*rbarrier.DoubleBarrier{ds[0], b.Peer(t).GetDoubleBarrier("work", 2)}
		enter(t, both...)
		time.Sleep(time.Minute)
		leave(t, both...)
	})
}

// F1, F9
func TestRoundIsNotCompleteForOneWhoseOthersAreForgotten(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		ds := participants(all)
		enter(t, ds...)
		first := begin(func() error { return ds[0].Leave(t.Context()) })
		all[0].Blackhole(true) // it dies as it leaves
		time.Sleep(place + recheck)
		require.ErrorIs(t, ds[1].Leave(t.Context()), rbarrier.ErrBroken)
		all[0].Blackhole(false)
		require.ErrorIs(t, <-first, rbarrier.ErrBroken)
		enter(t, ds...)
		b.Mini.FlushAll()
		require.ErrorIs(t, ds[0].Leave(t.Context()), rbarrier.ErrBroken)
		require.ErrorIs(t, ds[1].Leave(t.Context()), rbarrier.ErrBroken)
		enter(t, ds...)
		leave(t, ds...)
	})
}

// F19
func TestNobodyEntersBesideARoundThatIsHalfForgotten(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		ds, next := participants(all), participants(all)
		enter(t, ds...)
		leaves := begin(func() error { return ds[0].Leave(t.Context()) })
		waiting := begin(func() error { return next[0].Enter(t.Context()) })
		b.Delete(t, "redlatch_double_inside:{work}")
		require.NoError(t, next[1].Enter(t.Context()))
		finish(t, waiting)
		require.ErrorIs(t, <-leaves, rbarrier.ErrBroken)
		require.ErrorIs(t, ds[1].Leave(t.Context()), rbarrier.ErrBroken)
		leave(t, next...)
	})
}

// F2
func TestLostRepliesOfADoubleBarrierChangeNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		ds := participants(all)
		enter(t, ds...)
		leave(t, ds...) // Redis knows the scripts
		for n := 1; n <= 4; n++ {
			for sick := range all {
				all[sick].LoseReplies(n)
				enter(t, ds...)
				all[sick].LoseReplies(n)
				leave(t, ds...)
				all[sick].LoseReplies(0)
			}
		}
	})
}

// F16
func TestCloseBreaksTheWork(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 3)
		ds := participants(all)
		enter(t, ds...)
		first := begin(func() error { return ds[1].Leave(t.Context()) })
		start := time.Now()
		require.NoError(t, all[0].Close())
		require.ErrorIs(t, <-first, rbarrier.ErrBroken)
		assert.Zero(t, time.Since(start))
		require.ErrorIs(t, ds[0].Leave(t.Context()), redlatch.ErrClosed)
		require.ErrorIs(t, ds[0].Enter(t.Context()), redlatch.ErrClosed)
		require.ErrorIs(t, ds[2].Leave(t.Context()), rbarrier.ErrBroken)
	})
}

func TestParticipantEntersAndLeavesInTurn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		d := p.GetDoubleBarrier("work", 2)
		require.EqualError(t, d.Leave(t.Context()), `rbarrier: leave "work": invalid argument: the participant is outside, not inside`)
		first := begin(func() error { return d.Enter(t.Context()) })
		require.ErrorIs(t, d.Enter(t.Context()), redlatch.ErrInvalid)
		require.ErrorIs(t, d.Leave(t.Context()), redlatch.ErrInvalid)
		other := p.GetDoubleBarrier("work", 2)
		require.NoError(t, other.Enter(t.Context()))
		require.NoError(t, <-first)
		require.ErrorIs(t, d.Enter(t.Context()), redlatch.ErrInvalid)
		require.ErrorIs(t, p.GetDoubleBarrier("work", 3).Enter(t.Context()), redlatch.ErrInvalid)
		leave(t, d, other)
		require.ErrorIs(t, d.Leave(t.Context()), redlatch.ErrInvalid)
	})
}
