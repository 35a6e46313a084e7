package rscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rscheduler"
)

// slowly has a handler take so long.
func (r *rig) slowly(d time.Duration) func(context.Context, rscheduler.Run) error {
	return func(ctx context.Context, run rscheduler.Run) error {
		_ = r.handle(ctx, run)
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestQueuedManualRunRunsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.MustCron("@yearly"), r.slowly(10*time.Second), rscheduler.WithOverlap(rscheduler.Queue))
		run(t, s)
		for range 2 {
			time.Sleep(time.Second)
			require.NoError(t, s.Trigger(t.Context(), "job"))
		}
		time.Sleep(10 * time.Minute)
		r.mu.Lock()
		if assert.Len(t, r.began, 2) {
			assert.InDelta(t, 10, r.began[1].Sub(r.began[0]).Seconds(), 0.1, "as soon as the first one has ended")
		}
		r.mu.Unlock()
		assert.Equal(t, []string{"1:1m", "2:1m"}, r.take())
	})
}

func TestQueuedTickOfAPausedJobDoesNotRunAfterIt(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.Every(10*time.Second), r.slowly(15*time.Second), rscheduler.WithOverlap(rscheduler.Queue))
		run(t, s)
		time.Sleep(21 * time.Second) // the tick of 20 s waits for the run of 10 s
		require.NoError(t, s.Pause(t.Context(), "job", "why"))
		time.Sleep(3 * time.Minute)
		require.NoError(t, s.Resume(t.Context(), "job"))
		time.Sleep(8 * time.Second)
		assert.Equal(t, []string{"10:1"}, r.take())
	})
}

// F7: a restart is no reason for the tick that waits to be missed, nor is a new schedule that has it.
func TestQueuedTickOutlivesARestart(t *testing.T) {
	for name, handle := range map[string]func(r *rig) func(context.Context, rscheduler.Run) error{
		"the run is cut off": func(r *rig) func(context.Context, rscheduler.Run) error { return r.slowly(time.Minute) },
		"the run ends":       func(r *rig) func(context.Context, rscheduler.Run) error { return r.slowly(23 * time.Second) },
	} {
		for _, next := range []rscheduler.Schedule{rscheduler.Every(20 * time.Second), rscheduler.MustCron("*/20 * * * * *")} {
			t.Run(name+", "+next.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, r *rig) {
					queued := rscheduler.WithOverlap(rscheduler.Queue)
					s, _ := r.worker(t, rscheduler.Every(20*time.Second), handle(r), queued)
					stop := run(t, s)
					time.Sleep(41 * time.Second) // the tick of 40 s waits for the run of 20 s
					require.NoError(t, stop())
					assert.Equal(t, []string{"20:1"}, r.take())
					s, _ = r.worker(t, next, r.handle, queued)
					run(t, s)
					time.Sleep(13 * time.Second)
					ran := r.take()
					require.NotEmpty(t, ran)
					assert.Regexp(t, "^40:", ran[len(ran)-1])
					assert.LessOrEqual(t, len(ran), 2, "%v", ran)
				})
			})
		}
	}
}

// F2: the beginning of a run whose reply is lost is the same when it is repeated.
func TestBeginningOfARunOutlivesALostReply(t *testing.T) {
	for name, c := range map[string]struct {
		opts  []rscheduler.JobOption
		took  time.Duration // the first run
		err   error         // of it
		wants []string
	}{
		"queued": {[]rscheduler.JobOption{rscheduler.WithOverlap(rscheduler.Queue)}, 25 * time.Second, nil, []string{"10:1", "30:1", "40:1"}},
		"once, again": {
			[]rscheduler.JobOption{rscheduler.WithAtMostOnce(), rscheduler.WithMaxAttempts(2), rscheduler.WithBackoff(func(int) time.Duration { return time.Second })},
			0, errors.New("again"),
			[]string{"10:1", "10:2", "20:1", "30:1", "40:1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				var p *locktest.Peer
				var begun atomic.Int32
				var lost atomic.Int64
				p = r.Peer(t, redlatch.WithObserver(redlatch.Observer{
					ScriptStart: func(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
						// Redis knows the script then; a repetition comes sooner.
						if e.Name == "rscheduler.begin" && begun.Add(1) > 1 && time.Now().UnixNano()-lost.Swap(time.Now().UnixNano()) > int64(time.Second) {
							p.LoseReplies(1) // or that of a script beside it
						}
						return ctx
					},
				}))
				s := p.GetScheduler("billing")
				runs := 0
				require.NoError(t, s.Register("job", rscheduler.Every(10*time.Second), func(ctx context.Context, run rscheduler.Run) error {
					_ = r.handle(ctx, run)
					if runs++; runs > 1 {
						return nil
					}
					time.Sleep(c.took)
					return c.err
				}, c.opts...))
				run(t, s)
				time.Sleep(49 * time.Second)
				assert.Greater(t, int(begun.Load()), len(c.wants), "some were repeated")
				assert.Equal(t, c.wants, r.take())
			})
		})
	}
}

// withholds returns a client whose begin of that number stays on its way, counted from 1, and for which then is called.
func (r *rig) withholds(t *testing.T, number int32, then func(p *locktest.Peer)) (p *locktest.Peer) {
	t.Helper()
	var begun atomic.Int32
	p = r.Peer(t, redlatch.WithObserver(redlatch.Observer{
		ScriptStart: func(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
			if e.Name == "rscheduler.begin" && begun.Add(1) == number {
				time.Sleep(100 * time.Millisecond) // beside it messages are claimed
				p.Withhold(1)
				then(p)
			}
			return ctx
		},
	}))
	return p
}

