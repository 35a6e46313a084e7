package rexecutor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rscheduler"
)

type args struct {
	Name string
	N    int
}

type answer struct{ Text string }

// greet is the task of most tests, and other one beside it.
var (
	greet = rexecutor.NewTask[args, answer]("greet", rexecutor.WithMaxAttempts(2),
		rexecutor.WithBackoff(func(int) time.Duration { return time.Second }))
	other = rexecutor.NewTask[args, struct{}]("other/task T5 g1:x")
)

func executor(p *locktest.Peer, opts ...rexecutor.Option) *rexecutor.Executor {
	return rexecutor.New(p, "media", opts...)
}

func hello(_ context.Context, c rexecutor.Call[args]) (answer, error) {
	return answer{"hello " + c.Args.Name}, nil
}

// work works until the test ends, or stop is called, which waits for it.
func work(t *testing.T, ex *rexecutor.Executor, opts ...rexecutor.WorkOption) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- ex.Work(ctx, opts...) }()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

func submit(t *testing.T, ex *rexecutor.Executor, a args, opts ...rexecutor.SubmitOption) *rexecutor.Future[answer] {
	t.Helper()
	f, err := greet.Submit(t.Context(), ex, a, opts...)
	require.NoError(t, err)
	return f
}

func TestResultComesBack(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		worker, caller := executor(b.Peer(t)), executor(b.Peer(t))
		require.NoError(t, greet.Handle(worker, hello))
		work(t, worker)
		time.Sleep(time.Second)
		start := time.Now()
		f := submit(t, caller, args{Name: "Ada"})
		got, err := f.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, answer{"hello Ada"}, got)
		assert.Less(t, time.Since(start), 100*time.Millisecond, "a worker is woken, and so is who waits")
		st, err := f.Status(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rexecutor.Done, st.State)
		long := strings.Repeat("x", 10_000) // more than is published
		got, err = submit(t, caller, args{Name: long}).Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, answer{"hello " + long}, got)
		got = answer{"hello Ada"}
		again, err := greet.Future(executor(b.Peer(t)), f.ID()).Get(t.Context())
		require.NoError(t, err, "from another process")
		assert.Equal(t, got, again)
		time.Sleep(time.Hour)
		_, err = f.Get(t.Context())
		require.ErrorIs(t, err, rexecutor.ErrNotFound, "its time is over")
	})
}

func TestGetWaits(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		worker, caller := executor(b.Peer(t)), executor(b.Peer(t))
		require.NoError(t, greet.Handle(worker, func(_ context.Context, c rexecutor.Call[args]) (answer, error) {
			time.Sleep(10 * time.Second)
			return answer{fmt.Sprint(c.Args.N)}, nil
		}))
		work(t, worker, rexecutor.WithConcurrency(1000))
		start := time.Now()
		var wg sync.WaitGroup
		for n := range 300 {
			f := submit(t, caller, args{N: n}, rexecutor.WithDelay(time.Minute))
			wg.Go(func() {
				got, err := f.Get(t.Context())
				assert.NoError(t, err)
				assert.Equal(t, answer{fmt.Sprint(n)}, got)
				assert.InDelta(t, 70*time.Second, time.Since(start), float64(time.Second))
			})
		}
		wg.Wait()
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := submit(t, caller, args{}, rexecutor.WithDelay(time.Hour)).Get(short)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestFailureComesBack(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		require.NoError(t, greet.Handle(ex, func(_ context.Context, c rexecutor.Call[args]) (answer, error) {
			switch c.Args.Name {
			case "reject":
				return answer{}, rexecutor.Reject(errors.New("not this one"))
			case "snooze":
				if c.Args.N = c.Attempt; time.Now().Second()%60 < 30 {
					return answer{}, rexecutor.Snooze(10 * time.Second)
				}
				return answer{fmt.Sprint(c.Attempt)}, nil
			case "panic":
				panic("boom")
			}
			return answer{}, fmt.Errorf("attempt %d of %s", c.Attempt, c.Task)
		}))
		work(t, ex)
		start := time.Now()
		f := submit(t, ex, args{}, rexecutor.WithID("a"))
		_, err := f.Get(t.Context())
		var failed *rexecutor.TaskError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, &rexecutor.TaskError{Text: "attempt 2 of greet", Attempts: 2}, failed)
		assert.InDelta(t, time.Second, time.Since(start), float64(100*time.Millisecond), "the back-off is that of the task")
		st, err := f.Status(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rexecutor.Status{State: rexecutor.Dead, Attempt: 2, Err: failed}, st)

		_, err = submit(t, ex, args{}, rexecutor.WithID("a")).Get(t.Context())
		require.ErrorAs(t, err, &failed, "the same id is the same task, also if it has failed")
		ok, err := ex.Queue().Redrive(t.Context(), "a")
		require.NoError(t, err)
		assert.True(t, ok)
		_, err = f.Get(t.Context())
		require.ErrorAs(t, err, &failed, "it has failed again")

		_, err = submit(t, ex, args{Name: "reject"}).Get(t.Context())
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, 1, failed.Attempts)
		_, err = submit(t, ex, args{Name: "panic"}).Get(t.Context())
		require.ErrorAs(t, err, &failed)
		assert.Contains(t, failed.Text, "boom")
		got, err := submit(t, ex, args{Name: "snooze"}).Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, answer{"1"}, got, "a snooze is no attempt")
	})
}

