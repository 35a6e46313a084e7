package rexecutor_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rexecutor"
)

// soon is the time after which a task is late that a worker could begin.
const soon = 500 * time.Millisecond

func nothing(context.Context, rexecutor.Call[args]) (struct{}, error) { return struct{}{}, nil }

// block returns a handler that waits until the test lets it go, or its context ends.
func block(until <-chan struct{}) func(context.Context, rexecutor.Call[args]) (answer, error) {
	return func(ctx context.Context, _ rexecutor.Call[args]) (answer, error) {
		select {
		case <-until:
			return answer{}, nil
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		}
	}
}

// F7
func TestWorkThatBeginsBesideOneThatSleepsIsWoken(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, caller := b.Peer(t), executor(b.Peer(t))
		first, second := executor(p), executor(p)
		require.NoError(t, greet.Handle(first, hello))
		require.NoError(t, other.Handle(second, nothing))
		waiting, err := other.Submit(t.Context(), caller, args{})
		require.NoError(t, err)
		work(t, first)
		time.Sleep(time.Second)
		start := time.Now()
		work(t, second)
		_, err = waiting.Get(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(start), soon, "it looks for what is due")
		time.Sleep(time.Second)
		start = time.Now()
		f, err := other.Submit(t.Context(), caller, args{})
		require.NoError(t, err)
		_, err = f.Get(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(start), soon)
	})
}

// F7
func TestWorkerThatWasFullIsWokenBesideOneOfItsClientThatSleeps(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, caller := b.Peer(t), executor(b.Peer(t))
		first, second := executor(p), executor(p)
		require.NoError(t, greet.Handle(first, func(context.Context, rexecutor.Call[args]) (answer, error) {
			time.Sleep(3 * time.Second)
			return answer{}, nil
		}))
		require.NoError(t, other.Handle(second, nothing))
		work(t, first)
		work(t, second)
		time.Sleep(time.Second)
		submit(t, caller, args{})
		time.Sleep(time.Second)
		start := time.Now()
		_, err := submit(t, caller, args{}, rexecutor.WithDelay(time.Second)).Get(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(start), 5*time.Second+soon)
		start = time.Now()
		_, err = submit(t, caller, args{}).Get(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(start), 3*time.Second+soon)
	})
}

// F7
func TestOneCallOfManyTasksWakesAWorkerOfEach(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		busy, free, caller := executor(b.Peer(t)), executor(b.Peer(t)), executor(b.Peer(t))
		until := make(chan struct{})
		require.NoError(t, greet.Handle(busy, block(until)))
		require.NoError(t, other.Handle(free, nothing))
		work(t, busy)
		work(t, free)
		submit(t, caller, args{})
		time.Sleep(time.Second)
		for range 20 { // in whatever order they go
			start := time.Now()
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() { submit(t, caller, args{}) })
			}
			wg.Go(func() {
				f, err := other.Submit(t.Context(), caller, args{})
				assert.NoError(t, err)
				_, err = f.Get(t.Context())
				assert.NoError(t, err)
			})
			wg.Wait()
			require.Less(t, time.Since(start), soon, "though nobody is free for the others")
		}
		close(until)
	})
}

// F7
func TestGivenBackTasksWakeAWorkerOfEach(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		both, free, caller := executor(b.Peer(t)), executor(b.Peer(t)), executor(b.Peer(t))
		until := make(chan struct{})
		slow := rexecutor.NewTask[args, answer]("slow")
		require.NoError(t, slow.Handle(both, block(until)))
		require.NoError(t, greet.Handle(both, hello))
		require.NoError(t, other.Handle(both, nothing))
		stop := work(t, both, rexecutor.WithStopGrace(time.Hour))
		for range 100 { // quick ones, so that more are claimed ahead
			submit(t, caller, args{})
		}
		time.Sleep(time.Second)
		require.NoError(t, slow.Send(t.Context(), caller, args{}))
		submit(t, caller, args{})
		f, err := other.Submit(t.Context(), caller, args{})
		require.NoError(t, err)
		require.NoError(t, other.Handle(free, nothing))
		work(t, free)
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		go stop()
		_, err = f.Get(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(start), soon)
		close(until)
	})
}

