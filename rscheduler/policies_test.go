package rscheduler_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rscheduler"
)

// jobRuns has the runs of a job, by the clock that they share with Redis.
type jobRuns struct {
	mu       sync.Mutex
	from, to map[time.Time]time.Time // by the tick
	twice    []time.Time
	now      int // in progress
	most     int
}

// handle returns a handler that takes the given time.
func (s *jobRuns) handle(took time.Duration) func(context.Context, rscheduler.Run) error {
	return func(_ context.Context, run rscheduler.Run) error {
		s.mu.Lock()
		if s.from == nil {
			s.from, s.to = map[time.Time]time.Time{}, map[time.Time]time.Time{}
		}
		if _, ok := s.from[run.Scheduled]; ok {
			s.twice = append(s.twice, run.Scheduled)
		}
		s.from[run.Scheduled] = time.Now()
		s.now++
		s.most = max(s.most, s.now)
		s.mu.Unlock()
		<-time.After(took)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now--
		s.to[run.Scheduled] = time.Now()
		return nil
	}
}

var quiet = redlatch.WithLogger(slog.New(slog.DiscardHandler))

// await waits for something of the runs.
func (s *jobRuns) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	redistest.Eventually(t, patience, what, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !ok() {
			return fmt.Errorf("%d runs, %d at a time", len(s.to), s.most)
		}
		return nil
	})
}

// overlapping has a scheduler run a job of each overlap whose runs take longer than its period. check asserts what is promised of them.
func overlapping(t *testing.T, s *locktest.Server, name string) (check func()) {
	t.Helper()
	const period, took, runs = 500 * time.Millisecond, 900 * time.Millisecond, 5
	jobs := map[rscheduler.Overlap]*jobRuns{rscheduler.Skip: {}, rscheduler.Queue: {}, rscheduler.QueueAll: {}, rscheduler.Allow: {}}
	for range 2 {
		w := s.Client(t, quiet).GetScheduler(name)
		for overlap, seen := range jobs {
			require.NoError(t, w.Register(overlap.String(), rscheduler.Every(period), seen.handle(took), rscheduler.WithOverlap(overlap)))
		}
		run(t, w)
	}
	return func() {
		for overlap, seen := range jobs {
			seen.await(t, overlap.String(), func() bool { return len(seen.to) >= runs && (overlap != rscheduler.Allow || seen.most > 1) })
			seen.mu.Lock()
			assert.Empty(t, seen.twice, overlap)
			ticks := slices.SortedFunc(maps.Keys(seen.to), time.Time.Compare)
			came := 0 // while another one ran
			for _, tick := range ticks {
				for other, end := range seen.to {
					if tick.After(seen.from[other]) && tick.Before(end) {
						came++
					}
				}
			}
			if overlap != rscheduler.Allow {
				assert.Equal(t, 1, seen.most, "%v: at a time", overlap)
				all := int(ticks[len(ticks)-1].Sub(ticks[0])/period) + 1
				assert.Equal(t, overlap == rscheduler.QueueAll, all == len(ticks), "%v: %d of %d", overlap, len(ticks), all)
				assert.Equal(t, overlap != rscheduler.Skip, came > 0, "%v: %d came during another run", overlap, came)
			}
			seen.mu.Unlock()
		}
	}
}

func TestPoliciesOnServers(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	const period = time.Second
	policies := map[string][]rscheduler.JobOption{"none": {rscheduler.WithCatchUp(0)}, "newest": nil, "all": {rscheduler.WithOverlap(rscheduler.QueueAll)}}
	for _, place := range []string{"Server", "Cluster"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			places[place](t, func(t *testing.T, s *locktest.Server) {
				check := overlapping(t, s, "overlaps "+t.Name())
				name := "catch-up " + t.Name()
				keys := "redlatch_sched:{" + name + "}:"
				jobs := map[string]*jobRuns{"none": {}, "newest": {}, "all": {}}
				claimed := make(chan time.Time, 1) // when one claims for the first time
				start := func() (stop func() error) {
					var once sync.Once
					w := s.Client(t, quiet, redlatch.WithObserver(redlatch.Observer{ScriptEnd: func(_ context.Context, e redlatch.ScriptEndEvent) {
						if e.Name == "rdelayedqueue.claim" {
							once.Do(func() { claimed <- time.Now() })
						}
					}})).GetScheduler(name, rscheduler.WithConcurrency(100)) // so that one claim takes all that were missed
					for job, seen := range jobs {
						require.NoError(t, w.Register(job, rscheduler.Every(period), seen.handle(0), policies[job]...))
					}
					return run(t, w)
				}
				await := func(what string, after time.Time) {
					for job, seen := range jobs {
						seen.await(t, what+" of "+job, func() bool {
							return slices.ContainsFunc(slices.Collect(maps.Keys(seen.to)), after.Before)
						})
					}
				}
				stop := start()
				await("a run", time.Time{})
				require.NoError(t, stop())
				<-claimed
				stopped := time.Now()
				require.NoError(t, s.Redis.Del(t.Context(), keys+"alive").Err()) // its last message may come late
				jobs["none"].await(t, "two ticks are missed", func() bool {
					return time.Since(stopped) > 2*period && time.Since(time.Now().Truncate(period)) < period/4
				})
				stop = start()
				await("others", time.Now().Add(period))
				up, err := s.Redis.HGet(t.Context(), keys+"meta", "up").Int64()
				require.NoError(t, err)
				var missed []time.Time
				for tick := stopped.Truncate(period).Add(period); tick.Before(time.UnixMicro(up)); tick = tick.Add(period) {
					missed = append(missed, time.UnixMicro(tick.UnixMicro()))
				}
				require.GreaterOrEqual(t, len(missed), 2)
				late := func(job string) []time.Time {
					return slices.DeleteFunc(slices.Clone(missed), func(tick time.Time) bool { return jobs[job].to[tick].IsZero() })
				}
				newest := missed[len(missed)-1:]
				first := <-claimed
				prompt := first.Before(newest[0].Add(period)) // else the next one may have taken its place
				jobs["newest"].await(t, "the newest missed tick", func() bool { return !prompt || len(late("newest")) > 0 })
				jobs["all"].await(t, "missed ticks", func() bool { return len(late("all")) == len(missed) })
				require.NoError(t, stop())
				for job, seen := range jobs {
					assert.Empty(t, seen.twice, job)
				}
				assert.Empty(t, late("none"))
				if !first.Before(newest[0]) { // else the one before was the newest for a moment
					assert.Subset(t, newest, late("newest"))
				}
				check()
			})
		})
	}
}
