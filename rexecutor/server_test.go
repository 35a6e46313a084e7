package rexecutor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rexecutor"
)

// patience bounds a wait that has no promised end of its own.
const patience = 30 * time.Second

// rig is a server of a test's own with a proxy before it.
type rig struct {
	server *redistest.Server
	proxy  *faulttest.Proxy
	redis  *redis.Client // goes past the proxy
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := redistest.Start(t)
	return &rig{server: s, proxy: faulttest.NewProxy(t, s.Addr()), redis: s.Client(t)}
}

// client returns an executor of a client that reaches the server through the proxy.
func (r *rig) client(t *testing.T, opts ...rexecutor.Option) *rexecutor.Executor {
	t.Helper()
	return rexecutor.New(connect(t, r.proxy.Addr()), "media", opts...)
}

// direct returns one of a client that goes past the proxy.
func (r *rig) direct(t *testing.T, opts ...rexecutor.Option) *rexecutor.Executor {
	t.Helper()
	return rexecutor.New(connect(t, r.server.Addr()), "media", opts...)
}

// send sends a task of which nobody wants the result.
func send(t *testing.T, ex *rexecutor.Executor, opts ...rexecutor.SubmitOption) {
	t.Helper()
	require.NoError(t, other.Send(t.Context(), ex, args{}, opts...))
}

func connect(t *testing.T, addr string) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	c, err := redlatch.New(rdb, redlatch.WithCloseGrace(100*time.Millisecond), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// asleep waits until as many workers sleep.
func (r *rig) asleep(t *testing.T, n int64) {
	t.Helper()
	redistest.Eventually(t, patience, "workers sleep", func() error {
		if now := r.redis.ZCard(t.Context(), "redlatch_dq:{media}:tasks:waiters").Val(); now != n {
			return fmt.Errorf("%d of %d", now, n)
		}
		return nil
	})
}

// scripts returns how many scripts went through the proxy.
func (r *rig) scripts() int {
	all := r.proxy.Commands()
	return all["EVAL"] + all["EVALSHA"]
}

// F21
func TestWorkerWhoseTasksAreFullAsksForNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ex, caller := r.client(t), r.direct(t)
	until, began := make(chan struct{}), make(chan struct{}, 10)
	require.NoError(t, greet.Handle(ex, func(ctx context.Context, c rexecutor.Call[args]) (answer, error) {
		began <- struct{}{}
		return block(until)(ctx, c)
	}))
	work(t, ex, rexecutor.WithConcurrency(16), rexecutor.WithTaskConcurrency(greet, 2))
	var last *rexecutor.Future[answer]
	for range 5 {
		last = submit(t, caller, args{})
	}
	<-began
	<-began
	before := r.scripts()
	time.Sleep(time.Second) // nothing tells of the calls that it does not make
	assert.Less(t, r.scripts()-before, 5)
	close(until)
	_, err := last.Get(t.Context())
	require.NoError(t, err)
}

// F21
func TestFullWorkerBesideOneOfItsClientThatSleepsAsksForNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c, caller := connect(t, r.proxy.Addr()), r.direct(t)
	full, idle := rexecutor.New(c, "media"), rexecutor.New(c, "media")
	until, began := make(chan struct{}), make(chan struct{}, 10)
	require.NoError(t, greet.Handle(full, func(ctx context.Context, c rexecutor.Call[args]) (answer, error) {
		began <- struct{}{}
		return block(until)(ctx, c)
	}))
	require.NoError(t, other.Handle(idle, nothing))
	work(t, full)
	work(t, idle)
	submit(t, caller, args{})
	<-began
	last := submit(t, caller, args{})
	r.asleep(t, 1)
	before := r.scripts()
	time.Sleep(time.Second) // as above
	assert.Less(t, r.scripts()-before, 5)
	close(until)
	_, err := last.Get(t.Context())
	require.NoError(t, err)
}

// F28
func TestFullRedisIsEmptiedByWorkersThatStartThen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	caller, ex := r.direct(t), r.direct(t)
	f := submit(t, caller, args{Name: "x"})
	expired := submit(t, caller, args{}, rexecutor.WithExpiry(time.Millisecond), rexecutor.WithGroup("g"))
	require.NoError(t, r.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := expired.Get(t.Context())
	require.ErrorIs(t, err, rexecutor.ErrExpired)
	_, err = greet.Submit(t.Context(), caller, args{})
	require.ErrorIs(t, err, redlatch.ErrUnwritable)
	require.NoError(t, greet.Handle(ex, hello))
	work(t, ex)
	got, err := f.Get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, answer{"hello x"}, got)
}

