package rexecutor_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
)

func TestTimeoutFailsTheAttempt(t *testing.T) {
	slow := rexecutor.NewTask[args, answer]("slow", rexecutor.WithTimeout(3*time.Second), rexecutor.WithMaxAttempts(2),
		rexecutor.WithBackoff(func(int) time.Duration { return time.Second }))
	for what, c := range map[string]struct {
		returns func(ctx context.Context) error
		text    string
	}{
		"nothing":                {func(context.Context) error { return nil }, rexecutor.ErrTimeout.Error()},
		"the context's error":    {context.Context.Err, rexecutor.ErrTimeout.Error()},
		"a snooze":               {func(context.Context) error { return rexecutor.Snooze(time.Hour) }, rexecutor.ErrTimeout.Error()},
		"an error of its own":    {func(context.Context) error { return errors.New("own") }, "own"},
		"the context's cause":    {context.Cause, rexecutor.ErrTimeout.Error()},
		"a result in the second": {nil, ""},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				ex := executor(b.Peer(t))
				require.NoError(t, slow.Handle(ex, func(ctx context.Context, call rexecutor.Call[args]) (answer, error) {
					if call.Attempt == 2 && c.returns == nil {
						return answer{"in time"}, nil
					}
					<-ctx.Done()
					assert.ErrorIs(t, context.Cause(ctx), rexecutor.ErrTimeout)
					if c.returns == nil {
						return answer{"too late"}, nil
					}
					return answer{"too late"}, c.returns(ctx)
				}))
				work(t, ex)
				start := time.Now()
				f, err := slow.Submit(t.Context(), ex, args{})
				require.NoError(t, err)
				time.Sleep(3500 * time.Millisecond)
				st, err := f.Status(t.Context())
				require.NoError(t, err)
				assert.Equal(t, rexecutor.Delayed, st.State)
				assert.Equal(t, 1, st.Attempt)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				got, err := f.Get(ctx)
				if c.returns == nil {
					require.NoError(t, err)
					assert.Equal(t, answer{"in time"}, got)
					return
				}
				var failed *rexecutor.TaskError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, &rexecutor.TaskError{Text: c.text, Attempts: 2}, failed)
				assert.InDelta(t, 7*time.Second, time.Since(start), float64(100*time.Millisecond))
			})
		})
	}
}

func TestCodecIsThatOfTheExecutor(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		worker, caller := executor(b.Peer(t), rexecutor.WithCodec(codec.JSON{})), executor(b.Peer(t), rexecutor.WithCodec(codec.JSON{}))
		f := submit(t, caller, args{Name: "Ada", N: 1})
		for e, err := range caller.All(t.Context(), rexecutor.Ready) {
			require.NoError(t, err)
			assert.Equal(t, `{"Name":"Ada","N":1}`, string(e.Args))
		}
		require.NoError(t, greet.Handle(worker, hello))
		work(t, worker)
		got, err := f.Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, answer{"hello Ada"}, got)
		_, err = greet.Future(executor(b.Peer(t)), f.ID()).Get(t.Context())
		require.ErrorIs(t, err, codec.ErrDecode, "the result is JSON")
		require.ErrorContains(t, err, "the result cannot be decoded")
	})
}

func TestGroupSkipHasOthersPassARetry(t *testing.T) {
	for what, c := range map[string]struct {
		opts  []rexecutor.Option
		order []string
	}{
		"without": {nil, []string{"first 1", "first 2", "second 1"}},
		"with":    {[]rexecutor.Option{rexecutor.WithGroupSkip()}, []string{"first 1", "second 1", "first 2"}},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				ex := executor(b.Peer(t), c.opts...)
				begun := make(chan string, 3)
				require.NoError(t, greet.Handle(ex, func(_ context.Context, c rexecutor.Call[args]) (answer, error) {
					begun <- fmt.Sprint(c.Args.Name, " ", c.Attempt)
					if c.Args.Name == "first" && c.Attempt == 1 {
						return answer{}, errors.New("again")
					}
					return answer{}, nil
				}))
				first := submit(t, ex, args{Name: "first"}, rexecutor.WithGroup("ann"))
				second := submit(t, ex, args{Name: "second"}, rexecutor.WithGroup("ann"))
				work(t, ex, rexecutor.WithConcurrency(4))
				for _, f := range []*rexecutor.Future[answer]{first, second} {
					_, err := f.Get(t.Context())
					require.NoError(t, err)
				}
				assert.Equal(t, c.order, []string{<-begun, <-begun, <-begun})
			})
		})
	}
}