// F2: the run under the later claim keeps its result, and the tick does not run again.
func TestBeginThatArrivesLateTakesNoRunFromALaterClaim(t *testing.T) {
	for name, schedule := range map[string]rscheduler.Schedule{
		"fixed delay": rscheduler.EveryAfter(10 * time.Second), "once": rscheduler.At(time.Date(2000, 1, 1, 0, 1, 10, 0, time.UTC)),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				p := r.withholds(t, 1, func(p *locktest.Peer) { time.AfterFunc(time.Millisecond, func() { p.Blackhole(true) }) })
				first := p.GetScheduler("billing")
				require.NoError(t, first.Register("job", schedule, r.handle))
				run(t, first)
				time.Sleep(11 * time.Second)
				s, _ := r.worker(t, schedule, r.slowly(20*time.Second))
				run(t, s)
				time.Sleep(35 * time.Second) // the lease of the first one is over
				before := r.Hash(t, "redlatch_sched:{billing}:job:job")
				assert.Equal(t, 1, p.Deliver(t))
				assert.Contains(t, slices.Collect(maps.Values(before)), "running")
				assert.Equal(t, before, r.Hash(t, "redlatch_sched:{billing}:job:job"))
				time.Sleep(20 * time.Second)
				assert.Len(t, r.take(), 1)
				assert.Equal(t, 2, job(t, s).Last.Attempt)
			})
		})
	}
}

// F2, F8
func TestBeginThatArrivesAfterTheRunLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		p := r.withholds(t, 2, func(*locktest.Peer) {}) // Redis knows the script
		s := p.GetScheduler("billing")
		require.NoError(t, s.Register("job", rscheduler.Every(10*time.Second), r.handle, rscheduler.WithOverlap(rscheduler.Allow)))
		run(t, s)
		time.Sleep(25 * time.Second)
		assert.Equal(t, []string{"10:1", "20:1"}, r.take())
		assert.Equal(t, 1, p.Deliver(t))
		assert.Empty(t, r.runsKept(t))
	})
}

// F2: between the end of a failed attempt and its pause.
func TestBeginThatArrivesAfterAFailedAttemptIsNoDeath(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var p *locktest.Peer
		var begun, ended atomic.Int32
		p = r.Peer(t, redlatch.WithObserver(redlatch.Observer{
			ScriptStart: func(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
				switch {
				case e.Name == "rscheduler.begin" && begun.Add(1) == 3: // Redis knows the script
					time.Sleep(100 * time.Millisecond) // as above
					p.Withhold(1)
				case e.Name == "rdelayedqueue.nack" && ended.Add(1) == 2:
					assert.Equal(t, 1, p.Deliver(t))
				}
				return ctx
			},
		}))
		s := p.GetScheduler("billing")
		twice, pause := rscheduler.WithMaxAttempts(2), rscheduler.WithBackoff(func(int) time.Duration { return time.Second })
		require.NoError(t, s.Register("job", rscheduler.Every(10*time.Second), func(ctx context.Context, run rscheduler.Run) error {
			_ = r.handle(ctx, run)
			return errors.New("again")
		}, rscheduler.WithAtMostOnce(), twice, pause))
		run(t, s)
		time.Sleep(25 * time.Second)
		assert.EqualValues(t, 2, ended.Load())
		assert.Equal(t, []string{"10:1", "10:2", "20:1", "20:2"}, r.take())
	})
}

// refusing returns a client that Redis refuses for a second, when it is about to send the script of that name for the given time.
func (r *rig) refusing(t *testing.T, name string, number int32) (p *locktest.Peer) {
	t.Helper()
	var sent atomic.Int32
	p = r.Peer(t, redlatch.WithObserver(redlatch.Observer{
		ScriptStart: func(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
			if e.Name == name && sent.Add(1) == number {
				p.Down(true)
				time.AfterFunc(time.Second, func() { p.Down(false) })
			}
			return ctx
		},
	}))
	return p
}

// F7
func TestTickBeginsAfterAMomentWithoutRedis(t *testing.T) {
	for name, opts := range map[string][]rscheduler.JobOption{"default": nil, "at most once": {rscheduler.WithAtMostOnce()}} {
		for _, number := range []int32{1, 2} { // from then on Redis knows the script
			t.Run(fmt.Sprint(name, ", ", number), func(t *testing.T) {
				inBubble(t, func(t *testing.T, r *rig) {
					s := r.refusing(t, "rscheduler.begin", number).GetScheduler("billing")
					require.NoError(t, s.Register("job", rscheduler.Every(20*time.Second), r.handle, opts...))
					run(t, s)
					time.Sleep(65 * time.Second)
					assert.Equal(t, []string{"20:1", "40:1", "60:1"}, r.take())
					results, err := s.Runs(t.Context(), "job", 100)
					require.NoError(t, err)
					assert.Len(t, results, 3)
				})
			})
		}
	}
}