// F25
func TestGetDoesNotReturnWhatWasThereBeforeIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	waiting, caller, ex := r.client(t), r.direct(t), r.direct(t)
	require.NoError(t, greet.Handle(ex, hello))
	work(t, ex)
	_, err := greet.Future(waiting, "none").Get(t.Context())
	require.ErrorIs(t, err, rexecutor.ErrNotFound) // connects
	for i := range 20 {
		id := fmt.Sprint(i)
		looked := make(chan struct{})
		var once sync.Once
		r.proxy.OnCommand(func(cmd []string) {
			if slices.Contains(cmd, id) {
				once.Do(func() { close(looked) })
			}
		})
		r.proxy.Delay(20 * time.Millisecond) // for which the reply to the look is on its way
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_, _ = greet.Future(waiting, id).Get(t.Context()) // either is right
		}()
		<-looked
		submit(t, caller, args{}, rexecutor.WithID(id))
		_, err := greet.Future(waiting, id).Get(t.Context())
		require.NoError(t, err, i)
		<-ended
	}
}

func TestServersBehaveAlike(t *testing.T) {
	places := map[string]locktest.Place{"InMemory": locktest.InMemory, "Server": locktest.OnServer, "Cluster": locktest.OnCluster}
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			place(t, func(t *testing.T, s *locktest.Server) {
				open := func() *rexecutor.Executor {
					quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
					return rexecutor.New(s.Client(t, quiet, redlatch.WithCloseGrace(100*time.Millisecond)), "media-"+t.Name())
				}
				passThrough(t, open)
			})
		})
	}
}

// passThrough has several clients submit tasks to workers that handle some of them each, and expects all results in time.
func passThrough(t *testing.T, open func() *rexecutor.Executor) {
	t.Helper()
	const tasks, clients, rounds = 6, 4, 5
	double := make([]*rexecutor.Task[int, int], tasks)
	for n := range double {
		double[n] = rexecutor.NewTask[int, int](fmt.Sprint("double ", n), rexecutor.WithBackoff(func(int) time.Duration { return time.Millisecond }))
	}
	for w := range 3 {
		ex := open()
		for n := range tasks {
			if n%3 != w && n != w {
				continue
			}
			require.NoError(t, double[n].Handle(ex, func(_ context.Context, c rexecutor.Call[int]) (int, error) {
				if c.Args%7 == 0 && c.Attempt == 1 {
					return 0, fmt.Errorf("the first attempt at %d fails", c.Args)
				}
				return 2 * c.Args, nil
			}))
		}
		work(t, ex, rexecutor.WithConcurrency(2), rexecutor.WithTaskConcurrency(double[w], 1))
	}
	var wg sync.WaitGroup
	var worst atomic.Int64
	for range clients {
		ex := open()
		for n := range tasks {
			wg.Go(func() {
				for i := range rounds {
					start, delay := time.Now(), time.Duration(i%2)*50*time.Millisecond
					opts := []rexecutor.SubmitOption{rexecutor.WithDelay(delay), rexecutor.WithPriority(i % 3)}
					if n%2 == 0 {
						opts = append(opts, rexecutor.WithGroup(fmt.Sprint("g", i%2)))
					}
					f, err := double[n].Submit(t.Context(), ex, i+7*n, opts...)
					if !assert.NoError(t, err) {
						return
					}
					got, err := f.Get(t.Context())
					assert.NoError(t, err)
					assert.Equal(t, 2*(i+7*n), got)
					for late := int64(time.Since(start) - delay); ; {
						if before := worst.Load(); before >= late || worst.CompareAndSwap(before, late) {
							break
						}
					}
				}
			})
		}
	}
	wg.Wait()
	assert.Less(t, time.Duration(worst.Load()), 5*time.Second, "less than a safety check")
}

