package redlatchgocron_test

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/redlatchgocron"
	"github.com/redlatch/redlatch/redlatchtest"
)

const (
	everySecond = "* * * * * *"
	everyMinute = "0 * * * * *"
)

func periodOf(cron string) time.Duration {
	if cron == everyMinute {
		return time.Minute
	}
	return time.Second
}

// quiet has no word of those that were killed.
var quiet = redlatch.WithLogger(slog.New(slog.DiscardHandler))

// shifted is a clock that is ahead.
type shifted struct {
	clockwork.Clock
	ahead time.Duration
}

func clock(ahead time.Duration) shifted { return shifted{clockwork.NewRealClock(), ahead} }

func (c shifted) Now() time.Time                  { return c.Clock.Now().Add(c.ahead) }
func (c shifted) Since(t time.Time) time.Duration { return c.Now().Sub(t) }
func (c shifted) Until(t time.Time) time.Duration { return t.Sub(c.Now()) }

// runs notes the runs of a job of all processes.
type runs struct {
	mu        sync.Mutex // guards all below
	of        map[time.Time]int
	now, most int // at a time
	refused   []error
}

// begin notes a run for the tick by the clock of its process.
func (r *runs) begin(tick time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[time.Time]int{}
	}
	r.of[tick]++
	r.now++
	r.most = max(r.most, r.now)
}

func (r *runs) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now--
}

func (r *runs) refuse(_ uuid.UUID, _ string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused = append(r.refused, err)
}

// seen returns how often each tick ran, how many runs there were at a time, and what lockers refused.
func (r *runs) seen() (of map[time.Time]int, most int, refused []error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.of), r.most, slices.Clone(r.refused)
}

// total returns how many runs there were.
func (r *runs) total() (n int) {
	of, _, _ := r.seen()
	for _, times := range of {
		n += times
	}
	return n
}

// scheduled has a process run a job, that takes a time, until the test ends.
func scheduled(t *testing.T, c clockwork.Clock, cron string, r *runs, takes time.Duration, distributed gocron.SchedulerOption) {
	t.Helper()
	s, err := gocron.NewScheduler(gocron.WithClock(c), gocron.WithLocation(time.UTC), distributed)
	require.NoError(t, err)
	j, err := s.NewJob(gocron.CronJob(cron, true), gocron.NewTask(func() {
		r.begin(c.Now().Round(periodOf(cron)))
		defer r.end()
		time.Sleep(takes)
	}), gocron.WithName("job"), gocron.WithEventListeners(gocron.AfterLockError(r.refuse)))
	require.NoError(t, err)
	s.Start()
	t.Cleanup(func() {
		assert.NoError(t, s.RemoveJob(j.ID()))
		time.Sleep(2 * time.Minute) // Shutdown spins while a job runs, and no time would pass in a bubble
		assert.NoError(t, s.Shutdown())
	})
}

// locked has a process run a job under a locker.
func locked(t *testing.T, client *redlatch.Client, c clockwork.Clock, cron string, r *runs, takes time.Duration, opts ...redlatchgocron.Option) {
	t.Helper()
	locker, err := redlatchgocron.NewLocker(client, "cron", periodOf(cron), append(opts, redlatchgocron.WithNow(c.Now))...)
	require.NoError(t, err)
	scheduled(t, c, cron, r, takes, gocron.WithDistributedLocker(locker))
}

func TestJobsOnShiftedClocksRunOncePerTick(t *testing.T) {
	const ticks = 20
	for _, tc := range []struct {
		apart time.Duration
		cron  string
		opts  []redlatchgocron.Option
	}{
		{apart: 0, cron: everySecond},
		{apart: 50 * time.Millisecond, cron: everySecond},
		{apart: 800 * time.Millisecond, cron: everySecond},
		{apart: 29*time.Minute + 10*time.Second, cron: everyMinute},
		{apart: 1010 * time.Millisecond, cron: everySecond, opts: []redlatchgocron.Option{redlatchgocron.WithSkew(3 * time.Second)}},
	} {
		t.Run(fmt.Sprint(tc.apart), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := redlatchtest.Start(t)
				time.Sleep(130 * time.Millisecond) // between ticks
				var r runs
				for i := range 3 {
					locked(t, server.Client(), clock(time.Duration(i)*tc.apart), tc.cron, &r, time.Millisecond, tc.opts...)
				}
				period := periodOf(tc.cron)
				server.Advance(2*tc.apart + ticks*period)
				of, _, refused := r.seen()
				for tick, times := range of {
					assert.Equal(t, 1, times, "runs of %v", tick)
				}
				// The clock that is the most ahead runs the ticks of all the time, and the others, at first, those before.
				assert.Len(t, of, int((4*tc.apart+ticks*period+130*time.Millisecond)/period)-int(130*time.Millisecond/period))
				for _, err := range refused {
					require.ErrorIs(t, err, redlatchgocron.ErrTaken)
				}
				assert.NotEmpty(t, refused)
			})
		})
	}
}

