package rscheduler_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rscheduler"
)

// record has the runs of handlers.
type record struct {
	mu    sync.Mutex
	runs  []rscheduler.Run
	began []time.Time
	start time.Time
}

func (r *record) handle(_ context.Context, run rscheduler.Run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs, r.began = append(r.runs, run), append(r.began, time.Now())
	return nil
}

// take returns what has run since the last call, as "second of the tick:attempt", and m for a manual run.
func (r *record) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := []string{}
	for _, run := range r.runs {
		at := run.Scheduled.Sub(r.start).Truncate(time.Second).Seconds()
		text := fmt.Sprintf("%v:%d", at, run.Attempt)
		if run.Manual {
			text += "m"
		}
		all = append(all, text)
	}
	r.runs, r.began = nil, nil
	return all
}

// rig has schedulers in a bubble, which begins half a second after a whole minute.
type rig struct {
	*locktest.Bubble
	record
}

func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		now := time.Now().UTC()
		start := now.Truncate(time.Minute).Add(time.Minute)
		time.Sleep(start.Sub(now) + time.Second/2)
		test(t, &rig{Bubble: b, record: record{start: start}})
	})
}

// run runs a scheduler until the result is called, or the test ends.
func run(t *testing.T, s *rscheduler.Scheduler) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { assert.NoError(t, stop()) })
	return stop
}

func (r *rig) scheduler(t *testing.T, opts ...rscheduler.Option) (*rscheduler.Scheduler, *locktest.Peer) {
	t.Helper()
	p := r.Peer(t)
	return p.GetScheduler("billing", opts...), p
}

// worker returns a scheduler that has registered a job, and its client.
func (r *rig) worker(t *testing.T, schedule rscheduler.Schedule, handle func(context.Context, rscheduler.Run) error, opts ...rscheduler.JobOption) (*rscheduler.Scheduler, *locktest.Peer) {
	t.Helper()
	s, p := r.scheduler(t)
	require.NoError(t, s.Register("job", schedule, handle, opts...))
	return s, p
}

func job(t *testing.T, s *rscheduler.Scheduler) rscheduler.Job {
	t.Helper()
	jobs, err := s.Jobs(t.Context())
	require.NoError(t, err)
	require.Len(t, jobs, 1)
	return jobs[0]
}

// F7
func TestEachTickRunsOnceAndInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for range 10 {
			s, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle)
			run(t, s)
		}
		time.Sleep(10*time.Minute - time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Len(t, r.runs, 59)
		tokens := int64(0)
		for i, run := range r.runs {
			assert.Equal(t, r.start.Add(time.Duration(i+1)*10*time.Second), run.Scheduled.UTC())
			late := r.began[i].Sub(run.Scheduled)
			assert.True(t, late >= 0 && late < 10*time.Millisecond, "late by %v", late)
			assert.Equal(t, 1, run.Attempt)
			assert.Greater(t, run.Token, tokens)
			tokens = run.Token
		}
	})
}

func TestFixedDelayCountsFromTheEndOfTheRun(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for range 3 {
			s, _ := r.worker(t, rscheduler.EveryAfter(time.Minute), func(ctx context.Context, run rscheduler.Run) error {
				defer time.Sleep(30 * time.Second)
				return r.handle(ctx, run)
			})
			run(t, s)
		}
		time.Sleep(5 * time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		require.Len(t, r.began, 3)
		assert.InDelta(t, 60, r.began[0].Sub(r.start).Seconds(), 1)
		assert.InDelta(t, 150, r.began[1].Sub(r.start).Seconds(), 1)
		assert.InDelta(t, 240, r.began[2].Sub(r.start).Seconds(), 1)
	})
}

func TestOneShotRunsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for range 3 {
			s, _ := r.worker(t, rscheduler.At(r.start.Add(100*time.Second)), r.handle)
			stop := run(t, s)
			time.Sleep(2 * time.Minute)
			require.NoError(t, stop())
		}
		assert.Equal(t, []string{"100:1"}, r.take())
	})
}

func TestTickThatComesWhileTheLastOneRuns(t *testing.T) {
	for _, concurrency := range []int{1, 10} {
		for overlap, want := range map[rscheduler.Overlap][]string{
			rscheduler.Skip:     {"10:1", "50:1", "90:1"},
			rscheduler.Queue:    {"10:1", "40:1", "70:1"},
			rscheduler.QueueAll: {"10:1", "20:1", "30:1"},
			rscheduler.Allow:    {"10:1", "20:1", "30:1", "40:1", "50:1", "60:1", "70:1", "80:1", "90:1", "100:1"},
		} {
			if concurrency == 1 && overlap == rscheduler.Allow {
				continue // there is no room for another one
			}
			t.Run(fmt.Sprint(overlap, concurrency), func(t *testing.T) {
				inBubble(t, func(t *testing.T, r *rig) {
					s, _ := r.scheduler(t, rscheduler.WithConcurrency(concurrency))
					require.NoError(t, s.Register("job", rscheduler.Every(10*time.Second), func(ctx context.Context, run rscheduler.Run) error {
						defer time.Sleep(33 * time.Second)
						return r.handle(ctx, run)
					}, rscheduler.WithOverlap(overlap)))
					stop := run(t, s)
					time.Sleep(104 * time.Second)
					assert.Equal(t, want, r.take())
					go func() { assert.NoError(t, stop()) }()
					time.Sleep(time.Minute)
				})
			})
		}
	}
}

