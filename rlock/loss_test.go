package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// outages cut a holder off, and make good again.
var outages = []struct {
	name string
	cut  func(p *faulttest.Proxy)
	heal func(p *faulttest.Proxy)
}{
	{
		"silence",
		func(p *faulttest.Proxy) { p.Blackhole(true) },
		func(p *faulttest.Proxy) { p.Blackhole(false) },
	},
	{
		"refusal",
		func(p *faulttest.Proxy) { p.Refuse(true); p.Cut() },
		func(p *faulttest.Proxy) { p.Refuse(false) },
	},
}

// toldLease has a margin of 20 ms: the goroutine that closes Done has that much time.
const toldLease = 2 * time.Second

// toldParts says for how short a part of the lease a machine may stand still without an effect: half the margin.
const toldParts = 200

// F1
func TestHolderIsToldBeforeAnotherCanAcquire(t *testing.T) {
	r := newRig(t)
	faulttest.Steady(t, r.server.Addr(), toldLease, toldParts, func(lease time.Duration) error { return told(t, r, lease) })
}

// told has many holders cut off, some at a time.
func told(t *testing.T, r *rig, lease time.Duration) error {
	t.Helper()
	rival := r.direct(t, redlatch.WithWatchdogTimeout(lease))
	const lanes = 24
	var proxies [lanes]*faulttest.Proxy
	var holders [lanes]*redlatch.Client
	for i := range lanes {
		proxies[i] = faulttest.NewProxy(t, r.server.Addr())
		holders[i] = connect(t, &redis.Options{Addr: proxies[i].Addr()}, redlatch.WithWatchdogTimeout(lease))
	}
	return shared(lanes, faulttest.Rounds(t, 24, 1000), func(lane, run int) error {
		outage := outages[run%len(outages)]
		name := fmt.Sprintf("%s-%d-%v", outage.name, run, lease)
		defer outage.heal(proxies[lane])
		mine, other := holders[lane].GetLock(name), rival.GetLock(name)
		return toldInTime(t.Context(), mine, other, func() {
			elapse(time.Now().Add(rand.N(lease / 3)))
			outage.cut(proxies[lane])
		})
	})
}

// toldInTime cuts a holder off, which is to happen at a random moment between two renewals, and requires that both its levels
// end before the rival has the lock.
func toldInTime(ctx context.Context, mine, other *rlock.Lock, cut func()) error {
	hold, err := mine.Lock(ctx)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	inner, err := mine.Lock(hold.Context())
	if err != nil {
		return fmt.Errorf("nest: %w", err)
	}
	done := []<-chan struct{}{hold.Context().Done(), inner.Context().Done()}
	next := locktest.Begin(func() (*rlock.Hold, error) { return other.Lock(ctx) })
	cut()
	taken := <-next
	if taken.Err != nil {
		return fmt.Errorf("rival: %w", taken.Err)
	}
	for level, c := range done {
		select {
		case <-c:
		default:
			return fmt.Errorf("level %d is not told; if it asks, its error is %w", level, orNone(hold.Context().Err()))
		}
	}
	return errors.Join(
		expect("cause", context.Cause(hold.Context()), rlock.ErrLost),
		expect("cause of the nested level", context.Cause(inner.Context()), rlock.ErrLost),
		expect("unlock of what is lost", hold.Unlock(ctx), rlock.ErrNotHeld),
		expect("unlock by the rival", taken.Hold.Unlock(ctx), nil),
	)
}

// writeFenced is a resource that refuses a token lower than the highest that it has seen.
var writeFenced = redis.NewScript(`
if tonumber(ARGV[1]) < tonumber(redis.call('get', KEYS[1]) or '0') then
  return 0
end
redis.call('set', KEYS[1], ARGV[1], 'px', 60000)
return 1`)

// F1
func TestStoppedHolderIsFencedOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	rival := r.direct(t, redlatch.WithWatchdogTimeout(lease))
	for range faulttest.Rounds(t, 1, 10) {
		stopHolders(t, r, rival, 3)
	}
}

// stopHolders stops n processes in mid-work for two leases.
func stopHolders(t *testing.T, r *rig, rival *redlatch.Client, n int) {
	t.Helper()
	var children []*faulttest.Child
	var witnesses []*faulttest.Witness
	for i := range n {
		name := fmt.Sprintf("stopped-%d", i)
		child := faulttest.StartChild(t, "fenced writer", r.server.Addr(), name)
		w := faulttest.NewWitness(t, r.server.Addr(), name)
		var token int64
		_, err := fmt.Sscanf(child.WaitFor("held "), "held %d", &token)
		require.NoError(t, err)
		w.Token(token)
		children, witnesses = append(children, child), append(witnesses, w)
	}
	elapse(time.Now().Add(rand.N(faultLease)))
	for _, child := range children {
		child.Stop()
	}
	stopped := time.Now()
	var holds []*rlock.Hold
	for i := range n {
		name := fmt.Sprintf("stopped-%d", i)
		hold := locktest.Acquire(t, t.Context(), rival.GetFencedLock(name))
		witnesses[i].Token(hold.Token())
		accepted, err := writeFenced.Run(t.Context(), r.redis, []string{"resource:" + name}, hold.Token()).Bool()
		require.NoError(t, err)
		require.True(t, accepted, "the new holder's token is the highest")
		holds = append(holds, hold)
	}
	elapse(stopped.Add(2 * faultLease))
	for i, child := range children {
		child.Cont()
		assert.Equal(t, "refused; context ended: true, lost: true, unlock says not held: true", child.WaitFor("refused"))
		require.NoError(t, child.Wait())
		assert.Empty(t, witnesses[i].Regressions())
		require.NoError(t, r.holds(t, fmt.Sprintf("stopped-%d", i), holds[i].Owner(), 1), "the new holder is untouched")
		locktest.Live(t, holds[i].Context())
		locktest.Unlock(t, holds[i])
	}
}

// fencedWriter is a process that works under a fenced lock until its resource refuses it, and then asks its context.
func fencedWriter(args []string) {
	ctx := context.Background()
	addr, name := args[0], args[1]
	client, err := redlatch.Open(ctx, "redis://"+addr, redlatch.WithWatchdogTimeout(faultLease))
	exitOn(err)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	hold, err := client.GetFencedLock(name).Lock(ctx)
	exitOn(err)
	faulttest.Emit("held %d", hold.Token())
	for accepted := true; accepted; {
		accepted, err = writeFenced.Run(ctx, rdb, []string{"resource:" + name}, hold.Token()).Bool()
		exitOn(err)
	}
	ended := hold.Context().Err() != nil
	lost := errors.Is(context.Cause(hold.Context()), rlock.ErrLost)
	refused := errors.Is(hold.Unlock(ctx), rlock.ErrNotHeld)
	faulttest.Emit("refused; context ended: %v, lost: %v, unlock says not held: %v", ended, lost, refused)
	exitOn(errors.Join(client.Close(), rdb.Close()))
}

// exitOn ends a child process at an error.
func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The timer of a hold runs up to a millisecond late, and on a busy machine later.
//
// F1
func TestUnlockLooksAtTheClock(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		for late := range 10 {
			hold := locktest.Acquire(t, t.Context(), p.GetLock("n"), rlock.WithFixedLease(10*time.Millisecond+time.Duration(late)*100*time.Microsecond))
			time.Sleep(time.Until(hold.ExpiresAt()))
			require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrNotHeld, late)
			require.ErrorIs(t, context.Cause(hold.Context()), rlock.ErrLost, late)
			time.Sleep(50 * time.Millisecond)
			require.Empty(t, b.Keys(t))
		}
	})
}