// F7
func TestNothingBeginsAfterAStopBesideAMomentWithoutRedis(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s := r.refusing(t, "rscheduler.begin", 2).GetScheduler("billing")
		require.NoError(t, s.Register("job", rscheduler.Every(20*time.Second), r.handle))
		stop := run(t, s)
		time.Sleep(40*time.Second + 200*time.Millisecond)
		require.NoError(t, stop())
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"20:1"}, r.take())
	})
}

// F2
func TestPauseOfARetryOutlivesAMomentWithoutRedis(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s := r.refusing(t, "rdelayedqueue.nack", 1).GetScheduler("billing")
		twice, hourly := rscheduler.WithMaxAttempts(2), rscheduler.WithBackoff(func(int) time.Duration { return time.Hour })
		require.NoError(t, s.Register("job", rscheduler.At(r.start.Add(10*time.Second)), func(ctx context.Context, run rscheduler.Run) error {
			_ = r.handle(ctx, run)
			return errors.New("again")
		}, twice, hourly))
		run(t, s)
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"10:1"}, r.take())
		time.Sleep(time.Minute)
		assert.Equal(t, []string{"10:2"}, r.take())
	})
}

// F2: the end of a run whose reply is lost is repeated; one that Redis does not take at all is the death of its process.
func TestEndOfARunOutlivesALostReply(t *testing.T) {
	for name, c := range map[string]struct {
		away time.Duration
		opts []rscheduler.JobOption
		runs int // that have begun after 62 s
	}{
		"a lost reply":                {0, nil, 3},
		"an outage":                   {5 * time.Second, nil, 3},
		"a long outage":               {25 * time.Second, nil, 2},
		"a lost reply, at most once":  {0, []rscheduler.JobOption{rscheduler.WithAtMostOnce()}, 3},
		"an outage, at most once":     {5 * time.Second, []rscheduler.JobOption{rscheduler.WithAtMostOnce()}, 3},
		"a long outage, at most once": {25 * time.Second, []rscheduler.JobOption{rscheduler.WithAtMostOnce()}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				var p *locktest.Peer
				first := true
				s, p := r.worker(t, rscheduler.EveryAfter(10*time.Second), func(ctx context.Context, run rscheduler.Run) error {
					_ = r.handle(ctx, run)
					time.Sleep(10 * time.Second)
					if first {
						first = false
						if c.away == 0 {
							p.LoseReplies(1)
						} else {
							p.Down(true)
							time.AfterFunc(c.away, func() { p.Down(false) })
						}
					}
					return nil
				}, c.opts...)
				run(t, s)
				time.Sleep(62 * time.Second)
				seen := r.take()
				assert.Len(t, seen, c.runs, "%v", seen)
				time.Sleep(2 * time.Minute)
				seen = append(seen, r.take()...)
				once := map[string]bool{}
				for _, tick := range seen {
					assert.False(t, once[tick], "%s runs again: %v", tick, seen)
					once[tick] = true
					if c.opts != nil || c.away < 10*time.Second {
						assert.Regexp(t, ":1$", tick)
					}
				}
				assert.Greater(t, len(seen), 6, "it goes on")
			})
		})
	}
}

// F2: a run that ends in time has ended, although its client closes, or its scheduler stops.
func TestRunThatEndsAsItsProcessStopsIsNotRepeated(t *testing.T) {
	for name, opts := range map[string][]rscheduler.JobOption{"default": nil, "at most once": {rscheduler.WithAtMostOnce()}} {
		for _, outage := range []time.Duration{0, 500 * time.Millisecond} {
			for _, how := range []string{"close", "stop"} {
				t.Run(fmt.Sprint(name, ", ", outage, ", ", how), func(t *testing.T) {
					inBubble(t, func(t *testing.T, r *rig) {
						var p *locktest.Peer
						s, p := r.worker(t, rscheduler.Every(time.Minute), func(ctx context.Context, run rscheduler.Run) error {
							_ = r.handle(ctx, run)
							<-ctx.Done()
							time.Sleep(2 * time.Second)
							if outage > 0 {
								p.Down(true)
								time.AfterFunc(outage, func() { p.Down(false) })
							}
							return nil
						}, opts...)
						ctx, cancel := context.WithCancel(t.Context())
						defer cancel()
						done := make(chan error, 1)
						go func() { done <- s.Run(ctx) }()
						time.Sleep(61 * time.Second) // it runs
						if how == "close" {
							require.NoError(t, p.Close())
							require.ErrorIs(t, <-done, redlatch.ErrClosed)
						} else {
							cancel()
							require.NoError(t, <-done)
						}
						s, _ = r.worker(t, rscheduler.Every(time.Minute), r.handle, opts...)
						run(t, s)
						time.Sleep(45 * time.Second) // longer than the lease
						assert.Equal(t, []string{"60:1"}, r.take())
						last := job(t, s).Last
						assert.Equal(t, 1, last.Attempt)
						assert.Empty(t, last.Err)
					})
				})
			}
		}
	}
}

