package scenario_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rsemaphore"
)

// acquiring are the kinds of object, each by a call that tries to acquire it and returns the context of the hold, if there is one, and
// what releases it.
var acquiring = map[string]struct {
	kind string
	try  func(ctx context.Context, c *redlatch.Client, wait time.Duration) (context.Context, func(context.Context) error, error)
}{
	"lock":   {"lock", tryLocker(func(c *redlatch.Client) rlock.Locker { return c.GetLock("n") })},
	"fair":   {"fair_lock", tryLocker(func(c *redlatch.Client) rlock.Locker { return c.GetFairLock("n") })},
	"writer": {"rw_lock", tryLocker(func(c *redlatch.Client) rlock.Locker { return c.GetReadWriteLock("n") })},
	"multi":  {"multi_lock", tryLocker(func(c *redlatch.Client) rlock.Locker { return c.GetMultiLock(c.GetLock("n"), c.GetLock("m")) })},
	"permit": {"permits", func(ctx context.Context, c *redlatch.Client, wait time.Duration) (context.Context, func(context.Context) error, error) {
		p, err := c.GetPermitSemaphore("n").TryAcquire(ctx, rsemaphore.WithWait(wait))
		if err != nil {
			return nil, nil, err
		}
		return p.Context(), p.Release, nil
	}},
	"semaphore": {"semaphore", func(ctx context.Context, c *redlatch.Client, wait time.Duration) (context.Context, func(context.Context) error, error) {
		s := c.GetSemaphore("n")
		ok, err := s.TryAcquire(ctx, 1, rsemaphore.WithWait(wait))
		if err == nil && !ok {
			err = rlock.ErrNotAcquired
		}
		return nil, func(ctx context.Context) error { return s.Release(ctx, 1) }, err
	}},
}

func tryLocker(get func(c *redlatch.Client) rlock.Locker) func(context.Context, *redlatch.Client, time.Duration) (context.Context, func(context.Context) error, error) {
	return func(ctx context.Context, c *redlatch.Client, wait time.Duration) (context.Context, func(context.Context) error, error) {
		h, err := get(c).TryLock(ctx, rlock.WithWait(wait))
		if err != nil {
			return nil, nil, err
		}
		return h.Context(), h.Unlock, nil
	}
}

func TestObserverIsToldOfCallsThatAcquire(t *testing.T) {
	for name, object := range acquiring {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				var starts sink[redlatch.AcquireStartEvent]
				var ends sink[redlatch.AcquireEndEvent]
				var holds sink[redlatch.HoldEndEvent]
				p := b.Peer(t, redlatch.WithObserver(redlatch.Observer{
					AcquireStart: func(ctx context.Context, e redlatch.AcquireStartEvent) context.Context {
						if e.Kind == object.kind {
							starts.add(e)
							return context.WithValue(ctx, span{}, e.Name)
						}
						return nil // of a part of a multi-lock
					},
					AcquireEnd: func(ctx context.Context, e redlatch.AcquireEndEvent) {
						if e.Kind == object.kind {
							assert.Equal(t, e.Name, ctx.Value(span{}))
							ends.add(e)
						}
					},
					HoldEnd: func(_ context.Context, e redlatch.HoldEndEvent) { holds.add(e) },
				}))
				other := b.Peer(t)
				for _, set := range []error{
					func() error { _, err := other.GetSemaphore("n").TrySetPermits(t.Context(), 1); return err }(),
				} {
					require.NoError(t, set)
				}
				if name != "semaphore" {
					b.Delete(t, "n")
				}
				if name == "permit" {
					require.NoError(t, other.GetPermitSemaphore("n").SetPermits(t.Context(), 1))
				}

				ctx, release, err := object.try(t.Context(), p.Client, 0)
				require.NoError(t, err)
				begun, done := one(t, &starts), one(t, &ends)
				assert.Equal(t, object.kind, begun.Kind)
				assert.Equal(t, begun.Name, done.Name)
				require.NoError(t, done.Err)
				assert.Positive(t, done.Asked)
				assert.Equal(t, name == "semaphore", done.Owner == "")
				if ctx != nil {
					assert.Equal(t, begun.Name, ctx.Value(span{}), "the hold has the observer's context")
				}
				time.Sleep(time.Second)
				require.NoError(t, release(t.Context()))
				for _, h := range holds.take() {
					assert.NoError(t, h.Err)
					assert.InDelta(t, time.Second, h.Held, float64(50*time.Millisecond))
					assert.NotEmpty(t, h.Owner)
				}
				starts.take()
				ends.take()

				_, release, err = object.try(t.Context(), other.Client, 0)
				require.NoError(t, err)
				_, _, err = object.try(t.Context(), p.Client, 5*time.Second)
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
				done = one(t, &ends)
				require.ErrorIs(t, done.Err, rlock.ErrNotAcquired)
				assert.NotErrorIs(t, done.Err, redlatch.ErrUnavailable)
				assert.Equal(t, 5*time.Second, done.Waited.Round(time.Second))
				assert.Positive(t, done.Asked)
				require.NoError(t, release(t.Context()))

				p.Blackhole(true)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _, err = object.try(ctx, p.Client, 0)
				require.Error(t, err)
				done = one(t, &ends)
				require.ErrorIs(t, done.Err, context.DeadlineExceeded)
				p.Blackhole(false)

				p.Down(true)
				_, _, err = object.try(t.Context(), p.Client, 0)
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
				require.ErrorIs(t, one(t, &ends).Err, redlatch.ErrUnavailable)
				p.Down(false)
			})
		})
	}
}