func TestSameIDIsTheSameTask(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		var runs atomic.Int32
		require.NoError(t, greet.Handle(ex, func(ctx context.Context, c rexecutor.Call[args]) (answer, error) {
			runs.Add(1)
			return hello(ctx, c)
		}))
		first := submit(t, ex, args{Name: "first"}, rexecutor.WithID("id"))
		second := submit(t, ex, args{Name: "second"}, rexecutor.WithID("id"))
		require.ErrorIs(t, other.Send(t.Context(), ex, args{}, rexecutor.WithID("id")), redlatch.ErrInvalid, "another task has it")
		work(t, ex)
		for _, f := range []*rexecutor.Future[answer]{first, second, submit(t, ex, args{Name: "third"}, rexecutor.WithID("id"))} {
			got, err := f.Get(t.Context())
			require.NoError(t, err)
			assert.Equal(t, answer{"hello first"}, got)
		}
		assert.EqualValues(t, 1, runs.Load())
		require.ErrorIs(t, other.Send(t.Context(), ex, args{}, rexecutor.WithID("id")), redlatch.ErrInvalid)
		_, err := other.Future(ex, "id").Get(t.Context())
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		time.Sleep(time.Hour)
		got, err := submit(t, ex, args{Name: "fourth"}, rexecutor.WithID("id")).Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, answer{"hello fourth"}, got, "the result of the first is over")
	})
}

func TestCancelEndsATask(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		worker, caller := executor(b.Peer(t)), executor(b.Peer(t))
		causes := make(chan error, 1)
		require.NoError(t, greet.Handle(worker, func(ctx context.Context, _ rexecutor.Call[args]) (answer, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return answer{"too late"}, nil
		}))
		work(t, worker)
		f := submit(t, caller, args{}, rexecutor.WithID("id"))
		results := make(chan error, 1)
		go func() {
			_, err := f.Get(t.Context())
			results <- err
		}()
		time.Sleep(time.Second)
		st, err := f.Status(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rexecutor.Status{State: rexecutor.InFlight, Attempt: 1}, st)
		ok, err := f.Cancel(t.Context())
		require.NoError(t, err)
		assert.True(t, ok)
		require.ErrorIs(t, <-causes, rexecutor.ErrCancelled)
		require.ErrorIs(t, <-results, rexecutor.ErrCancelled)
		st, err = f.Status(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rexecutor.Status{State: rexecutor.Dead, Err: rexecutor.ErrCancelled}, st)
		ok, err = f.Cancel(t.Context())
		require.NoError(t, err)
		assert.False(t, ok, "it has ended")
		_, err = submit(t, caller, args{}, rexecutor.WithID("id"), rexecutor.WithDelay(time.Hour)).Status(t.Context())
		require.NoError(t, err, "the id is free")
		_, err = greet.Future(caller, "none").Get(t.Context())
		require.ErrorIs(t, err, rexecutor.ErrNotFound)
		_, err = greet.Future(caller, "none").Status(t.Context())
		require.ErrorIs(t, err, rexecutor.ErrNotFound)
	})
}