func TestTicksOfAJobWhoseProcessesAreAwayAreCaughtUpWith(t *testing.T) {
	for name, c := range map[string]struct {
		schedule rscheduler.Schedule
		opts     []rscheduler.JobOption
		want     []string
	}{
		"a rate":               {rscheduler.Every(time.Minute), []rscheduler.JobOption{rscheduler.WithCatchUp(time.Hour)}, []string{"180:1"}},
		"queue all":            {rscheduler.Every(time.Minute), []rscheduler.JobOption{rscheduler.WithOverlap(rscheduler.QueueAll)}, []string{"60:1", "120:1", "180:1"}},
		"a rate, by default":   {rscheduler.Every(time.Minute), nil, []string{"180:1"}},
		"a rate, no catch-up":  {rscheduler.Every(time.Minute), []rscheduler.JobOption{rscheduler.WithCatchUp(0)}, []string{}},
		"a fixed delay":        {rscheduler.EveryAfter(time.Minute), nil, []string{"60:1"}},
		"no window that large": {rscheduler.Every(time.Minute), []rscheduler.JobOption{rscheduler.WithCatchUp(time.Second)}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				other, _ := r.scheduler(t)
				require.NoError(t, other.Register("other", rscheduler.MustCron("@yearly"), r.handle))
				run(t, other)
				a, _ := r.worker(t, c.schedule, r.handle, c.opts...)
				stop := run(t, a)
				time.Sleep(time.Second)
				require.NoError(t, stop())
				time.Sleep(200 * time.Second)
				assert.Empty(t, r.take())
				a, _ = r.worker(t, c.schedule, r.handle, c.opts...)
				run(t, a)
				time.Sleep(30 * time.Second) // a late tick may be passed on several times, for up to 5 s each
				assert.Equal(t, c.want, r.take())
			})
		})
	}
}

// F1: another process repeats it, once the first one has been told.
func TestRunThatIsCutOffIsRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		at := rscheduler.At(r.start.Add(10 * time.Second))
		first := make(chan context.Context, 1)
		s, p := r.worker(t, at, func(ctx context.Context, run rscheduler.Run) error {
			first <- ctx
			return r.slowly(2*time.Minute)(ctx, run)
		})
		run(t, s)
		time.Sleep(15 * time.Second)
		s, _ = r.worker(t, at, func(ctx context.Context, run rscheduler.Run) error {
			assert.Error(t, (<-first).Err(), "two run it")
			return r.slowly(2*time.Minute)(ctx, run)
		})
		run(t, s)
		p.Down(true)
		time.Sleep(time.Minute)
		p.Down(false)
		time.Sleep(5 * time.Minute)
		assert.Equal(t, []string{"10:1", "10:2"}, r.take())
		assert.Empty(t, job(t, s).Last.Err)
	})
}

// F9: with each attempt, after a failure, a death, and the loss of all data.
func TestTokensRise(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		twice, pause := rscheduler.WithMaxAttempts(2), rscheduler.WithBackoff(func(int) time.Duration { return time.Second })
		s, p := r.worker(t, rscheduler.Every(20*time.Second), func(ctx context.Context, run rscheduler.Run) error {
			_ = r.handle(ctx, run)
			if run.Attempt == 1 {
				return errors.New("again")
			}
			<-ctx.Done()
			return ctx.Err()
		}, twice, pause)
		run(t, s)
		time.Sleep(22 * time.Second)
		p.Down(true)
		s, _ = r.worker(t, rscheduler.Every(20*time.Second), r.handle, twice, pause)
		run(t, s)
		time.Sleep(43 * time.Second)
		r.Mini.FlushAll()
		time.Sleep(17 * time.Second)
		r.mu.Lock()
		var tokens []int64
		for _, run := range r.runs {
			tokens = append(tokens, run.Token)
		}
		r.mu.Unlock()
		assert.IsIncreasing(t, tokens)
		assert.Equal(t, []string{"20:1", "20:2", "20:3", "40:1", "60:1", "80:1"}, r.take())
	})
}

// runsKept returns the states of the runs in the hash of the job.
func (r *rig) runsKept(t *testing.T) (all []string) {
	t.Helper()
	for field, state := range r.Hash(t, "redlatch_sched:{billing}:job:job") {
		if strings.HasPrefix(field, "state@") {
			all = append(all, state)
		}
	}
	return all
}

func TestNothingIsKeptOfARemovedJobWhoseRunsEndLater(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.MustCron("@yearly"), r.slowly(3*time.Second), rscheduler.WithOverlap(rscheduler.Allow))
		stop := run(t, s)
		time.Sleep(time.Second)
		for range 3 {
			require.NoError(t, s.Trigger(t.Context(), "job"))
		}
		time.Sleep(time.Second)
		stopped := make(chan error, 1)
		go func() { stopped <- stop() }()
		time.Sleep(time.Second) // it registers nothing any more
		assert.Len(t, r.runsKept(t), 3)
		ok, err := s.Remove(t.Context(), "job")
		require.NoError(t, err)
		assert.True(t, ok)
		require.NoError(t, <-stopped)
		for _, key := range []string{"job:job", "jobs", "runs:job"} {
			assert.Zero(t, r.Redis.Exists(t.Context(), "redlatch_sched:{billing}:"+key).Val(), key)
		}
	})
}