func TestObserverIsToldWhatWasLost(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var holds sink[redlatch.HoldEndEvent]
		p := b.Peer(t, redlatch.WithObserver(redlatch.Observer{
			HoldEnd: func(_ context.Context, e redlatch.HoldEndEvent) { holds.add(e) },
		}))
		h := locktest.Acquire(t, t.Context(), p.GetLock("n"))
		time.Sleep(time.Second)
		b.Delete(t, "n")
		<-h.Context().Done()
		time.Sleep(time.Second)
		e := one(t, &holds)
		assert.Equal(t, []string{"lock", "n", h.Owner()}, []string{e.Kind, e.Name, e.Owner})
		require.ErrorIs(t, e.Err, rlock.ErrLost)
		assert.GreaterOrEqual(t, e.Held, time.Second)
	})
}

// The context of a trace travels with the message.
func TestObserverFollowsAMessage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var offers sink[redlatch.OfferEndEvent]
		var begun sink[redlatch.HandleStartEvent]
		var handled sink[redlatch.HandleEndEvent]
		var dead sink[redlatch.DeadLetterEvent]
		p := b.Peer(t, redlatch.WithNamePrefix("app:"), redlatch.WithObserver(redlatch.Observer{
			OfferStart: func(ctx context.Context, e redlatch.OfferStartEvent) context.Context {
				assert.Equal(t, []any{"queue", "q"}, []any{e.Kind, e.Name})
				e.Headers["traceparent"] = ctx.Value(span{}).(string)
				return ctx
			},
			OfferEnd: func(_ context.Context, e redlatch.OfferEndEvent) { offers.add(e) },
			HandleStart: func(ctx context.Context, e redlatch.HandleStartEvent) context.Context {
				begun.add(e)
				return context.WithValue(ctx, span{}, e.Headers["traceparent"])
			},
			HandleEnd: func(ctx context.Context, e redlatch.HandleEndEvent) {
				assert.NotNil(t, ctx.Value(span{}))
				handled.add(e)
			},
			DeadLetter: func(_ context.Context, e redlatch.DeadLetterEvent) { dead.add(e) },
		}))
		q := redlatch.GetDelayedQueue[string](p.Client, "q", rdelayedqueue.WithMaxAttempts(1))
		ctx := context.WithValue(t.Context(), span{}, "one")
		id, err := q.Offer(ctx, "work", 0)
		require.NoError(t, err)
		offered := one(t, &offers)
		assert.GreaterOrEqual(t, offered.Took, time.Duration(0))
		offered.Took = 0
		assert.Equal(t, redlatch.OfferEndEvent{Kind: "queue", Name: "q", Messages: 1, IDs: []string{id}}, offered)
		given, err := q.Offer(context.WithValue(ctx, span{}, "two"), "panic", 0, rdelayedqueue.WithID("given"))
		require.NoError(t, err)
		ids, err := q.OfferBatch(context.WithValue(ctx, span{}, "three"), []rdelayedqueue.Item[string]{{Value: "fail", ID: "x"}, {Value: "work"}})
		require.NoError(t, err)
		again, outcome, err := q.OfferNew(ctx, "panic", 0, rdelayedqueue.WithID(given))
		require.NoError(t, err)
		assert.Equal(t, given, again)
		assert.Equal(t, rdelayedqueue.Kept, outcome)
		e, err := q.Get(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, "work", e.Value)

		time.Sleep(2 * time.Second)
		ctx, stop := context.WithCancel(context.WithValue(t.Context(), span{}, "consumer"))
		consumed := make(chan error, 1)
		go func() {
			consumed <- q.Consume(ctx, func(ctx context.Context, m *rdelayedqueue.Message[string]) error {
				assert.Equal(t, map[string]string{id: "one", given: "two", ids[0]: "three", ids[1]: "three"}[m.ID], ctx.Value(span{}))
				assert.Equal(t, ctx.Value(span{}), m.Context().Value(span{}))
				time.Sleep(time.Second)
				switch m.Value {
				case "panic":
					panic("oops")
				case "fail":
					return errors.New("it failed")
				}
				return nil
			}, rdelayedqueue.WithConcurrency(4))
		}()
		time.Sleep(5 * time.Second)
		stop()
		require.NoError(t, <-consumed)
		all := begun.take()
		require.Len(t, all, 4)
		for _, e := range all {
			assert.Equal(t, []any{"queue", "q", 1}, []any{e.Kind, e.Name, e.Attempt})
			assert.InDelta(t, 2*time.Second, e.Late, float64(100*time.Millisecond))
		}
		ends := handled.take()
		require.Len(t, ends, 4)
		for _, e := range ends {
			assert.Equal(t, []any{"queue", "q"}, []any{e.Kind, e.Name})
			assert.Equal(t, time.Second, e.Took.Round(time.Millisecond))
			switch e.ID {
			case given:
				assert.ErrorContains(t, e.Err, "oops")
			case ids[0]:
				assert.ErrorContains(t, e.Err, "it failed")
			default:
				assert.NoError(t, e.Err)
			}
		}
		letters := dead.take()
		require.Len(t, letters, 2)
		for _, e := range letters {
			assert.Equal(t, []any{"queue", "q"}, []any{e.Kind, e.Name})
		}
	})
}