// F7: also if the process that repeats it has replaced the schedule by one that has the same instants.
func TestRunOfADeadProcessIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		opts []rscheduler.JobOption
		want []string
	}{
		"no catch-up":  {[]rscheduler.JobOption{rscheduler.WithCatchUp(0)}, []string{"10:1", "10:2", "50:1", "60:1"}},
		"by default":   {nil, []string{"10:1", "10:2", "40:1", "50:1", "60:1"}},
		"queue all":    {[]rscheduler.JobOption{rscheduler.WithOverlap(rscheduler.QueueAll)}, []string{"10:1", "10:2", "20:1", "30:1", "40:1", "50:1", "60:1"}},
		"at most once": {[]rscheduler.JobOption{rscheduler.WithAtMostOnce()}, []string{"10:1", "40:1", "50:1", "60:1"}},
	} {
		for _, next := range []rscheduler.Schedule{rscheduler.Every(10 * time.Second), rscheduler.MustCron("*/10 * * * * *")} {
			t.Run(name+", "+next.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, r *rig) {
					var dies *locktest.Peer
					handle := func(ctx context.Context, run rscheduler.Run) error {
						err := r.handle(ctx, run)
						if run.Attempt == 1 && run.Scheduled.Equal(r.start.Add(10*time.Second)) {
							dies.Down(true)
							<-ctx.Done()
							assert.ErrorIs(t, context.Cause(ctx), rscheduler.ErrLost)
							assert.Less(t, time.Since(run.Started), 30*time.Second, "another may run it")
							return ctx.Err()
						}
						return err
					}
					var s *rscheduler.Scheduler
					s, dies = r.worker(t, rscheduler.Every(10*time.Second), handle, c.opts...)
					run(t, s)
					time.Sleep(10 * time.Second)
					s, _ = r.worker(t, next, handle, c.opts...)
					run(t, s)
					time.Sleep(55 * time.Second)
					got := r.take()
					slices.Sort(got) // the last missed tick may be offered in the moment in which the next one is due
					assert.Equal(t, c.want, got)
					results, err := s.Runs(t.Context(), "job", 100)
					require.NoError(t, err)
					first := results[len(results)-1]
					if name == "at most once" {
						assert.Equal(t, "the process died", first.Err)
						assert.Equal(t, 1, first.Attempt, "it is the result of the attempt that died")
						assert.Equal(t, dies.ID(), first.Where)
						assert.WithinDuration(t, first.Scheduled, first.Started, time.Second)
					} else {
						assert.Empty(t, first.Err)
						assert.Equal(t, 2, first.Attempt)
					}
				})
			})
		}
	}
}

func TestMissedTicksFollowThePolicy(t *testing.T) {
	for name, c := range map[string]struct {
		opts        []rscheduler.JobOption
		newest, all []string // of the overlaps that run the newest one, and of those that run all
	}{
		"by default": {nil, []string{"660:1", "720:1"}, []string{"120:1", "180:1", "240:1", "300:1", "360:1", "420:1", "480:1", "540:1", "600:1", "660:1", "720:1"}},
		"left out":   {[]rscheduler.JobOption{rscheduler.WithCatchUp(0)}, []string{"720:1"}, []string{"720:1"}},
		"younger":    {[]rscheduler.JobOption{rscheduler.WithCatchUp(150 * time.Second)}, []string{"660:1", "720:1"}, []string{"540:1", "600:1", "660:1", "720:1"}},
		"too old":    {[]rscheduler.JobOption{rscheduler.WithCatchUp(time.Second)}, []string{"720:1"}, []string{"720:1"}},
	} {
		for _, overlap := range []rscheduler.Overlap{rscheduler.Skip, rscheduler.Queue, rscheduler.QueueAll, rscheduler.Allow} {
			t.Run(name+" "+overlap.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T, r *rig) {
					s, _ := r.worker(t, rscheduler.MustCron("* * * * *"), r.handle, append(c.opts, rscheduler.WithOverlap(overlap))...)
					stop := run(t, s)
					time.Sleep(100 * time.Second)
					require.NoError(t, stop())
					assert.Equal(t, []string{"60:1"}, r.take())
					time.Sleep(585 * time.Second)
					s, _ = r.worker(t, rscheduler.MustCron("* * * * *"), func(ctx context.Context, run rscheduler.Run) error {
						defer time.Sleep(time.Second)
						return r.handle(ctx, run)
					}, append(c.opts, rscheduler.WithOverlap(overlap))...)
					run(t, s)
					time.Sleep(50 * time.Second)
					want := c.newest
					if overlap == rscheduler.QueueAll || overlap == rscheduler.Allow {
						want = c.all
					}
					ran := r.take()
					if overlap == rscheduler.Allow {
						slices.Sort(ran) // those that run at once have no order
					}
					assert.Equal(t, want, ran)
				})
			})
		}
	}
}

