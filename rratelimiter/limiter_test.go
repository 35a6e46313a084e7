package rratelimiter_test

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rratelimiter"
)

func allow(t *testing.T, l *rratelimiter.Limiter, key string, n int) rratelimiter.Result {
	t.Helper()
	r, err := l.Allow(t.Context(), key, n)
	require.NoError(t, err)
	return r
}

func TestTokensComeBackEvenlyUpToTheBurst(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetRateLimiter("api", rratelimiter.Per(10, time.Second), rratelimiter.WithBurst(3))
		for left := range 3 {
			assert.Equal(t, rratelimiter.Result{Allowed: true, Remaining: 2 - left, ResetAfter: time.Duration(left+1) * 100 * time.Millisecond}, allow(t, l, "a", 1))
		}
		assert.Equal(t, rratelimiter.Result{RetryAfter: 100 * time.Millisecond, ResetAfter: 300 * time.Millisecond}, allow(t, l, "a", 1))
		assert.True(t, allow(t, l, "b", 3).Allowed, "each key has its own")
		time.Sleep(100*time.Millisecond - time.Microsecond)
		assert.Equal(t, rratelimiter.Result{RetryAfter: time.Microsecond, ResetAfter: 200*time.Millisecond + time.Microsecond}, allow(t, l, "a", 1))
		time.Sleep(time.Microsecond)
		assert.True(t, allow(t, l, "a", 1).Allowed)
		assert.Equal(t, 200*time.Millisecond, allow(t, l, "a", 2).RetryAfter)
		time.Sleep(allow(t, l, "a", 2).ResetAfter + time.Millisecond)
		assert.Empty(t, b.Keys(t), "what is full again is no key")
		assert.Equal(t, 0, allow(t, l, "a", 3).Remaining, "no more than the burst has come back")
	})
}

func look(t *testing.T, l *rratelimiter.Limiter, key string, n int) rratelimiter.Result {
	t.Helper()
	r, err := l.Info(t.Context(), key, n)
	require.NoError(t, err)
	return r
}

func TestInfoTellsWhatIsLeftAndTakesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetRateLimiter("api", rratelimiter.Per(10, time.Second), rratelimiter.WithBurst(3))
		for range 5 {
			assert.Equal(t, rratelimiter.Result{Allowed: true, Remaining: 3}, look(t, l, "a", 1))
		}
		assert.Empty(t, b.Keys(t))
		assert.Equal(t, 1, allow(t, l, "a", 2).Remaining)
		time.Sleep(50 * time.Millisecond)
		before, trips := b.State(t), p.Trips()
		assert.Equal(t, rratelimiter.Result{Allowed: true, Remaining: 1, ResetAfter: 150 * time.Millisecond}, look(t, l, "a", 1))
		assert.Equal(t, 1, p.Trips()-trips)
		refused := rratelimiter.Result{Remaining: 1, RetryAfter: 50 * time.Millisecond, ResetAfter: 150 * time.Millisecond}
		assert.Equal(t, refused, look(t, l, "a", 2))
		assert.Equal(t, before, b.State(t))
		assert.Equal(t, refused, allow(t, l, "a", 2), "what Allow says")
		require.True(t, allow(t, l, "a", 1).Allowed)
		assert.Equal(t, rratelimiter.Result{RetryAfter: 50 * time.Millisecond, ResetAfter: 250 * time.Millisecond}, look(t, l, "a", 1))

		waits := make(chan error, 1)
		go func() { waits <- l.Wait(t.Context(), "a", 2) }()
		synctest.Wait()
		assert.Equal(t, rratelimiter.Result{RetryAfter: 250 * time.Millisecond, ResetAfter: 450 * time.Millisecond}, look(t, l, "a", 1), "what is reserved is not there")
		require.NoError(t, <-waits)
		p.LoseReplies(1)
		assert.Equal(t, rratelimiter.Result{Allowed: true, Remaining: 3}, look(t, l, "b", 1), "it is repeated")
	})
}