// F8
func TestTickStaysTakenWhenItsProcessHasGone(t *testing.T) {
	for name, end := range map[string]func(*redlatchtest.Server, *redlatch.Client){
		"closed": func(_ *redlatchtest.Server, c *redlatch.Client) { _ = c.Close() },
		"killed": func(s *redlatchtest.Server, c *redlatch.Client) { s.Kill(c) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := redlatchtest.Start(t)
				first, second := server.Client(quiet), server.Client()
				now := time.Now()
				lock := func(c *redlatch.Client) (gocron.Lock, error) {
					l, err := redlatchgocron.NewLocker(c, "cron", time.Minute, redlatchgocron.WithNow(func() time.Time { return now }))
					require.NoError(t, err)
					return l.Lock(t.Context(), "job")
				}
				run, err := lock(first)
				require.NoError(t, err)
				require.NoError(t, run.Unlock(t.Context()))
				end(server, first)
				server.Advance(time.Hour)
				_, err = lock(second)
				require.ErrorIs(t, err, redlatchgocron.ErrTaken)
				assert.ErrorContains(t, err, "redlatchgocron: lock job \"job\" of \"cron\": the tick is taken: 2000-01-01T00:00:00Z by "+first.ID())
				server.Advance(time.Minute)
				run, err = lock(second)
				require.NoError(t, err, "no clock is so far behind")
				require.NoError(t, run.Unlock(t.Context()))
			})
		})
	}
}

func TestTicksAreLeftOutWhileTheJobRuns(t *testing.T) {
	for _, tc := range []struct {
		opts       []redlatchgocron.Option
		runs, most int
	}{
		{runs: 4, most: 1}, // at 1, 4, 7 and 10 s
		{opts: []redlatchgocron.Option{redlatchgocron.WithOverlap()}, runs: 10, most: 3},
	} {
		t.Run(fmt.Sprint(tc.most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := redlatchtest.Start(t)
				var r runs
				for i := range 3 {
					locked(t, server.Client(), clock(time.Duration(i)*50*time.Millisecond), everySecond, &r, 2500*time.Millisecond, tc.opts...)
				}
				server.Advance(10 * time.Second)
				assert.Equal(t, tc.runs, r.total())
				_, most, refused := r.seen()
				assert.Equal(t, tc.most, most)
				left := 0
				for _, err := range refused {
					if errors.Is(err, redlatchgocron.ErrRunning) {
						left++
					}
				}
				assert.Equal(t, 10-tc.runs, left, "each tick that did not run was left out once")
			})
		})
	}
}

// F9
func TestJobRunsAgainWhenTheLeaseOfADeadProcessEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redlatchtest.Start(t)
		first, second := server.Client(quiet, redlatch.WithWatchdogTimeout(3*time.Second)), server.Client()
		var dead, r runs
		locked(t, first, clock(time.Millisecond), everySecond, &dead, time.Minute)
		locked(t, second, clock(0), everySecond, &r, time.Millisecond)
		server.Advance(1500 * time.Millisecond)
		require.Equal(t, 1, dead.total(), "it has begun")
		server.Kill(first)
		server.Advance(8 * time.Second)
		assert.InDelta(t, 6, r.total(), 1, "of 8 ticks, 2 or 3 are left out")
	})
}

// F7, F27
func TestNothingRunsWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redlatchtest.Start(t)
		client := server.Client(quiet)
		server.Partition(client)
		var r runs
		locked(t, client, clock(0), everySecond, &r, time.Millisecond)
		server.Advance(5 * time.Second)
		ran, _, refused := r.seen()
		assert.Empty(t, ran)
		require.NotEmpty(t, refused)
		for _, err := range refused {
			require.NotErrorIs(t, err, redlatchgocron.ErrTaken)
			require.NotErrorIs(t, err, redlatchgocron.ErrRunning)
		}
		server.Heal(client)
		server.Advance(10 * time.Second)
		ran, _, _ = r.seen()
		assert.GreaterOrEqual(t, len(ran), 5)
		for tick, times := range ran {
			assert.Equal(t, 1, times, "runs of %v", tick)
		}
	})
}

func TestBadSettingsOfALockerAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redlatchtest.Start(t).Client()
		for want, build := range map[string]func() (*redlatchgocron.Locker, error){
			"the client is nil":                             func() (*redlatchgocron.Locker, error) { return redlatchgocron.NewLocker(nil, "cron", time.Minute) },
			"the name is empty":                             func() (*redlatchgocron.Locker, error) { return redlatchgocron.NewLocker(client, "", time.Minute) },
			"the period 0s is not between 10ms and 24h0m0s": func() (*redlatchgocron.Locker, error) { return redlatchgocron.NewLocker(client, "cron", 0) },
			"the skew -1ns is not between 0 and 168h0m0s": func() (*redlatchgocron.Locker, error) {
				return redlatchgocron.NewLocker(client, "cron", time.Minute, redlatchgocron.WithSkew(-1))
			},
			"the clock is nil": func() (*redlatchgocron.Locker, error) {
				return redlatchgocron.NewLocker(client, "cron", time.Minute, redlatchgocron.WithNow(nil))
			},
			"an option is nil": func() (*redlatchgocron.Locker, error) {
				return redlatchgocron.NewLocker(client, "cron", time.Minute, nil)
			},
		} {
			l, err := build()
			assert.Nil(t, l)
			require.ErrorIs(t, err, redlatch.ErrInvalid)
			assert.ErrorContains(t, err, "redlatchgocron: "+redlatch.ErrInvalid.Error()+": "+want)
		}
		l, err := redlatchgocron.NewLocker(client, "cron", time.Minute)
		require.NoError(t, err)
		_, err = l.Lock(t.Context(), strings.Repeat("j", 600))
		require.ErrorIs(t, err, redlatch.ErrInvalid, "the name of the job is too long")
	})
}