func TestExpiryEndsATaskThatNobodyBegins(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var died []redlatch.DeadLetterEvent
		ex := executor(b.Peer(t, redlatch.WithObserver(redlatch.Observer{DeadLetter: func(_ context.Context, e redlatch.DeadLetterEvent) { died = append(died, e) }})))
		start := time.Now()
		f := submit(t, ex, args{}, rexecutor.WithExpiry(5*time.Second))
		_, err := f.Get(t.Context())
		require.ErrorIs(t, err, rexecutor.ErrExpired)
		assert.InDelta(t, 5*time.Second, time.Since(start), float64(1500*time.Millisecond))
		st, err := f.Status(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rexecutor.Status{State: rexecutor.Dead, Err: rexecutor.ErrExpired}, st)
		assert.Equal(t, []redlatch.DeadLetterEvent{{Kind: "executor", Name: ex.Name(), ID: f.ID(), Task: "greet", Cause: "expired"}}, died)
		s, err := ex.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, s.Dead)
	})
}

// The event of a dead letter names its task, whether the worker ends it or a claim finds it.
func TestDeadLetterNamesItsTask(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log bytes.Buffer
		var mu sync.Mutex // guards died
		died := map[string]redlatch.DeadLetterEvent{}
		opts := []redlatch.Option{
			redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			redlatch.WithObserver(redlatch.Observer{DeadLetter: func(_ context.Context, e redlatch.DeadLetterEvent) {
				mu.Lock()
				defer mu.Unlock()
				died[e.ID] = e
			}}),
		}
		odd := rexecutor.NewTask[args, struct{}](other.Name(), rexecutor.WithMaxAttempts(1))
		lost, caller := b.Peer(t), executor(b.Peer(t))
		crashes := executor(lost)
		require.NoError(t, odd.Handle(crashes, func(ctx context.Context, _ rexecutor.Call[args]) (struct{}, error) {
			lost.Down(true)
			<-ctx.Done()
			return struct{}{}, ctx.Err()
		}))
		stop := work(t, crashes)
		send := func(id string, opts ...rexecutor.SubmitOption) {
			require.NoError(t, odd.Send(t.Context(), caller, args{Name: id}, append(opts, rexecutor.WithID(id))...))
		}
		send("lost")
		time.Sleep(5 * time.Minute)
		send("late", rexecutor.WithExpiry(time.Second))
		send("grouped", rexecutor.WithExpiry(time.Second), rexecutor.WithGroup("a T b"), rexecutor.WithPriority(3))
		time.Sleep(time.Minute)
		worker := executor(b.Peer(t, opts...))
		require.NoError(t, odd.Handle(worker, func(_ context.Context, c rexecutor.Call[args]) (struct{}, error) {
			if c.ID == "rejected" {
				return struct{}{}, rexecutor.Reject(errors.New("no use"))
			}
			return struct{}{}, errors.New("no luck")
		}))
		work(t, worker)
		send("failed")
		send("rejected")
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		want := map[string]redlatch.DeadLetterEvent{}
		for id, cause := range map[string]string{
			"lost": "no attempt ended within the visibility", "late": "expired", "grouped": "expired", "failed": "no luck", "rejected": "no use",
		} {
			e := redlatch.DeadLetterEvent{Kind: "executor", Name: "media", ID: id, Task: "other/task T5 g1:x", Attempt: 1, Cause: cause}
			if cause == "expired" {
				e.Attempt = 0
			}
			want[id] = e
			assert.Contains(t, log.String(), fmt.Sprintf(" kind=executor name=media id=%s task=%q attempt=", id, e.Task))
		}
		assert.Equal(t, want, died)
		assert.Equal(t, len(want), strings.Count(log.String(), "redlatch: a task became a dead letter"))
		lost.Down(false)
		stop()
	})
}

