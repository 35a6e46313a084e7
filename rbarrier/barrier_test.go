package rbarrier_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rbarrier"
)

func TestRoundsFollowOneAnother(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		clients := clientsOf(peers(t, b, 3))
		start := time.Now()
		pass(t, clients, single("start"), 2, 20)
		assert.Zero(t, time.Since(start), "no message is missed")
		require.NoError(t, clients[0].GetBarrier("alone", 1).Await(t.Context()))
		time.Sleep(time.Minute)
		assert.Empty(t, b.Keys(t))
	})
}

// F21
func TestRoundCostsTwoCallsForEachWhoWaits(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 3)
		whole(t, all...) // from now on they hear of each other
		scripts := func() (n int) {
			for _, p := range all {
				n += p.Scripts()
			}
			return n
		}
		sent := scripts()
		whole(t, all...)
		assert.Equal(t, 2+2+1, scripts()-sent, "the last one to arrive does not wait")
	})
}

func TestParticipantWaitsAsLongAsItTakes(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		first := await(t, all[0], 2)
		assert.Len(t, all[0].Waits(), 1)
		sent := all[0].Scripts()
		time.Sleep(5 * time.Minute)
		waits(t, first)
		assert.InDelta(t, 300, all[0].Scripts()-sent, 30, "it asks once a second")
		require.NoError(t, all[1].GetBarrier("start", 2).Await(t.Context()))
		require.NoError(t, <-first)
		assert.Empty(t, all[0].Waits())
	})
}

// F3
func TestOneThatGivesUpBreaksTheRoundForAll(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 3)
		ctx, giveUp := context.WithCancel(t.Context())
		first, second := await(t, all[0], 3), begin(func() error { return all[1].GetBarrier("start", 3).Await(ctx) })
		start := time.Now()
		giveUp()
		require.ErrorIs(t, <-second, context.Canceled)
		err := <-first
		require.ErrorIs(t, err, rbarrier.ErrBroken)
		require.EqualError(t, err, `rbarrier: await "start": barrier broken`)
		assert.Zero(t, time.Since(start))
		whole(t, all...)
		whole(t, all...)
	})
}

// F1, F11
func TestDeadParticipantBreaksTheRoundAfterItsPlace(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 3)
		first, second := await(t, all[0], 3), await(t, all[1], 3)
		time.Sleep(time.Minute)
		start := time.Now()
		all[1].Blackhole(true)
		require.ErrorIs(t, <-first, rbarrier.ErrBroken)
		assert.GreaterOrEqual(t, time.Since(start), place-recheck)
		assert.LessOrEqual(t, time.Since(start), place+recheck)
		third := []<-chan error{await(t, all[0], 3), await(t, all[2], 3)} // the next round
		all[1].Blackhole(false)
		require.ErrorIs(t, <-second, rbarrier.ErrBroken, "it was taken for dead")
		for _, ended := range third {
			waits(t, ended)
		}
		require.NoError(t, all[1].GetBarrier("start", 3).Await(t.Context()))
		finish(t, third...)
	})
}

// F1, F11
func TestDeathIsNoticedAfterTheLeaseOfItsClient(t *testing.T) {
	for _, lease := range []time.Duration{300 * time.Millisecond, 2 * time.Second, time.Hour} {
		for _, verb := range []string{"await", "enter", "work"} {
			t.Run(fmt.Sprint(verb, " ", lease), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					all := []*locktest.Peer{b.Peer(t), b.Peer(t, redlatch.WithWatchdogTimeout(lease))}
					calls := map[string]func(p *locktest.Peer) error{
						"await": func(p *locktest.Peer) error { return p.GetBarrier("start", 3).Await(t.Context()) },
						"enter": func(p *locktest.Peer) error { return p.GetDoubleBarrier("work", 3).Enter(t.Context()) },
					}
					if verb == "work" {
						ds := participants(all)
						enter(t, ds...)
						calls[verb] = func(p *locktest.Peer) error {
							if p == all[1] {
								return nil // it stays inside
							}
							return ds[0].Leave(t.Context())
						}
					}
					first, dies := begin(func() error { return calls[verb](all[0]) }), begin(func() error { return calls[verb](all[1]) })
					last := min(lease, place)
					time.Sleep(5 * last)
					waits(t, first)
					start := time.Now()
					all[1].Blackhole(true)
					require.ErrorIs(t, <-first, rbarrier.ErrBroken)
					assert.GreaterOrEqual(t, time.Since(start), last*3/4)
					assert.LessOrEqual(t, time.Since(start), last+recheck)
					all[1].Blackhole(false)
					if verb != "work" {
						require.ErrorIs(t, <-dies, rbarrier.ErrBroken)
					}
				})
			})
		}
	}
}

func TestNewParticipantsDoNotJoinTheRoundOfADeadOne(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 3)
		dead := await(t, all[0], 2)
		all[0].Blackhole(true)
		time.Sleep(place)
		first := await(t, all[1], 2)
		waits(t, first)
		require.NoError(t, all[2].GetBarrier("start", 2).Await(t.Context()))
		require.NoError(t, <-first)
		all[0].Blackhole(false)
		require.ErrorIs(t, <-dead, rbarrier.ErrBroken)
	})
}

