package rscheduler_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rscheduler"
)

var places = map[string]locktest.Place{"InMemory": locktest.InMemory, "Server": locktest.OnServer, "Cluster": locktest.OnCluster}

// patience bounds what takes milliseconds on a machine that is not starved.
const patience = 30 * time.Second

func TestServersBehaveAlike(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			place(t, func(t *testing.T, s *locktest.Server) {
				var mu sync.Mutex
				seen := map[time.Time]int{}
				manual := make(chan rscheduler.Run, 10)
				open := func() *rscheduler.Scheduler { return s.Client(t, quiet).GetScheduler("jobs-" + t.Name()) }
				for range 3 {
					w := open()
					require.NoError(t, w.Register("often", rscheduler.Every(100*time.Millisecond), func(_ context.Context, run rscheduler.Run) error {
						mu.Lock()
						defer mu.Unlock()
						seen[run.Scheduled]++
						return nil
					}, rscheduler.WithOverlap(rscheduler.Allow)))
					require.NoError(t, w.Register("by hand", rscheduler.MustCron("@yearly"), func(_ context.Context, run rscheduler.Run) error {
						manual <- run
						return fmt.Errorf("attempt %d", run.Attempt)
					}, rscheduler.WithMaxAttempts(2), rscheduler.WithBackoff(func(int) time.Duration { return time.Millisecond })))
					require.NoError(t, w.Register("after", rscheduler.EveryAfter(10*time.Millisecond), func(context.Context, rscheduler.Run) error { return nil }))
					run(t, w)
				}
				operator := open()
				redistest.Eventually(t, patience, "the jobs are written", func() error { return operator.Trigger(t.Context(), "by hand") })
				for attempt := 1; attempt <= 2; attempt++ {
					got := <-manual
					assert.True(t, got.Manual)
					assert.Equal(t, attempt, got.Attempt)
				}
				redistest.Eventually(t, patience, "results", func() error {
					results, err := operator.Runs(t.Context(), "after", 5)
					if err == nil && len(results) < 5 {
						err = fmt.Errorf("%d results", len(results))
					}
					return err
				})
				redistest.Eventually(t, patience, "ticks without a gap", func() error {
					mu.Lock()
					defer mu.Unlock()
					var first, last time.Time
					for at, n := range seen {
						assert.Equal(t, 1, n, "%v", at)
						if first.IsZero() || at.Before(first) {
							first = at
						}
						if at.After(last) {
							last = at
						}
					}
					if n := int(last.Sub(first)/(100*time.Millisecond)) + 1; len(seen) < max(10, n) { // the newest may run first
						return fmt.Errorf("%d of %d ticks", len(seen), n)
					}
					return nil
				})
				require.NoError(t, operator.Pause(t.Context(), "often", "why"))
				jobs, err := operator.Jobs(t.Context())
				require.NoError(t, err)
				require.Len(t, jobs, 3)
				assert.True(t, jobs[2].Paused)
				assert.Equal(t, "attempt 2", jobs[1].Last.Err)
				require.NoError(t, operator.Resume(t.Context(), "often"))
				ok, err := operator.Remove(t.Context(), "after")
				require.NoError(t, err)
				assert.True(t, ok)
			})
		})
	}
}

// F9: a run whose tick was claimed before that of another one, and which begins after the other has ended, has the higher token.
func TestTokensRiseInTheOrderInWhichRunsBegin(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			place(t, func(t *testing.T, s *locktest.Server) {
				name := fmt.Sprint("tokens-", rand.Uint64())
				claimed, ended := make(chan struct{}), make(chan struct{})
				var once sync.Once
				slow := s.Client(t, quiet, redlatch.WithObserver(redlatch.Observer{
					ScriptStart: func(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
						if e.Name == "rscheduler.begin" {
							once.Do(func() {
								close(claimed)
								<-ended
							})
						}
						return ctx
					},
				})).GetScheduler(name)
				quick := s.Client(t, quiet).GetScheduler(name)
				runs := make(chan rscheduler.Run, 2)
				for job, w := range map[string]*rscheduler.Scheduler{"first": slow, "second": quick} {
					require.NoError(t, w.Register(job, rscheduler.MustCron("@yearly"), func(_ context.Context, run rscheduler.Run) error {
						runs <- run
						return nil
					}))
					run(t, w)
				}
				trigger := func(job string) {
					redistest.Eventually(t, patience, "the job is written", func() error { return quick.Trigger(t.Context(), job) })
				}
				trigger("first")
				<-claimed
				trigger("second")
				second := <-runs
				require.Equal(t, "second", second.Job)
				redistest.Eventually(t, patience, "it has ended", func() error {
					results, err := quick.Runs(t.Context(), "second", 1)
					if err == nil && len(results) == 0 {
						err = errors.New("it has not")
					}
					return err
				})
				close(ended)
				first := <-runs
				assert.Greater(t, first.Token, second.Token)
			})
		})
	}
}