func TestHandlersHaveTheHeaders(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex, headers := executor(b.Peer(t)), map[string]string{"tenant": "ann", "trace": "T5 \n g1:x"}
		seen := make(chan map[string]string, 3)
		require.NoError(t, greet.Handle(ex, func(_ context.Context, c rexecutor.Call[args]) (answer, error) {
			if seen <- c.Headers; c.Attempt == 1 && c.Args.Name == "again" {
				return answer{}, errors.New("again")
			}
			return answer{}, nil
		}))
		work(t, ex)
		_, err := submit(t, ex, args{Name: "again"}, rexecutor.WithHeaders(headers)).Get(t.Context())
		require.NoError(t, err)
		_, err = submit(t, ex, args{}).Get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, headers, <-seen)
		assert.Equal(t, headers, <-seen, "the second attempt")
		assert.Empty(t, <-seen, "the other task")
	})
}

func TestResultsAndArgumentsThatCannotPassFailForGood(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		closed := rexecutor.NewTask[args, chan int]("closed")
		require.NoError(t, greet.Handle(ex, func(_ context.Context, c rexecutor.Call[args]) (answer, error) {
			return answer{strings.Repeat("x", c.Args.N)}, nil
		}))
		require.NoError(t, closed.Handle(ex, func(context.Context, rexecutor.Call[args]) (chan int, error) { return make(chan int), nil }))
		work(t, ex)
		fails := func(err error, text string) {
			t.Helper()
			var failed *rexecutor.TaskError
			require.ErrorAs(t, err, &failed)
			assert.Contains(t, failed.Text, text)
			assert.Equal(t, 1, failed.Attempts, "it is not tried again")
		}
		_, err := submit(t, ex, args{N: 1 << 20}).Get(t.Context())
		fails(err, "the result has 1048587 bytes, more than 1048576")
		got, err := submit(t, ex, args{N: 1<<20 - 11}).Get(t.Context())
		require.NoError(t, err, "just 1 MiB")
		assert.Len(t, got.Text, 1<<20-11)

		c, err := closed.Submit(t.Context(), ex, args{})
		require.NoError(t, err)
		_, err = c.Get(t.Context())
		fails(err, "the result cannot be encoded: ")
		assert.ErrorContains(t, err, "chan int")

		text, err := rexecutor.NewTask[string, answer](greet.Name()).Submit(t.Context(), ex, "no struct")
		require.NoError(t, err)
		_, err = text.Get(t.Context())
		fails(err, "the arguments cannot be decoded: ")
		assert.ErrorContains(t, err, "args")
		assert.NotContains(t, err.Error(), "no struct")
	})
}

func TestSeriesCountsTasks(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex, snoozed := executor(b.Peer(t)), false
		require.NoError(t, greet.Handle(ex, func(_ context.Context, c rexecutor.Call[args]) (answer, error) {
			switch c.Args.Name {
			case "fails":
				return answer{}, errors.New("again")
			case "rejects":
				return answer{}, rexecutor.Reject(errors.New("no"))
			case "snoozes":
				if snoozed = !snoozed; snoozed {
					return answer{}, rexecutor.Snooze(time.Second)
				}
			}
			return answer{}, nil
		}))
		work(t, ex)
		for _, name := range []string{"fails", "rejects", "snoozes", ""} {
			_, err := submit(t, ex, args{Name: name}, rexecutor.WithID("id "+name)).Get(t.Context())
			var failed *rexecutor.TaskError
			assert.Equal(t, name == "fails" || name == "rejects", errors.As(err, &failed), "%s: %v", name, err)
		}
		submit(t, ex, args{}, rexecutor.WithID("id ")) // is the one that has ended
		require.NoError(t, greet.Send(t.Context(), ex, args{}))
		time.Sleep(time.Second)
		all, err := ex.Queue().Series(t.Context())
		require.NoError(t, err)
		require.Len(t, all, 60)
		var sum rdelayedqueue.Minute
		for _, m := range all {
			sum.Offered, sum.Done, sum.Failed, sum.Dead = sum.Offered+m.Offered, sum.Done+m.Done, sum.Failed+m.Failed, sum.Dead+m.Dead
		}
		assert.Equal(t, rdelayedqueue.Minute{Offered: 5, Done: 3, Failed: 3, Dead: 2}, sum)
	})
}