// F7: the only process stops two seconds before the tick, and the next one starts a second after it.
func TestDeploymentOverATickLosesItNot(t *testing.T) {
	for name, schedule := range map[string]func(r *rig) rscheduler.Schedule{
		"once":  func(r *rig) rscheduler.Schedule { return rscheduler.At(r.start.Add(20 * time.Second)) },
		"cron":  func(*rig) rscheduler.Schedule { return rscheduler.MustCron("20 1 0 1 1 ?", rscheduler.Quartz()) },
		"often": func(*rig) rscheduler.Schedule { return rscheduler.Every(time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				s, _ := r.worker(t, schedule(r), r.handle)
				stop := run(t, s)
				time.Sleep(18 * time.Second)
				require.NoError(t, stop())
				r.take()
				time.Sleep(2200 * time.Millisecond)
				s, _ = r.worker(t, schedule(r), r.handle)
				run(t, s)
				time.Sleep(200 * time.Millisecond)
				assert.Equal(t, []string{"20:1"}, r.take())
			})
		})
	}
}

// F7: what came while nobody ran comes in its order, each once.
func TestAllMissedTicksRunOneAfterAnother(t *testing.T) {
	for _, overlap := range []rscheduler.Overlap{rscheduler.QueueAll, rscheduler.Allow} {
		for _, took := range []time.Duration{0, time.Second, 4 * time.Second} {
			t.Run(fmt.Sprint(overlap, took), func(t *testing.T) {
				inBubble(t, func(t *testing.T, r *rig) {
					opts := []rscheduler.JobOption{rscheduler.WithCatchUp(time.Minute), rscheduler.WithOverlap(overlap)}
					s, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle, opts...)
					stop := run(t, s)
					time.Sleep(15 * time.Second)
					require.NoError(t, stop())
					assert.Equal(t, []string{"10:1"}, r.take())
					time.Sleep(time.Minute)
					for range 3 {
						s, _ = r.worker(t, rscheduler.Every(10*time.Second), r.slowly(took), opts...)
						run(t, s)
					}
					time.Sleep(15*time.Second + 10*took)
					var missed []string
					for _, tick := range r.take() {
						if len(tick) == len("10:1") && tick < "80:1" {
							missed = append(missed, tick)
						}
					}
					if overlap == rscheduler.Allow {
						slices.Sort(missed) // they run at the same time
					}
					assert.Equal(t, []string{"20:1", "30:1", "40:1", "50:1", "60:1", "70:1"}, missed)
				})
			})
		}
	}
}

// F7: they stay offered, and are not taken for missed.
func TestTicksWhoseOffersAreNotConfirmedRunOnce(t *testing.T) {
	for name, opts := range map[string][]rscheduler.JobOption{
		"no catch-up": nil,
		"catch-up":    {rscheduler.WithCatchUp(time.Hour)},
		"once":        {rscheduler.WithCatchUp(time.Hour), rscheduler.WithAtMostOnce()},
		"queue":       {rscheduler.WithCatchUp(time.Hour), rscheduler.WithOverlap(rscheduler.Queue)},
		"queue all":   {rscheduler.WithCatchUp(time.Hour), rscheduler.WithOverlap(rscheduler.QueueAll)},
		"allow":       {rscheduler.WithCatchUp(time.Hour), rscheduler.WithOverlap(rscheduler.Allow)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				var log bytes.Buffer
				s := r.Peer(t, redlatch.WithReplicas(1, 50*time.Millisecond), redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))).GetScheduler("billing")
				require.NoError(t, s.Register("rate", rscheduler.Every(5*time.Minute), r.handle, opts...))
				require.NoError(t, s.Register("shot", rscheduler.At(r.start.Add(10*time.Second)), r.handle, opts...))
				run(t, s)
				time.Sleep(16 * time.Minute)
				assert.Equal(t, []string{"10:1", "240:1", "540:1", "840:1"}, r.take())
				assert.Equal(t, 1, strings.Count(log.String(), "are not confirmed"), log.String())
				assert.NotContains(t, log.String(), "cannot plan")
			})
		})
	}
}

func TestRetriesPauseTwiceAsLongEachTimeByDefault(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var ended time.Time
		var pauses []time.Duration
		s, _ := r.worker(t, rscheduler.At(r.start.Add(10*time.Second)), func(_ context.Context, run rscheduler.Run) error {
			if run.Attempt > 1 {
				pauses = append(pauses, time.Since(ended))
			}
			ended = time.Now()
			return errors.New("again")
		}, rscheduler.WithMaxAttempts(13))
		run(t, s)
		time.Sleep(2 * time.Hour)
		require.Len(t, pauses, 12)
		for i, pause := range pauses {
			want := min(time.Second<<i, 15*time.Minute)
			assert.InDelta(t, want.Seconds(), pause.Seconds(), want.Seconds()/4+0.1, "after attempt %d", i+1)
		}
	})
}