func TestJobLeavesNothingBehind(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		var runs atomic.Int32
		require.NoError(t, other.Handle(ex, func(context.Context, rexecutor.Call[args]) (struct{}, error) {
			runs.Add(1)
			return struct{}{}, nil
		}))
		stop := work(t, ex)
		require.NoError(t, other.Send(t.Context(), ex, args{}))
		job := other.Job(ex, args{})
		run := rscheduler.Run{Job: "nightly", Scheduled: time.Now()}
		require.NoError(t, job(t.Context(), run))
		require.NoError(t, job(t.Context(), run), "repeated")
		time.Sleep(time.Second)
		assert.EqualValues(t, 2, runs.Load())
		_, err := other.Future(ex, fmt.Sprintf("nightly@%d", run.Scheduled.UnixMicro())).Get(t.Context())
		require.ErrorIs(t, err, rexecutor.ErrNotFound, "no result is kept")
		stop()
		time.Sleep(49 * time.Hour)
		assert.Empty(t, b.Mini.Keys())
	})
}

func TestWorkerClaimsOnlyWhatItHandles(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		greeter, others, caller := executor(b.Peer(t)), executor(b.Peer(t)), executor(b.Peer(t))
		require.NoError(t, greet.Handle(greeter, hello))
		require.NoError(t, other.Handle(others, func(context.Context, rexecutor.Call[args]) (struct{}, error) { return struct{}{}, nil }))
		work(t, greeter)
		work(t, others)
		time.Sleep(time.Second)
		for range 20 { // whichever of them sleeps since when
			for _, delay := range []time.Duration{0, time.Second} {
				start := time.Now()
				o, err := other.Submit(t.Context(), caller, args{}, rexecutor.WithDelay(delay))
				require.NoError(t, err)
				f := submit(t, caller, args{Name: "x"}, rexecutor.WithDelay(delay))
				_, err = f.Get(t.Context())
				require.NoError(t, err)
				_, err = o.Get(t.Context())
				require.NoError(t, err)
				assert.Less(t, time.Since(start), delay+200*time.Millisecond, "the one that handles it is woken")
			}
		}
	})
}

func TestTaskConcurrency(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		var running, most, others atomic.Int32
		require.NoError(t, greet.Handle(ex, func(context.Context, rexecutor.Call[args]) (answer, error) {
			n := running.Add(1)
			most.Store(max(most.Load(), n))
			time.Sleep(time.Second)
			running.Add(-1)
			return answer{}, nil
		}))
		require.NoError(t, other.Handle(ex, func(context.Context, rexecutor.Call[args]) (struct{}, error) {
			others.Add(1)
			return struct{}{}, nil
		}))
		work(t, ex, rexecutor.WithConcurrency(16), rexecutor.WithTaskConcurrency(greet, 2))
		time.Sleep(time.Second)
		start := time.Now()
		var all []*rexecutor.Future[answer]
		for range 10 {
			all = append(all, submit(t, ex, args{}))
		}
		for range 10 {
			require.NoError(t, other.Send(t.Context(), ex, args{}))
		}
		time.Sleep(500 * time.Millisecond)
		assert.EqualValues(t, 10, others.Load(), "those of the other task pass")
		for _, f := range all {
			_, err := f.Get(t.Context())
			require.NoError(t, err)
		}
		assert.EqualValues(t, 2, most.Load())
		assert.InDelta(t, 5*time.Second, time.Since(start), float64(200*time.Millisecond))
	})
}

func TestPriorityGoesAcrossTasks(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		var order []string
		require.NoError(t, greet.Handle(ex, func(_ context.Context, c rexecutor.Call[args]) (answer, error) {
			order = append(order, "g"+c.Args.Name)
			return answer{}, nil
		}))
		require.NoError(t, other.Handle(ex, func(_ context.Context, c rexecutor.Call[args]) (struct{}, error) {
			order = append(order, "o"+c.Args.Name)
			return struct{}{}, nil
		}))
		var want []string
		for _, p := range []int{0, 9, 3} {
			for n := range 4 {
				name := fmt.Sprintf("%d-%d", p, n)
				if n%2 == 0 {
					submit(t, ex, args{Name: name}, rexecutor.WithPriority(p))
				} else {
					require.NoError(t, other.Send(t.Context(), ex, args{Name: name}, rexecutor.WithPriority(p)))
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		for _, p := range []int{9, 3, 0} {
			want = append(want, fmt.Sprintf("g%d-0", p), fmt.Sprintf("o%d-1", p), fmt.Sprintf("g%d-2", p), fmt.Sprintf("o%d-3", p))
		}
		work(t, ex)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, want, order)
	})
}