// F23
func TestNewerLayoutIsRefused(t *testing.T) {
	const meta = "redlatch_dq:{media}:tasks:meta"
	for what, call := range map[string]func(ctx context.Context, ex *rexecutor.Executor) error{
		"Submit": func(ctx context.Context, ex *rexecutor.Executor) error {
			_, err := greet.Submit(ctx, ex, args{})
			return err
		},
		"Send": func(ctx context.Context, ex *rexecutor.Executor) error { return greet.Send(ctx, ex, args{}) },
		"Get": func(ctx context.Context, ex *rexecutor.Executor) error {
			_, err := greet.Future(ex, "id").Get(ctx)
			return err
		},
		"Status": func(ctx context.Context, ex *rexecutor.Executor) error {
			_, err := greet.Future(ex, "id").Status(ctx)
			return err
		},
		"Cancel": func(ctx context.Context, ex *rexecutor.Executor) error {
			_, err := greet.Future(ex, "id").Cancel(ctx)
			return err
		},
		"Stats": func(ctx context.Context, ex *rexecutor.Executor) error {
			_, err := ex.Stats(ctx)
			return err
		},
		"Series": func(ctx context.Context, ex *rexecutor.Executor) error {
			_, err := ex.Queue().Series(ctx)
			return err
		},
		"Work": func(ctx context.Context, ex *rexecutor.Executor) error { return ex.Work(ctx) },
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				ex := executor(b.Peer(t))
				require.NoError(t, greet.Handle(ex, hello))
				require.NoError(t, b.Redis.HSet(t.Context(), meta, "layout", 3).Err())
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := call(ctx, ex)
				require.ErrorIs(t, err, rexecutor.ErrLayout)
				require.ErrorContains(t, err, "version 3")
				require.NotErrorIs(t, err, redlatch.ErrUnknown)
				assert.Equal(t, []string{meta}, b.Keys(t), "nothing was written")
				assert.Equal(t, map[string]string{"layout": "3"}, b.Hash(t, meta))
			})
		})
	}
}

// F23
func TestNewerLayoutEndsWhatIsUnderWay(t *testing.T) {
	for found, delay := range map[string]time.Duration{"by a sign of life": time.Hour, "by a claim": 7 * time.Second} {
		t.Run(found, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				worker, caller := executor(b.Peer(t)), executor(b.Peer(t))
				require.NoError(t, greet.Handle(worker, hello))
				f := submit(t, caller, args{}, rexecutor.WithDelay(delay))
				ended := make(chan error, 2)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				go func() { ended <- worker.Work(ctx) }()
				go func() {
					_, err := f.Get(ctx)
					ended <- err
				}()
				time.Sleep(5 * time.Second)
				require.NoError(t, b.Redis.HSet(t.Context(), "redlatch_dq:{media}:tasks:meta", "layout", 3).Err())
				for range 2 {
					err := <-ended
					require.ErrorIs(t, err, rexecutor.ErrLayout)
					assert.NotErrorIs(t, err, redlatch.ErrUnavailable, "Redis has answered")
				}
			})
		})
	}
}