func TestObserverLearnsWhatCameOfEachCall(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		type key struct{}
		var seen []redlatch.AcquireEndEvent
		p := b.Peer(t, redlatch.WithNamePrefix("app:"), redlatch.WithObserver(redlatch.Observer{
			AcquireStart: func(ctx context.Context, e redlatch.AcquireStartEvent) context.Context {
				return context.WithValue(ctx, key{}, e)
			},
			AcquireEnd: func(ctx context.Context, e redlatch.AcquireEndEvent) {
				assert.Equal(t, redlatch.AcquireStartEvent{Kind: "limiter", Name: "api"}, ctx.Value(key{}))
				seen = append(seen, e)
			},
		}))
		l := p.GetRateLimiter("api", rratelimiter.Per(1, time.Second))
		assert.True(t, allow(t, l, "a", 1).Allowed)
		assert.False(t, allow(t, l, "a", 1).Allowed)
		require.NoError(t, l.Wait(t.Context(), "a", 1))
		soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.ErrorIs(t, l.Wait(soon, "a", 1), rratelimiter.ErrExceeds)
		cancelled, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		require.ErrorIs(t, l.Wait(cancelled, "a", 1), context.Canceled)
		_, err := l.Allow(t.Context(), "a", 2)
		require.ErrorIs(t, err, rratelimiter.ErrExceeds, "it asks nothing")
		event := func(waited time.Duration, err error) redlatch.AcquireEndEvent {
			return redlatch.AcquireEndEvent{Kind: "limiter", Name: "api", Waited: waited, Asked: 1, Err: err}
		}
		assert.Equal(t, []redlatch.AcquireEndEvent{
			event(0, nil), event(0, rlock.ErrNotAcquired), event(time.Second, nil), event(0, rlock.ErrNotAcquired), event(time.Millisecond, context.Canceled),
		}, seen)
	})
}

// The limiter against exact arithmetic, also for rates that are no whole number of microseconds for each token.
func TestLimiterEqualsItsModel(t *testing.T) {
	for _, rate := range []struct {
		n, burst int
		period   time.Duration
	}{{3, 3, time.Second}, {7, 20, time.Second}, {1, 1, time.Minute}, {999_999, 50, time.Second}, {1000, 10, time.Millisecond}} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				l := b.Peer(t).GetRateLimiter("api", rratelimiter.Per(rate.n, rate.period), rratelimiter.WithBurst(rate.burst))
				random := rand.New(rand.NewPCG(1, uint64(rate.n)))
				each := big.NewRat(rate.period.Microseconds(), int64(rate.n)) // µs for a token
				full := new(big.Rat).Mul(each, big.NewRat(int64(rate.burst), 1))
				back := new(big.Rat) // when all tokens are back
				allowed := 0
				for range faulttest.Rounds(t, 500, 5000) {
					n := 1 + random.IntN(rate.burst)
					now := big.NewRat(time.Now().UnixMicro(), 1)
					if back.Cmp(now) < 0 {
						back.Set(now)
					}
					after := new(big.Rat).Add(back, new(big.Rat).Mul(each, big.NewRat(int64(n), 1)))
					want := new(big.Rat).Sub(after, now).Cmp(full) <= 0
					if want {
						back.Set(after)
					}
					r := allow(t, l, "a", n)
					require.Equal(t, want, r.Allowed)
					require.Equal(t, micros(new(big.Rat).Sub(back, now)), r.ResetAfter)
					if !want {
						require.Equal(t, micros(new(big.Rat).Sub(new(big.Rat).Sub(after, now), full)), r.RetryAfter)
					}
					free := new(big.Rat).Sub(full, new(big.Rat).Sub(back, now))
					left, _ := free.Quo(free, each).Float64()
					require.Equal(t, int(left), r.Remaining)
					info := look(t, l, "a", 1)
					require.Equal(t, []any{r.Remaining, r.ResetAfter, left >= 1}, []any{info.Remaining, info.ResetAfter, info.Allowed})
					missing := new(big.Rat).Sub(big.NewRat(1, 1), free) // of a token
					require.Equal(t, max(0, micros(missing.Mul(missing, each))), info.RetryAfter)
					if want {
						allowed++
					}
					time.Sleep(time.Duration(random.Int64N(int64(rate.burst)*int64(rate.period)/int64(rate.n))) / time.Microsecond * time.Microsecond)
				}
				require.Positive(t, allowed)
			})
		})
	}
}

// micros rounds a number of microseconds up.
func micros(n *big.Rat) time.Duration {
	up := new(big.Int).Div(new(big.Int).Sub(new(big.Int).Add(n.Num(), n.Denom()), big.NewInt(1)), n.Denom())
	return time.Duration(up.Int64()) * time.Microsecond
}