func TestGroupGoesAcrossTasks(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		greeter, others, caller := executor(b.Peer(t)), executor(b.Peer(t)), executor(b.Peer(t))
		var mu sync.Mutex
		var order []int
		running := 0
		note := func(n int) {
			mu.Lock()
			running++
			assert.Equal(t, 1, running)
			order = append(order, n)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			running--
			mu.Unlock()
		}
		require.NoError(t, greet.Handle(greeter, func(_ context.Context, c rexecutor.Call[args]) (answer, error) {
			note(c.Args.N)
			return answer{}, nil
		}))
		require.NoError(t, other.Handle(others, func(_ context.Context, c rexecutor.Call[args]) (struct{}, error) {
			note(c.Args.N)
			return struct{}{}, nil
		}))
		work(t, greeter, rexecutor.WithConcurrency(4))
		work(t, others, rexecutor.WithConcurrency(4))
		time.Sleep(time.Second)
		start := time.Now()
		var last *rexecutor.Future[struct{}]
		for n := range 10 {
			if n%2 == 0 {
				submit(t, caller, args{N: n}, rexecutor.WithGroup("KEY T5"))
				continue
			}
			f, err := other.Submit(t.Context(), caller, args{N: n}, rexecutor.WithGroup("KEY T5"))
			require.NoError(t, err)
			last = f
		}
		_, err := last.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, order)
		assert.InDelta(t, 10*time.Second, time.Since(start), float64(500*time.Millisecond), "each end wakes the one that handles the next")
	})
}

func TestOrphanedTasksAreNamed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		require.NoError(t, greet.Handle(ex, func(context.Context, rexecutor.Call[args]) (answer, error) {
			time.Sleep(time.Hour)
			return answer{}, nil
		}))
		stop := work(t, ex, rexecutor.WithStopGrace(0))
		submit(t, ex, args{})
		submit(t, ex, args{})
		require.NoError(t, other.Send(t.Context(), ex, args{}, rexecutor.WithDelay(time.Hour)))
		time.Sleep(time.Minute)
		s, err := ex.Stats(t.Context())
		require.NoError(t, err)
		require.Len(t, s.Tasks, 2)
		assert.Less(t, s.Tasks[0].Unseen, 11*time.Second)
		s.Tasks[0].Unseen = 0
		assert.Equal(t, []rexecutor.TaskStats{
			{Name: "greet", Ready: 1, InFlight: 1}, {Name: other.Name(), Delayed: 1, Unseen: s.Tasks[1].Unseen, Orphaned: true},
		}, s.Tasks, "the worker is busy, and there")
		assert.Negative(t, s.Tasks[1].Unseen)
		go stop()
		time.Sleep(30 * time.Second)
		s, err = ex.Stats(t.Context())
		require.NoError(t, err)
		assert.True(t, s.Tasks[0].Orphaned)
		time.Sleep(time.Hour)
	})
}

func TestAllListsTasks(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		for n := range 150 {
			submit(t, ex, args{N: n}, rexecutor.WithDelay(time.Hour), rexecutor.WithHeaders(map[string]string{"n": fmt.Sprint(n)}), rexecutor.WithGroup(fmt.Sprint("g", n)))
		}
		n := 0
		for e, err := range ex.All(t.Context(), rexecutor.Delayed) {
			require.NoError(t, err)
			assert.Equal(t, "greet", e.Task)
			assert.Equal(t, map[string]string{"n": strings.TrimPrefix(e.Group, "g")}, e.Headers)
			n++
		}
		assert.Equal(t, 150, n)
		for _, err := range ex.All(t.Context(), rexecutor.Done) {
			require.ErrorIs(t, err, redlatch.ErrInvalid)
		}
		purged, err := ex.Queue().Purge(t.Context(), rexecutor.Delayed)
		require.NoError(t, err)
		assert.Equal(t, 150, purged)
	})
}

