package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
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
	"github.com/redlatch/redlatch/rsemaphore"
)

const (
	permitFaultLease = 600 * time.Millisecond // of the clients of a rig, which renew it every 200 ms
	permitsSettle    = 3 * time.Second        // bounds the life of what a lost reply left behind
)

// permitRig is a server of a test's own with a proxy before it. What is left on the server, but for the semaphores
// themselves, fails the test.
type permitRig struct {
	server *redistest.Server
	proxy  *faulttest.Proxy
	redis  *redis.Client // goes past the proxy
	lag    *faulttest.Lag
}

func newPermitRig(t *testing.T) *permitRig {
	t.Helper()
	s := redistest.Start(t)
	faulttest.LeakCheck(t, s.Addr(), "slots*")
	return &permitRig{server: s, proxy: faulttest.NewProxy(t, s.Addr()), redis: s.Client(t), lag: faulttest.MeasureLag(t, s.Addr())}
}

// semaphore returns the semaphore of a new client on the other side of the proxy.
func (r *permitRig) semaphore(t *testing.T, name string, opts ...redlatch.Option) *rsemaphore.PermitSemaphore {
	t.Helper()
	return r.connect(t, r.proxy.Addr(), opts...).GetPermitSemaphore(name)
}

func (r *permitRig) connect(t *testing.T, addr string, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	c, err := redlatch.New(rdb, append([]redlatch.Option{
		redlatch.WithWatchdogTimeout(permitFaultLease), redlatch.WithCloseGrace(100 * time.Millisecond),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// becomes waits until a semaphore has so many permits available and out.
func (r *permitRig) becomes(t *testing.T, name string, free, out int, limit time.Duration) {
	t.Helper()
	redistest.Eventually(t, limit, fmt.Sprintf("%s has %d available and %d out", name, free, out), func() error {
		return permitsAre(t.Context(), r.redis, name, free, out)
	})
}

// F4
func TestPermitWaitersGoOnWithoutMessages(t *testing.T) {
	t.Parallel()
	r := newPermitRig(t)
	a := r.semaphore(t, "slots", redlatch.WithWatchdogTimeout(30*time.Second))
	b := r.semaphore(t, "slots", redlatch.WithWatchdogTimeout(30*time.Second))
	givePermits(t, a, 2)
	r.proxy.DropMessages(true)
	for range 3 {
		held := takePermits(t, a, 2)
		waiting := beginPermits(t.Context(), b, 2)
		redistest.AwaitSubscribers(t, r.redis, "redisson_sc:{slots}", 1)
		<-time.After(100 * time.Millisecond) // and has asked again since
		start := time.Now()
		releasePermits(t, held...)
		got := nextPermits(t, waiting)
		assert.Less(t, time.Since(start), 2*time.Second+r.lag.Late(), "a re-check comes about every second")
		releasePermits(t, got...)
	}
}

// F1
func TestUnreachablePermitIsLostBeforeOthersHaveIt(t *testing.T) {
	t.Parallel()
	r := newPermitRig(t)
	s := r.semaphore(t, "slots")
	other := r.connect(t, r.server.Addr(), redlatch.WithWatchdogTimeout(30*time.Second)).GetPermitSemaphore("slots")
	givePermits(t, other, 1)
	for range faulttest.Rounds(t, 3, 25) {
		permit := takePermit(t, s)
		r.proxy.Blackhole(true)
		next := takePermit(t, other)
		locktest.Ended(t, permit.Context(), rsemaphore.ErrLost)
		require.Error(t, permit.Context().Err(), "it had ended before")
		r.proxy.Blackhole(false)
		require.ErrorIs(t, permit.Release(t.Context()), rsemaphore.ErrNotHeld)
		locktest.Live(t, next.Context())
		releasePermits(t, next)
		requireCapacity(t, r.redis, "slots", 1)
	}
}

// F5
func TestNothingIsRenewedAfterItsReleaseBegan(t *testing.T) {
	t.Parallel()
	r := newPermitRig(t)
	s := r.semaphore(t, "slots", redlatch.WithWatchdogTimeout(300*time.Millisecond)) // renewed every 100 ms
	givePermits(t, s, 4)
	var released atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range faulttest.Rounds(t, 10, 300) {
				p, err := s.Acquire(t.Context())
				if errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redlatch.ErrUnknown) {
					continue // a loaded machine may take longer than a lease
				}
				if !assert.NoError(t, err) {
					return
				}
				<-time.After(50*time.Millisecond + rand.N(60*time.Millisecond)) // about when a renewal is under way
				if p.Release(t.Context()) != nil {
					continue // a loaded machine may lose one
				}
				released.Add(1)
				assert.Zero(t, r.redis.ZScore(t.Context(), "{slots}:timeout", rawID(t, p)).Val(), "it is back")
			}
		})
	}
	wg.Wait()
	assert.GreaterOrEqual(t, int(released.Load()), 10, "released and looked at")
	redistest.Eventually(t, permitsSettle, "nothing is left, and nothing renewed", func() error {
		if _, err := s.Available(t.Context()); err != nil { // takes back what was lost
			return err
		}
		return permitsAre(t.Context(), r.redis, "slots", 4, 0)
	})
}

