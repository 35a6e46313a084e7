package rsemaphore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
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

// F2
func TestLostReplyTakesNoPermitTwice(t *testing.T) {
	t.Parallel()
	r := newPermitRig(t)
	s := r.semaphore(t, "slots", redlatch.WithWatchdogTimeout(30*time.Second))
	givePermits(t, s, 9)
	steps := []struct {
		name string
		out  int
		do   func(t *testing.T, held []*rsemaphore.Permit) []*rsemaphore.Permit
	}{
		{"Acquire", 1, func(t *testing.T, _ []*rsemaphore.Permit) []*rsemaphore.Permit {
			return []*rsemaphore.Permit{takePermit(t, s)}
		}},
		{"AcquireN", 4, func(t *testing.T, held []*rsemaphore.Permit) []*rsemaphore.Permit {
			return append(held, takePermits(t, s, 3)...)
		}},
		{"Extend", 4, func(t *testing.T, held []*rsemaphore.Permit) []*rsemaphore.Permit {
			require.NoError(t, held[1].Extend(t.Context(), 20*time.Second))
			return held
		}},
		{"Release", 3, func(t *testing.T, held []*rsemaphore.Permit) []*rsemaphore.Permit {
			releasePermits(t, held[0])
			return held[1:]
		}},
	}
	for sick := range steps {
		for n := 1; n <= 4; n++ {
			var held []*rsemaphore.Permit
			for i, step := range steps {
				if i == sick {
					r.proxy.DropReplies(faulttest.Script, n)
				}
				held = step.do(t, held)
				r.becomes(t, "slots", 9-step.out, step.out, permitsSettle)
				for _, p := range held {
					locktest.Live(t, p.Context())
				}
			}
			releasePermits(t, held...)
			r.becomes(t, "slots", 9, 0, permitsSettle)
		}
	}
	assert.Positive(t, r.proxy.Dropped())
}

// F2
func TestLostReplyResizesOnce(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	r := newPermitRig(t)
	s := r.semaphore(t, "slots", redlatch.WithWatchdogTimeout(30*time.Second))
	capacity := 0
	for n := 1; n <= 4; n++ {
		for _, change := range []func() error{
			func() error {
				set, err := s.TrySetPermits(t.Context(), 5)
				if capacity == 0 {
					capacity = 5
					assert.True(t, set, "this call has set them, though its first reply was lost")
				} else {
					assert.False(t, set)
				}
				return err
			},
			func() error { capacity += 3; return s.AddPermits(t.Context(), 3) },
			func() error { capacity -= 2; return s.AddPermits(t.Context(), -2) },
			func() error { capacity = 4; return s.SetPermits(t.Context(), 4) },
		} {
			r.proxy.DropReplies(faulttest.Script, n)
			require.NoError(t, change())
			requireCapacity(t, r.redis, "slots", capacity)
		}
	}
	assert.Positive(t, r.proxy.Dropped())
}

// A change whose caller gave up has taken effect by then, or never does.
//
// F2
func TestAbandonedResizeDoesNotArriveLate(t *testing.T) {
	t.Parallel()
	r := newPermitRig(t)
	s := r.semaphore(t, "slots")
	givePermits(t, s, 5)
	for i := range faulttest.Rounds(t, 20, 200) {
		r.proxy.Delay(20 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(60*time.Millisecond))
		err := s.AddPermits(ctx, 1)
		cancel()
		r.proxy.Delay(0)
		if err == nil {
			require.NoError(t, s.AddPermits(t.Context(), -1))
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NoError(t, s.SetPermits(t.Context(), 5), "run %d", i)
		}
		requireCapacity(t, r.redis, "slots", 5)
	}
	<-time.After(200 * time.Millisecond) // what is on its way arrives
	requireCapacity(t, r.redis, "slots", 5)
}

// F3
func TestCancelledAcquireKeepsNoPermit(t *testing.T) {
	t.Parallel()
	r := newPermitRig(t)
	s := r.semaphore(t, "slots", redlatch.WithWatchdogTimeout(30*time.Second))
	givePermits(t, s, 60)
	releasePermits(t, takePermit(t, s))
	const oneWay = 10 * time.Millisecond
	r.proxy.Delay(oneWay)
	var acquired, cancelled int
	var mu sync.Mutex // guards both
	n := faulttest.Rounds(t, 60, 600)
	for done := 0; done < n; done += 20 {
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(rand.N(9*oneWay), cancel).Stop()
				defer cancel()
				permits, err := s.AcquireN(ctx, 1+rand.N(3))
				for _, p := range permits {
					assert.NoError(t, p.Release(ctx))
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					acquired++
				} else {
					cancelled++
					assert.ErrorIs(t, err, context.Canceled)
				}
			})
		}
		wg.Wait()
		requireCapacity(t, r.redis, "slots", 60)
	}
	t.Logf("%d acquired, %d cancelled", acquired, cancelled)
	r.becomes(t, "slots", 60, 0, permitsSettle)
	r.proxy.Delay(0)
}

// A function for other processes. It is registered before TestMain begins.
var _ = asPermitChild("permit holder", permitHolder)

func asPermitChild(name string, fn func(args []string)) bool {
	faulttest.RegisterChild(name, fn)
	return true
}

// heldLease outlives what a busy machine needs to start some processes.
const heldLease = 3 * time.Second

// permitHolder acquires permits, says so, and holds them. Args: the server's address, how many.
func permitHolder(args []string) {
	n, err := strconv.Atoi(args[1])
	mustPermit(err)
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[0]}), redlatch.WithWatchdogTimeout(heldLease))
	mustPermit(err)
	_, err = c.GetPermitSemaphore("slots").AcquireN(context.Background(), n)
	mustPermit(err)
	faulttest.Emit("holds")
	select {}
}

func mustPermit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
}

// F13
func TestPermitsOfKilledHoldersComeBack(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	const processes, each = 4, 3
	r := newPermitRig(t)
	s := r.connect(t, r.server.Addr(), redlatch.WithWatchdogTimeout(30*time.Second)).GetPermitSemaphore("slots")
	givePermits(t, s, processes*each)
	var slowest time.Duration
	for range faulttest.Rounds(t, 3, 15) {
		var children []*faulttest.Child
		for range processes {
			children = append(children, faulttest.StartChild(t, "permit holder", r.server.Addr(), strconv.Itoa(each)))
		}
		for _, c := range children {
			c.WaitFor("holds")
		}
		all := beginPermits(t.Context(), s, processes*each)
		<-time.After(rand.N(heldLease / 2)) // they are renewed
		requireAvailable(t, s, 0)
		for _, c := range children {
			c.Kill()
		}
		lag, killed := faulttest.MeasureLag(t, r.server.Addr()), time.Now()
		got := nextPermits(t, all)
		back := time.Since(killed)
		assert.Less(t, back, heldLease+200*time.Millisecond+lag.Late(), "the full capacity is back")
		slowest = max(slowest, back)
		releasePermits(t, got...)
		requireCapacity(t, r.redis, "slots", processes*each)
	}
	t.Logf("back within %v at most, leases of %v", slowest, heldLease)
}
