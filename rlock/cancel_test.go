package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const (
	oneWay = 50 * time.Millisecond // from a client to the server, or back

	// promised is how long after a call returned something of it may still be on the server: a try that was on its way,
	// the way back of its answer, the way of the release that follows; and a tenth of a second for everything else.
	// It holds where the client has a connection ready.
	promised = 3*oneWay + 100*time.Millisecond
)

// far is a number of clients that are far away from the server, each with connections ready.
func far(t *testing.T, r *rig, n int, opts ...redlatch.Option) []*redlatch.Client {
	t.Helper()
	r.proxy.Delay(oneWay)
	t.Cleanup(func() { r.proxy.Delay(0) })
	var clients []*redlatch.Client
	var pools []*redis.Client
	for range n {
		rdb := redis.NewClient(&redis.Options{Addr: r.proxy.Addr()})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		c := clientOf(t, rdb, append([]redlatch.Option{redlatch.WithWatchdogTimeout(lease)}, opts...)...)
		clients, pools = append(clients, c), append(pools, rdb)
	}
	redistest.Eventually(t, patience, "connections are ready", func() error { return ready(t.Context(), pools, 4) })
	hold := locktest.Acquire(t, t.Context(), clients[0].GetLock("warm")) // Redis knows the scripts
	locktest.Unlock(t, hold)
	return clients
}

// ready has clients open so many connections, whose handshakes take several round trips: for single commands, and for
// pipelines, which have a pool of their own. The proxy's delay has them used at the same time.
func ready(ctx context.Context, pools []*redis.Client, n int) error {
	var wg sync.WaitGroup
	for _, rdb := range pools {
		for range 2 * n {
			wg.Go(func() { rdb.Ping(ctx) })
			wg.Go(func() {
				pipe := rdb.Pipeline()
				pipe.Ping(ctx)
				pipe.Ping(ctx)
				_, _ = pipe.Exec(ctx) // What counts is the connection.
			})
		}
	}
	wg.Wait()
	for _, rdb := range pools {
		stats := rdb.PoolStats()
		idle := stats.IdleConns
		if stats.PipelineStats != nil { // of a go-redis that has a pool of its own for pipelines
			idle = min(idle, stats.PipelineStats.IdleConns)
		}
		if idle < uint32(n) {
			return fmt.Errorf("%d of %d", idle, n)
		}
	}
	return nil
}

// cancelledAt returns a context that is cancelled after d.
func cancelledAt(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	timer := time.AfterFunc(d, cancel)
	return ctx, func() { timer.Stop(); cancel() }
}

// noneLeft requires that the lock is free from the promised time after since.
func (r *rig) noneLeft(t *testing.T, name string, since time.Time) error {
	t.Helper()
	elapse(since.Add(promised))
	elapse(since.Add(promised + r.lag.Late()))
	return r.noKeys(t, name)
}

// F3
func TestCancelledAcquisitionLeavesNothing(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	r := newRig(t)
	const lanes = 20
	clients := far(t, r, lanes)
	n := faulttest.Rounds(t, 60, 200)
	span := 4 * oneWay // an acquisition takes two
	var acquired, cancelled int
	var mu sync.Mutex // guards both
	share(t, lanes, n, func(lane, run int) error {
		name := fmt.Sprintf("acquire-%d", run)
		ctx, cancel := cancelledAt(t.Context(), span*time.Duration(run)/time.Duration(n))
		defer cancel()
		hold, err := clients[lane].GetLock(name).Lock(ctx)
		mu.Lock()
		if err == nil {
			acquired++
		} else {
			cancelled++
		}
		mu.Unlock()
		if err != nil {
			return errors.Join(expect("lock", err, context.Canceled), r.noneLeft(t, name, time.Now()))
		}
		cancel()
		return errors.Join(expect("deferred unlock", hold.Unlock(ctx), nil), r.noKeys(t, name))
	})
	t.Logf("%d acquired, %d cancelled", acquired, cancelled)
	if r.lag.Worst() < oneWay { // else all may have been too late
		require.Positive(t, acquired)
	}
	require.Positive(t, cancelled)
	require.NoError(t, r.noKeys(t, "*"), "nothing came later")
}

// F3
func TestCancelledWaitLeavesNothing(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	r := newRig(t)
	const lanes = 20
	holder := r.direct(t, redlatch.WithWatchdogTimeout(lease))
	clients := far(t, r, lanes)
	n := faulttest.Rounds(t, 60, 200)
	// The first try takes 100 ms, the subscription some round trips more; the holder leaves in the middle of it all.
	span := 14 * oneWay
	share(t, lanes, n, func(lane, run int) error {
		name := fmt.Sprintf("wait-%d", run)
		other, err := holder.GetLock(name).Lock(t.Context())
		if err != nil {
			return err
		}
		released := make(chan error, 1) // its timer sends once
		time.AfterFunc(span/2, func() { released <- other.Unlock(t.Context()) })
		ctx, cancel := cancelledAt(t.Context(), span*time.Duration(run)/time.Duration(n))
		defer cancel()
		hold, err := clients[lane].GetLock(name).Lock(ctx)
		since := time.Now()
		if err == nil {
			<-ctx.Done()
			return errors.Join(<-released, expect("deferred unlock", hold.Unlock(ctx), nil), r.noKeys(t, name))
		}
		if err := expect("lock", err, context.Canceled); err != nil {
			return err
		}
		if err := <-released; err != nil {
			return fmt.Errorf("the holder's unlock: %w", err)
		}
		return r.noneLeft(t, name, since)
	})
	require.NoError(t, r.noKeys(t, "*"), "nothing came later")
}