// F6
func TestPermitOutlivesTwoFailedRenewals(t *testing.T) {
	t.Parallel()
	r := newPermitRig(t)
	faulttest.Steady(t, r.server.Addr(), 1500*time.Millisecond, 10, func(lease time.Duration) error {
		name := fmt.Sprint("slots-", lease)
		s := r.semaphore(t, name, redlatch.WithWatchdogTimeout(lease))
		givePermits(t, s, 2)
		permits := takePermits(t, s, 2)
		for range 3 {
			r.proxy.DropReplies(faulttest.Script, 2)
			deadline := permits[1].ExpiresAt()
			redistest.Eventually(t, permitLimit+lease, "it is renewed or lost", func() error {
				if permits[1].ExpiresAt().After(deadline) || permits[1].Context().Err() != nil {
					return nil
				}
				return errors.New("not yet")
			})
		}
		var err error
		for _, p := range permits {
			err = errors.Join(err, context.Cause(p.Context()), p.Release(t.Context()))
		}
		if err == nil {
			r.becomes(t, name, 2, 0, permitsSettle)
		}
		return err
	})
}

// F16
func TestPermitCallsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	r := newPermitRig(t)
	s := r.semaphore(t, "slots")
	givePermits(t, s, 3)
	held := takePermit(t, s, rsemaphore.WithFixedLease(30*time.Second))
	r.proxy.Blackhole(true)
	const most = 300 * time.Millisecond
	calls := map[string]func(ctx context.Context) error{
		"Extend": func(ctx context.Context) error { return held.Extend(ctx, time.Minute) },
	}
	for name, call := range permitCalls {
		calls[name] = func(ctx context.Context) error { return call(ctx, s) }
	}
	var wg sync.WaitGroup
	for name, call := range calls {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), most)
			defer cancel()
			start := time.Now()
			err := call(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded, name)
			assert.Less(t, time.Since(start), most+150*time.Millisecond+r.lag.Late(), name)
		})
	}
	wg.Wait()
	r.proxy.Blackhole(false)
	releasePermits(t, held)
	redistest.Eventually(t, permitLimit, "it recovers, and keeps nothing", func() error {
		if _, err := s.Available(t.Context()); err != nil { // it also takes back what has expired
			return err
		}
		state, err := readPermits(t.Context(), r.redis, "slots")
		if err == nil && len(state.out) > 0 {
			err = fmt.Errorf("%d permits are out", len(state.out))
		}
		return err
	})
}

// F19
func TestPermitsLeaveNoKeyButTheSemaphore(t *testing.T) {
	t.Parallel()
	r := newPermitRig(t)
	c := r.connect(t, r.proxy.Addr())
	for i := range 200 {
		s := c.GetPermitSemaphore("slots" + strconv.Itoa(i))
		givePermits(t, s, 1)
		releasePermits(t, takePermit(t, s))
	}
	keys, err := r.redis.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		left, err := r.redis.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		if left < 0 {
			assert.Regexp(t, `^slots\d+$`, key, "only the semaphores stay")
		}
	}
	assert.Len(t, keys, 400, "a semaphore, and the client's last change of it")
}