// F8
func TestTaskOfADeadWorkerComesBackInTimeThoughItsClaimIsShort(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, short := b.Peer(t), rexecutor.WithVisibility(2*time.Second)
		dying, living, caller := executor(p, short), executor(b.Peer(t), short), executor(b.Peer(t))
		until := make(chan struct{})
		require.NoError(t, greet.Handle(dying, block(until)))
		require.NoError(t, greet.Handle(living, hello))
		stop := work(t, dying, rexecutor.WithStopGrace(0))
		f := submit(t, caller, args{Name: "x"})
		time.Sleep(100 * time.Millisecond)
		submit(t, caller, args{}, rexecutor.WithDelay(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- living.Work(ctx) }()
		time.Sleep(30 * time.Second) // the claim is renewed
		_, err := f.Status(t.Context())
		require.NoError(t, err)
		p.Down(true)
		start := time.Now()
		got, err := f.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, answer{"hello x"}, got)
		assert.Less(t, time.Since(start), 2*time.Second+soon)
		cancel()
		require.NoError(t, <-done)
		p.Down(false)
		stop()
	})
}

// F7
func TestTaskOfAWorkerThatDiesAtOnceComesBackInTime(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, short := b.Peer(t), rexecutor.WithVisibility(2*time.Second)
		dying, living, caller := executor(p, short), executor(b.Peer(t), short), executor(b.Peer(t))
		until := make(chan struct{})
		require.NoError(t, greet.Handle(living, hello))
		require.NoError(t, greet.Handle(dying, block(until)))
		work(t, living)
		time.Sleep(time.Second)
		work(t, dying, rexecutor.WithStopGrace(0)) // it went to sleep last, and is woken
		time.Sleep(time.Second)
		f := submit(t, caller, args{Name: "x"})
		time.Sleep(10 * time.Millisecond)
		p.Down(true)
		start := time.Now()
		got, err := f.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, answer{"hello x"}, got)
		assert.Less(t, time.Since(start), 2*time.Second+soon)
		p.Down(false)
	})
}

// F13
func TestPlaceInAGroupOfACancelledTaskOfADeadWorkerComesFree(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, short := b.Peer(t), rexecutor.WithVisibility(5*time.Second)
		dying, living, caller := executor(p, short), executor(b.Peer(t), short), executor(b.Peer(t))
		until := make(chan struct{})
		require.NoError(t, greet.Handle(dying, block(until)))
		require.NoError(t, other.Handle(living, nothing))
		work(t, dying, rexecutor.WithStopGrace(0))
		f := submit(t, caller, args{}, rexecutor.WithGroup("g"))
		time.Sleep(time.Second)
		p.Down(true)
		ok, err := f.Cancel(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		next, err := other.Submit(t.Context(), caller, args{}, rexecutor.WithGroup("g"))
		require.NoError(t, err)
		work(t, living)
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = next.Get(ctx)
		require.NoError(t, err)
		assert.Less(t, time.Since(start), 5*time.Second+soon)
		p.Down(false)
	})
}

// F7
func TestEndOfATaskThatHasExpiredFreesItsGroup(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex, caller := executor(b.Peer(t)), executor(b.Peer(t))
		require.NoError(t, other.Handle(ex, nothing))
		work(t, ex)
		time.Sleep(time.Second)
		head := submit(t, caller, args{}, rexecutor.WithGroup("g"), rexecutor.WithExpiry(time.Second))
		next, err := other.Submit(t.Context(), caller, args{}, rexecutor.WithGroup("g"))
		require.NoError(t, err)
		_, err = head.Get(t.Context())
		require.ErrorIs(t, err, rexecutor.ErrExpired)
		start := time.Now()
		_, err = next.Get(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(start), soon)
	})
}

// F7
func TestOneWorkerOfManyIsFound(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		first, caller := executor(b.Peer(t)), executor(b.Peer(t))
		require.NoError(t, other.Handle(first, nothing))
		work(t, first)
		time.Sleep(time.Second)
		for range 120 {
			ex := executor(b.Peer(t))
			require.NoError(t, greet.Handle(ex, hello))
			work(t, ex)
		}
		time.Sleep(time.Second)
		start := time.Now()
		f, err := other.Submit(t.Context(), caller, args{})
		require.NoError(t, err)
		_, err = f.Get(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(start), soon)
	})
}

