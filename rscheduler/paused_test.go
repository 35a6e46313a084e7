package rscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rscheduler"
)

// until waits for a second of the test.
func (r *rig) until(second float64) {
	time.Sleep(time.Until(r.start.Add(time.Duration(second * float64(time.Second)))))
}

// pauses pauses the job from one second to another.
func (r *rig) pauses(t *testing.T, s *rscheduler.Scheduler, from, to float64) {
	t.Helper()
	r.until(from)
	require.NoError(t, s.Pause(t.Context(), "job", "why"))
	r.until(to)
	require.NoError(t, s.Resume(t.Context(), "job"))
}

func TestJobIsLateWhileWhatIsDueDoesNotBegin(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s := r.Peer(t).GetScheduler("billing", rscheduler.WithConcurrency(1))
		require.NoError(t, s.Register("busy", rscheduler.At(r.start.Add(12*time.Second)), func(context.Context, rscheduler.Run) error {
			r.until(50)
			return nil
		}))
		require.NoError(t, s.Register("job", rscheduler.Every(10*time.Second), r.handle))
		run(t, s)
		late := func(second float64) (all []time.Duration) {
			t.Helper()
			r.until(second)
			jobs, err := s.Jobs(t.Context())
			require.NoError(t, err)
			for _, j := range jobs {
				all = append(all, j.Late.Truncate(time.Second))
			}
			return all
		}
		assert.Equal(t, []time.Duration{0, 0}, late(15))
		assert.Equal(t, []time.Duration{0, 11 * time.Second}, late(31))
		require.NoError(t, s.Pause(t.Context(), "job", "why"))
		assert.Equal(t, []time.Duration{0, 0}, late(45))
		require.NoError(t, s.Resume(t.Context(), "job"))
		assert.Equal(t, []time.Duration{0, 0}, late(55))
	})
}

func TestNextTimesOfAJobAreThoseOfItsSchedule(t *testing.T) {
	start := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	planned := start.Add(90 * time.Second)
	for text, want := range map[string]time.Time{
		rscheduler.MustCron("30 * * * *").String():     start.Add(30 * time.Minute),
		rscheduler.Every(time.Hour).String():           start.Add(time.Hour),
		rscheduler.At(start.Add(time.Minute)).String(): start.Add(time.Minute),
		rscheduler.At(start).String():                  {},
		rscheduler.EveryAfter(time.Minute).String():    planned,
		"when the tide is high":                        planned,
	} {
		got, ok := rscheduler.Job{Schedule: text, Next: planned}.NextAfter(start)
		assert.Equal(t, !want.IsZero(), ok, text)
		if ok {
			assert.WithinDuration(t, want, got, 0, text)
		}
		_, ok = rscheduler.Job{Schedule: "when the tide is high", Next: planned}.NextAfter(planned)
		assert.False(t, ok)
	}
}

// F7: a tick that was due in a pause does not run, although nobody could look at it before the pause was over; others do.
func TestTicksThatWereDueInAPauseDoNotRunAfterIt(t *testing.T) {
	every := rscheduler.Every(10 * time.Second)
	all := []rscheduler.JobOption{rscheduler.WithOverlap(rscheduler.QueueAll)}
	for name, c := range map[string]struct {
		schedule rscheduler.Schedule
		opts     []rscheduler.JobOption
		want     string // pattern
	}{
		"skip":          {every, nil, "^10:1 40:1 60:1$"},
		"queue":         {every, []rscheduler.JobOption{rscheduler.WithOverlap(rscheduler.Queue)}, "^10:1 40:1 60:1$"},
		"allow":         {every, []rscheduler.JobOption{rscheduler.WithOverlap(rscheduler.Allow)}, "^10:1 40:1 60:1$"},
		"queue all":     {every, all, "^10:1 40:1 60:1$"},
		"once, in it":   {rscheduler.At(time.Date(2000, 1, 1, 0, 1, 20, 0, time.UTC)), nil, "^$"},
		"once, before":  {rscheduler.At(time.Date(2000, 1, 1, 0, 1, 14, 0, time.UTC)), nil, "^14:1$"},
		"once, between": {rscheduler.At(time.Date(2000, 1, 1, 0, 1, 40, 0, time.UTC)), all, "^40:1$"},
		"a fixed delay": {rscheduler.EveryAfter(17 * time.Second), nil, "^(58|59):1$"}, // a delay after the tick of 17 s was dropped
	} {
		for _, away := range []string{"busy", "outage"} {
			t.Run(name+", "+away, func(t *testing.T) {
				inBubble(t, func(t *testing.T, r *rig) {
					p := r.Peer(t)
					s := p.GetScheduler("billing", rscheduler.WithConcurrency(1))
					busy := rscheduler.At(r.start.Add(12 * time.Second))
					if away == "busy" {
						require.NoError(t, s.Register("busy", busy, func(context.Context, rscheduler.Run) error {
							r.until(41)
							return nil
						}))
					}
					require.NoError(t, s.Register("job", c.schedule, r.handle, c.opts...))
					run(t, s)
					operator, _ := r.scheduler(t)
					go func() {
						r.until(22)
						p.Down(away == "outage") // for less than 25 s, so that none is missed
						r.until(41)
						p.Down(false)
					}()
					r.pauses(t, operator, 15, 35)
					r.pauses(t, operator, 45, 55)
					r.until(64)
					assert.Regexp(t, c.want, strings.Join(r.take(), " "))
				})
			})
		}
	}
}