// F3
func TestUnlockWorksWhateverItsContextDoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const lanes = 20
	clients := far(t, r, lanes)
	n := faulttest.Rounds(t, 60, 200)
	span := 3 * oneWay // an unlock takes two
	share(t, lanes, n, func(lane, run int) error {
		name := fmt.Sprintf("unlock-%d", run)
		hold, err := clients[lane].GetLock(name).Lock(t.Context())
		if err != nil {
			return err
		}
		ctx, cancel := cancelledAt(t.Context(), span*time.Duration(run)/time.Duration(n))
		defer cancel()
		return errors.Join(expect("unlock", hold.Unlock(ctx), nil), r.noKeys(t, name))
	})
}

// F3
func TestUnlockAtADeadlineReleasesAllTheSame(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	r := newRig(t)
	const lanes = 20
	clients := far(t, r, lanes)
	n := faulttest.Rounds(t, 60, 200)
	span := 5 * oneWay
	share(t, lanes, n, func(lane, run int) error {
		name := fmt.Sprintf("deadline-%d", run)
		hold, err := clients[lane].GetLock(name).Lock(t.Context())
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), span*time.Duration(run)/time.Duration(n))
		defer cancel()
		err = hold.Unlock(ctx)
		if err != nil {
			err = expect("unlock", err, redlatch.ErrUnknown)
		}
		return errors.Join(err, r.noneLeft(t, name, time.Now()), expect("unlock again", hold.Unlock(ctx), rlock.ErrNotHeld))
	})
}

// F3
func TestDeadContextAcquiresNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	l := r.client(t).GetLock("dead")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := r.proxy.Total()
	for range 50 {
		_, err := l.Lock(ctx)
		require.ErrorIs(t, err, context.Canceled)
		_, err = l.TryLock(ctx)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Equal(t, before, r.proxy.Total(), "nothing was sent")
}

// F3
func TestCloseAfterACancelledAcquisitionLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// Redis has to know the scripts, or the try would find its own missing.
	locktest.Unlock(t, locktest.Acquire(t, t.Context(), r.client(t, redlatch.WithWatchdogTimeout(lease)).GetLock("warm")))
	for run := range faulttest.Rounds(t, 20, 200) {
		name := fmt.Sprint("left-", run)
		c := r.client(t, redlatch.WithWatchdogTimeout(lease))
		arrived, gate := make(chan struct{}), make(chan struct{})
		var begun atomic.Bool
		r.proxy.OnCommand(func(cmd []string) {
			if faulttest.Script(cmd) && !begun.Swap(true) { // the try, and nothing after it, is held up on its way
				close(arrived)
				<-gate
			}
		})
		ctx, cancel := context.WithCancel(t.Context())
		locking := locktest.Begin(func() (*rlock.Hold, error) { return c.GetLock(name).Lock(ctx) })
		<-arrived
		cancel()
		locktest.Failed(t, locking, context.Canceled)
		closed := make(chan error, 1) // room for the result
		go func() { closed <- c.Close() }()
		select {
		case err := <-closed:
			require.Fail(t, "Close has not waited for the try", "%v", err)
		case <-time.After(20 * time.Millisecond):
		}
		opened := time.Now()
		close(gate)
		require.NoError(t, <-closed)
		require.Less(t, time.Since(opened), 300*time.Millisecond+r.lag.Late(), "Close has not heard of the answer")
		require.NoError(t, r.noKeys(t, name))
	}
}

// F3
func TestCloseDuringAnAcquisitionLeavesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	n := faulttest.Rounds(t, 30, 100)
	// However late a holder is, it releases by itself.
	clients := far(t, r, n, redlatch.WithCloseGrace(patience))
	span := 4 * oneWay // an acquisition and a release
	var acquired, closed int
	var mu sync.Mutex // guards both
	share(t, 10, n, func(_, run int) error {
		name := fmt.Sprintf("close-%d", run)
		l, ctx := clients[run].GetLock(name), t.Context()
		take := l.TryLock
		if run%2 == 0 {
			take, ctx = l.Lock, context.WithoutCancel(ctx)
		}
		done := make(chan error, 1) // one result
		taken := make(chan struct{})
		go func() {
			hold, err := take(ctx)
			close(taken)
			mu.Lock()
			if err == nil {
				acquired++
			} else {
				closed++
			}
			mu.Unlock()
			if err == nil {
				done <- expect("unlock", hold.Unlock(ctx), nil)
				return
			}
			done <- expect("lock", err, redlatch.ErrClosed)
		}()
		elapse(time.Now().Add(span * time.Duration(run) / time.Duration(n)))
		if run == n-1 { // however slow the machine is, one acquires
			<-taken
		}
		err := clients[run].Close()
		return errors.Join(err, r.noKeys(t, name), <-done)
	})
	t.Logf("%d acquired, %d closed", acquired, closed)
	require.Positive(t, acquired)
	require.Positive(t, closed)
}
