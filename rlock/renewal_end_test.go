package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/redlatch/redlatch/rlock"
)

const (
	briskLease = 900 * time.Millisecond // renewed every 300 ms
	jolt       = 5 * time.Millisecond   // the longest delay of a direction

	// underWay is how long after a release began a renewal may still be executed that was sent before it.
	underWay = 2*jolt + 50*time.Millisecond
)

// releaseTimes are the times at which the releases of owners began, by the server's clock. It is safe for concurrent use.
type releaseTimes struct {
	mu sync.Mutex // guards at
	at map[string]time.Time
}

func (e *releaseTimes) set(owner string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at[owner] = at
}

// F5
func TestNothingIsRenewedAfterItsReleaseBegan(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.load(t, "acquire", "renew")
	const lanes = 16
	clock := faulttest.NewWitness(t, r.server.Addr(), "clock")
	clients := []*redlatch.Client{
		r.client(t, redlatch.WithWatchdogTimeout(briskLease)),
		r.client(t, redlatch.WithWatchdogTimeout(briskLease)),
	}
	var monitors []*faulttest.Monitor
	for lane := range lanes {
		monitors = append(monitors, faulttest.MonitorWrites(t, r.server.Addr(), fmt.Sprintf("lane-%d", lane)))
	}
	released := &releaseTimes{at: map[string]time.Time{}}
	n := faulttest.Rounds(t, 120, 5000)
	var disturbed atomic.Int64
	share(t, lanes, n, func(lane, run int) error {
		r.proxy.Delay(rand.N(jolt))
		l := clients[run%len(clients)].GetLock(fmt.Sprintf("lane-%d", lane))
		err := interleave(t.Context(), l, func(owner string) { released.set(owner, clock.Now()) })
		if slices.ContainsFunc(lateErrors, func(late error) bool { return errors.Is(err, late) }) {
			disturbed.Add(1) // the machine stood still for a part of the lease; that nothing is renewed holds all the same
			return nil
		}
		return err
	})
	r.proxy.Delay(0)
	t.Logf("%d of %d runs were disturbed, worst lag %v", disturbed.Load(), n, r.lag.Worst())
	most := n / 10
	if r.lag.Worst() > briskLease/stillParts {
		most = n / 2
	}
	require.LessOrEqual(t, int(disturbed.Load()), most)
	redistest.Eventually(t, 3*briskLease, "no key is left", func() error { return r.noKeys(t, "lane-*") })
	renewals, acquisitions := calls(t, "renew"), calls(t, "acquire")
	seen := 0
	for _, m := range monitors {
		commands := m.Commands()
		for _, c := range commands {
			if acquisitions(c.Args) {
				seen += zombies(t, c.Args[4], released.at, renewalsOf(commands, renewals, c.Args[4]), underWay+r.lag.Late())
			}
		}
	}
	t.Logf("%d holds, %d renewals", len(released.at), seen)
	require.Positive(t, seen)
}

// lateErrors are what calls return on a machine that stands still for a part of the lease.
var lateErrors = []error{redlatch.ErrUnknown, rlock.ErrNotHeld, rlock.ErrLost, redis.ErrPoolTimeout}

// interleave acquires, at times gives up, nests, works for longer or shorter than a renewal takes, and releases. It says
// when the last release begins.
func interleave(ctx context.Context, l *rlock.Lock, release func(owner string)) error {
	given, cancel := cancelledAt(ctx, rand.N(4*jolt))
	defer cancel()
	if rand.N(2) == 0 {
		given = ctx
	}
	hold, err := l.Lock(given)
	if err != nil {
		return expect("lock", err, context.Canceled)
	}
	if rand.N(4) == 0 {
		inner, err := l.Lock(hold.Context())
		if err == nil {
			err = inner.Unlock(given)
		} else if errors.Is(err, context.Canceled) {
			err = nil
		}
		if err != nil {
			release(hold.Owner())
			return errors.Join(fmt.Errorf("nested: %w", err), hold.Unlock(given))
		}
	}
	elapse(time.Now().Add(rand.N(briskLease * 2 / 3)))
	release(hold.Owner())
	return expect("unlock", hold.Unlock(given), nil)
}

func renewalsOf(commands []faulttest.Command, renewal func([]string) bool, owner string) []time.Time {
	var at []time.Time
	for _, c := range commands {
		if renewal(c.Args) && slices.Contains(c.Args, owner) {
			at = append(at, c.At)
		}
	}
	return at
}

// zombies judges the renewals of an owner, and returns their number. One may be under way for so long.
func zombies(t *testing.T, owner string, released map[string]time.Time, renewed []time.Time, underWay time.Duration) int {
	t.Helper()
	end, held := released[owner]
	if !held {
		assert.Empty(t, renewed, "who got no hold is never renewed")
		return 0
	}
	after := 0
	for _, at := range renewed {
		if at.After(end) {
			after++
			assert.Less(t, at.Sub(end), underWay, "only what was under way is renewed")
		}
	}
	// What is not answered for a tenth of the lease is sent again.
	assert.LessOrEqual(t, after, 1+int(underWay/(briskLease/10)), "one renewal at most was under way")
	return len(renewed)
}