// F7: a run that is to be repeated waits for a process that has the job. The ticks after it do not run again.
func TestOrphanedRetryDoesNotRepeatLaterTicks(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		opts := []rscheduler.JobOption{
			rscheduler.WithOverlap(rscheduler.Allow), rscheduler.WithCatchUp(time.Hour),
			rscheduler.WithMaxAttempts(2), rscheduler.WithBackoff(func(int) time.Duration { return 250 * time.Second }),
		}
		other, _ := r.scheduler(t)
		run(t, other)
		s, _ := r.worker(t, rscheduler.Every(10*time.Second), func(ctx context.Context, run rscheduler.Run) error {
			_ = r.handle(ctx, run)
			if run.Scheduled.Sub(r.start) == 10*time.Second {
				return errors.New("again")
			}
			return nil
		}, opts...)
		stop := run(t, s)
		time.Sleep(205 * time.Second)
		require.NoError(t, stop())
		assert.Len(t, r.take(), 20)
		time.Sleep(95 * time.Second) // the other attempt is due at 260
		s, _ = r.worker(t, rscheduler.Every(10*time.Second), r.handle, opts...)
		run(t, s)
		time.Sleep(65 * time.Second)
		want := []string{"10:2"}
		for at := 210; at < 365; at += 10 {
			want = append(want, fmt.Sprintf("%d:1", at))
		}
		got := r.take()
		slices.Sort(got)
		assert.Equal(t, want, got)
	})
}

func TestPastOneShotFollowsTheCatchUp(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.scheduler(t)
		past := func(minutes time.Duration) rscheduler.Schedule {
			return rscheduler.At(r.start.Add(-minutes * time.Minute))
		}
		require.NoError(t, s.Register("late", past(59), r.handle))
		require.NoError(t, s.Register("too late", past(61), r.handle))
		require.NoError(t, s.Register("very late", past(120), r.handle, rscheduler.WithCatchUp(3*time.Hour)))
		require.NoError(t, s.Register("never", past(1), r.handle, rscheduler.WithCatchUp(0)))
		run(t, s)
		time.Sleep(time.Minute)
		assert.ElementsMatch(t, []string{"-3540:1", "-7200:1"}, r.take())
	})
}

// F9
func TestOneShotThatHasRunDoesNotRunWhenItsScheduleComesBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		shot, other := rscheduler.At(r.start.Add(10*time.Second)), rscheduler.MustCron("* * * * *")
		for _, schedule := range []rscheduler.Schedule{shot, other, shot} {
			s, _ := r.worker(t, schedule, r.handle, rscheduler.WithCatchUp(time.Hour))
			stop := run(t, s)
			time.Sleep(100 * time.Second)
			require.NoError(t, stop())
		}
		assert.Equal(t, []string{"10:1", "120:1", "180:1"}, r.take())
	})
}

func TestOutageEndsByThePolicies(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, p := r.worker(t, rscheduler.Every(10*time.Second), r.handle)
		run(t, s)
		time.Sleep(15 * time.Second)
		p.Down(true)
		time.Sleep(100 * time.Second)
		assert.Equal(t, []string{"10:1"}, r.take(), "without Redis nothing runs")
		p.Down(false)
		time.Sleep(29 * time.Second)
		assert.Equal(t, []string{"110:1", "120:1", "130:1", "140:1"}, r.take())
	})
}

// F7: of the ticks that an outage has held up for more than 5 s, only the newest one runs, whether a process counts as running all the
// time or not, and whichever processes find them.
func TestOnlyTheNewestTickOfAnOutageRuns(t *testing.T) {
	for _, overlap := range []rscheduler.Overlap{rscheduler.Skip, rscheduler.Queue} {
		for _, took := range []time.Duration{0, 300 * time.Millisecond} {
			for outage, besides := range map[time.Duration]int{
				7 * time.Second: 0, 20 * time.Second: 0, 45 * time.Second: 1, // here ticks were missed: the last of those may run after one in time
			} {
				t.Run(fmt.Sprint(overlap, took, outage), func(t *testing.T) {
					inBubble(t, func(t *testing.T, r *rig) {
						var peers []*locktest.Peer
						for range 3 {
							s, p := r.worker(t, rscheduler.Every(time.Second), r.slowly(took), rscheduler.WithOverlap(overlap))
							run(t, s)
							peers = append(peers, p)
						}
						r.until(10.5)
						r.take()
						for _, down := range []bool{true, false} {
							for _, p := range peers {
								p.Down(down)
							}
							time.Sleep(outage) // and as long without one
						}
						r.mu.Lock()
						defer r.mu.Unlock()
						require.NotEmpty(t, r.runs)
						newest := r.runs[0]
						assert.Less(t, r.began[0].Sub(newest.Scheduled), 2*time.Second, "it was the newest one when it was found")
						late := slices.DeleteFunc(slices.Clone(r.runs[1:]), func(run rscheduler.Run) bool {
							return run.Scheduled.After(newest.Scheduled)
						})
						assert.LessOrEqual(t, len(late), besides, "%v", late)
					})
				})
			}
		}
	}
}