// F2
func TestLostReplyLosesNoTaskAndNoResult(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	caller, ex := r.client(t), r.client(t)
	var runs sync.Map
	require.NoError(t, greet.Handle(ex, func(ctx context.Context, c rexecutor.Call[args]) (answer, error) {
		n, _ := runs.LoadOrStore(c.ID, new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		if c.Args.Name == "cancelled" {
			<-ctx.Done()
			return answer{}, ctx.Err()
		}
		if c.Args.Name == "fails" {
			return answer{}, rexecutor.Reject(errors.New("no"))
		}
		return hello(ctx, c)
	}))
	work(t, ex, rexecutor.WithConcurrency(4))
	for n := 1; n <= 8; n++ { // submissions, claims, ends, looks and waits, as they come
		for _, name := range []string{"Ada", "fails", "cancelled"} {
			r.proxy.DropReply(faulttest.Script, n)
			f := submit(t, caller, args{Name: name}, rexecutor.WithID(fmt.Sprint(name, n)))
			if name == "cancelled" {
				redistest.Eventually(t, patience, "it runs", func() error {
					if _, ok := runs.Load(f.ID()); !ok {
						return errors.New("not yet")
					}
					return nil
				})
				ok, err := f.Cancel(t.Context())
				require.NoError(t, err)
				assert.True(t, ok, "it is done once, and says so")
			}
			got, err := f.Get(t.Context())
			var failed *rexecutor.TaskError
			switch name {
			case "Ada":
				require.NoError(t, err)
				assert.Equal(t, answer{"hello Ada"}, got)
			case "fails":
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, &rexecutor.TaskError{Text: "no", Attempts: 1}, failed)
			default:
				require.ErrorIs(t, err, rexecutor.ErrCancelled)
			}
			count, ok := runs.Load(f.ID())
			require.True(t, ok)
			assert.EqualValues(t, 1, count.(*atomic.Int32).Load(), "%s is done once", f.ID())
		}
	}
	redistest.Eventually(t, patience, "all replies are lost that were to be", func() error {
		_, err := greet.Future(caller, "none").Status(t.Context())
		if n := r.proxy.Dropped(); n < 24 {
			return fmt.Errorf("%d, %w", n, err)
		}
		return nil
	})
}

// F1
func TestCancelEndsAHandlerWhereverItRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ex, caller := r.direct(t), r.direct(t)
	began, causes := make(chan struct{}, 1), make(chan error, 1)
	require.NoError(t, greet.Handle(ex, func(ctx context.Context, _ rexecutor.Call[args]) (answer, error) {
		began <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return answer{"too late"}, nil
	}))
	work(t, ex)
	for range 3 { // its id is free at once
		f := submit(t, caller, args{}, rexecutor.WithID("id"))
		<-began
		ok, err := f.Cancel(t.Context())
		require.NoError(t, err)
		assert.True(t, ok)
		require.ErrorIs(t, <-causes, rexecutor.ErrCancelled)
		_, err = f.Get(t.Context())
		require.ErrorIs(t, err, rexecutor.ErrCancelled)
	}
}

// F7
func TestCancelThatWasNotHeardEndsAHandlerWhenItsWorkerHearsAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ex, caller := r.client(t), r.direct(t)
	began, causes := make(chan struct{}, 1), make(chan error, 1)
	require.NoError(t, greet.Handle(ex, func(ctx context.Context, _ rexecutor.Call[args]) (answer, error) {
		began <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return answer{}, nil
	}))
	work(t, ex)
	f := submit(t, caller, args{})
	<-began
	r.proxy.Refuse(true)
	r.proxy.Cut()
	ok, err := f.Cancel(t.Context())
	require.NoError(t, err)
	assert.True(t, ok)
	start := time.Now()
	r.proxy.Refuse(false)
	require.ErrorIs(t, <-causes, rexecutor.ErrCancelled)
	assert.Less(t, time.Since(start), 5*time.Second, "sooner than it is renewed")
}

// F7
func TestResultComesThoughConnectionsAreCut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	caller, ex := r.client(t), r.client(t)
	began, until := make(chan struct{}, 1), make(chan struct{})
	require.NoError(t, greet.Handle(ex, func(ctx context.Context, c rexecutor.Call[args]) (answer, error) {
		began <- struct{}{}
		return block(until)(ctx, c)
	}))
	work(t, ex)
	f := submit(t, caller, args{})
	ended := make(chan error, 1)
	go func() {
		_, err := f.Get(t.Context())
		ended <- err
	}()
	<-began
	r.proxy.Cut()
	r.proxy.DropMessages(true) // of the end nobody is told
	close(until)
	require.NoError(t, <-ended)
}