func TestStopIsNoAttempt(t *testing.T) {
	errOwn := errors.New("own")
	for what, c := range map[string]struct {
		returns func(ctx context.Context) error
		want    rexecutor.Status // once Work has returned
	}{
		"the context's error": {context.Context.Err, rexecutor.Status{State: rexecutor.Ready}},
		"the context's cause": {context.Cause, rexecutor.Status{State: rexecutor.Ready}},
		"an error of its own": {func(context.Context) error { return errOwn }, rexecutor.Status{State: rexecutor.Ready}},
		"a rejection": {
			func(context.Context) error { return rexecutor.Reject(errOwn) },
			rexecutor.Status{State: rexecutor.Dead, Attempt: 1, Err: &rexecutor.TaskError{Text: "own", Attempts: 1}},
		},
		"nothing": {func(context.Context) error { return nil }, rexecutor.Status{State: rexecutor.Done}},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				stopped, next := executor(b.Peer(t)), executor(b.Peer(t))
				require.NoError(t, greet.Handle(stopped, func(ctx context.Context, call rexecutor.Call[args]) (answer, error) {
					assert.Equal(t, 1, call.Attempt)
					<-ctx.Done()
					assert.ErrorIs(t, context.Cause(ctx), rexecutor.ErrStopped)
					return answer{"stopped"}, c.returns(ctx)
				}))
				require.NoError(t, greet.Handle(next, func(_ context.Context, call rexecutor.Call[args]) (answer, error) {
					return answer{fmt.Sprint("attempt ", call.Attempt)}, nil
				}))
				stop := work(t, stopped, rexecutor.WithStopGrace(2*time.Second))
				f := submit(t, stopped, args{}, rexecutor.WithMaxAttempts(1))
				time.Sleep(time.Second)
				start := time.Now()
				stop()
				assert.InDelta(t, 2*time.Second, time.Since(start), float64(100*time.Millisecond))
				st, err := f.Status(t.Context())
				require.NoError(t, err)
				assert.Equal(t, c.want, st)
				if work(t, next); c.want.State != rexecutor.Ready {
					return
				}
				got, err := f.Get(t.Context())
				require.NoError(t, err)
				assert.Equal(t, answer{"attempt 1"}, got)
			})
		})
	}
}

func TestStatsOfManyTasksAndPriorities(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		for n := range 100 {
			task := rexecutor.NewTask[args, struct{}](fmt.Sprintf("task %02d", n))
			for p := range 3 { // 300 lanes, of which a call counts 100
				require.NoError(t, task.Send(t.Context(), ex, args{}, rexecutor.WithPriority(p)))
				require.NoError(t, task.Send(t.Context(), ex, args{}, rexecutor.WithPriority(p), rexecutor.WithDelay(time.Hour)))
			}
		}
		time.Sleep(time.Second)
		s, err := ex.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 300, s.Ready)
		assert.Equal(t, 300, s.Delayed)
		assert.Equal(t, [10]int{1: 200, 2: 200}, s.Priorities)
		assert.Equal(t, time.Second, s.Oldest)
		require.Len(t, s.Tasks, 100)
		for n, task := range s.Tasks {
			assert.Equal(t, rexecutor.TaskStats{Name: fmt.Sprintf("task %02d", n), Delayed: 3, Ready: 3, Unseen: -time.Microsecond, Orphaned: true}, task)
		}
	})
}

func TestErrorOfADeadTaskIsGoneAfterItsRedrive(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t))
		require.NoError(t, greet.Handle(ex, func(context.Context, rexecutor.Call[args]) (answer, error) { return answer{}, errors.New("no") }))
		stop := work(t, ex)
		f := submit(t, ex, args{})
		var failed *rexecutor.TaskError
		_, err := f.Get(t.Context())
		require.ErrorAs(t, err, &failed)
		stop()
		time.Sleep(2 * time.Hour) // more than a result is kept
		_, err = f.Get(t.Context())
		require.ErrorAs(t, err, &failed, "it is there for as long as the dead task")
		ok, err := ex.Queue().Redrive(t.Context(), f.ID())
		require.NoError(t, err)
		require.True(t, ok)
		st, err := f.Status(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rexecutor.Status{State: rexecutor.Ready}, st)
	})
}

func TestGetDoesNotWaitForATaskThatWasPurged(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex, operator := executor(b.Peer(t)), executor(b.Peer(t))
		f := submit(t, ex, args{}, rexecutor.WithDelay(time.Hour), rexecutor.WithID("id"))
		ended := make(chan error, 1)
		go func() {
			_, err := f.Get(t.Context())
			ended <- err
		}()
		time.Sleep(10 * time.Second)
		start := time.Now()
		n, err := operator.Queue().Purge(t.Context(), rexecutor.Delayed)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.ErrorIs(t, <-ended, rexecutor.ErrNotFound)
		assert.LessOrEqual(t, time.Since(start), 2*time.Second)
		submit(t, ex, args{}, rexecutor.WithID("id"))
		st, err := f.Status(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rexecutor.Ready, st.State, "the id is free")
	})
}
