package rdelayedqueue_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

const workerVisibility = 2 * time.Second

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

func childQueue(addr string) (*redis.Client, *rdelayedqueue.Queue[job]) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	c, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	must(err)
	return rdb, redlatch.GetDelayedQueue[job](c, "jobs", rdelayedqueue.WithVisibility(workerVisibility), rdelayedqueue.WithMaxAttempts(0))
}

// worker consumes jobs until it is killed, and notes each attempt that it handles, and that it was the one. Args: the address
// for the queue, and the one for the notes.
func worker(args []string) {
	_, q := childQueue(args[0])
	counts := redis.NewClient(&redis.Options{Addr: args[1]})
	must(q.Consume(context.Background(), func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
		now, err := counts.Time(ctx).Result()
		if err != nil {
			return err
		}
		early := now.Before(m.DueAt)
		_, err = counts.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.HIncrBy(ctx, "handled", m.ID, 1)
			p.RPush(ctx, "handlings:"+m.ID, fmt.Sprint(m.Attempt, " ", os.Getpid()))
			if early {
				p.Incr(ctx, "early")
			}
			return nil
		})
		<-time.After(rand.N(5 * time.Millisecond)) // work, in which a kill may come
		return err
	}, rdelayedqueue.WithConcurrency(8)))
}

// producer offers one job and ends. Args: the address, the delay in ms.
func producer(args []string) {
	_, q := childQueue(args[0])
	ms, err := strconv.Atoi(args[1])
	must(err)
	_, err = q.Offer(context.Background(), job{Name: "left behind"}, time.Duration(ms)*time.Millisecond)
	must(err)
}

// F8
func TestKilledWorkersLoseNothing(t *testing.T) {
	r := newRig(t)
	n, workers, kills := faulttest.Rounds(t, 2000, 100_000), faulttest.Rounds(t, 4, 20), faulttest.Rounds(t, 8, 400)
	c := r.direct(t)
	q := queue(c)
	start := func() *faulttest.Child { return faulttest.StartChild(t, "worker", r.proxy.Addr(), r.server.Addr()) }
	children := make([]*faulttest.Child, workers)
	for i := range children {
		children[i] = start()
	}
	for first := 0; first < n; first += 100 {
		items := make([]rdelayedqueue.Item[job], 100)
		for i := range items {
			items[i] = rdelayedqueue.Item[job]{Delay: rand.N(3 * time.Second), ID: strconv.Itoa(first + i)}
		}
		_, err := q.OfferBatch(t.Context(), items)
		require.NoError(t, err)
	}
	killed, lag := map[int]bool{}, faulttest.MeasureLag(t, r.server.Addr())
	handled := func() int64 { return r.redis.HLen(t.Context(), "handled").Val() }
	for kill := range kills {
		goal := min(int64(n), handled()+int64(n/kills/2))
		redistest.Eventually(t, patience, "jobs are handled", func() error {
			if now := handled(); now < goal {
				return fmt.Errorf("%d of %d", now, goal)
			}
			return nil
		})
		victim := rand.N(workers)
		killed[children[victim].Pid()] = true
		children[victim].Kill()
		children[victim] = start()
		if kill%2 == 0 {
			r.proxy.DropReply(faulttest.Script, 1+rand.N(20))
		}
	}
	redistest.Eventually(t, 2*patience, "all jobs are done", func() error {
		s, err := q.Stats(t.Context())
		if err == nil && s != (rdelayedqueue.Stats{}) {
			err = fmt.Errorf("%+v", s)
		}
		return err
	})
	assert.EqualValues(t, n, handled(), "each job was handled")
	assert.Zero(t, r.redis.Exists(t.Context(), "early").Val(), "jobs handled before their time")
	again := 0
	for id := range r.redis.HGetAll(t.Context(), "handled").Val() {
		before, attempts := 0, 0 // the process that had the job before, and the attempts until then
		for _, handling := range r.redis.LRange(t.Context(), "handlings:"+id, 0, -1).Val() {
			var attempt, process int
			_, err := fmt.Sscan(handling, &attempt, &process)
			require.NoError(t, err)
			assert.Greater(t, attempt, attempts, "job %s: an attempt is handled once", id)
			if before != 0 {
				again++
				if lag.Worst() < workerVisibility/4 { // else a live worker may have lost it
					assert.True(t, killed[before], "job %s came again although its worker %d lives", id, before)
				}
			}
			before, attempts = process, attempt
		}
	}
	t.Logf("%d jobs, %d handled again, after %d kills and %d lost replies", n, again, kills, r.proxy.Dropped())
}

// F8
func TestMessageOfAKilledWorkerComesBackInTime(t *testing.T) {
	r := newRig(t)
	lag := faulttest.MeasureLag(t, r.server.Addr())
	q := queue(r.direct(t), rdelayedqueue.WithMaxAttempts(0))
	child := faulttest.StartChild(t, "worker", r.proxy.Addr(), r.proxy.Addr())
	caught := make(chan struct{}, 1)
	r.proxy.OnCommand(func(cmd []string) {
		if faulttest.Named("TIME")(cmd) { // a handler has begun
			select {
			case caught <- struct{}{}:
			default:
			}
			<-t.Context().Done()
		}
	})
	_, err := q.Offer(t.Context(), job{Name: "a"}, 0)
	require.NoError(t, err)
	<-caught
	child.Kill()
	killed := time.Now()
	m, err := q.Take(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, m.Attempt)
	assert.Less(t, time.Since(killed), workerVisibility+time.Second+lag.Late())
	require.NoError(t, m.Ack(t.Context()))
}

// F8
func TestCancelledTakeLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	q := queue(r.client(t))
	r.proxy.Delay(2 * time.Millisecond)
	n := faulttest.Rounds(t, 60, 2000)
	for i := range n {
		id, err := q.Offer(t.Context(), job{N: i}, 0)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(12*time.Millisecond))
		m, err := q.Take(ctx)
		cancel()
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			m, err = q.Take(t.Context())
			require.NoError(t, err)
		}
		require.Equal(t, id, m.ID)
		require.Equal(t, 1, m.Attempt, "a claim that nobody saw does not count")
		require.NoError(t, m.Ack(t.Context()))
	}
	assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
}