func TestWaitersPassInOrderAtTheRate(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetRateLimiter("api", rratelimiter.Per(10, time.Second), rratelimiter.WithBurst(2))
		start := time.Now()
		var passed [5]time.Duration
		var all sync.WaitGroup
		for i := range passed {
			all.Go(func() {
				assert.NoError(t, l.Wait(t.Context(), "a", 1))
				passed[i] = time.Since(start)
			})
			synctest.Wait()
		}
		assert.False(t, allow(t, l, "a", 1).Allowed, "what is reserved is taken")
		all.Wait()
		assert.Equal(t, [5]time.Duration{0, 0, 100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond}, passed)
	})
}

func TestWaitThatCannotEndInTimeTakesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetRateLimiter("api", rratelimiter.Per(1, time.Second))
		require.NoError(t, l.Wait(t.Context(), "a", 1))
		ctx, cancel := context.WithTimeout(t.Context(), 999*time.Millisecond)
		defer cancel()
		start := time.Now()
		require.ErrorIs(t, l.Wait(ctx, "a", 1), rratelimiter.ErrExceeds)
		assert.Zero(t, time.Since(start))
		require.ErrorIs(t, l.Wait(t.Context(), "a", 2), rratelimiter.ErrExceeds, "never")
		_, err := l.Allow(t.Context(), "a", 2)
		require.ErrorIs(t, err, rratelimiter.ErrExceeds)
		ctx, cancel = context.WithTimeout(t.Context(), 1001*time.Millisecond)
		defer cancel()
		require.NoError(t, l.Wait(ctx, "a", 1))
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// rateOf is [rratelimiter.Per] or [rratelimiter.Window].
type rateOf func(n int, d time.Duration) rratelimiter.Rate

var rates = map[string]rateOf{"per": rratelimiter.Per, "window": rratelimiter.Window}

// inBubbles runs a test with each kind of rate.
func inBubbles(t *testing.T, test func(t *testing.T, b *locktest.Bubble, of rateOf)) {
	t.Helper()
	for kind, of := range rates {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) { test(t, b, of) })
		})
	}
}

// F3
func TestLastReservationIsGivenBack(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *locktest.Bubble, rate rateOf) {
		l := b.Peer(t).GetRateLimiter("api", rate(1, time.Second))
		require.NoError(t, l.Wait(t.Context(), "a", 1))
		begin := func() (give func(), ended chan error) {
			ctx, cancel := context.WithCancel(t.Context())
			ended = make(chan error, 1)
			go func() { ended <- l.Wait(ctx, "a", 1) }()
			synctest.Wait()
			return cancel, ended
		}
		giveUpFirst, first := begin()
		giveUpSecond, second := begin()
		assert.Equal(t, 3*time.Second, allow(t, l, "a", 1).RetryAfter)
		giveUpFirst()
		require.ErrorIs(t, <-first, context.Canceled)
		synctest.Wait()
		assert.Equal(t, 3*time.Second, allow(t, l, "a", 1).RetryAfter, "one that others came after is lost")
		giveUpSecond()
		require.ErrorIs(t, <-second, context.Canceled)
		synctest.Wait()
		assert.Equal(t, 2*time.Second, allow(t, l, "a", 1).RetryAfter, "the last one is not")
	})
}

// F3
func TestTakeComesAfterWhatWasGivenBackBeforeIt(t *testing.T) {
	takes := map[string]func(ctx context.Context, l *rratelimiter.Limiter) (time.Duration, error){
		"wait": func(ctx context.Context, l *rratelimiter.Limiter) (time.Duration, error) {
			began := time.Now()
			err := l.Wait(ctx, "a", 1)
			return time.Since(began), err
		},
		"allow": func(ctx context.Context, l *rratelimiter.Limiter) (time.Duration, error) {
			r, err := l.Allow(ctx, "a", 1)
			return r.RetryAfter, err
		},
		"info": func(ctx context.Context, l *rratelimiter.Limiter) (time.Duration, error) {
			r, err := l.Info(ctx, "a", 1)
			return r.RetryAfter, err
		},
	}
	for verb, take := range takes {
		t.Run(verb, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, b *locktest.Bubble, rate rateOf) {
				l := b.Peer(t, slowGiveBack(10*time.Millisecond)).GetRateLimiter("api", rate(1, 300*time.Millisecond))
				require.True(t, allow(t, l, "a", 1).Allowed)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(20*time.Millisecond, cancel)
				began := time.Now()
				require.ErrorIs(t, l.Wait(ctx, "a", 1), context.Canceled)
				assert.Equal(t, 20*time.Millisecond, time.Since(began), "it does not wait for that")
				after, err := take(t.Context(), l)
				require.NoError(t, err)
				assert.LessOrEqual(t, after, 280*time.Millisecond)
			})
		})
	}
}