// F7: neither is it caught up with.
func TestTicksThatWereDueInAPauseAreNotCaughtUpWith(t *testing.T) {
	catchUp, all := rscheduler.WithCatchUp(time.Hour), rscheduler.WithOverlap(rscheduler.QueueAll)
	for name, c := range map[string]struct {
		opts []rscheduler.JobOption
		from float64 // of the first pause
		want []string
	}{
		"the newest one":    {[]rscheduler.JobOption{catchUp}, 25, []string{}},
		"all but those":     {[]rscheduler.JobOption{catchUp, all}, 25, []string{"20:1", "50:1"}},
		"all after it":      {[]rscheduler.JobOption{catchUp, all}, 15, []string{"50:1"}},
		"all, in any order": {[]rscheduler.JobOption{catchUp, rscheduler.WithOverlap(rscheduler.Allow)}, 25, []string{"20:1", "50:1"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				schedule := rscheduler.Every(10 * time.Second)
				s, _ := r.worker(t, schedule, r.handle, c.opts...)
				stop := run(t, s)
				r.until(14)
				require.NoError(t, stop())
				assert.Equal(t, []string{"10:1"}, r.take())
				r.pauses(t, s, c.from, 45)
				r.pauses(t, s, 55, 75)
				r.until(78)
				s, _ = r.worker(t, schedule, r.handle, c.opts...)
				run(t, s)
				r.until(119)
				got := slices.DeleteFunc(r.take(), func(tick string) bool { return len(tick) > len("10:1") || tick >= "80:1" })
				slices.Sort(got)
				assert.Equal(t, c.want, got)
			})
		})
	}
}

// F7
func TestAttemptThatWasDueInAPauseIsNotMadeAfterIt(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		p := r.Peer(t)
		s := p.GetScheduler("billing")
		require.NoError(t, s.Register("job", rscheduler.Every(time.Minute), func(ctx context.Context, run rscheduler.Run) error {
			_ = r.handle(ctx, run)
			return errors.New("again")
		}, rscheduler.WithMaxAttempts(2), rscheduler.WithBackoff(func(int) time.Duration { return 10 * time.Second })))
		run(t, s)
		r.until(61)
		p.Down(true)
		operator, _ := r.scheduler(t)
		r.pauses(t, operator, 65, 75)
		p.Down(false)
		r.until(139)
		assert.Equal(t, []string{"60:1", "120:1", "120:2"}, r.take())
	})
}

// A repeated Pause begins no other one, and a job that is removed has had none.
func TestPausesAreKeptAsLongAsTheyMatter(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.MustCron("@yearly"), r.handle)
		stop := run(t, s)
		time.Sleep(time.Second)
		require.NoError(t, stop())
		kept := func() string { return r.Hash(t, "redlatch_sched:{billing}:job:job")["pauses"] }
		for range 150 {
			for range 2 {
				require.NoError(t, s.Pause(t.Context(), "job", ""))
				time.Sleep(time.Second)
			}
			for range 2 {
				require.NoError(t, s.Resume(t.Context(), "job"))
				time.Sleep(time.Second)
			}
		}
		assert.Len(t, kept(), 100*len("0946684861500000-0946684863500000 "))
		assert.Regexp(t, `^(\d{16}-\d{16} )+$`, kept())
		_, err := s.Remove(t.Context(), "job")
		require.NoError(t, err)
		assert.Empty(t, kept())
	})
}

func TestPausesHoldOnServers(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			place(t, func(t *testing.T, s *locktest.Server) {
				name := fmt.Sprint("paused-", rand.Uint64())
				w := s.Client(t, quiet).GetScheduler(name, rscheduler.WithConcurrency(1))
				var seen jobRuns
				busy, release := make(chan struct{}), make(chan struct{})
				require.NoError(t, w.Register("busy", rscheduler.MustCron("@yearly"), func(context.Context, rscheduler.Run) error {
					close(busy)
					<-release
					return nil
				}))
				run(t, w)
				redistest.Eventually(t, patience, "it is busy", func() error { return w.Trigger(t.Context(), "busy") })
				<-busy
				tick := func() time.Time {
					now, err := s.Redis.Time(t.Context()).Result()
					require.NoError(t, err)
					return now
				}
				inIt, after := tick().Add(400*time.Millisecond), tick().Add(550*time.Millisecond)
				passes := func(at time.Time) {
					redistest.Eventually(t, patience, "time passes", func() error {
						if now := tick(); !now.After(at) {
							return fmt.Errorf("it is %v", now)
						}
						return nil
					})
				}
				require.NoError(t, w.Register("job", instants{inIt, after}, seen.handle(0), rscheduler.WithOverlap(rscheduler.Allow)))
				redistest.Eventually(t, patience, "the job is written", func() error { return w.Pause(t.Context(), "job", "why") })
				passes(inIt)
				require.NoError(t, w.Resume(t.Context(), "job"))
				prompt := tick().Before(after)
				passes(after)
				close(release)
				seen.await(t, "the tick after the pause", func() bool { return !prompt || len(seen.to) > 0 })
				redistest.Eventually(t, patience, "all ticks are gone", func() error {
					ticks, err := s.Redis.HKeys(t.Context(), "redlatch_dq:{"+name+"}:ticks:bodies").Result()
					if err == nil && slices.ContainsFunc(ticks, func(id string) bool { return strings.HasPrefix(id, "job@") }) {
						err = fmt.Errorf("%q", ticks)
					}
					return err
				})
				seen.mu.Lock()
				defer seen.mu.Unlock()
				assert.NotContains(t, seen.to, inIt.Truncate(time.Microsecond))
			})
		})
	}
}
