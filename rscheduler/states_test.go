package rscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/rscheduler"
)

const jobHash = "redlatch_sched:{billing}:job:job"

// F7: its next tick is in the queue at once, and not only when it is overdue.
func TestScheduleThatIsReplacedDuringAManualRunComesInTime(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.MustCron("@yearly"), r.slowly(5*time.Second))
		run(t, s)
		r.until(1)
		require.NoError(t, s.Trigger(t.Context(), "job"))
		r.until(2)
		require.NoError(t, s.Replace("job", rscheduler.At(r.start.Add(8*time.Second)), r.handle))
		r.until(8.1)
		assert.Contains(t, r.take(), "8:1")
	})
}

// F7: a manual run that was accepted waits for a process that has its job, also if others look at it before.
func TestManualRunWaitsForAProcessThatHasItsJob(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.MustCron("@yearly"), r.handle)
		stop := run(t, s)
		r.until(5)
		require.NoError(t, stop())
		other, _ := r.scheduler(t)
		run(t, other) // without the job
		r.until(10)
		require.NoError(t, other.Trigger(t.Context(), "job"))
		r.until(90)
		assert.Empty(t, r.take())
		again, _ := r.worker(t, rscheduler.MustCron("@yearly"), r.handle)
		run(t, again)
		r.until(100)
		assert.Len(t, r.take(), 1)
	})
}

// F8: a dead run is repeated, and leaves nothing, although the process that finds it has another overlap.
func TestDeadRunIsRepeatedUnderAnotherOverlap(t *testing.T) {
	for _, c := range []struct{ before, after rscheduler.Overlap }{{rscheduler.Allow, rscheduler.Skip}, {rscheduler.Skip, rscheduler.Allow}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				s, killed := r.worker(t, rscheduler.Every(10*time.Second), r.slowly(time.Hour), rscheduler.WithOverlap(c.before))
				run(t, s)
				r.until(15)
				killed.Blackhole(true)
				other, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle, rscheduler.WithOverlap(c.after))
				run(t, other)
				r.until(85)
				ran := r.take()
				assert.Contains(t, ran, "10:2")
				assert.Subset(t, ran, []string{"60:1", "70:1", "80:1"})
				assert.Empty(t, r.runsKept(t))
			})
		})
	}
}

// F1: the next run of a job that was removed, and is written again, waits for the end of the one that goes on.
func TestNoRunBeginsBesideOneOfARemovedJob(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		now, most := 0, 0
		s, _ := r.worker(t, rscheduler.Every(5*time.Second), func(ctx context.Context, run rscheduler.Run) error {
			r.mu.Lock()
			now++
			most = max(most, now)
			r.mu.Unlock()
			<-time.After(32 * time.Second)
			r.mu.Lock()
			now--
			r.mu.Unlock()
			return r.handle(ctx, run)
		})
		run(t, s)
		r.until(7)
		ok, err := s.Remove(t.Context(), "job")
		require.NoError(t, err)
		assert.True(t, ok)
		r.until(30)
		assert.Equal(t, []string{"removed"}, r.runsKept(t))
		r.until(130)
		r.mu.Lock()
		defer r.mu.Unlock()
		assert.Equal(t, 1, most)
	})
}

// F9: a failover that loses what was written last loses no definition.
func TestDefinitionThatWasLostAloneIsWrittenAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.MustCron("@yearly"), r.handle)
		run(t, s)
		r.until(15)
		changed := r.Hash(t, "redlatch_sched:{billing}:meta")["changed"]
		before := r.Hash(t, jobHash)
		require.NoError(t, s.Replace("job", rscheduler.MustCron("@monthly"), r.handle))
		time.Sleep(100 * time.Millisecond)
		require.NotEqual(t, before["schedule"], r.Hash(t, jobHash)["schedule"])
		require.NoError(t, r.Redis.HSet(t.Context(), "redlatch_sched:{billing}:meta", "changed", changed).Err())
		require.NoError(t, r.Redis.HSet(t.Context(), jobHash, before).Err())
		time.Sleep(13 * time.Second)
		assert.Equal(t, rscheduler.MustCron("@monthly").String(), r.Hash(t, jobHash)["schedule"])
	})
}

// F7
func TestJitterAboveThePeriodLosesNoTick(t *testing.T) {
	for _, overlap := range []rscheduler.Overlap{rscheduler.Skip, rscheduler.Queue} {
		t.Run(overlap.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				s, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle, rscheduler.WithJitter(time.Minute), rscheduler.WithOverlap(overlap))
				run(t, s)
				r.until(1000)
				ran := r.take()
				require.Greater(t, len(ran), 90)
				for i, tick := range ran {
					assert.Equal(t, fmt.Sprint(10*(i+1), ":1"), tick)
				}
			})
		})
	}
}

// F9: the answer to the first heartbeat after a long silence may be lost: the next one writes the jobs as well.
func TestJobsAreWrittenAgainAfterASilence(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, p := r.worker(t, rscheduler.MustCron("@yearly"), r.handle)
		d := rscheduler.NewDriver(s)
		require.NoError(t, d.Beat(t.Context()))
		time.Sleep(time.Minute)
		require.NoError(t, r.Redis.Del(t.Context(), jobHash).Err()) // as if others had removed the process from it
		p.Blackhole(true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		require.Error(t, d.Beat(ctx))
		p.Blackhole(false)
		time.Sleep(time.Second)
		require.NoError(t, d.Beat(t.Context()))
		assert.NotEmpty(t, r.Hash(t, jobHash))
	})
}

