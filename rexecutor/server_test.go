package rexecutor_test

import (
	"context"
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