// Its attempt has failed, as that of one that panicked.
func TestObserverIsToldOfAHandlerThatEndedItsGoroutine(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var handled sink[redlatch.HandleEndEvent]
		p := b.Peer(t, redlatch.WithObserver(redlatch.Observer{HandleEnd: func(_ context.Context, e redlatch.HandleEndEvent) { handled.add(e) }}))
		q := redlatch.GetDelayedQueue[string](p.Client, "q", rdelayedqueue.WithMaxAttempts(1))
		_, err := q.Offer(t.Context(), "work", 0)
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		err = q.Consume(ctx, func(context.Context, *rdelayedqueue.Message[string]) error {
			runtime.Goexit()
			return nil
		})
		require.NoError(t, err)
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, stats.Dead)
		assert.ErrorContains(t, one(t, &handled).Err, "ended its goroutine")
	})
}

func TestObserverIsToldOfRunsTermsAndClaims(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var acquired sink[redlatch.AcquireEndEvent]
		var ended sink[redlatch.HoldEndEvent]
		var begun sink[redlatch.HandleStartEvent]
		var handled sink[redlatch.HandleEndEvent]
		p := b.Peer(t, redlatch.WithNamePrefix("app:"), redlatch.WithObserver(redlatch.Observer{
			AcquireEnd:  func(_ context.Context, e redlatch.AcquireEndEvent) { acquired.add(e) },
			HoldEnd:     func(_ context.Context, e redlatch.HoldEndEvent) { ended.add(e) },
			HandleStart: func(ctx context.Context, e redlatch.HandleStartEvent) context.Context { begun.add(e); return ctx },
			HandleEnd:   func(_ context.Context, e redlatch.HandleEndEvent) { handled.add(e) },
		}))
		l, err := p.GetElection("workers").Campaign(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Resign(t.Context()))
		led, left := one(t, &acquired), one(t, &ended)
		assert.Equal(t, []any{"election", "workers", "election", "workers"}, []any{led.Kind, led.Name, left.Kind, left.Name})

		_, _, err = redlatch.GetOnce[int](p.Client, "orders").Do(t.Context(), "1", func(context.Context) (int, error) { return 1, nil })
		require.NoError(t, err)
		claimed, done := one(t, &acquired), one(t, &ended)
		assert.Equal(t, []any{"once", "orders", "once", "orders"}, []any{claimed.Kind, claimed.Name, done.Kind, done.Name})

		s := p.GetScheduler("billing")
		failure := errors.New("the bank is down")
		var held []string // during each run
		require.NoError(t, s.Register("close", rscheduler.At(time.Now().Add(time.Second)), func(context.Context, rscheduler.Run) error {
			time.Sleep(time.Second)
			for _, h := range p.Holds() {
				held = append(held, h.Kind+" "+h.Name)
			}
			return failure
		}, rscheduler.WithMaxAttempts(2), rscheduler.WithBackoff(func(int) time.Duration { return time.Second })))
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		require.NoError(t, s.Run(ctx))
		starts, ends := begun.take(), handled.take()
		require.Len(t, starts, 2)
		require.Len(t, ends, 2)
		for i, e := range ends {
			assert.Equal(t, []any{"scheduler", "billing"}, []any{starts[i].Kind, starts[i].Name})
			assert.Regexp(t, `^close@\d+$`, starts[i].ID)
			assert.Equal(t, []any{"scheduler", "billing", starts[i].ID, i + 1}, []any{e.Kind, e.Name, e.ID, e.Attempt})
			require.ErrorIs(t, e.Err, failure)
			assert.Equal(t, time.Second, e.Took.Round(100*time.Millisecond))
		}
		assert.Equal(t, []string{"scheduler billing", "scheduler billing"}, held)
	})
}