func TestMiddlewareIsAroundTasksOfAllTypes(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		var lines []string
		around := func(name string) func(rexecutor.Handler) rexecutor.Handler {
			return func(next rexecutor.Handler) rexecutor.Handler {
				return func(ctx context.Context, info rexecutor.Info) error {
					lines = append(lines, name+" "+info.Task+" "+info.ID+" "+fmt.Sprint(info.Attempt, info.Token > 0))
					return next(ctx, info)
				}
			}
		}
		require.NoError(t, greet.Handle(ex, hello))
		require.NoError(t, other.Handle(ex, func(context.Context, rexecutor.Call[args]) (struct{}, error) { return struct{}{}, nil }))
		work(t, ex, rexecutor.Use(around("a"), around("b")))
		_, err := submit(t, ex, args{}, rexecutor.WithID("1")).Get(t.Context())
		require.NoError(t, err)
		require.NoError(t, other.Send(t.Context(), ex, args{}, rexecutor.WithID("2")))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, []string{"a greet 1 1 true", "b greet 1 1 true", "a " + other.Name() + " 2 1 true", "b " + other.Name() + " 2 1 true"}, lines)
	})
}

func TestTwoWorkersInOneClient(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		first, second := executor(p), executor(p)
		require.NoError(t, greet.Handle(first, hello))
		require.NoError(t, other.Handle(second, func(context.Context, rexecutor.Call[args]) (struct{}, error) { return struct{}{}, nil }))
		work(t, first)
		work(t, second)
		time.Sleep(time.Second)
		start := time.Now()
		for range 20 {
			o, err := other.Submit(t.Context(), first, args{})
			require.NoError(t, err)
			_, err = o.Get(t.Context())
			require.NoError(t, err)
			_, err = submit(t, first, args{}).Get(t.Context())
			require.NoError(t, err)
		}
		assert.Less(t, time.Since(start), time.Second)
	})
}

func TestCapacityRefusesTasks(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t), rexecutor.WithCapacity(2))
		submit(t, ex, args{})
		submit(t, ex, args{})
		_, err := greet.Submit(t.Context(), ex, args{})
		require.ErrorIs(t, err, rexecutor.ErrFull)
		require.NoError(t, greet.Handle(ex, hello))
		time.AfterFunc(time.Second, func() { work(t, ex) })
		_, err = greet.Submit(t.Context(), ex, args{}, rexecutor.WithWait(5*time.Second))
		require.NoError(t, err)
	})
}

func TestTooManyTasks(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		for n := range 100 {
			require.NoError(t, rexecutor.NewTask[int, struct{}](fmt.Sprint("task ", n)).Send(t.Context(), ex, n))
		}
		require.ErrorIs(t, rexecutor.NewTask[int, struct{}]("one more").Send(t.Context(), ex, 0), redlatch.ErrInvalid)
		var mu sync.Mutex
		var done []int
		for n := range 100 {
			require.NoError(t, rexecutor.NewTask[int, struct{}](fmt.Sprint("task ", n)).Handle(ex, func(_ context.Context, c rexecutor.Call[int]) (struct{}, error) {
				mu.Lock()
				defer mu.Unlock()
				done = append(done, c.Args)
				return struct{}{}, nil
			}))
		}
		require.ErrorIs(t, rexecutor.NewTask[int, struct{}]("one more").Handle(ex, func(context.Context, rexecutor.Call[int]) (struct{}, error) { return struct{}{}, nil }), redlatch.ErrInvalid)
		work(t, ex, rexecutor.WithConcurrency(10))
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(done)
		assert.Len(t, done, 100)
		assert.Equal(t, 99, done[99])
	})
}

func TestDeadWorkersTaskIsDoneByAnother(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, living, caller := b.Peer(t), executor(b.Peer(t)), executor(b.Peer(t))
		dying, block := executor(p), make(chan struct{})
		require.NoError(t, greet.Handle(dying, func(context.Context, rexecutor.Call[args]) (answer, error) {
			<-block
			return answer{"from the dead"}, nil
		}))
		work(t, dying, rexecutor.WithStopGrace(0))
		f := submit(t, caller, args{Name: "x"})
		time.Sleep(time.Second)
		p.Down(true)
		require.NoError(t, greet.Handle(living, hello))
		work(t, living)
		start := time.Now()
		got, err := f.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, answer{"hello x"}, got)
		assert.Less(t, time.Since(start), 31*time.Second)
		close(block)
		p.Down(false)
		time.Sleep(time.Minute)
		got, err = f.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, answer{"hello x"}, got, "who has lost the claim cannot end the task")
	})
}