// F16
func TestTakeDoesNotWaitForWhatIsGivenBackAfterIt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t, slowGiveBack(20*time.Millisecond)).GetRateLimiter("api", rratelimiter.Per(1, time.Hour))
		require.True(t, allow(t, l, "a", 1).Allowed)
		var all sync.WaitGroup
		for i := range 100 {
			ctx, giveUp := context.WithCancel(t.Context())
			time.AfterFunc(time.Duration(1+i)*10*time.Millisecond, giveUp)
			all.Go(func() { assert.ErrorIs(t, l.Wait(ctx, "a", 1), context.Canceled) })
		}
		time.Sleep(105 * time.Millisecond)
		for range 5 {
			began := time.Now()
			allow(t, l, "a", 1)
			assert.LessOrEqual(t, time.Since(began), 60*time.Millisecond)
		}
		all.Wait()
	})
}

// slowGiveBack has what is given back leave so much later.
func slowGiveBack(d time.Duration) redlatch.Option {
	return redlatch.WithObserver(redlatch.Observer{ScriptStart: func(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
		if e.Name == "rratelimiter.giveback" {
			time.Sleep(d)
		}
		return ctx
	}})
}

// F3
func TestTakeComesAfterAReservationWhoseCallerDidNotWaitForTheReply(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var hook slow
		l := b.Peer(t, redlatch.WithHooks(&hook), slowGiveBack(10*time.Millisecond)).GetRateLimiter("api", rratelimiter.Per(1, time.Minute))
		require.True(t, allow(t, l, "b", 1).Allowed) // Redis knows the script from here on
		hook.Store(int64(100 * time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, l.Wait(ctx, "a", 1), context.DeadlineExceeded)
		assert.Equal(t, 50*time.Millisecond, time.Since(began))
		hook.Store(0)
		assert.True(t, allow(t, l, "a", 1).Allowed)
	})
}

// F16, F26
func TestTakeWaitsForASilentGiveBackOnlySoLong(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t, slowGiveBack(time.Minute)).GetRateLimiter("api", rratelimiter.Per(1, time.Hour))
		require.True(t, allow(t, l, "a", 1).Allowed)
		giveUp := func() {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, cancel)
			began := time.Now()
			require.ErrorIs(t, l.Wait(ctx, "a", 1), context.Canceled)
			assert.Equal(t, 20*time.Millisecond, time.Since(began))
		}
		giveUp()
		began := time.Now()
		assert.True(t, allow(t, l, "b", 1).Allowed)
		assert.Zero(t, time.Since(began), "another key")
		var others sync.WaitGroup
		others.Go(func() {
			allow(t, l, "a", 1)
			assert.Equal(t, 250*time.Millisecond, time.Since(began), "all wait that come after it")
		})
		assert.False(t, allow(t, l, "a", 1).Allowed)
		assert.Equal(t, 250*time.Millisecond, time.Since(began))
		others.Wait()
		began = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := l.Allow(ctx, "a", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 100*time.Millisecond, time.Since(began))
		time.Sleep(time.Hour)
		began = time.Now()
		assert.False(t, allow(t, l, "a", 1).Allowed)
		assert.Zero(t, time.Since(began), "it has ended")
	})
}