func TestPauseHoldsForAllUntilResume(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle, rscheduler.WithCatchUp(time.Hour))
		b, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle, rscheduler.WithCatchUp(time.Hour))
		operator, _ := r.scheduler(t)
		require.ErrorIs(t, operator.Pause(t.Context(), "job", "why"), rscheduler.ErrNotFound)
		stop := run(t, a)
		run(t, b)
		time.Sleep(15 * time.Second)
		require.NoError(t, operator.Pause(t.Context(), "job", "why"))
		require.NoError(t, stop())
		a, _ = r.worker(t, rscheduler.Every(10*time.Second), r.handle, rscheduler.WithCatchUp(time.Hour))
		run(t, a)
		time.Sleep(40 * time.Second)
		assert.Equal(t, []string{"10:1"}, r.take())
		j := job(t, operator)
		assert.True(t, j.Paused)
		assert.Equal(t, "why", j.Why)
		assert.Equal(t, r.start.Add(time.Minute), j.Next.UTC())
		require.NoError(t, operator.Trigger(t.Context(), "job"))
		time.Sleep(time.Second)
		assert.Equal(t, []string{"55:1m"}, r.take(), "a manual run, also of a paused job")
		require.NoError(t, operator.Resume(t.Context(), "job"))
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"60:1"}, r.take(), "what came in the pause is not caught up with")
		require.ErrorIs(t, operator.Resume(t.Context(), "none"), rscheduler.ErrNotFound)
	})
}

func TestTriggerFollowsTheOverlap(t *testing.T) {
	for overlap, want := range map[rscheduler.Overlap][]string{
		rscheduler.Skip: {"1:1m"}, rscheduler.Queue: {"1:1m", "3:1m"}, rscheduler.QueueAll: {"1:1m", "2:1m", "3:1m"}, rscheduler.Allow: {"1:1m", "2:1m", "3:1m"},
	} {
		t.Run(overlap.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				s, _ := r.worker(t, rscheduler.MustCron("@yearly"), func(ctx context.Context, run rscheduler.Run) error {
					defer time.Sleep(10 * time.Second)
					return r.handle(ctx, run)
				}, rscheduler.WithOverlap(overlap))
				require.ErrorIs(t, s.Trigger(t.Context(), "job"), rscheduler.ErrNotFound)
				run(t, s)
				for range 3 {
					time.Sleep(time.Second)
					require.NoError(t, s.Trigger(t.Context(), "job"))
				}
				time.Sleep(time.Second)
				assert.NotEmpty(t, job(t, s).Running)
				time.Sleep(30 * time.Second)
				assert.Empty(t, job(t, s).Running)
				got := r.take()
				slices.Sort(got) // those that wait have no order with QueueAll
				assert.Equal(t, want, got)
			})
		})
	}
}

func TestFailedRunIsRetriedAndKeptInTheHistory(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, p := r.worker(t, rscheduler.Every(time.Minute), func(ctx context.Context, run rscheduler.Run) error {
			_ = r.handle(ctx, run)
			switch run.Attempt {
			case 1:
				<-ctx.Done()
				return nil
			case 2:
				panic("oh")
			case 3:
				runtime.Goexit()
			}
			return errors.New("the last one")
		}, rscheduler.WithMaxAttempts(3), rscheduler.WithBackoff(func(attempt int) time.Duration { return time.Duration(attempt) * 10 * time.Second }), rscheduler.WithTimeout(5*time.Second), rscheduler.WithHistory(3))
		run(t, s)
		time.Sleep(115 * time.Second)
		assert.Equal(t, []string{"60:1", "60:2", "60:3"}, r.take())
		results, err := s.Runs(t.Context(), "job", 2)
		require.NoError(t, err)
		require.Len(t, results, 2)
		assert.Contains(t, results[0].Err, "ended its goroutine")
		assert.Regexp(t, `^panic: oh at rscheduler_test\.\S+ \(rscheduler/scheduler_test\.go:\d+\)$`, results[1].Err)
		results, err = s.Runs(t.Context(), "job", 10)
		require.NoError(t, err)
		require.Len(t, results, 3)
		assert.Equal(t, rscheduler.ErrTimeout.Error(), results[2].Err)
		assert.Equal(t, 5*time.Second, results[2].Took)
		assert.Equal(t, r.start.Add(time.Minute), results[2].Scheduled.UTC())
		assert.Equal(t, p.ID(), results[2].Where)
		assert.Equal(t, job(t, s).Last, results[0])
		time.Sleep(time.Minute)
		results, err = s.Runs(t.Context(), "job", 10)
		require.NoError(t, err)
		assert.Len(t, results, 3)
		_, err = s.Runs(t.Context(), "none", 10)
		require.ErrorIs(t, err, rscheduler.ErrNotFound)
	})
}

func TestHistoryOfNoneRemovesWhatAnotherProcessKept(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for _, history := range []int{20, 0} {
			s, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle, rscheduler.WithHistory(history))
			stop := run(t, s)
			time.Sleep(20 * time.Second)
			require.NoError(t, stop())
			results, err := s.Runs(t.Context(), "job", 20)
			require.NoError(t, err)
			assert.Equal(t, history > 0, len(results) > 0)
			assert.NotZero(t, job(t, s).Last)
		}
	})
}

// F9
func TestRestartEmptyIsMendedWithinSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for range 2 {
			s, _ := r.worker(t, rscheduler.Every(20*time.Second), r.handle)
			run(t, s)
		}
		time.Sleep(22 * time.Second)
		r.Mini.FlushAll()
		time.Sleep(40 * time.Second)
		assert.Equal(t, []string{"20:1", "40:1", "60:1"}, r.take())
	})
}