// F8
func TestTaskOfAKilledWorkerIsDoneByAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	caller := r.direct(t)
	lag := faulttest.MeasureLag(t, r.server.Addr())
	child := faulttest.StartChild(t, "worker", r.server.Addr())
	f := submit(t, caller, args{Name: "x"})
	redistest.Eventually(t, patience, "it is in flight", func() error {
		st, err := f.Status(t.Context())
		if err == nil && st.State != rexecutor.InFlight {
			err = errors.New(st.State.String())
		}
		return err
	})
	ex := r.direct(t, rexecutor.WithVisibility(childVisibility))
	require.NoError(t, greet.Handle(ex, hello))
	work(t, ex)
	r.asleep(t, 1)
	child.Kill()
	killed := time.Now()
	got, err := f.Get(t.Context())
	require.NoError(t, err)
	assert.Equal(t, answer{"hello x"}, got)
	assert.Less(t, time.Since(killed), childVisibility+time.Second+lag.Late())
}

const childVisibility = time.Second

// worker claims tasks, and ends none, until it is killed. Args: the address.
func worker(addr []string) {
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: addr[0]}))
	if err == nil {
		ex := rexecutor.New(c, "media", rexecutor.WithVisibility(childVisibility))
		err = errors.Join(greet.Handle(ex, block(nil)), ex.Work(context.Background()))
	}
	panic(err)
}

// F21
func TestIdleWorkersAskForLittle(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	caller := r.direct(t)
	for n := range 6 {
		ex := r.client(t)
		if n%2 == 0 {
			require.NoError(t, greet.Handle(ex, hello))
		} else {
			require.NoError(t, other.Handle(ex, nothing))
		}
		work(t, ex, rexecutor.WithConcurrency(4))
	}
	r.asleep(t, 6)
	for range 3 {
		_, err := submit(t, caller, args{}).Get(t.Context())
		require.NoError(t, err)
		send(t, caller)
	}
	submit(t, caller, args{}, rexecutor.WithDelay(time.Hour))
	send(t, caller, rexecutor.WithDelay(time.Hour))
	r.asleep(t, 6)
	before := r.scripts()
	time.Sleep(time.Second) // nothing tells of the calls that they do not make
	assert.Less(t, r.scripts()-before, 15)
}

// F19
func TestWorkersGoOnWhenRedisHasLostAll(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	r := newRig(t)
	caller, ex := r.direct(t), r.direct(t)
	require.NoError(t, greet.Handle(ex, hello))
	work(t, ex)
	r.asleep(t, 1)
	lost := submit(t, caller, args{}, rexecutor.WithDelay(time.Hour))
	require.NoError(t, r.redis.FlushAll(t.Context()).Err())
	_, err := lost.Get(t.Context())
	require.ErrorIs(t, err, rexecutor.ErrNotFound)
	send(t, caller) // its number is that of another task before
	_, err = submit(t, caller, args{}).Get(t.Context())
	require.NoError(t, err)
	start := time.Now()
	_, err = submit(t, caller, args{}).Get(t.Context())
	require.NoError(t, err)
	assert.Less(t, time.Since(start), time.Second)
}

func TestTasksThatAreDeadOrInFlightAreCountedByName(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ex := r.direct(t)
	require.NoError(t, greet.Handle(ex, func(ctx context.Context, c rexecutor.Call[args]) (answer, error) {
		if c.Args.N%2 == 1 {
			<-ctx.Done()
		}
		return answer{}, rexecutor.Reject(errors.New("no luck"))
	}))
	require.NoError(t, other.Handle(ex, func(context.Context, rexecutor.Call[args]) (struct{}, error) {
		return struct{}{}, rexecutor.Reject(errors.New("no luck"))
	}))
	const each, few = 1050, 25 // more than a call looks at
	work(t, ex, rexecutor.WithConcurrency(each+few), rexecutor.WithStopGrace(0))
	var sending sync.WaitGroup
	for first := range few {
		sending.Go(func() {
			send(t, ex)
			for n := first; n < 2*each; n += few {
				assert.NoError(t, greet.Send(t.Context(), ex, args{N: n}))
			}
		})
	}
	sending.Wait()
	redistest.Eventually(t, patience, "all are counted", func() error {
		s, err := ex.Stats(t.Context())
		for i := range s.Tasks {
			s.Tasks[i].Unseen = 0
		}
		want := []rexecutor.TaskStats{{Name: "greet", InFlight: each, Dead: each}, {Name: other.Name(), Dead: few}}
		if err == nil && !slices.Equal(s.Tasks, want) {
			err = fmt.Errorf("%+v", s.Tasks)
		}
		return err
	})
}