// F23
func TestAnotherNumberIsInvalid(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		first := await(t, all[0], 2)
		err := all[1].GetBarrier("start", 3).Await(t.Context())
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		require.EqualError(t, err, `rbarrier: await "start": invalid argument: 3 participants, and the barrier has 2`)
		waits(t, first)
		require.NoError(t, all[1].GetBarrier("start", 2).Await(t.Context()), "it has broken nothing")
		require.NoError(t, <-first)
		require.ErrorIs(t, all[1].GetBarrier("start", 3).Await(t.Context()), redlatch.ErrInvalid, "after the round too")
		time.Sleep(time.Minute)
		require.NoError(t, all[1].GetBarrier("start", 1).Await(t.Context()), "but not for ever")
	})
}

// F2
func TestLostRepliesChangeNothing(t *testing.T) {
	for n := 1; n <= 4; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				all := peers(t, b, 3)
				whole(t, all...) // Redis knows the scripts
				for sick := range all {
					var ended []<-chan error
					for i, p := range all {
						if i == sick {
							p.LoseReplies(n)
						}
						ended = append(ended, await(t, p, 3))
					}
					finish(t, ended...)
				}
				first, second := await(t, all[0], 3), await(t, all[1], 3)
				time.Sleep(time.Minute)
				waits(t, first) // no place was taken twice
				require.NoError(t, all[2].GetBarrier("start", 3).Await(t.Context()))
				require.NoError(t, <-first)
				require.NoError(t, <-second)
			})
		})
	}
}

// F2, F3
func TestCallThatArrivesAfterItsParticipantGaveUpTakesNoPlace(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 3)
		whole(t, all...) // Redis knows the scripts
		ctx, giveUp := context.WithCancel(t.Context())
		all[0].Withhold(1)
		gone := begin(func() error {
			defer giveUp()
			return all[0].GetBarrier("pair", 2).Await(ctx)
		})
		giveUp()
		require.ErrorIs(t, <-gone, context.Canceled)
		time.Sleep(time.Second)
		require.Equal(t, 1, all[0].Deliver(t))
		first := begin(func() error { return all[1].GetBarrier("pair", 2).Await(t.Context()) })
		time.Sleep(time.Minute)
		waits(t, first)
		require.NoError(t, all[2].GetBarrier("pair", 2).Await(t.Context()))
		require.NoError(t, <-first)
	})
}

// F2
func TestCallThatIsRepeatedForAMinuteTakesNoPlaceInAnotherRound(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		first := await(t, all[0], 2)
		all[1].HangReplies(1) // the round is complete, and it does not learn of that
		late := begin(func() error { return all[1].GetBarrier("start", 2).Await(ctx) })
		finish(t, first)
		all[1].Blackhole(true)
		next := await(t, all[0], 2)
		time.Sleep(70 * time.Second)
		all[1].Blackhole(false)
		require.ErrorIs(t, <-late, rbarrier.ErrBroken)
		time.Sleep(time.Minute)
		waits(t, next)
		require.NoError(t, all[1].GetBarrier("start", 2).Await(ctx))
		finish(t, next)
	})
}

// F2
func TestCallThatArrivesAfterItsEndTakesNoPlace(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		all[1].Withhold(1)
		late := begin(func() error { return all[1].GetBarrier("start", 2).Await(ctx) })
		synctest.Wait()
		all[1].Blackhole(true)
		time.Sleep(40 * time.Second)
		all[1].Blackhole(false)
		require.ErrorIs(t, <-late, rbarrier.ErrBroken)
		assert.Equal(t, 1, all[1].Deliver(t))
		next := await(t, all[0], 2)
		time.Sleep(time.Second)
		waits(t, next)
		require.NoError(t, all[1].GetBarrier("start", 2).Await(ctx))
		finish(t, next)
	})
}

func TestParticipantArrivesAfterAnOutage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		all[0].Blackhole(true)
		first := begin(func() error { return all[0].GetBarrier("start", 2).Await(ctx) })
		time.Sleep(20 * time.Second)
		all[0].Blackhole(false)
		require.NoError(t, all[1].GetBarrier("start", 2).Await(ctx))
		finish(t, first)
	})
}

// F4
func TestLostMessageCostsASecond(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		whole(t, all[0])    // it has a connection
		all[0].Refuse(true) // and gets no other one
		first := begin(func() error { return all[0].GetBarrier("pair", 2).Await(t.Context()) })
		time.Sleep(10 * time.Second)
		start := time.Now()
		require.NoError(t, all[1].GetBarrier("pair", 2).Await(t.Context()))
		require.NoError(t, <-first)
		assert.LessOrEqual(t, time.Since(start), recheck)

		ds := participants(all)
		first = begin(func() error { return ds[0].Enter(t.Context()) })
		time.Sleep(10 * time.Second)
		require.NoError(t, ds[1].Enter(t.Context()))
		require.NoError(t, <-first)
		first = begin(func() error { return ds[0].Leave(t.Context()) })
		require.NoError(t, ds[1].Leave(t.Context()))
		require.NoError(t, <-first)
	})
}