func TestOrphanIsShownNotRunAndRemoved(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, _ := r.scheduler(t)
		require.NoError(t, a.Register("a", rscheduler.Every(time.Minute), r.handle))
		b, _ := r.scheduler(t)
		require.NoError(t, b.Register("b", rscheduler.Every(10*time.Second), r.handle))
		stop := run(t, a)
		run(t, b)
		time.Sleep(time.Second)
		jobs, err := b.Jobs(t.Context())
		require.NoError(t, err)
		require.Len(t, jobs, 2)
		assert.False(t, jobs[0].Orphaned)
		require.NoError(t, stop())
		time.Sleep(30 * time.Second)
		jobs, err = b.Jobs(t.Context())
		require.NoError(t, err)
		require.Len(t, jobs, 2)
		assert.Equal(t, "a", jobs[0].Name)
		assert.True(t, jobs[0].Orphaned)
		assert.Equal(t, r.start.Add(time.Minute), jobs[0].Next.UTC())
		assert.False(t, jobs[1].Orphaned)
		time.Sleep(90 * time.Second)
		r.mu.Lock()
		for _, run := range r.runs {
			assert.Equal(t, "b", run.Job)
		}
		r.mu.Unlock()
		ok, err := b.Remove(t.Context(), "a")
		require.NoError(t, err)
		assert.True(t, ok)
		ok, err = b.Remove(t.Context(), "a")
		require.NoError(t, err)
		assert.False(t, ok)
		assert.Equal(t, "b", job(t, b).Name)
	})
}

// Each tick finds a process that has registered its job, although another one is notified as often.
func TestTicksFindTheProcessesThatHaveTheirJobs(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for i := range 4 {
			s, _ := r.scheduler(t)
			name := []string{"a", "b"}[i%2]
			require.NoError(t, s.Register(name, rscheduler.Every(10*time.Second), func(ctx context.Context, run rscheduler.Run) error {
				assert.Equal(t, name, run.Job)
				assert.Less(t, time.Since(run.Scheduled), 200*time.Millisecond)
				assert.Equal(t, 1, run.Attempt)
				return r.handle(ctx, run)
			}))
			run(t, s)
		}
		time.Sleep(205 * time.Second)
		assert.Len(t, r.take(), 40)
	})
}

func TestScheduleThatWasRegisteredLastWinsForAll(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var log bytes.Buffer // of both
		logged := redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))
		old, next := r.Peer(t, logged).GetScheduler("billing"), r.Peer(t, logged).GetScheduler("billing")
		require.NoError(t, old.Register("job", rscheduler.Every(10*time.Second), r.handle))
		run(t, old)
		time.Sleep(15 * time.Second)
		require.NoError(t, next.Register("job", rscheduler.MustCron("30 * * * * *"), r.handle))
		require.NoError(t, next.Register("new", rscheduler.Every(24*time.Hour), r.handle))
		stop := run(t, next)
		time.Sleep(time.Second)
		require.NoError(t, stop())
		_, err := next.Remove(t.Context(), "new")
		require.NoError(t, err)
		time.Sleep(140 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, strings.Count(log.String(), "was changed"), "a new job is no change:\n%s", log.String())
		assert.Contains(t, log.String(), `job=job from="every 10s" to="30 * * * * *"`)
		assert.Equal(t, []string{"10:1", "30:1", "90:1", "150:1"}, r.take(), "the old one follows it")
		assert.Equal(t, "30 * * * * *", job(t, old).Schedule)
	})
}

// F9: an older version of a program does not bring its schedule back.
func TestScheduleThatWasRegisteredLastOutlivesALossOfData(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		old, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle)
		run(t, old)
		time.Sleep(time.Second)
		next, _ := r.worker(t, rscheduler.Every(15*time.Second), r.handle)
		stop := run(t, next)
		time.Sleep(20 * time.Second)
		require.NoError(t, stop()) // it is not the one that writes the job anew
		r.Mini.FlushAll()
		time.Sleep(20 * time.Second)
		r.take()
		time.Sleep(25 * time.Second)
		assert.Equal(t, "every 15s", job(t, old).Schedule)
		assert.Equal(t, []string{"45:1", "60:1"}, r.take())
	})
}

func TestJobRegisteredWhileItRunsBeginsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.Every(time.Hour), r.handle)
		run(t, s)
		time.Sleep(time.Second)
		require.NoError(t, s.Register("new", rscheduler.Every(2*time.Second), r.handle))
		time.Sleep(5 * time.Second)
		assert.Equal(t, []string{"2:1", "4:1", "6:1"}, r.take())
	})
}