func TestObserverIsToldOfScripts(t *testing.T) {
	onEachTopology(t, func(t *testing.T, w *watched) {
		var starts sink[redlatch.ScriptStartEvent]
		var ends sink[redlatch.ScriptEndEvent]
		c := w.client(redlatch.WithObserver(redlatch.Observer{
			ScriptStart: func(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
				starts.add(e)
				return context.WithValue(ctx, span{}, e.Name)
			},
			ScriptEnd: func(ctx context.Context, e redlatch.ScriptEndEvent) {
				assert.Equal(t, e.Name, ctx.Value(span{}))
				ends.add(e)
			},
		}))
		name := fresh(t)
		locktest.Unlock(t, locktest.Acquire(t, t.Context(), c.GetLock(name)))
		var wait sync.WaitGroup
		for range 20 { // some share a pipeline
			wait.Go(func() { _, err := c.GetLock(name).IsLocked(t.Context()); assert.NoError(t, err) })
		}
		wait.Wait()
		assert.Len(t, starts.take(), 22)
		count := map[string]int{}
		for i, e := range ends.take() {
			count[e.Name]++
			assert.Positive(t, e.Took)
			assert.NoError(t, e.Err)
			assert.True(t, e.Node != "" || i == 0, "the first call of a cluster does not know")
		}
		assert.Equal(t, map[string]int{"rlock.acquire": 1, "rlock.release": 1, "rlock.inspect": 20}, count)
		require.NoError(t, w.rdb.Set(t.Context(), name, "text", time.Minute).Err())
		_, err := c.GetLock(name).TryLock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrWrongType)
		require.Error(t, one(t, &ends).Err)
	})
}

func TestHooksOfGoRedisAreCalled(t *testing.T) {
	var hook, users counted
	rdb := redistest.Shared(t).Client(t)
	rdb.AddHook(&users)
	c, err := redlatch.New(rdb, redlatch.WithHooks(&hook), redlatch.WithWatchdogTimeout(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	locktest.Unlock(t, locktest.Acquire(t, t.Context(), c.GetLock(fresh(t))))
	assert.GreaterOrEqual(t, hook.commands.Load(), int64(2))
	assert.Zero(t, users.commands.Load())

	confirmed, err := redlatch.New(rdb, redlatch.WithHooks(&hook), redlatch.WithReplicas(1, time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, confirmed.Close()) })
	_, err = confirmed.GetLock(fresh(t)).TryLock(t.Context())
	require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
	assert.Positive(t, hook.pipelines.Load())

	_, err = redlatch.New(rdb, redlatch.WithHooks(nil))
	require.ErrorIs(t, err, redlatch.ErrInvalid)
}

func TestSeveralObserversAreTold(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var told sink[string]
		observer := func(who string) redlatch.Option {
			return redlatch.WithObserver(redlatch.Observer{
				HoldEnd: func(context.Context, redlatch.HoldEndEvent) { told.add(who + " released") },
				AcquireStart: func(ctx context.Context, _ redlatch.AcquireStartEvent) context.Context {
					before, _ := ctx.Value(span{}).(string)
					return context.WithValue(ctx, span{}, before+who)
				},
				AcquireEnd: func(ctx context.Context, _ redlatch.AcquireEndEvent) {
					told.add(who + " in " + ctx.Value(span{}).(string))
				},
			})
		}
		partly := redlatch.WithObserver(redlatch.Observer{HoldEnd: func(context.Context, redlatch.HoldEndEvent) { told.add("c released") }})
		p := b.Peer(t, observer("a"), observer("b"), partly)
		locktest.Unlock(t, locktest.Acquire(t, t.Context(), p.GetLock("n")))
		assert.Equal(t, []string{"a in ab", "b in ab", "a released", "b released", "c released"}, told.take())
	})
}