// F3
func TestReservationsOfThoseWhoGiveUpAreThereForTheNext(t *testing.T) {
	t.Parallel()
	reserved := make(chan struct{}, 1)
	c, err := redlatch.New(redistest.Shared(t).Client(t), redlatch.WithObserver(redlatch.Observer{ScriptEnd: func(_ context.Context, e redlatch.ScriptEndEvent) {
		if e.Name == "rratelimiter.take" {
			reserved <- struct{}{}
		}
	}}))
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	for kind, rate := range rates {
		l := c.GetRateLimiter(fmt.Sprint(t.Name(), kind, time.Now().UnixNano()), rate(1, time.Hour))
		require.True(t, allow(t, l, "a", 1).Allowed)
		<-reserved
		for range faulttest.Rounds(t, 100, 5000) {
			ctx, giveUp := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- l.Wait(ctx, "a", 1) }()
			<-reserved
			giveUp()
			require.ErrorIs(t, <-ended, context.Canceled)
			require.LessOrEqual(t, allow(t, l, "a", 1).RetryAfter, time.Hour)
			<-reserved
		}
	}
}

// slow is a hook that passes replies on so much later.
type slow struct{ atomic.Int64 }

func (*slow) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *slow) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer s.pause()
		return next(ctx, cmd)
	}
}

func (s *slow) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer s.pause()
		return next(ctx, cmds)
	}
}

func (s *slow) pause() {
	time.Sleep(time.Duration(s.Load()))
}

// F3
func TestReservationWhoseReplyComesTooLateIsGivenBack(t *testing.T) {
	for _, closes := range []bool{false, true} {
		t.Run(fmt.Sprint("closes ", closes), func(t *testing.T) {
			inBubbles(t, func(t *testing.T, b *locktest.Bubble, of rateOf) {
				var hook slow
				p, rate := b.Peer(t, redlatch.WithHooks(&hook)), of(1, time.Minute)
				l := p.GetRateLimiter("api", rate)
				require.True(t, allow(t, l, "b", 1).Allowed) // Redis knows the script from here on
				hook.Store(int64(time.Second))
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- l.Wait(ctx, "a", 1) }()
				time.Sleep(300 * time.Millisecond)
				cancel()
				require.ErrorIs(t, <-ended, context.Canceled)
				if closes {
					require.NoError(t, p.Close())
				} else {
					time.Sleep(2 * time.Second)
				}
				assert.True(t, allow(t, b.Peer(t).GetRateLimiter("api", rate), "a", 1).Allowed)
			})
		})
	}
}

// F3: a reservation that is given back leaves what was there before it, to a part of a microsecond.
func TestFractionsAreGivenBack(t *testing.T) {
	for _, n := range []int{1, 3, 7, 999_999} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				l := b.Peer(t).GetRateLimiter("api", rratelimiter.Per(n, time.Second), rratelimiter.WithBurst(7))
				const key = "redlatch_rate:3:{api:a}"
				require.True(t, allow(t, l, "a", 7).Allowed)
				for range 7 {
					before, left := b.Redis.Get(t.Context(), key).Val(), b.TTL(t, key)
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- l.Wait(ctx, "a", 4) }()
					synctest.Wait()
					require.NotEqual(t, before, b.Redis.Get(t.Context(), key).Val())
					cancel()
					require.ErrorIs(t, <-ended, context.Canceled)
					synctest.Wait()
					require.Equal(t, before, b.Redis.Get(t.Context(), key).Val())
					require.InDelta(t, left, b.TTL(t, key), float64(time.Millisecond))
					require.NoError(t, l.Wait(t.Context(), "a", 1))
				}
			})
		})
	}
}

// F16
func TestCloseEndsWaitsAndGivesBack(t *testing.T) {
	inBubbles(t, func(t *testing.T, b *locktest.Bubble, rate rateOf) {
		p := b.Peer(t)
		l := p.GetRateLimiter("api", rate(1, time.Minute))
		require.NoError(t, l.Wait(t.Context(), "a", 1))
		ended := make(chan error, 1)
		go func() { ended <- l.Wait(t.Context(), "a", 1) }()
		synctest.Wait()
		require.NoError(t, p.Close())
		require.ErrorIs(t, <-ended, redlatch.ErrClosed)
		_, err := l.Allow(t.Context(), "a", 1)
		require.ErrorIs(t, err, redlatch.ErrClosed)
		_, err = l.Info(t.Context(), "a", 1)
		require.ErrorIs(t, err, redlatch.ErrClosed)
		r := allow(t, b.Peer(t).GetRateLimiter("api", rate(1, time.Minute)), "a", 1)
		assert.InDelta(t, time.Minute, r.RetryAfter, float64(time.Second))
	})
}