// A job has another schedule within a second, for all, also while it runs.
func TestJobIsReplacedAtRunTime(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.Every(10*time.Second), r.slowly(3*time.Second), rscheduler.WithHistory(1))
		other, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle, rscheduler.WithHistory(1))
		run(t, s)
		stop := run(t, other)
		r.until(11)
		require.NoError(t, stop())
		assert.Equal(t, []string{"10:1"}, r.take())
		here := 0
		handle := func(ctx context.Context, run rscheduler.Run) error {
			here++
			return r.handle(ctx, run)
		}
		require.ErrorIs(t, s.Replace("none", rscheduler.Every(time.Second), handle), rscheduler.ErrNotFound)
		require.NoError(t, s.Replace("job", rscheduler.Every(7*time.Second, rscheduler.From(r.start)), handle))
		r.until(200)
		ran := r.take()
		assert.Len(t, ran, 27)
		assert.Equal(t, []string{"14:1", "21:1", "28:1"}, ran[:3])
		assert.Equal(t, 27, here, "under the new handler")
		results, err := s.Runs(t.Context(), "job", 10)
		require.NoError(t, err)
		assert.Len(t, results, 1, "its options stay")
		assert.Equal(t, "every 7s from "+r.start.Format(time.RFC3339Nano), job(t, s).Schedule)
	})
}

func TestJobIsUnregisteredAtRunTime(t *testing.T) {
	for _, others := range []int{0, 1} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				var elsewhere record
				elsewhere.start = r.start
				for range others {
					other, _ := r.worker(t, rscheduler.Every(10*time.Second), elsewhere.handle)
					run(t, other)
				}
				s, _ := r.worker(t, rscheduler.Every(10*time.Second), r.slowly(5*time.Second))
				run(t, s)
				r.until(21)
				before := len(r.take()) + len(elsewhere.take())
				assert.Equal(t, 2, before)
				assert.True(t, s.Unregister("job"))
				assert.False(t, s.Unregister("job"))
				time.Sleep(time.Second)
				assert.Equal(t, others == 0, job(t, s).Orphaned)
				r.until(55)
				assert.Empty(t, r.take())
				assert.Len(t, elsewhere.take(), 3*others)
				require.NoError(t, s.Register("job", rscheduler.Every(10*time.Second), r.handle))
				r.until(59)
				if others == 0 {
					assert.Equal(t, []string{"50:1"}, r.take(), "the newest one that was missed")
				}
				assert.False(t, job(t, s).Orphaned)
			})
		})
	}
}

func TestFixedRateThatCatchesUpRunsAllThatPiledUp(t *testing.T) {
	for backlog, want := range map[int][]string{
		100: {"10:1", "20:1", "30:1", "40:1", "50:1", "60:1", "70:1"},
		2:   {"10:1", "30:1", "40:1", "50:1", "60:1", "70:1"}, // 20 is left out when 30 and 40 wait
	} {
		t.Run(fmt.Sprint(backlog), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				s, _ := r.worker(t, rscheduler.Every(10*time.Second), func(ctx context.Context, run rscheduler.Run) error {
					_ = r.handle(ctx, run)
					if run.Scheduled.Equal(r.start.Add(10 * time.Second)) {
						time.Sleep(35 * time.Second)
					}
					return nil
				}, rscheduler.WithOverlap(rscheduler.QueueAll), rscheduler.WithBacklog(backlog))
				run(t, s)
				r.until(44)
				assert.Equal(t, []string{"10:1"}, r.take()[:1])
				r.until(46)
				assert.Equal(t, want[1:len(want)-3], r.take(), "at once")
				r.until(74)
				assert.Equal(t, want[len(want)-3:], r.take())
			})
		})
	}
}

// F18
func TestJobRegisteredAfterTheClockSteppedBackRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.MustCron("@yearly"), r.handle)
		run(t, s)
		time.Sleep(10 * time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				r.Mini.SetTime(time.Now().Add(-time.Hour))
				time.Sleep(5 * time.Millisecond)
			}
		}()
		time.Sleep(time.Second)
		require.NoError(t, s.Register("new", rscheduler.Every(time.Minute), r.handle))
		time.Sleep(3 * time.Minute)
		assert.Equal(t, []string{"-2940:1", "-2880:1", "-2820:1"}, r.take())
	})
}

func TestJitterDelaysEachTick(t *testing.T) {
	for _, schedule := range []rscheduler.Schedule{rscheduler.Every(time.Minute), rscheduler.EveryAfter(50 * time.Second)} {
		t.Run(schedule.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				s, _ := r.worker(t, schedule, r.handle, rscheduler.WithJitter(20*time.Second))
				run(t, s)
				time.Sleep(20*time.Minute + 25*time.Second)
				r.mu.Lock()
				defer r.mu.Unlock()
				require.InDelta(t, 20, len(r.runs), 4)
				least, most := time.Hour, time.Duration(0)
				for i, run := range r.runs[1:] {
					late := r.began[i+1].Sub(run.Scheduled)
					least, most = min(least, late), max(most, late)
				}
				assert.Less(t, most, 20*time.Second+10*time.Millisecond)
				assert.Greater(t, most-least, 5*time.Second)
			})
		})
	}
}