func TestProcessThatStopsIsCountedNoMore(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const alive = "redlatch_sched:{billing}:alive"
		a, _ := r.worker(t, rscheduler.MustCron("@yearly"), r.handle)
		b, _ := r.worker(t, rscheduler.MustCron("@yearly"), r.handle)
		stopA := run(t, a)
		stopB := run(t, b)
		time.Sleep(time.Second)
		since := r.Hash(t, "redlatch_sched:{billing}:meta")["up"]
		require.NotEmpty(t, since)
		require.NoError(t, stopA())
		assert.EqualValues(t, 1, r.Redis.ZCard(t.Context(), alive).Val())
		time.Sleep(time.Minute)
		a, _ = r.worker(t, rscheduler.MustCron("@yearly"), r.handle)
		stopA = run(t, a)
		time.Sleep(time.Second)
		assert.Equal(t, since, r.Hash(t, "redlatch_sched:{billing}:meta")["up"], "one ran all the time")
		require.NoError(t, stopA())
		require.NoError(t, stopB())
		assert.Zero(t, r.Redis.Exists(t.Context(), alive).Val())
		a, _ = r.worker(t, rscheduler.MustCron("@yearly"), r.handle)
		run(t, a)
		time.Sleep(time.Second)
		assert.Greater(t, r.Hash(t, "redlatch_sched:{billing}:meta")["up"], since, "none ran for a moment")
	})
}

// F8
func TestNothingIsKeptOfADeadRunThatIsNotRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, killed := r.worker(t, rscheduler.Every(10*time.Second), r.slowly(time.Hour), rscheduler.WithOverlap(rscheduler.Allow))
		run(t, s)
		time.Sleep(15 * time.Second)
		killed.Blackhole(true)
		other, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle, rscheduler.WithOverlap(rscheduler.Allow))
		run(t, other)
		require.NoError(t, other.Pause(t.Context(), "job", "why"))
		time.Sleep(time.Second)
		assert.Len(t, r.runsKept(t), 1)
		time.Sleep(time.Minute)
		assert.Empty(t, r.runsKept(t))
		assert.Equal(t, []string{"10:1"}, r.take())
	})
}

// F8: a run whose process died is repeated, also if another schedule holds by then.
func TestDeadRunOfAReplacedScheduleIsRepeated(t *testing.T) {
	for _, overlap := range []rscheduler.Overlap{rscheduler.Skip, rscheduler.Allow} {
		t.Run(overlap.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				s, killed := r.worker(t, rscheduler.Every(10*time.Second), r.slowly(time.Hour), rscheduler.WithOverlap(overlap))
				run(t, s)
				time.Sleep(15 * time.Second)
				killed.Blackhole(true)
				other, _ := r.worker(t, rscheduler.MustCron("@yearly"), r.handle, rscheduler.WithOverlap(overlap))
				run(t, other)
				time.Sleep(time.Minute)
				assert.Equal(t, []string{"10:1", "10:2"}, r.take())
				assert.Empty(t, r.runsKept(t))
			})
		})
	}
}

// F8: so is the attempt that waits when the schedule is replaced.
func TestAttemptThatWaitsOutlivesItsSchedule(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.Every(10*time.Second), func(ctx context.Context, run rscheduler.Run) error {
			_ = r.handle(ctx, run)
			return errors.New("again")
		}, rscheduler.WithMaxAttempts(2), rscheduler.WithBackoff(func(int) time.Duration { return 5 * time.Second }))
		run(t, s)
		r.until(12)
		require.NoError(t, s.Replace("job", rscheduler.Every(7*time.Second, rscheduler.From(r.start)), func(ctx context.Context, run rscheduler.Run) error {
			return r.handle(ctx, run)
		}))
		r.until(29)
		assert.Equal(t, []string{"10:1", "10:2", "21:1", "28:1"}, r.take(), "that of 14 came during the run")
	})
}

// F1, F7: a script that begins it under the earlier claim and arrives late changes nothing.
func TestTickWhoseProcessDiesBeforeItBeginsRunsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		opts := []rscheduler.JobOption{rscheduler.WithAtMostOnce(), rscheduler.WithOverlap(rscheduler.Allow)}
		first := r.diesAsItBegins(t).GetScheduler("billing")
		require.NoError(t, first.Register("job", rscheduler.Every(10*time.Second), r.handle, opts...))
		run(t, first)
		time.Sleep(9 * time.Second)
		other, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle, opts...)
		time.Sleep(2 * time.Second) // the first one has claimed the tick of 10 s
		run(t, other)
		time.Sleep(time.Minute)
		assert.ElementsMatch(t, []string{"10:2", "20:1", "30:1", "40:1", "50:1", "60:1", "70:1"}, r.take())
	})
}

// diesAsItBegins returns a client that is cut off for good when it begins a run.
func (r *rig) diesAsItBegins(t *testing.T) (p *locktest.Peer) {
	t.Helper()
	p = r.Peer(t, redlatch.WithObserver(redlatch.Observer{
		ScriptStart: func(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
			if e.Name == "rscheduler.begin" {
				p.Down(true)
			}
			return ctx
		},
	}))
	return p
}