// onServer returns a scheduler on a server of its own, and a client of that for faults.
func onServer(t *testing.T, opts ...rscheduler.Option) (*redis.Client, *rscheduler.Scheduler) {
	t.Helper()
	rdb := redistest.Start(t).Client(t)
	c, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return rdb, c.GetScheduler("jobs", opts...)
}

// F25, F28: a single run has ended then, and the ticks of a fixed delay go on, each once.
func TestRunWhoseEndMeetsAFullRedisRunsOnce(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	for name, c := range map[string]struct {
		schedule func() rscheduler.Schedule
		runs     int
	}{
		"once":        {func() rscheduler.Schedule { return rscheduler.At(time.Now().Add(3 * time.Second)) }, 1}, // must not have passed when Run begins
		"fixed delay": {func() rscheduler.Schedule { return rscheduler.EveryAfter(10 * time.Millisecond) }, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb, s := onServer(t)
			var mu sync.Mutex
			seen := map[time.Time]int{}
			require.NoError(t, s.Register("job", c.schedule(), func(ctx context.Context, run rscheduler.Run) error {
				mu.Lock()
				defer mu.Unlock()
				seen[run.Scheduled] += run.Attempt
				return rdb.ConfigSet(ctx, "maxmemory", "1").Err()
			}))
			stop := run(t, s)
			redistest.Eventually(t, patience, "ticks run and are acknowledged", func() error {
				ticks, err := rdb.Keys(t.Context(), "*:bodies").Result()
				mu.Lock()
				defer mu.Unlock()
				if err == nil && (len(seen) < c.runs || c.runs == 1 && len(ticks) > 0) {
					err = fmt.Errorf("%d runs, %q", len(seen), ticks)
				}
				return err
			})
			require.NoError(t, stop())
			for tick, attempts := range seen {
				assert.Equal(t, 1, attempts, "%v runs again", tick)
			}
			results, err := s.Runs(t.Context(), "job", 1000)
			require.NoError(t, err)
			assert.Len(t, results, min(20, len(seen)))
		})
	}
}

// F25
func TestTickThatDoesNotRunIsPassedByInAFullRedis(t *testing.T) {
	t.Parallel()
	rdb, s := onServer(t)
	require.NoError(t, s.Register("job", rscheduler.EveryAfter(300*time.Millisecond), func(context.Context, rscheduler.Run) error { return nil }))
	run(t, s)
	redistest.Eventually(t, patience, "the job is written", func() error { return s.Pause(t.Context(), "job", "why") })
	ticks := func() []string { return rdb.HKeys(t.Context(), "redlatch_dq:{jobs}:ticks:bodies").Val() }
	before := ticks()
	require.Len(t, before, 1)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	redistest.Eventually(t, patience, "another tick waits", func() error {
		if now := ticks(); len(now) != 1 || slices.Equal(now, before) {
			return fmt.Errorf("%q", now)
		}
		return nil
	})
	results, err := s.Runs(t.Context(), "job", 10)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(results), 1)
}

const ticksOfChildren = "ticks" // list of "µs of the tick, attempt"