func TestStopDrainsAndInterruptsWhatTakesTooLong(t *testing.T) {
	for name, tc := range map[string]struct {
		opts  []rscheduler.Option
		grace time.Duration
	}{
		"default": {nil, 5 * time.Second},
		"none":    {[]rscheduler.Option{rscheduler.WithStopGrace(0)}, 0},
		"longer":  {[]rscheduler.Option{rscheduler.WithStopGrace(20 * time.Second)}, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				s, _ := r.scheduler(t, tc.opts...)
				require.NoError(t, s.Register("job", rscheduler.Every(time.Minute), func(ctx context.Context, run rscheduler.Run) error {
					_ = r.handle(ctx, run)
					<-ctx.Done()
					assert.ErrorIs(t, context.Cause(ctx), rscheduler.ErrStopped)
					return ctx.Err()
				}))
				stop := run(t, s)
				time.Sleep(61 * time.Second)
				begin := time.Now()
				require.NoError(t, stop())
				assert.InDelta(t, tc.grace.Seconds(), time.Since(begin).Seconds(), 0.1)
				s, _ = r.worker(t, rscheduler.Every(time.Minute), r.handle)
				run(t, s)
				time.Sleep(10 * time.Second)
				assert.Equal(t, []string{"60:1", "60:2"}, r.take(), "another process repeats it")
			})
		})
	}
}

// F9
func TestProcessThatDrainsCountsAsRunning(t *testing.T) {
	for _, others := range []int{0, 1} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				for range others { // which pass the ticks on, as they have not registered the job
					other, _ := r.scheduler(t)
					run(t, other)
				}
				s, _ := r.worker(t, rscheduler.Every(time.Minute), r.handle)
				require.NoError(t, s.Register("slow", rscheduler.At(r.start.Add(10*time.Second)), func(context.Context, rscheduler.Run) error {
					time.Sleep(90 * time.Second)
					return nil
				}))
				stop := run(t, s)
				time.Sleep(50 * time.Second) // 60 is offered
				go func() { assert.NoError(t, stop()) }()
				time.Sleep(45 * time.Second) // Run returns in 5 s
				assert.Empty(t, r.take())
				s, _ = r.worker(t, rscheduler.Every(time.Minute), r.handle)
				run(t, s)
				time.Sleep(20 * time.Second)
				assert.Equal(t, []string{"60:1"}, r.take())
			})
		})
	}
}

func TestCloseEndsRun(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, p := r.worker(t, rscheduler.Every(time.Minute), r.handle)
		done := make(chan error, 1)
		go func() { done <- s.Run(t.Context()) }()
		time.Sleep(time.Second)
		require.NoError(t, p.Close())
		synctest.Wait()
		require.ErrorIs(t, <-done, redlatch.ErrClosed)
	})
}

func TestJobsThatCannotBePlannedHoldUpNoOthers(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.scheduler(t)
		for i := range 1000 { // ten calls
			require.NoError(t, s.Register(fmt.Sprint("job ", i), rscheduler.MustCron("@daily"), r.handle))
		}
		assert.Empty(t, r.Keys(t))
		r.Mini.Server().SetPreHook(func(p *server.Peer, _ string, args ...string) bool {
			refused := slices.Contains(args, "job 0")
			if refused {
				p.WriteError("ERR refused")
			}
			return refused
		})
		run(t, s)
		time.Sleep(time.Second / 2) // one heartbeat
		jobs, err := s.Jobs(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 975, len(jobs)) //nolint:testifylint // Len would print all
	})
}

// F21
func TestIdleSchedulerIsCheap(t *testing.T) {
	sent := map[int]int{}
	for _, jobs := range []int{1, 1000} {
		inBubble(t, func(t *testing.T, r *rig) {
			s, p := r.scheduler(t)
			for i := range jobs {
				require.NoError(t, s.Register(fmt.Sprint("job", i), rscheduler.MustCron("@daily"), r.handle))
			}
			run(t, s)
			time.Sleep(time.Minute)
			before := len(p.Sent())
			time.Sleep(10 * time.Minute)
			sent[jobs] = len(p.Sent()) - before
			t.Logf("%d jobs: %.1f commands a minute", jobs, float64(sent[jobs])/10)
		})
	}
	assert.LessOrEqual(t, sent[1000], 200)
	assert.InDelta(t, sent[1], sent[1000], 10, "whatever the number of jobs")
}

// An observer sees how late a tick is by its schedule, although it was due anew each time it was passed on.
func TestObserverIsToldHowLateATickIs(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		other, _ := r.scheduler(t)
		require.NoError(t, other.Register("other", rscheduler.MustCron("@yearly"), r.handle))
		run(t, other)
		s, _ := r.worker(t, rscheduler.EveryAfter(time.Minute), r.handle)
		stop := run(t, s)
		time.Sleep(time.Second)
		require.NoError(t, stop())
		time.Sleep(80 * time.Second) // the tick is due after 60 s, and passed on
		var begun []redlatch.HandleStartEvent
		s = r.Peer(t, redlatch.WithObserver(redlatch.Observer{
			HandleStart: func(ctx context.Context, e redlatch.HandleStartEvent) context.Context {
				begun = append(begun, e)
				return ctx
			},
		})).GetScheduler("billing")
		require.NoError(t, s.Register("job", rscheduler.EveryAfter(time.Minute), r.handle))
		stop = run(t, s)
		time.Sleep(30 * time.Second)
		require.NoError(t, stop())
		require.Len(t, begun, 1)
		require.Len(t, r.began, 1)
		assert.Greater(t, begun[0].Late, 20*time.Second)
		assert.InDelta(t, r.began[0].Sub(r.runs[0].Scheduled), begun[0].Late, float64(10*time.Millisecond))
	})
}