// F19
func TestDeadWorkersLeaveNothingBehind(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		const meta = "redlatch_dq:{media}:tasks:meta"
		sleepers := func() (all []string) {
			for field := range b.Hash(t, meta) {
				if strings.HasPrefix(field, "w:") {
					all = append(all, field)
				}
			}
			return all
		}
		dying, caller := b.Peer(t), executor(b.Peer(t))
		for range 3 { // workers of one client sleep as one
			ex := executor(dying)
			require.NoError(t, greet.Handle(ex, hello))
			work(t, ex)
		}
		alone := b.Peer(t)
		ex := executor(alone)
		require.NoError(t, greet.Handle(ex, hello))
		work(t, ex)
		time.Sleep(time.Second)
		require.Len(t, sleepers(), 2)
		dying.Down(true)
		submit(t, caller, args{}) // for which a dead one may be notified
		submit(t, caller, args{}, rexecutor.WithDelay(time.Second))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Len(t, sleepers(), 1, "that of the living")
		alone.Down(true)
		time.Sleep(2 * time.Minute) // nobody looks
		living := executor(b.Peer(t))
		require.NoError(t, greet.Handle(living, hello))
		work(t, living)
		time.Sleep(time.Second)
		assert.Len(t, sleepers(), 1)
		dying.Down(false)
		alone.Down(false)
	})
}

// F7
func TestQuickTaskDoesNotWaitBehindASlowOne(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		caller, slow := executor(b.Peer(t)), rexecutor.NewTask[args, answer]("slow")
		for range 2 {
			ex := executor(b.Peer(t))
			require.NoError(t, greet.Handle(ex, hello))
			require.NoError(t, slow.Handle(ex, func(context.Context, rexecutor.Call[args]) (answer, error) {
				time.Sleep(time.Minute)
				return answer{}, nil
			}))
			work(t, ex)
		}
		for range 200 { // so that more are claimed ahead
			submit(t, caller, args{})
		}
		time.Sleep(time.Second)
		start := time.Now()
		require.NoError(t, slow.Send(t.Context(), caller, args{}))
		for range 5 {
			_, err := submit(t, caller, args{}).Get(t.Context())
			require.NoError(t, err)
		}
		assert.Less(t, time.Since(start), time.Second, "the other worker sleeps")
	})
}

// F21
func TestWorkersOfDifferentTasksThatAreDueAtOnceDoNotWakeEachOther(t *testing.T) {
	for name, pause := range map[string]time.Duration{"not paused": 0, "paused": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				peers, caller := []*locktest.Peer{b.Peer(t), b.Peer(t), b.Peer(t)}, executor(b.Peer(t))
				for n, p := range peers {
					ex := executor(p)
					if n == 0 {
						require.NoError(t, greet.Handle(ex, hello))
					} else {
						require.NoError(t, other.Handle(ex, nothing))
					}
					work(t, ex)
				}
				time.Sleep(time.Second)
				if pause > 0 {
					require.NoError(t, caller.Queue().PauseFor(t.Context(), pause))
				}
				count := func() (n int) {
					for _, p := range peers {
						n += p.Scripts()
					}
					return n
				}
				before, start := count(), time.Now()
				f := submit(t, caller, args{}, rexecutor.WithDelay(2*time.Second))
				o, err := other.Submit(t.Context(), caller, args{}, rexecutor.WithDelay(2*time.Second))
				require.NoError(t, err)
				_, err = f.Get(t.Context())
				require.NoError(t, err)
				_, err = o.Get(t.Context())
				require.NoError(t, err)
				assert.Less(t, time.Since(start), max(2*time.Second, pause)+soon)
				time.Sleep(time.Second)
				assert.LessOrEqual(t, count()-before, 30)
			})
		})
	}
}