func TestSendSaysThatTheIDIsThatOfADeadTask(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		require.NoError(t, other.Handle(ex, func(context.Context, rexecutor.Call[args]) (struct{}, error) {
			return struct{}{}, rexecutor.Reject(errors.New("no"))
		}))
		work(t, ex)
		run := rscheduler.Run{Job: "nightly", Scheduled: time.Now()}
		require.NoError(t, other.Job(ex, args{})(t.Context(), run))
		require.NoError(t, other.Send(t.Context(), ex, args{}, rexecutor.WithID("id")))
		time.Sleep(time.Second)
		require.ErrorIs(t, other.Send(t.Context(), ex, args{}, rexecutor.WithID("id")), rexecutor.ErrDead)
		require.NoError(t, other.Job(ex, args{})(t.Context(), run), "a repeated run has sent it before")
		_, err := other.Submit(t.Context(), ex, args{}, rexecutor.WithID("id"))
		require.NoError(t, err, "its future has the error")
	})
}

func TestBadInputIsRefusedBeforeAnyCall(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		ex, ctx := executor(p), t.Context()
		submitted := func(task *rexecutor.Task[args, answer], ex *rexecutor.Executor, opts ...rexecutor.SubmitOption) error {
			_, err := task.Submit(ctx, ex, args{}, opts...)
			return err
		}
		worked := func(opts ...rexecutor.WorkOption) error {
			ex := executor(p)
			require.NoError(t, greet.Handle(ex, hello))
			return ex.Work(ctx, opts...)
		}
		named := func(name string, opts ...rexecutor.TaskOption) error {
			return submitted(rexecutor.NewTask[args, answer](name, opts...), ex)
		}
		opened := func(opts ...rexecutor.Option) error { return submitted(greet, executor(p, opts...)) }
		var none *rexecutor.Future[answer]
		_, err := none.Get(ctx)
		for what, err := range map[string]error{
			"no name": named(""), "control": named("a\nb"), "long": named(strings.Repeat("x", 513)), "attempts": named("a", rexecutor.WithMaxAttempts(-1)),
			"timeout": named("a", rexecutor.WithTimeout(0)), "back-off": named("a", rexecutor.WithBackoff(nil)), "nil option": named("a", nil),
			"nil task": submitted(nil, ex), "nil executor": submitted(greet, nil), "executor's name": submitted(greet, rexecutor.New(p, "")),
			"id": submitted(greet, ex, rexecutor.WithID("")), "delay": submitted(greet, ex, rexecutor.WithDelay(-1)), "group": submitted(greet, ex, rexecutor.WithGroup("")),
			"priority": submitted(greet, ex, rexecutor.WithPriority(10)), "expiry": submitted(greet, ex, rexecutor.WithExpiry(0)), "wait": submitted(greet, ex, rexecutor.WithWait(-1)),
			"headers": submitted(greet, ex, rexecutor.WithHeaders(map[string]string{"a": strings.Repeat("x", 5000)})),
			"TTL":     opened(rexecutor.WithResultTTL(0)), "visibility": opened(rexecutor.WithVisibility(0)), "capacity": opened(rexecutor.WithCapacity(-1)),
			"codec": opened(rexecutor.WithCodec(nil)), "limit": opened(rexecutor.WithGroupLimit(0)), "concurrency": worked(rexecutor.WithConcurrency(0)),
			"task concurrency": worked(rexecutor.WithTaskConcurrency(greet, 0)), "unhandled": worked(rexecutor.WithTaskConcurrency(other, 1)),
			"middleware": worked(rexecutor.Use(nil)), "no handler": worked(rexecutor.Use(func(rexecutor.Handler) rexecutor.Handler { return nil })),
			"grace": worked(rexecutor.WithStopGrace(-1)), "nothing handled": executor(p).Work(ctx), "nil handler": greet.Handle(ex, nil), "nil future": err,
			"arguments": rexecutor.NewTask[chan int, answer]("a").Send(ctx, ex, nil), "much": rexecutor.NewTask[[]byte, answer]("a").Send(ctx, ex, make([]byte, 2<<20)),
		} {
			require.ErrorIs(t, err, redlatch.ErrInvalid, what)
		}
		require.NoError(t, greet.Handle(ex, hello))
		require.ErrorIs(t, greet.Handle(ex, hello), redlatch.ErrInvalid, "a second one")
		assert.Empty(t, p.Sent())
	})
}