// F5
func TestReleaseThatNeverArrivesDoesNotKeepTheLock(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	clock := faulttest.NewWitness(t, r.server.Addr(), "clock")
	c := r.client(t, redlatch.WithWatchdogTimeout(briskLease))
	release := calls(t, "release")
	for run := range faulttest.Rounds(t, 2, 8) {
		name := fmt.Sprintf("stuck-%d", run)
		monitor := faulttest.MonitorWrites(t, r.server.Addr(), name)
		hold, err := c.GetLock(name).Lock(t.Context())
		if errors.Is(err, redlatch.ErrUnknown) && r.lag.Worst() > briskLease/stillParts {
			continue // the machine stood still
		}
		require.NoError(t, err)
		elapse(time.Now().Add(rand.N(briskLease))) // somewhere between two renewals
		r.proxy.OnCommand(func(cmd []string) {
			if release(cmd) {
				r.proxy.Cut()
			}
		})
		began := clock.Now()
		err = hold.Unlock(t.Context())
		if errors.Is(err, rlock.ErrNotHeld) && r.lag.Worst() > briskLease/stillParts {
			r.proxy.OnCommand(nil)
			continue // it was lost before
		}
		require.ErrorIs(t, err, redlatch.ErrUnknown)
		redistest.Eventually(t, briskLease+underWay+r.lag.Late(), "the lease ends", func() error { return r.noKeys(t, name) })
		assert.Empty(t, monitor.Since(began.Add(underWay+r.lag.Late()), "PEXPIRE"))
		r.proxy.OnCommand(nil)
	}
}

// farewells are the ways in which renewal ends without a release.
var farewells = []struct {
	name string
	opts []rlock.Option
	end  func(t *testing.T, r *rig, c *redlatch.Client, h *rlock.Hold)
}{
	{"deleted", nil, func(t *testing.T, r *rig, _ *redlatch.Client, h *rlock.Hold) {
		require.NoError(t, r.redis.Del(t.Context(), "deleted").Err())
		locktest.Ended(t, h.Context(), rlock.ErrLost)
	}},
	{"forced", nil, func(t *testing.T, _ *rig, c *redlatch.Client, h *rlock.Hold) {
		forced, err := c.GetLock("forced").ForceUnlock(t.Context())
		require.NoError(t, err)
		require.True(t, forced)
		locktest.Ended(t, h.Context(), rlock.ErrLost)
	}},
	{"longest", []rlock.Option{rlock.WithMaxHold(briskLease * 3 / 2)}, func(t *testing.T, _ *rig, _ *redlatch.Client, h *rlock.Hold) {
		locktest.Ended(t, h.Context(), rlock.ErrLost)
	}},
	{"extended", nil, func(t *testing.T, _ *rig, _ *redlatch.Client, h *rlock.Hold) {
		if err := h.Extend(t.Context(), briskLease); err != nil { // on a slow machine the lease ends first
			require.ErrorIs(t, context.Cause(h.Context()), rlock.ErrLost, "%v", err)
		}
	}},
	{"abandoned", nil, func(t *testing.T, _ *rig, c *redlatch.Client, h *rlock.Hold) {
		require.NoError(t, c.Close())
		locktest.Ended(t, h.Context(), redlatch.ErrClosed)
	}},
}

// F5
func TestRenewalEndsWithTheHold(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	r := newRig(t)
	r.load(t, "renew")
	clock := faulttest.NewWitness(t, r.server.Addr(), "clock")
	renewals := calls(t, "renew")
	var verify []func()
	for _, way := range farewells {
		c := r.client(t, redlatch.WithWatchdogTimeout(briskLease), redlatch.WithAbandonOnClose())
		monitor := faulttest.MonitorWrites(t, r.server.Addr(), way.name)
		hold := locktest.Acquire(t, t.Context(), c.GetLock(way.name), way.opts...)
		redistest.Eventually(t, patience, "it is renewed", func() error {
			if len(renewalsOf(monitor.Commands(), renewals, hold.Owner())) == 0 {
				return errors.New("not yet")
			}
			return nil
		})
		way.end(t, r, c, hold)
		ended := clock.Now()
		verify = append(verify, func() {
			for _, at := range renewalsOf(monitor.Commands(), renewals, hold.Owner()) {
				assert.Less(t, at.Sub(ended), underWay+r.lag.Late(), "%s: renewed after its end", way.name)
			}
		})
	}
	r.empty(t, 2*briskLease)
	elapse(time.Now().Add(briskLease)) // a zombie would renew three times
	for _, v := range verify {
		v()
	}
}