// F7: a tick whose process died before it began is missed, not overlapped: it is claimed again after the lease, and nothing of the job runs
// meanwhile.
func TestTickWhoseProcessDiesAsItBeginsIsCaughtUpWith(t *testing.T) {
	no, some := rscheduler.WithCatchUp(0), rscheduler.WithCatchUp(21*time.Second)
	all := []string{"10:2", "20:1", "30:1", "40:1"}
	for name, c := range map[string]struct {
		overlap rscheduler.Overlap
		opts    []rscheduler.JobOption
		want    []string
	}{
		"skip":                 {rscheduler.Skip, nil, []string{"40:1"}},
		"skip, no catch-up":    {rscheduler.Skip, []rscheduler.JobOption{no}, []string{}},
		"skip, at most once":   {rscheduler.Skip, []rscheduler.JobOption{no, rscheduler.WithAtMostOnce()}, []string{}},
		"queue":                {rscheduler.Queue, nil, []string{"40:1"}},
		"queue all":            {rscheduler.QueueAll, nil, all},
		"queue all, too old":   {rscheduler.QueueAll, []rscheduler.JobOption{some}, []string{"30:1", "40:1"}},
		"allow":                {rscheduler.Allow, nil, all},
		"allow, no catch-up":   {rscheduler.Allow, []rscheduler.JobOption{no}, []string{}},
		"queue, at a tick":     {rscheduler.Queue, []rscheduler.JobOption{no}, []string{}},
		"skip, catch-up small": {rscheduler.Skip, []rscheduler.JobOption{some}, []string{"40:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				opts := append(c.opts, rscheduler.WithOverlap(c.overlap))
				first := r.diesAsItBegins(t).GetScheduler("billing", rscheduler.WithLease(35*time.Second))
				require.NoError(t, first.Register("job", rscheduler.Every(10*time.Second), r.handle, opts...))
				run(t, first)
				time.Sleep(9 * time.Second)
				other, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle, opts...)
				time.Sleep(2 * time.Second) // the first one has claimed the tick of 10 s
				run(t, other)
				time.Sleep(38 * time.Second)
				got := r.take()
				if c.overlap == rscheduler.Allow {
					slices.Sort(got) // those that run at once have no order
				}
				assert.Equal(t, c.want, got)
			})
		})
	}
}

// F7: what ran before a late run began is not made up for when that run's process dies too.
func TestLateRunOfADeadProcessRepeatsNoOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		opts := []rscheduler.JobOption{rscheduler.WithOverlap(rscheduler.QueueAll)}
		first := r.diesAsItBegins(t).GetScheduler("billing")
		require.NoError(t, first.Register("job", rscheduler.Every(20*time.Second), r.handle, opts...))
		run(t, first)
		time.Sleep(19 * time.Second)
		var dies *locktest.Peer
		second, dies := r.worker(t, rscheduler.Every(20*time.Second), func(ctx context.Context, run rscheduler.Run) error {
			if run.Attempt == 2 {
				dies.Down(true)
			}
			return r.handle(ctx, run)
		}, opts...)
		time.Sleep(2 * time.Second) // the first one has claimed the tick of 20 s
		run(t, second)
		time.Sleep(30 * time.Second) // the second one runs it
		third, _ := r.worker(t, rscheduler.Every(20*time.Second), r.handle, opts...)
		run(t, third)
		time.Sleep(5 * time.Minute)
		got, once := r.take(), map[string]bool{}
		for _, tick := range got {
			assert.False(t, once[tick], "%s runs again: %v", tick, got)
			once[tick] = true
		}
		for at := 40; at <= 340; at += 20 {
			assert.True(t, once[fmt.Sprint(at, ":1")], "%v", at)
		}
		assert.True(t, once["20:3"], got)
	})
}

// F7, F8: a run that has ended is not repeated, although its process dies before it learns so.
func TestRunThatHasEndedIsNotRepeated(t *testing.T) {
	rate, delay := rscheduler.Every(10*time.Second), rscheduler.EveryAfter(10*time.Second)
	for name, c := range map[string]struct {
		schedule rscheduler.Schedule
		opts     []rscheduler.JobOption
	}{
		"skip":          {rate, []rscheduler.JobOption{rscheduler.WithOverlap(rscheduler.Skip)}},
		"queue all":     {rate, []rscheduler.JobOption{rscheduler.WithOverlap(rscheduler.QueueAll)}},
		"queue":         {rate, []rscheduler.JobOption{rscheduler.WithOverlap(rscheduler.Queue)}},
		"allow":         {rate, []rscheduler.JobOption{rscheduler.WithOverlap(rscheduler.Allow)}},
		"a fixed delay": {delay, nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				first := r.downAfter(t, "rscheduler.end", time.Hour).GetScheduler("billing")
				require.NoError(t, first.Register("job", c.schedule, r.handle, c.opts...))
				run(t, first)
				time.Sleep(11 * time.Second)
				require.Equal(t, []string{"10:1"}, r.take())
				other, _ := r.worker(t, c.schedule, r.handle, c.opts...)
				run(t, other)
				time.Sleep(2 * time.Minute)
				got := r.take()
				assert.Len(t, got, 12)
				for _, tick := range got {
					assert.Regexp(t, ":1$", tick, "%v", got)
				}
			})
		})
	}
}