func TestCallsShareRoundTrips(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetRateLimiter("api", rratelimiter.Per(1000, time.Second))
		allow(t, l, "a", 1)
		scripts, trips := p.Scripts(), p.Trips()
		var all sync.WaitGroup
		for i := range 1000 {
			all.Go(func() { assert.True(t, allow(t, l, fmt.Sprint(i), 1).Allowed) })
		}
		all.Wait()
		assert.Equal(t, 1000, p.Scripts()-scripts)
		assert.Less(t, p.Trips()-trips, 500)
	})
}

// What was sent may have taken its token, or takes it when it arrives late; what was not sent takes none. Nothing is taken twice.
//
// F2, F25
func TestLostReplyIsNotRepeated(t *testing.T) {
	for verb, take := range map[string]func(ctx context.Context, l *rratelimiter.Limiter) error{
		"allow": func(ctx context.Context, l *rratelimiter.Limiter) error { _, err := l.Allow(ctx, "a", 1); return err },
		"wait":  func(ctx context.Context, l *rratelimiter.Limiter) error { return l.Wait(ctx, "a", 1) },
	} {
		for fault, f := range map[string]struct {
			begin        func(p *locktest.Peer)
			want         error
			taken, later int
		}{
			"reply lost":   {func(p *locktest.Peer) { p.LoseReplies(1) }, redlatch.ErrUnknown, 1, 1},
			"no answer":    {func(p *locktest.Peer) { p.HangReplies(1) }, redlatch.ErrUnknown, 1, 1},
			"arrives late": {func(p *locktest.Peer) { p.Withhold(1) }, redlatch.ErrUnknown, 0, 1},
			"never sent":   {func(p *locktest.Peer) { p.Down(true) }, redlatch.ErrUnavailable, 0, 0},
		} {
			t.Run(verb+" "+fault, func(t *testing.T) {
				inBubbles(t, func(t *testing.T, b *locktest.Bubble, of rateOf) {
					rate := of(10, 24*time.Hour)
					other := b.Peer(t).GetRateLimiter("api", rate)
					taken := func() int { return 9 - allow(t, other, "a", 1).Remaining }
					require.Zero(t, taken()) // Redis knows the script from here on
					p := b.Peer(t)
					f.begin(p)
					err := take(t.Context(), p.GetRateLimiter("api", rate))
					require.ErrorIs(t, err, f.want)
					require.NotErrorIs(t, err, rratelimiter.ErrExceeds)
					assert.Equal(t, 1+f.taken, taken())
					time.Sleep(time.Minute) // what was left in the background
					p.Deliver(t)
					assert.Equal(t, 2+f.later, taken())
				})
			})
		}
	}
}

func TestRateMayChange(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t)
		require.True(t, allow(t, c.GetRateLimiter("api", rratelimiter.Per(3, time.Second)), "a", 2).Allowed)
		r := allow(t, c.GetRateLimiter("api", rratelimiter.Per(7, time.Second)), "a", 1)
		assert.Equal(t, rratelimiter.Result{Allowed: true, Remaining: 1, ResetAfter: 809_525 * time.Microsecond}, r, "two of three are 666,667 µs")
		require.True(t, allow(t, c.GetRateLimiter("api", rratelimiter.Per(5, time.Hour)), "b", 5).Allowed)
		assert.Equal(t, 6*time.Minute, allow(t, c.GetRateLimiter("api", rratelimiter.Per(10, time.Hour)), "b", 1).RetryAfter, "the time stays")
	})
}

func TestWindowMayChange(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t)
		l := func(n int, d time.Duration) *rratelimiter.Limiter {
			return c.GetRateLimiter("api", rratelimiter.Window(n, d))
		}
		require.True(t, allow(t, l(5, time.Hour), "a", 5).Allowed)
		assert.Equal(t, 5, look(t, l(10, time.Hour), "a", 1).Remaining, "the number stays")
		assert.Equal(t, rratelimiter.Result{RetryAfter: time.Hour, ResetAfter: time.Hour}, look(t, l(3, time.Hour), "a", 1))
		time.Sleep(time.Minute)
		assert.Equal(t, rratelimiter.Result{Allowed: true, Remaining: 4, ResetAfter: time.Second}, allow(t, l(5, time.Second), "a", 1))
	})
}