func TestCancelOfAnotherTasksIDIsRefused(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		f := submit(t, ex, args{}, rexecutor.WithID("id"), rexecutor.WithDelay(time.Hour))
		ok, err := other.Future(ex, "id").Cancel(t.Context())
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		assert.False(t, ok)
		_, err = f.Status(t.Context())
		require.NoError(t, err, "it is there")
		ok, err = ex.Queue().Cancel(t.Context(), "id")
		require.NoError(t, err)
		assert.True(t, ok)
		_, err = f.Get(t.Context())
		require.ErrorIs(t, err, rexecutor.ErrCancelled)
	})
}

func TestMiddlewareWithAForeignContextFailsItsTasks(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		require.NoError(t, greet.Handle(ex, hello))
		work(t, ex, rexecutor.Use(func(next rexecutor.Handler) rexecutor.Handler {
			return func(_ context.Context, info rexecutor.Info) error { return next(t.Context(), info) }
		}))
		_, err := submit(t, ex, args{}).Get(t.Context())
		var failed *rexecutor.TaskError
		require.ErrorAs(t, err, &failed)
		assert.Contains(t, failed.Text, "middleware")
	})
}

func TestResultThatIsToldCostsNoCall(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		worker, p := executor(b.Peer(t)), b.Peer(t)
		ex := executor(p)
		require.NoError(t, greet.Handle(worker, func(_ context.Context, c rexecutor.Call[args]) (answer, error) {
			time.Sleep(10 * time.Millisecond)
			return answer{}, nil
		}))
		work(t, worker)
		get := func(f *rexecutor.Future[answer]) (scripts int) {
			before := p.Count("evalsha", "eval")
			_, err := f.Get(t.Context())
			require.NoError(t, err)
			return p.Count("evalsha", "eval") - before
		}
		assert.NotZero(t, get(submit(t, ex, args{})), "the channel is not heard yet")
		assert.Zero(t, get(submit(t, ex, args{})))
		two := []*rexecutor.Future[answer]{submit(t, ex, args{}), submit(t, ex, args{})}
		assert.Zero(t, get(two[0]))
		time.Sleep(20 * time.Millisecond)
		assert.Equal(t, 1, get(two[1]), "its end was told before it was waited for")
		late := submit(t, ex, args{})
		time.Sleep(3 * time.Second) // nobody waits, so the channel is not heard any more
		assert.Equal(t, 1, get(late))
	})
}

func TestFuturesOfAClientAreLookedAtTogether(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		ex := executor(p)
		ctx, stop := context.WithCancel(t.Context())
		var waits sync.WaitGroup
		for range 950 {
			f := submit(t, ex, args{})
			waits.Go(func() {
				_, err := f.Get(ctx)
				assert.ErrorIs(t, err, context.Canceled)
			})
		}
		time.Sleep(2700 * time.Millisecond)
		synctest.Wait()
		scripts, trips := p.Scripts(), p.Trips()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		assert.InDelta(t, 3*10, p.Scripts()-scripts, 10, "a call for each 100 and second")
		assert.LessOrEqual(t, p.Trips()-trips, 3*5, "round trips")
		stop()
		waits.Wait()
	})
}

func TestAllHasTheAttempts(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		ex := executor(p)
		require.NoError(t, greet.Handle(ex, func(context.Context, rexecutor.Call[args]) (answer, error) { return answer{}, errors.New("no") }))
		submit(t, ex, args{})
		work(t, ex)
		time.Sleep(time.Hour)
		for e, err := range ex.All(t.Context(), rexecutor.Dead) {
			require.NoError(t, err)
			require.Len(t, e.History, 2)
			assert.Equal(t, "no", e.History[0].Err)
			assert.Equal(t, p.ID(), e.History[0].Where)
			return
		}
		require.Fail(t, "no task is dead")
	})
}