// F19
func TestDeadParticipantsLeaveNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		ds := participants(all)
		enter(t, ds...)
		ended := []<-chan error{await(t, all[0], 2), begin(func() error { return ds[0].Leave(t.Context()) })}
		for _, p := range all {
			p.Blackhole(true)
		}
		time.Sleep(2 * time.Minute)
		assert.Empty(t, b.Keys(t))
		for _, p := range all {
			p.Blackhole(false)
		}
		for _, one := range ended {
			require.Error(t, <-one)
		}
	})
}

// F6
func TestShortOutageBreaksNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		first := await(t, all[0], 2)
		all[0].Down(true)
		time.Sleep(2 * time.Second)
		all[0].Down(false)
		time.Sleep(time.Minute)
		require.NoError(t, all[1].GetBarrier("start", 2).Await(t.Context()))
		require.NoError(t, <-first)

		first = await(t, all[0], 2)
		start := time.Now()
		all[0].Down(true)
		require.ErrorIs(t, <-first, redlatch.ErrUnavailable)
		assert.InDelta(t, place.Seconds(), time.Since(start).Seconds(), 1.3)
		require.ErrorIs(t, all[0].GetBarrier("start", 2).Await(t.Context()), redlatch.ErrUnavailable)
		all[0].Down(false)
		whole(t, all...)
	})
}

// F9
func TestLossOfDataBreaksTheRound(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 2)
		first := await(t, all[0], 2)
		b.Mini.FlushAll()
		start := time.Now()
		require.ErrorIs(t, <-first, rbarrier.ErrBroken)
		assert.LessOrEqual(t, time.Since(start), recheck)
		whole(t, all...)
	})
}

// F16
func TestCloseBreaksTheRounds(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		all := peers(t, b, 3)
		first, second := await(t, all[0], 3), await(t, all[1], 3)
		start := time.Now()
		require.NoError(t, all[0].Close())
		require.ErrorIs(t, <-first, redlatch.ErrClosed)
		require.ErrorIs(t, <-second, rbarrier.ErrBroken)
		assert.Zero(t, time.Since(start))
		require.ErrorIs(t, all[0].GetBarrier("start", 3).Await(t.Context()), redlatch.ErrClosed)
	})
}

func TestBadInputIsRefused(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t, redlatch.WithNamePrefix("app:"))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, n := range map[string]int{"": 2, "{": 2, "none": 0, "many": 10_001} {
			require.ErrorIs(t, c.GetBarrier(name, n).Await(t.Context()), redlatch.ErrInvalid)
			require.ErrorIs(t, c.GetDoubleBarrier(name, n).Enter(t.Context()), redlatch.ErrInvalid)
			require.ErrorIs(t, c.GetDoubleBarrier(name, n).Leave(t.Context()), redlatch.ErrInvalid)
		}
		require.ErrorIs(t, c.GetBarrier("start", 1).Await(ended), context.Canceled)
		require.ErrorIs(t, c.GetBarrier("start", 1).Await(nil), redlatch.ErrInvalid) //nolint:staticcheck // that is the test
		require.EqualError(t, c.GetBarrier("start", 0).Await(t.Context()), `rbarrier: await "start": invalid argument: 0 participants are not between 1 and 10000`)
		assert.Equal(t, "start", c.GetBarrier("start", 1).Name())
		assert.Equal(t, "start", c.GetDoubleBarrier("start", 1).Name())
		assert.Empty(t, b.Keys(t))
		require.NoError(t, b.Redis.Set(t.Context(), "redlatch_barrier:{app:start}", "word", 0).Err())
		require.ErrorIs(t, c.GetBarrier("start", 1).Await(t.Context()), redlatch.ErrWrongType)
		require.NoError(t, b.Redis.LPush(t.Context(), "redlatch_double_arrived:{app:start}", "word").Err())
		require.ErrorIs(t, c.GetDoubleBarrier("start", 1).Enter(t.Context()), redlatch.ErrWrongType)
		synctest.Wait()
	})
}

// F4, F10
func TestBarriersOnRealServers(t *testing.T) {
	for where, connect := range map[string]func(t *testing.T) redis.UniversalClient{
		"server":  func(t *testing.T) redis.UniversalClient { return redistest.Shared(t).Client(t) },
		"cluster": func(t *testing.T) redis.UniversalClient { return redistest.SharedCluster(t).Client(t) },
	} {
		t.Run(where, func(t *testing.T) {
			var clients []*redlatch.Client
			for range 3 {
				c, err := redlatch.New(connect(t))
				require.NoError(t, err)
				defer func() { assert.NoError(t, c.Close()) }()
				clients = append(clients, c)
			}
			name := fmt.Sprint(where, time.Now().UnixNano())
			pass(t, clients, single(name), 4, faulttest.Rounds(t, 50, 2000))
			pass(t, clients, double(name), 4, faulttest.Rounds(t, 10, 500))
		})
	}
}