// F2, F7: what follows a run that ends in an outage comes soon after the outage, and each result is kept once.
func TestOutageAtTheEndOfARunTakesNothingWithIt(t *testing.T) {
	for name, schedule := range map[string]rscheduler.Schedule{
		"fixed rate": rscheduler.Every(10 * time.Second), "fixed delay": rscheduler.EveryAfter(10 * time.Second),
	} {
		for _, attempts := range []int{1, 2} {
			for _, outage := range []time.Duration{0, time.Second, 15 * time.Second} { // shorter than the lease
				t.Run(fmt.Sprint(name, ", ", attempts, " attempts, ", outage), func(t *testing.T) {
					inBubble(t, func(t *testing.T, r *rig) {
						var p *locktest.Peer
						var s *rscheduler.Scheduler
						runs := 0
						s, p = r.worker(t, schedule, func(ctx context.Context, run rscheduler.Run) error {
							_ = r.handle(ctx, run)
							if runs++; runs != 2 { // Redis knows the scripts then
								return nil
							}
							if outage == 0 {
								p.LoseReplies(1)
							} else {
								p.Down(true)
								time.AfterFunc(outage, func() { p.Down(false) })
							}
							if attempts > 1 {
								return errors.New("again")
							}
							return nil
						}, rscheduler.WithMaxAttempts(attempts), rscheduler.WithBackoff(func(int) time.Duration { return time.Second }))
						run(t, s)
						time.Sleep(20*time.Second + outage + time.Second/4)
						assert.Len(t, r.take(), 2)
						time.Sleep(15 * time.Second)
						more := r.take()
						require.GreaterOrEqual(t, len(more), attempts)
						results, err := s.Runs(t.Context(), "job", 100)
						require.NoError(t, err)
						assert.Len(t, results, 2+len(more))
					})
				})
			}
		}
	}
}

// downAfter returns a client that loses Redis for a while once a script of that name was answered for the first time.
func (r *rig) downAfter(t *testing.T, name string, outage time.Duration) (p *locktest.Peer) {
	t.Helper()
	return r.downAfterSome(t, name, 1, outage)
}

// downAfterSome is downAfter for a script that was answered as often.
func (r *rig) downAfterSome(t *testing.T, name string, often int32, outage time.Duration) (p *locktest.Peer) {
	t.Helper()
	var once sync.Once
	var seen atomic.Int32
	t.Cleanup(func() { once.Do(func() { t.Errorf("there was no outage: no %s has run", name) }) })
	p = r.Peer(t, redlatch.WithObserver(redlatch.Observer{
		ScriptEnd: func(_ context.Context, e redlatch.ScriptEndEvent) {
			if e.Name == name && e.Err == nil && seen.Add(1) == often {
				once.Do(func() {
					p.Down(true)
					time.AfterFunc(outage, func() { p.Down(false) })
				})
			}
		},
	}))
	return p
}

// F7: the end of a run is in Redis, but what is to run after it could not be offered.
func TestNextRunThatCouldNotBeOfferedComesAfterTheOutage(t *testing.T) {
	all := []rscheduler.JobOption{rscheduler.WithCatchUp(150 * time.Second), rscheduler.WithOverlap(rscheduler.QueueAll)}
	for name, c := range map[string]struct {
		schedule rscheduler.Schedule
		opts     []rscheduler.JobOption
		want     []string
	}{
		"queue all":     {rscheduler.MustCron("* * * * *"), all, []string{"540:1", "600:1", "660:1", "720:1"}},
		"a fixed delay": {rscheduler.EveryAfter(20 * time.Second), nil, []string{"120:1", "705:1", "725:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				s, _ := r.worker(t, c.schedule, r.handle, c.opts...)
				stop := run(t, s)
				time.Sleep(105 * time.Second)
				require.NoError(t, stop())
				r.take()
				time.Sleep(580 * time.Second)
				s = r.downAfter(t, "rscheduler.end", 15*time.Second).GetScheduler("billing")
				require.NoError(t, s.Register("job", c.schedule, r.handle, c.opts...))
				run(t, s)
				time.Sleep(45 * time.Second)
				ran := r.take()
				ran[0] = strings.Replace(ran[0], ":2", ":1", 1) // it may have been claimed as the outage began
				assert.Equal(t, c.want, ran)
			})
		})
	}
}

// F7, F8: what is left out stays left out, although the acknowledgement of its message was lost.
func TestMissedTickWhoseAcknowledgementIsLostDoesNotRun(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.MustCron("* * * * *"), r.handle, rscheduler.WithCatchUp(0))
		stop := run(t, s)
		time.Sleep(100 * time.Second)
		require.NoError(t, stop())
		time.Sleep(100 * time.Second)
		r.take()
		s = r.downAfter(t, "rscheduler.begin", time.Second).GetScheduler("billing")
		require.NoError(t, s.Register("job", rscheduler.MustCron("* * * * *"), r.handle, rscheduler.WithCatchUp(0)))
		run(t, s)
		time.Sleep(2 * time.Minute)
		assert.Equal(t, []string{"240:1", "300:1"}, r.take())
	})
}

// F7: ticks that run late make room for no others until they have caught up.
func TestMissedTicksRunBeforeThoseThatComeEachSecond(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		start := func() (stop func() error) {
			s, _ := r.worker(t, rscheduler.Every(time.Second), r.slowly(600*time.Millisecond), rscheduler.WithCatchUp(time.Minute), rscheduler.WithOverlap(rscheduler.QueueAll))
			return run(t, s)
		}
		stop := start()
		time.Sleep(3 * time.Second)
		require.NoError(t, stop())
		time.Sleep(7300 * time.Millisecond)
		start()
		time.Sleep(time.Minute)
		ran := r.take()
		for missed := 4; missed <= 10; missed++ {
			assert.Contains(t, ran, fmt.Sprint(missed, ":1"))
		}
	})
}

