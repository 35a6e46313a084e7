package pipeline_test

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/pipe"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// add counts how often it ran.
func add() *script.Script {
	return script.New("test", "return redis.call('incrby', KEYS[1], ARGV[1])")
}

type rig struct {
	mini    *miniredis.Miniredis
	rdb     *redis.Client
	batcher *pipeline.Batcher

	mu    sync.Mutex
	stall bool // new writes of clients wait
	open  chan struct{}
}

// setup returns a batcher on a server in process whose connections can be stalled.
func setup(t *testing.T) *rig {
	t.Helper()
	r := &rig{mini: miniredis.NewMiniRedis(), open: make(chan struct{})}
	r.rdb = redis.NewClient(&redis.Options{
		Addr: "rig", PoolSize: 20, Dialer: r.dial,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
	})
	r.batcher = pipeline.New(r.rdb, time.Minute)
	t.Cleanup(func() {
		r.batcher.Close()
		assert.NoError(t, r.rdb.Close())
		r.mini.Close()
	})
	return r
}

func (r *rig) dial(context.Context, string, string) (net.Conn, error) {
	conn, err := r.mini.Dial()
	if err != nil {
		return nil, err
	}
	return &stallable{Conn: pipe.Buffer(conn), rig: r}, nil
}

func (r *rig) setStall(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stall && !on {
		close(r.open)
		r.open = make(chan struct{})
	}
	r.stall = on
}

// stallable is a connection whose requests are held back while the rig is stalled.
type stallable struct {
	net.Conn
	rig *rig
}

func (c *stallable) Write(b []byte) (int, error) {
	c.rig.mu.Lock()
	stall, open := c.rig.stall, c.rig.open
	c.rig.mu.Unlock()
	if stall {
		<-open
	}
	return c.Conn.Write(b)
}

func (r *rig) value(t *testing.T, key string) string {
	t.Helper()
	v, err := r.mini.Get(key)
	require.NoError(t, err)
	return v
}

func TestCallsStartedTogetherShareARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		s := add()
		require.NoError(t, r.batcher.Do(t.Context(), s.Call(1, "k", 1), pipeline.SendOptions{})) // Redis knows the script
		before := r.batcher.Flushes()
		var sum atomic.Int64
		var calls []pipeline.Sending
		for i := range 5 {
			calls = append(calls, pipeline.Sending{Call: s.Call(1, "k"+strconv.Itoa(i), i), Done: func(c *script.Call) {
				n, err := c.Int()
				assert.NoError(t, err)
				sum.Add(n)
			}})
		}
		require.True(t, r.batcher.StartAll(pipeline.Normal, calls))
		synctest.Wait()
		assert.EqualValues(t, 0+1+2+3+4, sum.Load())
		assert.EqualValues(t, 1, r.batcher.Flushes()-before)
		r.batcher.Stop()
		assert.False(t, r.batcher.StartAll(pipeline.Normal, calls))
	})
}

func TestLoneCallIsOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		s := add()
		for i := range 3 {
			call := s.Call(1, "k", 1)
			require.NoError(t, r.batcher.Do(context.Background(), call, pipeline.SendOptions{}))
			n, err := call.Int()
			require.NoError(t, err)
			assert.EqualValues(t, i+1, n)
		}
		assert.EqualValues(t, 3, r.batcher.Flushes())
	})
}

func TestCallsShareARoundTripUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		s := add()
		require.NoError(t, r.batcher.Do(t.Context(), s.Call(1, "k", 1), pipeline.SendOptions{}))
		before := r.batcher.Flushes()
		r.setStall(true)
		var wg sync.WaitGroup
		for range 102 {
			wg.Go(func() {
				assert.NoError(t, r.batcher.Do(t.Context(), s.Call(1, "k", 1), pipeline.SendOptions{}))
			})
		}
		synctest.Wait()
		r.setStall(false)
		wg.Wait()
		assert.Equal(t, "103", r.value(t, "k"))
		assert.LessOrEqual(t, r.batcher.Flushes()-before, int64(3), "two lone calls and one pipeline of the rest")
	})
}

func TestOnlyUnknownScriptsAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		known, fresh := add(), script.New("test", "return redis.call('incrby', KEYS[1], 10 * ARGV[1])")
		require.NoError(t, r.batcher.Do(t.Context(), known.Call(1, "k", 1), pipeline.SendOptions{}))
		r.setStall(true)
		var wg sync.WaitGroup
		for i := range 42 {
			s := known
			if i%2 == 1 {
				s = fresh
			}
			wg.Go(func() { assert.NoError(t, r.batcher.Do(t.Context(), s.Call(1, "k", 1), pipeline.SendOptions{})) })
		}
		synctest.Wait()
		r.setStall(false)
		wg.Wait()
		assert.Equal(t, strconv.Itoa(1+21+210), r.value(t, "k"), "each call ran once")
	})
}

func TestCallGivenUpInTheQueueNeverRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		s := add()
		require.NoError(t, r.batcher.Do(t.Context(), s.Call(1, "k", 1), pipeline.SendOptions{}))
		r.setStall(true)
		var wg sync.WaitGroup
		for range 2 { // take both places
			wg.Go(func() { assert.NoError(t, r.batcher.Do(t.Context(), s.Call(1, "k", 1), pipeline.SendOptions{})) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err := r.batcher.Do(ctx, s.Call(1, "k", 100), pipeline.SendOptions{})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, script.ErrNotSent)
		assert.Equal(t, script.NotDone, script.Judge(err))
		r.setStall(false)
		wg.Wait()
		assert.Equal(t, "3", r.value(t, "k"))
	})
}

func TestCallGivenUpUnderWayIsReportedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		s := add()
		require.NoError(t, r.batcher.Do(t.Context(), s.Call(1, "k", 1), pipeline.SendOptions{}))
		for _, ask := range []pipeline.SendOptions{{}, {Limit: 5 * time.Millisecond}} {
			r.setStall(true)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			late := make(chan *script.Call, 1)
			ask.Late = pipeline.Func(func(c *script.Call) { late <- c })
			err := r.batcher.Do(ctx, s.Call(1, "k", 1), ask)
			assert.Equal(t, script.Unknown, script.Judge(err))
			assert.EqualValues(t, 1, r.batcher.Abandoned())
			r.setStall(false)
			_, err = (<-late).Int()
			require.NoError(t, err)
			synctest.Wait()
			assert.Zero(t, r.batcher.Abandoned())
			cancel()
		}
		assert.Equal(t, "3", r.value(t, "k"))
	})
}

func TestStuckFlushesDoNotHoldUpOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		s := add()
		require.NoError(t, r.batcher.Do(t.Context(), s.Call(1, "k", 1), pipeline.SendOptions{}))
		r.setStall(true)
		var wg sync.WaitGroup
		for range 2 {
			r.batcher.Start(s.Call(1, "k", 1), pipeline.Normal, func(*script.Call) {})
		}
		synctest.Wait()
		r.mu.Lock()
		r.stall = false // the two stay stuck; new connections work
		r.mu.Unlock()
		start := time.Now()
		require.NoError(t, r.batcher.Do(t.Context(), s.Call(1, "k", 1), pipeline.SendOptions{Class: pipeline.Urgent}))
		assert.LessOrEqual(t, time.Since(start), 150*time.Millisecond)
		r.mu.Lock()
		close(r.open)
		r.mu.Unlock()
		wg.Wait()
	})
}

func TestCallsThatFillMoreThanABatchDoNotWaitForAStuckOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		s := add()
		require.NoError(t, r.batcher.Do(t.Context(), s.Call(1, "k", 1), pipeline.SendOptions{}))
		synctest.Wait() // its worker has nothing more to do
		r.setStall(true)
		var done atomic.Int64
		calls := make([]pipeline.Sending, 450)
		for i := range calls {
			calls[i] = pipeline.Sending{Call: s.Call(1, "k", 1), Done: func(c *script.Call) {
				assert.NoError(t, c.Err())
				done.Add(1)
			}}
		}
		require.True(t, r.batcher.StartAll(pipeline.Normal, calls))
		synctest.Wait()
		r.mu.Lock()
		r.stall = false // the first batch stays stuck; new connections work
		r.mu.Unlock()
		time.Sleep(150 * time.Millisecond)
		synctest.Wait()
		assert.EqualValues(t, 250, done.Load(), "all but the first batch")
		r.mu.Lock()
		close(r.open)
		r.mu.Unlock()
		synctest.Wait()
		assert.EqualValues(t, 450, done.Load())
	})
}

func TestUrgentCallsLeaveTheQueueFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		s := script.New("test", "return redis.call('rpush', KEYS[1], ARGV[1])")
		require.NoError(t, r.batcher.Do(t.Context(), s.Call(1, "order", "first"), pipeline.SendOptions{}))
		r.setStall(true)
		var done sync.WaitGroup
		start := func(what string, class pipeline.Class) {
			done.Add(1)
			r.batcher.Start(s.Call(1, "order", what), class, func(*script.Call) { done.Done() })
		}
		start("-", pipeline.Normal)
		start("-", pipeline.Normal)
		for range 5 {
			start("normal", pipeline.Normal)
		}
		start("urgent", pipeline.Urgent)
		synctest.Wait()
		r.setStall(false)
		done.Wait()
		order, err := r.mini.List("order")
		require.NoError(t, err)
		require.Len(t, order, 9)
		assert.Less(t, slices.Index(order, "urgent"), slices.Index(order, "normal"), "%v", order)
	})
}

func TestClosedBatcherRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := setup(t)
		r.batcher.Close()
		err := r.batcher.Do(t.Context(), add().Call(1, "k", 1), pipeline.SendOptions{})
		require.ErrorIs(t, err, script.ErrNotSent)
		assert.False(t, r.mini.Exists("k"))
	})
}

func BenchmarkDo(b *testing.B) {
	m := miniredis.NewMiniRedis()
	rdb := redis.NewClient(&redis.Options{Addr: "rig", Dialer: func(context.Context, string, string) (net.Conn, error) { return m.Dial() }})
	batcher := pipeline.New(rdb, time.Minute)
	b.Cleanup(func() {
		batcher.Close()
		_ = rdb.Close()
		m.Close()
	})
	s := add()
	b.ReportAllocs()
	for b.Loop() {
		if err := batcher.Do(context.Background(), s.Call(1, "k", 1), pipeline.SendOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
