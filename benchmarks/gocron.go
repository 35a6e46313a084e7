package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/jonboulle/clockwork"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/contrib/redlatchgocron"
)

const (
	gocronName      = "gocron, redsync"
	gocronProcesses = 3
	gocronApart     = 50 * time.Millisecond
)

// gocronTask is a process that schedules a job of 1 ms each second, with each of the lockers.
type gocronTask struct {
	Addr  string `json:"addr"`
	Ticks int    `json:"ticks"`
}

// gocronRuns are the ticks that a process ran with each locker, by its own clock, in seconds.
type gocronRuns map[string][]int64

// scheduleJobs is the task of a worker, whose clock is ahead of that of the worker before it.
func scheduleJobs(ctx context.Context, task gocronTask, ready func() time.Time) (gocronRuns, error) {
	s, err := newRedlatch(setup{Addr: task.Addr, Lease: lease}, reentrantLock)
	if err != nil {
		return nil, err
	}
	place, err := s.rdb.Incr(ctx, "place").Result()
	if err != nil {
		return nil, err
	}
	clock := aheadClock{clockwork.NewRealClock(), time.Duration(place-1) * gocronApart}
	ours, err := redlatchgocron.NewLocker(s.client, "gocron", time.Second, redlatchgocron.WithNow(clock.Now))
	if err != nil {
		return nil, err
	}
	lockers := map[string]gocron.Locker{redlatchName: ours, redsyncName: redsyncLocker{redsync.New(goredis.NewPool(s.rdb))}}
	ready()
	// The first tick is the same for all: the clocks are less than half a second apart.
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second + 300*time.Millisecond)))
	ran := map[string]chan int64{}
	var schedulers []gocron.Scheduler
	for name, locker := range lockers {
		ran[name] = make(chan int64, 2*task.Ticks) // there are not more of a process
		scheduler, err := scheduleJob(clock, name, locker, ran[name])
		if err != nil {
			return nil, err
		}
		schedulers = append(schedulers, scheduler)
	}
	time.Sleep(time.Duration(task.Ticks) * time.Second)
	for _, scheduler := range schedulers {
		err = errors.Join(err, scheduler.Shutdown())
	}
	runs := gocronRuns{}
	for name, ticks := range ran {
		close(ticks)
		for tick := range ticks {
			runs[name] = append(runs[name], tick)
		}
	}
	return runs, errors.Join(err, s.close())
}

// scheduleJob starts a scheduler of a process, whose job sends each tick that it runs to ran.
func scheduleJob(clock aheadClock, name string, locker gocron.Locker, ran chan<- int64) (gocron.Scheduler, error) {
	s, err := gocron.NewScheduler(gocron.WithClock(clock), gocron.WithDistributedLocker(locker))
	if err != nil {
		return nil, err
	}
	_, err = s.NewJob(gocron.CronJob("* * * * * *", true), gocron.NewTask(func() {
		ran <- clock.Now().Round(time.Second).Unix()
		time.Sleep(time.Millisecond)
	}), gocron.WithName(name))
	s.Start()
	return s, err
}

// aheadClock is a clock that is ahead.
type aheadClock struct {
	clockwork.Clock
	ahead time.Duration
}

// Now returns the time.
func (c aheadClock) Now() time.Time { return c.Clock.Now().Add(c.ahead) }

// redsyncLocker does what github.com/go-co-op/gocron-redis-lock/v2 does, which not every module proxy has: a mutex of the job's name, with
// redsync's defaults and one try, as its documentation has it, which is held while the job runs.
type redsyncLocker struct{ sync *redsync.Redsync }

// Lock is for gocron.
func (l redsyncLocker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	mutex := l.sync.NewMutex(job, redsync.WithTries(1))
	return redsyncLock{mutex}, mutex.LockContext(ctx)
}

type redsyncLock struct{ mutex *redsync.Mutex }

// Unlock is for gocron.
func (l redsyncLock) Unlock(ctx context.Context) error {
	_, err := l.mutex.UnlockContext(ctx)
	return err
}

// keptLocker is a redsyncLocker whose locks are not released: they expire before the next tick. So a process that is a little late does not
// run a tick again.
type keptLocker struct{ sync *redsync.Redsync }

// Lock is for gocron.
func (l keptLocker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	mutex := l.sync.NewMutex(job, redsync.WithTries(1), redsync.WithExpiry(scheduledPeriod/2))
	return keptLock{}, mutex.LockContext(ctx)
}

type keptLock struct{}

// Unlock is for gocron.
func (keptLock) Unlock(context.Context) error { return nil }

// runGocron runs the jobs of a scheduledTask with gocron, and notes their ticks.
func runGocron(ctx context.Context, rdb *redis.Client, task scheduledTask, ready func() time.Time) (int, error) {
	recorder, notes := newGoRedis(setup{Addr: task.Addr}), make(chan string, 100_000)
	go note(ctx, recorder, notes)
	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(keptLocker{redsync.New(goredis.NewPool(rdb))}))
	if err != nil {
		return 0, err
	}
	first := time.Now().Truncate(time.Second).Add(2 * time.Second)
	for n := range scheduledJobs {
		job, by := strconv.Itoa(n), task.offset(n)
		_, err := s.NewJob(gocron.DurationJob(scheduledPeriod), gocron.NewTask(func() {
			notes <- tickLine(job, time.Now().Add(-by).Round(scheduledPeriod).Add(by), 1)
		}), gocron.WithName(job), gocron.WithStartAt(gocron.WithStartDateTime(first.Add(by))))
		if err != nil {
			return 0, err
		}
	}
	ready()
	s.Start()
	<-ctx.Done()
	return 0, s.Shutdown()
}

// gocronJobs counts how often each tick of a job runs in processes whose clocks differ.
func gocronJobs(ctx context.Context, b *bench) ([]row, error) {
	ticks := 20
	if b.config.quick {
		ticks = 6
	}
	results, err := together[gocronTask, gocronRuns](ctx, "gocron", gocronProcesses, gocronTask{b.server.addr, ticks}, nil)
	if err != nil {
		return nil, err
	}
	r := row{
		Measure: fmt.Sprintf("gocron, a job of 1 ms each second for %d s, %d processes, clocks %v apart: runs / ticks run twice or more / left out",
			ticks, gocronProcesses, gocronApart),
		Cells: map[string][]float64{},
	}
	for _, name := range []string{redlatchName, redsyncName} {
		of := map[int64]int{}
		runs, again := 0, 0
		for _, result := range results {
			for _, tick := range result[name] {
				runs++
				if of[tick]++; of[tick] == 2 {
					again++
				}
			}
		}
		left := ticks - len(of)
		r.Cells[name] = []float64{float64(runs), float64(again), float64(left)}
		progress("gocron with %s: %d ticks, %d runs", name, len(of), runs)
		if name == redlatchName {
			r.Targets = []target{atMost("ticks run twice or left out", 0, float64(again+max(left, -left)))}
		}
	}
	return []row{r}, b.server.empty(ctx)
}