// F7: a tick whose schedule was replaced goes by the new one, which has the same instant, and takes no other from it.
func TestTickOfAReplacedScheduleGoesByTheNewOne(t *testing.T) {
	for name, next := range map[string]func(tick time.Time) rscheduler.Schedule{
		"once":   rscheduler.At,
		"hourly": func(tick time.Time) rscheduler.Schedule { return rscheduler.MustCron(tick.Format("5 4 * * * *")) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				s, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle)
				stop := run(t, s)
				time.Sleep(15 * time.Second) // 20 to 50 are offered
				require.NoError(t, stop())
				assert.Equal(t, []string{"10:1"}, r.take())
				time.Sleep(time.Minute)
				s = r.Peer(t, redlatch.WithObserver(redlatch.Observer{
					ScriptStart: func(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
						if e.Name == "rdelayedqueue.claim" {
							time.Sleep(time.Second) // the schedule is replaced first
						}
						return ctx
					},
				})).GetScheduler("billing")
				require.NoError(t, s.Register("job", next(r.start.Add(30*time.Second)), r.handle, rscheduler.WithCatchUp(time.Hour)))
				run(t, s)
				time.Sleep(5 * time.Minute)
				assert.Equal(t, []string{"30:1"}, r.take())
			})
		})
	}
}

// F7: the ticks of a schedule that replaces another count from the one on that the other did not come to.
func TestReplacedScheduleIsCaughtUpWithFromTheOldOneOn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle)
		stop := run(t, s)
		time.Sleep(15 * time.Second)
		require.NoError(t, stop())
		assert.Equal(t, []string{"10:1"}, r.take())
		time.Sleep(time.Minute)
		s, _ = r.worker(t, rscheduler.MustCron("*/15 * * * * *"), r.handle, rscheduler.WithOverlap(rscheduler.QueueAll))
		run(t, s)
		time.Sleep(15 * time.Second)
		ran, last := r.take(), 10 // of the old schedule: some of its ticks may begin before it is replaced
		for _, tick := range []int{20, 40, 50, 70, 80} {
			if slices.Contains(ran, fmt.Sprintf("%d:1", tick)) {
				last = tick
			}
		}
		var want []string
		for at := 20; at <= 90; at += 5 {
			if at <= last && at%10 == 0 || at > last && at%15 == 0 {
				want = append(want, fmt.Sprintf("%d:1", at))
			}
		}
		assert.Equal(t, want, ran)
	})
}

// F2: of a job that was there, and of one that never was.
func TestRemoveWhoseReplyIsLostSaysWhetherThereWasAJob(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.MustCron("@yearly"), r.handle)
		stop := run(t, s)
		time.Sleep(time.Second)
		require.NoError(t, stop())
		operator, p := r.scheduler(t)
		require.NoError(t, operator.Pause(t.Context(), "job", "")) // Redis knows the script then
		for _, c := range []struct {
			job  string
			want bool
		}{{"none", false}, {"job", true}, {"job", false}} {
			sent := len(p.Sent())
			p.LoseReplies(1)
			removed, err := operator.Remove(t.Context(), c.job)
			require.NoError(t, err)
			assert.Equal(t, c.want, removed, c.job)
			assert.Greater(t, len(p.Sent()), sent+1, "it was repeated")
		}
	})
}

// F7, F8: a process that dies as soon as it has written a job leaves a plan of it, by which others find what was missed.
func TestJobWhoseProcessDiesAsItIsWrittenIsCaughtUpWith(t *testing.T) {
	catchUp := rscheduler.WithCatchUp(time.Hour)
	for name, c := range map[string]struct {
		before, schedule rscheduler.Schedule
		want             []string
	}{
		"a rate":           {nil, rscheduler.Every(10 * time.Second), []string{"70:1", "80:1"}},
		"a changed rate":   {rscheduler.Every(45 * time.Second), rscheduler.Every(10 * time.Second), []string{"70:1", "80:1"}},
		"a cron":           {nil, rscheduler.MustCron("*/40 * * * * *"), []string{"60:1"}},
		"a fixed delay":    {nil, rscheduler.EveryAfter(50 * time.Second), []string{"50:1"}},
		"a single run":     {nil, rscheduler.At(time.Date(2000, 1, 1, 0, 1, 10, 0, time.UTC)), []string{"10:1"}},
		"one that is past": {nil, rscheduler.At(time.Date(2000, 1, 1, 0, 0, 10, 0, time.UTC)), []string{"-50:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				if c.before != nil {
					s, _ := r.worker(t, c.before, r.handle, catchUp)
					stop := run(t, s)
					time.Sleep(time.Second)
					require.NoError(t, stop())
				}
				calls := int32(1)
				if c.before != nil {
					calls = 2 // to replace a schedule
				}
				dies := r.downAfterSome(t, "rscheduler.register", calls, time.Hour).GetScheduler("billing")
				require.NoError(t, dies.Register("job", c.schedule, r.handle, catchUp))
				run(t, dies)
				time.Sleep(time.Second)
				operator, _ := r.scheduler(t)
				require.Equal(t, c.schedule.String(), job(t, operator).Schedule)
				time.Sleep(time.Until(r.start.Add(75 * time.Second)))
				s, _ := r.worker(t, c.schedule, r.handle, catchUp)
				run(t, s)
				time.Sleep(9 * time.Second)
				ran := r.take()
				if strings.HasPrefix(c.want[0], "-") { // it is due at once, so that the first process may have claimed it
					ran[0] = strings.Replace(ran[0], ":2", ":1", 1)
				}
				assert.Equal(t, c.want, ran)
			})
		})
	}
}
