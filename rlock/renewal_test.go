package rlock_test

import (
	"bufio"
	"context"
	"errors"
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
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
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

// stillParts says for how short a part of its lease a machine may stand still without an effect that these tests notice.
const stillParts = 10

// F6
func TestTwoOfThreeRenewalsMayFail(t *testing.T) {
	redistest.Long(t)
	for name, mishap := range mishaps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.load(t, "renew")
			faulttest.Steady(t, r.server.Addr(), patchyLease, stillParts, func(lease time.Duration) error {
				return patchy(t, r, lease, mishap)
			})
		})
	}
}

// patchy holds a lock of which two of three renewals fail.
func patchy(t *testing.T, r *rig, lease time.Duration, mishap func(*testing.T, *faulttest.Proxy, func([]string) bool)) error {
	t.Helper()
	renewal := calls(t, "renew")
	end := time.Now().Add(max(time.Duration(faulttest.Rounds(t, 3, 40))*patchyLease, 3*lease))
	p := faulttest.NewProxy(t, r.server.Addr())
	c := connect(t, &redis.Options{Addr: p.Addr()}, redlatch.WithWatchdogTimeout(lease))
	var n, failed atomic.Int64
	mishap(t, p, func(cmd []string) bool {
		if !renewal(cmd) || n.Add(1)%3 == 0 {
			return false
		}
		failed.Add(1)
		return true
	})
	hold := locktest.Acquire(t, t.Context(), c.GetLock("patchy"))
	least, err := r.lowest(t.Context(), "patchy", end)
	require.NoError(t, err)
	p.OnCommand(nil)
	t.Logf("%d of %d renewals failed, least TTL %v", failed.Load(), n.Load(), least)
	return errors.Join(
		above("TTL", least, 0),
		above("renewals that failed", failed.Load(), 4),
		context.Cause(hold.Context()),
		expect("unlock", hold.Unlock(t.Context()), nil),
	)
}

// above returns an error unless got is more than bound.
func above[N ~int64](what string, got, bound N) error {
	if got > bound {
		return nil
	}
	return fmt.Errorf("%s: got %v, want more than %v", what, got, bound)
}

// upset is what happens to a server every now and then.
type upset struct {
	every func() time.Duration
	do    func(t *testing.T, r *rig) error
}

// upsets are what a server that can be reached may go through.
var upsets = map[string]upset{
	"script flush": {
		func() time.Duration { return 5 * time.Millisecond },
		func(t *testing.T, r *rig) error { return r.redis.ScriptFlush(t.Context()).Err() },
	},
	"cut": {
		func() time.Duration { return 20*time.Millisecond + rand.N(200*time.Millisecond) },
		func(_ *testing.T, r *rig) error { r.proxy.Cut(); return nil },
	},
}

// F6
func TestLeaseStaysLongWhileTheServerCanBeReached(t *testing.T) {
	redistest.Long(t)
	for name, upset := range upsets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			faulttest.Steady(t, r.server.Addr(), patchyLease, stillParts, func(lease time.Duration) error {
				return upsetting(t, r, lease, upset)
			})
		})
	}
}

// upsetting holds a lock while the server is upset, which leaves it a third of the lease all the time.
func upsetting(t *testing.T, r *rig, lease time.Duration, upset upset) error {
	t.Helper()
	c := r.client(t, redlatch.WithWatchdogTimeout(lease))
	hold := locktest.Acquire(t, t.Context(), c.GetLock("kept"))
	end := time.Now().Add(max(time.Duration(faulttest.Rounds(t, 2, 20))*patchyLease, 2*lease))
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
	return errors.Join(
		above("TTL", least, lease/3),
		context.Cause(hold.Context()),
		expect("unlock", hold.Unlock(t.Context()), nil),
	)
}

// F6
func TestFreshHoldIsRenewedAfterALoss(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	faulttest.Steady(t, r.server.Addr(), briskLease, stillParts, func(lease time.Duration) error {
		l := r.client(t, redlatch.WithWatchdogTimeout(lease)).GetLock("fresh")
		for range faulttest.Rounds(t, 3, 25) {
			lost := locktest.Acquire(t, t.Context(), l)
			require.NoError(t, r.redis.Del(t.Context(), "fresh").Err())
			locktest.Ended(t, lost.Context(), rlock.ErrLost)
		}
		hold := locktest.Acquire(t, t.Context(), l)
		least, err := r.lowest(t.Context(), "fresh", time.Now().Add(2*lease))
		require.NoError(t, err)
		return errors.Join(above("TTL", least, lease/3), expect("unlock", hold.Unlock(t.Context()), nil))
	})
}

const starvedLease = 4 * time.Second

// F6
func TestStarvedProcessKeepsAllItsLocks(t *testing.T) {
	redistest.Long(t)
	r := newRig(t)
	lease := starvedLease
	if faulttest.Soaking() {
		lease *= 3 // the processor can renew no 20,000 locks in 1.3 s
	}
	faulttest.Steady(t, r.server.Addr(), lease, stillParts, func(lease time.Duration) error { return starve(t, r, lease) })
}

// starve looks at the many locks of a process for longer than their lease.
func starve(t *testing.T, r *rig, lease time.Duration) error {
	t.Helper()
	n := faulttest.Rounds(t, 1000, 20_000)
	child := faulttest.StartChildEnv(t, []string{"GOMAXPROCS=1"}, "starved holder", r.server.Addr(), strconv.Itoa(n), lease.String())
	child.WaitFor("held")
	var left spans
	end := time.Now().Add(max(time.Duration(faulttest.Rounds(t, 5, 20))*starvedLease, 5*lease) / 4)
	pace := time.NewTicker(lease / 20) // looking is not to be what starves them
	defer pace.Stop()
	for time.Now().Before(end) {
		<-pace.C
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
	lost := child.WaitFor("lost")
	require.NoError(t, child.Wait())
	lag := lease - lease/3 - left.quantile(0.01)
	t.Logf("%s, least TTL %v, renewal lag p99 %v", lost, left.quantile(0), lag)
	if lost != "lost 0" {
		return errors.New(lost)
	}
	return errors.Join(above("TTL", left.quantile(0), 0), above("time to spare of the renewal lag's p99", lease/4-lag, 0))
}

// starvedHolder is a process that holds many locks and does not leave its own renewals much of its one processor.
func starvedHolder(args []string) {
	ctx := context.Background()
	var lost, stop atomic.Int64
	lease, err := time.ParseDuration(args[2])
	exitOn(err)
	client, err := redlatch.Open(ctx, "redis://"+args[0],
		redlatch.WithWatchdogTimeout(lease), redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)),
		redlatch.WithObserver(redlatch.Observer{HoldEnd: func(_ context.Context, e redlatch.HoldEndEvent) {
			if e.Err != nil {
				lost.Add(1)
			}
		}}))
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