// The table is what the documentation of Per says.
func TestFirstPeriodHasTheBurstAndWhatComesBack(t *testing.T) {
	const n, period = 20, 2 * time.Second
	for name, c := range map[string]struct {
		rate rratelimiter.Rate
		opts []rratelimiter.Option
		want int
	}{
		"per":        {rratelimiter.Per(n, period), nil, 2 * n},
		"burst of 1": {rratelimiter.Per(n, period), []rratelimiter.Option{rratelimiter.WithBurst(1)}, n + 1},
		"window":     {rratelimiter.Window(n, period+time.Microsecond), nil, n}, // of which both ends count
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				l := b.Peer(t).GetRateLimiter("api", c.rate, c.opts...)
				passed := 0
				for began := time.Now(); time.Since(began) <= period; time.Sleep(5 * time.Millisecond) {
					if allow(t, l, "a", 1).Allowed {
						passed++
					}
				}
				assert.Equal(t, c.want, passed)
			})
		})
	}
}

func TestKeysOfDifferentNamesAreApart(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t, redlatch.WithNamePrefix("app:"))
		rate := rratelimiter.Per(1, time.Minute)
		assert.True(t, allow(t, c.GetRateLimiter("a", rate), "b:c", 1).Allowed)
		assert.True(t, allow(t, c.GetRateLimiter("a:b", rate), "c", 1).Allowed)
		assert.True(t, allow(t, c.GetRateLimiter("{shop}", rate), "}{\n", 1).Allowed)
		assert.ElementsMatch(t, []string{"redlatch_rate:5:{app:a:b:c}", "redlatch_rate:7:{app:a:b:c}", "redlatch_rate:10:app:{shop}:}{\n"}, b.Keys(t))
	})
}

func TestBadInputIsRefused(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t)
		second := rratelimiter.Per(1, time.Second)
		for what, l := range map[string]*rratelimiter.Limiter{
			"nil option":       c.GetRateLimiter("api", rratelimiter.Per(1, time.Second), nil),
			"no name":          c.GetRateLimiter("", second),
			"bad name":         c.GetRateLimiter("{", second),
			"no rate":          c.GetRateLimiter("api", rratelimiter.Rate{}),
			"no tokens":        c.GetRateLimiter("api", rratelimiter.Per(0, time.Second)),
			"many tokens":      c.GetRateLimiter("api", rratelimiter.Per(1_000_000_001, time.Second)),
			"short period":     c.GetRateLimiter("api", rratelimiter.Per(1, time.Millisecond-1)),
			"odd period":       c.GetRateLimiter("api", rratelimiter.Per(1, time.Second+1)),
			"long period":      c.GetRateLimiter("api", rratelimiter.Per(1, 367*24*time.Hour)),
			"no burst":         c.GetRateLimiter("api", second, rratelimiter.WithBurst(0)),
			"long burst":       c.GetRateLimiter("api", rratelimiter.Per(1, 24*time.Hour), rratelimiter.WithBurst(367)),
			"no window":        c.GetRateLimiter("api", rratelimiter.Window(0, time.Second)),
			"large window":     c.GetRateLimiter("api", rratelimiter.Window(100_001, time.Second)),
			"short window":     c.GetRateLimiter("api", rratelimiter.Window(1, time.Millisecond-1)),
			"odd window":       c.GetRateLimiter("api", rratelimiter.Window(1, time.Second+1)),
			"long window":      c.GetRateLimiter("api", rratelimiter.Window(1, 367*24*time.Hour)),
			"window and burst": c.GetRateLimiter("api", rratelimiter.Window(5, time.Second), rratelimiter.WithBurst(5)),
		} {
			_, err := l.Allow(t.Context(), "a", 1)
			assert.ErrorIs(t, err, redlatch.ErrInvalid, what)
			_, err = l.Info(t.Context(), "a", 1)
			assert.ErrorIs(t, err, redlatch.ErrInvalid, what)
			assert.ErrorIs(t, l.Wait(t.Context(), "a", 1), redlatch.ErrInvalid, what)
		}
		l := c.GetRateLimiter("api", second)
		for _, key := range []string{"", strings.Repeat("k", 513)} {
			_, err := l.Allow(t.Context(), key, 1)
			assert.ErrorIs(t, err, redlatch.ErrInvalid)
			_, err = l.Info(t.Context(), key, 1)
			assert.ErrorIs(t, err, redlatch.ErrInvalid)
		}
		_, err := l.Allow(t.Context(), "a", 0)
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		require.EqualError(t, err, `rratelimiter: allow "api": invalid argument: 0 tokens are fewer than 1`)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.Wait(ctx, "a", 1), context.Canceled)
		_, err = l.Info(ctx, "a", 1)
		require.ErrorIs(t, err, context.Canceled)
		_, err = l.Info(nil, "a", 1) //nolint:staticcheck // that is the test
		require.EqualError(t, err, `rratelimiter: info "api": invalid argument: the context is nil`)
		_, err = l.Info(t.Context(), "a", 0)
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		_, err = l.Info(t.Context(), "a", l.Burst()+1)
		require.ErrorIs(t, err, rratelimiter.ErrExceeds)
		assert.Empty(t, b.Keys(t))
		require.NoError(t, b.Redis.Set(t.Context(), "redlatch_rate:3:{api:a}", "word", 0).Err())
		_, err = l.Allow(t.Context(), "a", 1)
		require.ErrorIs(t, err, redlatch.ErrWrongType)
		_, err = l.Info(t.Context(), "a", 1)
		require.ErrorIs(t, err, redlatch.ErrWrongType)
		w := c.GetRateLimiter("api", rratelimiter.Window(1, time.Second))
		_, err = w.Allow(t.Context(), "a", 2)
		require.ErrorIs(t, err, rratelimiter.ErrExceeds)
		require.NoError(t, b.Redis.Set(t.Context(), "redlatch_window:3:{api:a}", "1 1 1", 0).Err())
		require.NoError(t, b.Redis.RPush(t.Context(), "redlatch_window:3:{api:b}", "1 1").Err())
		for _, key := range []string{"a", "b"} {
			_, err = w.Allow(t.Context(), key, 1)
			require.ErrorIs(t, err, redlatch.ErrWrongType)
			_, err = w.Info(t.Context(), key, 1)
			require.ErrorIs(t, err, redlatch.ErrWrongType)
		}
		c.Down(true)
		_, err = l.Info(t.Context(), "a", 1)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
	})
}