// F23: no run begins on keys of another version, whether a heartbeat has seen them or not.
func TestNoRunBeginsOnKeysOfAnotherVersion(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const meta = "redlatch_sched:{billing}:meta"
		s, _ := r.worker(t, rscheduler.Every(10*time.Second), r.handle)
		d := rscheduler.NewDriver(s)
		require.NoError(t, d.Beat(t.Context()))
		require.NoError(t, r.Redis.HSet(t.Context(), meta, "layout", 3).Err())
		r.until(40) // nobody counts as running any more
		c := d.Take(t.Context(), time.Minute)
		require.NotNil(t, c)
		_, _, _, err := d.Begin(t.Context(), c)
		require.ErrorIs(t, err, rscheduler.ErrLayout)
		assert.Equal(t, "3", r.Hash(t, meta)["layout"])
	})
}

// F7: of the ticks that came during a manual run the newest one runs.
func TestNewestTickRunsAfterALongManualRun(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.Every(10*time.Second), func(ctx context.Context, run rscheduler.Run) error {
			if run.Manual {
				return r.slowly(38*time.Second)(ctx, run)
			}
			return r.handle(ctx, run)
		}, rscheduler.WithOverlap(rscheduler.Queue))
		run(t, s)
		r.until(5)
		require.NoError(t, s.Trigger(t.Context(), "job"))
		r.until(55)
		assert.Equal(t, []string{"5:1m", "40:1", "50:1"}, r.take())
	})
}

// F7: the overlap of a fixed delay holds for runs that are triggered.
func TestTriggerOfAFixedDelayFollowsTheOverlap(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.worker(t, rscheduler.EveryAfter(time.Minute), r.slowly(10*time.Second), rscheduler.WithOverlap(rscheduler.Queue))
		run(t, s)
		r.until(62)
		require.Equal(t, []string{"60:1"}, r.take())
		require.NoError(t, s.Trigger(t.Context(), "job"))
		r.until(100)
		assert.Equal(t, []string{"62:1m"}, r.take())
	})
}

// F7: a tick of the new schedule that is due when the old one is replaced is not missed.
func TestTickOfAReplacedScheduleIsNotMissed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.scheduler(t, rscheduler.WithConcurrency(1))
		require.NoError(t, s.Register("busy", rscheduler.At(r.start.Add(9*time.Second)), func(context.Context, rscheduler.Run) error {
			time.Sleep(4 * time.Second)
			return nil
		}))
		require.NoError(t, s.Register("job", rscheduler.Every(10*time.Second), r.handle, rscheduler.WithCatchUp(0)))
		run(t, s)
		r.until(11)
		require.NoError(t, s.Replace("job", rscheduler.Every(5*time.Second), r.handle))
		r.until(21)
		assert.Equal(t, []string{"10:1", "15:1", "20:1"}, r.take())
	})
}

// F10: Remove leaves nothing in the queue, neither a tick that comes in a year nor attempts that wait.
func TestRemoveLeavesNothingInTheQueue(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, _ := r.scheduler(t)
		require.NoError(t, s.Register("next year", rscheduler.At(r.start.AddDate(1, 0, 0)), r.handle))
		require.NoError(t, s.Register("fails", rscheduler.MustCron("@yearly"), func(ctx context.Context, run rscheduler.Run) error {
			_ = r.handle(ctx, run)
			return errors.New("no luck")
		}, rscheduler.WithMaxAttempts(3), rscheduler.WithBackoff(func(int) time.Duration { return time.Hour })))
		stop := run(t, s)
		r.until(1)
		require.NoError(t, s.Trigger(t.Context(), "fails"))
		r.until(5)
		require.Equal(t, []string{"1:1m"}, r.take())
		require.NoError(t, stop())
		for _, name := range []string{"next year", "fails"} {
			ok, err := s.Remove(t.Context(), name)
			require.NoError(t, err)
			require.True(t, ok)
		}
		for _, key := range []string{"bodies", "due", "flight", "claims", "errors"} {
			assert.NotContains(t, r.Keys(t), "redlatch_dq:{billing}:ticks:"+key)
		}
		run(t, s)
		r.until(2 * 3600)
		assert.Empty(t, r.take(), "it is written again, without its attempts")
	})
}

// F7: what was due while nobody had the job is missed, also for the process that had it before.
func TestTickThatNobodyHadIsMissed(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, p := r.worker(t, rscheduler.Every(time.Minute), r.handle, rscheduler.WithCatchUp(0))
		other, _ := r.scheduler(t)
		require.NoError(t, other.Register("other", rscheduler.MustCron("@yearly"), r.handle))
		run(t, s)
		run(t, other)
		r.until(30)
		p.Down(true)
		r.until(150)
		p.Down(false)
		r.until(200)
		assert.Equal(t, []string{"180:1"}, r.take())
	})
}

// F19: Remove leaves nothing of a run whose process died, and which nobody repeats.
func TestRemoveLeavesNothingOfADeadRun(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		s, p := r.worker(t, rscheduler.Every(time.Hour), r.slowly(time.Hour))
		other, _ := r.scheduler(t)
		require.NoError(t, other.Register("other", rscheduler.MustCron("@yearly"), r.handle))
		run(t, s)
		run(t, other)
		r.until(1)
		require.NoError(t, s.Trigger(t.Context(), "job"))
		r.until(5)
		p.Down(true)
		r.until(100) // the claim is over, and the other process passes the run on
		require.NotEmpty(t, r.Hash(t, jobHash))
		ok, err := other.Remove(t.Context(), "job")
		require.NoError(t, err)
		require.True(t, ok)
		r.until(130)
		assert.Empty(t, r.Hash(t, jobHash))
		assert.NotContains(t, r.Keys(t), "redlatch_dq:{billing}:ticks:claims")
	})
}