// F7
func TestWorkersOfDifferentTasksAreWokenByWhateverMakesTheirsDue(t *testing.T) {
	type places struct {
		caller   *rexecutor.Executor
		greeter  *locktest.Peer
		greeting func() // ends the work of the greeter
	}
	makes := map[string]func(t *testing.T, p places) (due time.Duration){
		"Resume": func(t *testing.T, p places) time.Duration {
			require.NoError(t, p.caller.Queue().Pause(t.Context()))
			submit(t, p.caller, args{})
			submitOther(t, p.caller)
			time.Sleep(time.Second)
			require.NoError(t, p.caller.Queue().Resume(t.Context()))
			return 0
		},
		"the end of a pause": func(t *testing.T, p places) time.Duration {
			require.NoError(t, p.caller.Queue().PauseFor(t.Context(), 3*time.Second))
			submit(t, p.caller, args{})
			submitOther(t, p.caller, rexecutor.WithDelay(time.Second))
			return 3 * time.Second
		},
		"RedriveAll": func(t *testing.T, p places) time.Duration {
			require.NoError(t, p.caller.Queue().Pause(t.Context()))
			_, err := submit(t, p.caller, args{}, rexecutor.WithExpiry(time.Millisecond)).Get(t.Context())
			require.ErrorIs(t, err, rexecutor.ErrExpired)
			f := submitOther(t, p.caller, rexecutor.WithExpiry(time.Millisecond))
			_, err = f.Get(t.Context())
			require.ErrorIs(t, err, rexecutor.ErrExpired)
			require.NoError(t, p.caller.Queue().Resume(t.Context()))
			time.Sleep(20 * time.Second)
			n, err := p.caller.Queue().RedriveAll(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 2, n)
			return 0
		},
		"the one that is to look in leaves": func(t *testing.T, p places) time.Duration {
			submitOther(t, p.caller, rexecutor.WithDelay(4*time.Second))
			submit(t, p.caller, args{}, rexecutor.WithDelay(3*time.Second))
			time.Sleep(time.Second)
			p.greeting()
			return 3 * time.Second
		},
		"the one that is to look in dies": func(t *testing.T, p places) time.Duration {
			submitOther(t, p.caller, rexecutor.WithDelay(4*time.Second))
			submit(t, p.caller, args{}, rexecutor.WithDelay(3*time.Second))
			time.Sleep(time.Second)
			p.greeter.Blackhole(true)
			return 3 * time.Second
		},
	}
	for name, act := range makes {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := places{caller: executor(b.Peer(t)), greeter: b.Peer(t, redlatch.WithCloseGrace(0))}
				done := make(chan string, 10)
				greeters := []*rexecutor.Executor{executor(p.greeter), executor(b.Peer(t))}
				others := executor(b.Peer(t))
				require.NoError(t, other.Handle(others, func(context.Context, rexecutor.Call[args]) (struct{}, error) {
					done <- "other"
					return struct{}{}, nil
				}))
				greeted := func(context.Context, rexecutor.Call[args]) (answer, error) {
					done <- "greet"
					return answer{}, nil
				}
				require.NoError(t, greet.Handle(greeters[1], greeted))
				work(t, greeters[1])
				work(t, others)
				time.Sleep(time.Second)
				require.NoError(t, greet.Handle(greeters[0], greeted))
				p.greeting = work(t, greeters[0])
				time.Sleep(time.Second)
				due := act(t, p)
				start := time.Now()
				got := []string{<-done, <-done}
				slices.Sort(got)
				assert.Equal(t, []string{"greet", "other"}, got)
				assert.Less(t, time.Since(start), due+soon)
				p.greeter.Blackhole(false)
			})
		})
	}
}

// F7
func TestTaskWhoseAlarmDiesIsInTimeThoughAWorkerOfAnotherWentToSleepSince(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		caller, begun := executor(b.Peer(t)), make(chan struct{}, 1)
		peers := map[string]*locktest.Peer{}
		for range 2 {
			p := b.Peer(t, redlatch.WithCloseGrace(0))
			ex := executor(p)
			peers[p.ID()] = p
			require.NoError(t, other.Handle(ex, func(context.Context, rexecutor.Call[args]) (struct{}, error) {
				begun <- struct{}{}
				return struct{}{}, nil
			}))
			work(t, ex)
		}
		time.Sleep(time.Second)
		busy := executor(b.Peer(t))
		until := make(chan struct{})
		require.NoError(t, greet.Handle(busy, block(until)))
		work(t, busy)
		time.Sleep(time.Second)
		start := time.Now()
		submitOther(t, caller, rexecutor.WithDelay(5*time.Second))
		time.Sleep(time.Second)
		alarm := peers[b.Hash(t, "redlatch_dq:{media}:tasks:meta")["alarm"]]
		require.NotNil(t, alarm, "one that works on the task")
		f := submit(t, caller, args{})
		time.Sleep(time.Second)
		close(until)
		_, err := f.Get(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		alarm.Blackhole(true)
		defer alarm.Blackhole(false)
		<-begun
		assert.Less(t, time.Since(start), 5*time.Second+soon)
	})
}

func submitOther(t *testing.T, ex *rexecutor.Executor, opts ...rexecutor.SubmitOption) *rexecutor.Future[struct{}] {
	t.Helper()
	f, err := other.Submit(t.Context(), ex, args{}, opts...)
	require.NoError(t, err)
	return f
}