// worker runs a scheduler until it is killed, and notes what it runs. Args: the address.
func worker(args []string) {
	must := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
	}
	rdb := redis.NewClient(&redis.Options{Addr: args[0]})
	c, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	must(err)
	s := c.GetScheduler("jobs", rscheduler.WithLease(time.Second))
	must(s.Register("job", rscheduler.Every(20*time.Millisecond), func(ctx context.Context, run rscheduler.Run) error {
		<-time.After(rand.N(100 * time.Millisecond)) // so that a kill meets runs that have begun
		return rdb.RPush(context.WithoutCancel(ctx), ticksOfChildren, fmt.Sprint(run.Scheduled.UnixMicro(), " ", run.Attempt)).Err()
	}, rscheduler.WithOverlap(rscheduler.Allow)))
	must(s.Run(context.Background()))
}

// F8
func TestKilledProcessesTakeNoTickWithThem(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	children := make([]*faulttest.Child, 3)
	for i := range children {
		children[i] = faulttest.StartChild(t, "worker", server.Addr())
	}
	ran := func() int64 { return rdb.LLen(t.Context(), ticksOfChildren).Val() }
	await := func(more int64) {
		goal := ran() + more
		redistest.Eventually(t, patience, "ticks run", func() error {
			if n := ran(); n < goal {
				return fmt.Errorf("%d of %d", n, goal)
			}
			return nil
		})
	}
	for range faulttest.Rounds(t, 6, 100) {
		await(20)
		victim := rand.N(len(children))
		children[victim].Kill()
		children[victim] = faulttest.StartChild(t, "worker", server.Addr())
	}
	await(80) // more than a lease
	for _, child := range children {
		child.Kill()
	}
	lines, err := rdb.LRange(t.Context(), ticksOfChildren, 0, -1).Result()
	require.NoError(t, err)
	ticks, again := map[int64]int{}, 0
	var instants []int64
	for _, line := range lines {
		var at int64
		attempt := 0
		_, err := fmt.Sscan(line, &at, &attempt)
		require.NoError(t, err)
		if _, known := ticks[at]; known {
			assert.NotEqual(t, 1, attempt, "a tick ran twice: %s", strings.Join(lines, ", "))
		} else {
			instants = append(instants, at)
		}
		if attempt > 1 {
			again++
		}
		ticks[at] = attempt
	}
	slices.Sort(instants)
	last := instants[len(instants)-1]
	missed := 0
	for at := instants[0]; at < last-1_200_000; at += 20_000 { // later ones may be in flight
		if _, ok := ticks[at]; !ok {
			missed++
			t.Logf("missed %v", time.UnixMicro(at))
		}
	}
	assert.Zero(t, missed)
	t.Logf("%d ticks, %d repeated", len(ticks), again)
}

func TestThousandsOfJobsAreListedInManySteps(t *testing.T) {
	t.Parallel()
	const jobs, long = 5000, 300
	rdb, s := onServer(t, rscheduler.WithConcurrency(long))
	release := make(chan struct{})
	for i := range jobs {
		schedule := rscheduler.MustCron("@yearly")
		if i < long {
			schedule = rscheduler.At(time.Now())
		}
		require.NoError(t, s.Register(fmt.Sprintf("job %04d", i), schedule, func(context.Context, rscheduler.Run) error {
			<-release
			return nil
		}, rscheduler.WithCatchUp(time.Hour)))
	}
	stop := run(t, s)
	var all []rscheduler.Job
	redistest.Eventually(t, patience, "all jobs are written, and the long ones run", func() (err error) {
		all, err = s.Jobs(t.Context())
		running := 0
		for _, j := range all {
			running += len(j.Running)
		}
		if err == nil && (len(all) != jobs || running != long) {
			err = fmt.Errorf("%d jobs, %d run", len(all), running)
		}
		return err
	})
	for i, j := range all {
		require.Equal(t, fmt.Sprintf("job %04d", i), j.Name)
		require.Equal(t, i < long, len(j.Running) == 1, j.Name)
	}
	require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
	_, err := s.Jobs(t.Context())
	require.NoError(t, err)
	stats, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, stats, _ = strings.Cut(stats, "cmdstat_evalsha:calls=")
	steps := 0
	_, err = fmt.Sscanf(stats, "%d,", &steps)
	require.NoError(t, err, stats)
	assert.InDelta(t, 1+jobs/100, steps, 5, "beside heartbeats")
	close(release)
	require.NoError(t, stop())
}