// Many clients on real servers: no token is given twice, and none is kept back.
func TestNoTokenIsGivenTwice(t *testing.T) {
	for where, connect := range map[string]func(t *testing.T) *redlatch.Client{
		"server": func(t *testing.T) *redlatch.Client {
			t.Helper()
			c, err := redlatch.New(redistest.Shared(t).Client(t))
			require.NoError(t, err)
			return c
		},
		"cluster": func(t *testing.T) *redlatch.Client {
			t.Helper()
			c, err := redlatch.New(redistest.SharedCluster(t).Client(t))
			require.NoError(t, err)
			return c
		},
	} {
		t.Run(where, func(t *testing.T) {
			noTokenTwice(t, connect, rratelimiter.Per(1001, time.Hour), time.Hour/1001, rratelimiter.WithBurst(500)) // a token takes no whole number of microseconds
			noTokenTwice(t, connect, rratelimiter.Window(500, time.Hour), time.Hour)
		})
	}
}

// noTokenTwice has clients take from a limiter of 500 tokens, of which one comes back each time, until there are none.
func noTokenTwice(t *testing.T, connect func(t *testing.T) *redlatch.Client, rate rratelimiter.Rate, each time.Duration, opts ...rratelimiter.Option) {
	t.Helper()
	const clients, goroutines = 4, 25
	name := fmt.Sprint(t.Name(), time.Now().UnixNano())
	rounds := faulttest.Rounds(t, 20, 500)
	var allowed atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for range clients {
		c := connect(t)
		l := c.GetRateLimiter(name, rate, opts...)
		for range goroutines {
			all.Go(func() {
				for range rounds {
					r, err := l.Allow(t.Context(), "a", 1)
					if !assert.NoError(t, err) {
						return
					}
					if r.Allowed {
						allowed.Add(1)
					}
				}
			})
		}
		defer func() { assert.NoError(t, c.Close()) }()
	}
	all.Wait()
	back := int64(time.Since(start) / each)
	assert.GreaterOrEqual(t, allowed.Load(), int64(500))
	assert.LessOrEqual(t, allowed.Load(), 500+back)
}
