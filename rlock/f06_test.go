package rlock_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// lowest samples the TTL of a lock until the end, and returns the least; negative if the lock was gone.
func (r *rig) lowest(ctx context.Context, name string, end time.Time) (time.Duration, error) {
	least := time.Duration(1<<63 - 1)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for ; time.Now().Before(end); <-tick.C {
		left, err := r.redis.PTTL(ctx, name).Result()
		if err != nil {
			return 0, err
		}
		if least = min(least, left); left < 0 {
			return left, nil
		}
	}
	return least, nil
}

// mishaps are the ways in which two of three renewals fail.
var mishaps = map[string]func(t *testing.T, p *faulttest.Proxy, fails func(cmd []string) bool){
	"lost request": func(_ *testing.T, p *faulttest.Proxy, fails func([]string) bool) {
		p.OnCommand(func(cmd []string) {
			if fails(cmd) {
				p.Cut()
			}
		})
	},
	"lost reply": func(_ *testing.T, p *faulttest.Proxy, fails func([]string) bool) { p.DropReplies(fails, 1<<30) },
	"silence": func(t *testing.T, p *faulttest.Proxy, fails func([]string) bool) {
		p.OnCommand(func(cmd []string) {
			if fails(cmd) {
				<-t.Context().Done()
			}
		})
	},
}

// patchyLease leaves a busy machine some time after two renewals of a third of it have failed.
const patchyLease = 1500 * time.Millisecond

func TestF06_TwoOfThreeRenewalsMayFail(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	renewal := calls(t, "renew")
	end := time.Now().Add(time.Duration(runs(3, 40)) * patchyLease)
	var all sync.WaitGroup
	for name, mishap := range mishaps {
		p := faulttest.NewProxy(t, r.server.Addr())
		c := connect(t, &redis.Options{Addr: p.Addr()}, redlatch.WithLease(patchyLease))
		var n, failed atomic.Int64
		mishap(t, p, func(cmd []string) bool {
			if !renewal(cmd) || n.Add(1)%3 == 0 {
				return false
			}
			failed.Add(1)
			return true
		})
		hold := locktest.Acquire(t, t.Context(), c.GetLock(name))
		all.Go(func() {
			least, err := r.lowest(t.Context(), name, end)
			assert.NoError(t, err)
			assert.Positive(t, least, "%s: the lock is never lost", name)
			assert.NoError(t, context.Cause(hold.Context()), name)
			assert.GreaterOrEqual(t, int(failed.Load()), 5, name)
			p.OnCommand(nil)
			err = hold.Unlock(t.Context())
			assert.NoError(t, err, name)
			t.Logf("%s: %d of %d renewals failed, least TTL %v", name, failed.Load(), n.Load(), least)
		})
	}
	all.Wait()
}

// upsets are what a server that can be reached may go through.
var upsets = map[string]struct {
	every func() time.Duration
	do    func(t *testing.T, r *rig) error
}{
	"script flush": {
		func() time.Duration { return 5 * time.Millisecond },
		func(t *testing.T, r *rig) error { return r.redis.ScriptFlush(t.Context()).Err() },
	},
	"cut": {
		func() time.Duration { return 20*time.Millisecond + rand.N(200*time.Millisecond) },
		func(_ *testing.T, r *rig) error { r.proxy.Cut(); return nil },
	},
}

func TestF06_LeaseStaysLongWhileTheServerCanBeReached(t *testing.T) {
	for name, upset := range upsets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := r.client(t, redlatch.WithLease(patchyLease))
			hold := locktest.Acquire(t, t.Context(), c.GetLock("kept"))
			end := time.Now().Add(time.Duration(runs(2, 100)) * patchyLease)
			var wg sync.WaitGroup
			wg.Go(func() {
				for time.Now().Before(end) {
					assert.NoError(t, upset.do(t, r))
					elapse(time.Now().Add(upset.every()))
				}
			})
			least, err := r.lowest(t.Context(), "kept", end)
			wg.Wait()
			require.NoError(t, err)
			t.Logf("least TTL %v", least)
			require.Positive(t, least)
			require.GreaterOrEqual(t, least, patchyLease/3-r.lag.Late())
			require.NoError(t, context.Cause(hold.Context()))
			locktest.Unlock(t, hold)
		})
	}
}

func TestF06_FreshHoldIsRenewedAfterALoss(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.client(t, redlatch.WithLease(briskLease)).GetLock("fresh")
	for range runs(3, 500) {
		lost := locktest.Acquire(t, t.Context(), l)
		require.NoError(t, r.redis.Del(t.Context(), "fresh").Err())
		locktest.Ended(t, lost.Context(), rlock.ErrLost)
	}
	hold := locktest.Acquire(t, t.Context(), l)
	least, err := r.lowest(t.Context(), "fresh", time.Now().Add(2*briskLease))
	require.NoError(t, err)
	require.Positive(t, least)
	require.GreaterOrEqual(t, least, briskLease/3-r.lag.Late())
	locktest.Unlock(t, hold)
}

const starvedLease = 4 * time.Second

func TestF06_StarvedProcessKeepsAllItsLocks(t *testing.T) {
	r := newRig(t)
	n := runs(1000, 20_000)
	child := faulttest.StartChildEnv(t, []string{"GOMAXPROCS=1"}, "starved holder", r.server.Addr(), strconv.Itoa(n))
	child.WaitFor("held")
	var left spans
	end := time.Now().Add(time.Duration(runs(5, 60)) * starvedLease / 4) // longer than a lease
	for time.Now().Before(end) {
		pipe := r.redis.Pipeline()
		for i := range n {
			pipe.PTTL(t.Context(), fmt.Sprintf("starved-%d", i))
		}
		replies, err := pipe.Exec(t.Context())
		require.NoError(t, err)
		for _, reply := range replies {
			left.add(reply.(*redis.DurationCmd).Val())
		}
	}
	child.Send("stop")
	require.Equal(t, "lost 0", child.WaitFor("lost"))
	require.NoError(t, child.Wait())
	lag := starvedLease - starvedLease/3 - left.quantile(0.01)
	t.Logf("least TTL %v, renewal lag p99 %v", left.quantile(0), lag)
	require.Positive(t, left.quantile(0), "no lock expired")
	require.Less(t, lag, starvedLease/4+r.lag.Late())
}

// starvedHolder is a process that holds many locks and does not leave its own renewals much of its one processor.
func starvedHolder(args []string) {
	ctx := context.Background()
	var lost, stop atomic.Int64
	client, err := redlatch.Open(ctx, "redis://"+args[0],
		redlatch.WithLease(starvedLease), redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)),
		redlatch.WithObserver(redlatch.Observer{Lost: func(string, string, error) { lost.Add(1) }}))
	exitOn(err)
	n, err := strconv.Atoi(args[1])
	exitOn(err)
	var takers, burners sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		takers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				_, err := client.GetLock(fmt.Sprintf("starved-%d", i)).Lock(ctx)
				exitOn(err)
			}
		})
	}
	takers.Wait()
	for range 4 {
		burners.Go(func() {
			for stop.Load() == 0 { // nothing but heat
			}
		})
	}
	faulttest.Emit("held")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	exitOn(err)
	stop.Store(1)
	burners.Wait()
	faulttest.Emit("lost %d", lost.Load())
	exitOn(client.Close())
}
