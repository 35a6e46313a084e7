package scenario_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rid"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rratelimiter"
)

const clockLease = 3 * time.Second

// clocked is a server with a clock of its own.
type clocked struct {
	*redistest.Server
	clock *redistest.Clock
	lag   *faulttest.Lag
}

func startClocked(t *testing.T, ahead time.Duration) *clocked {
	t.Helper()
	s, clock := redistest.StartClock(t, ahead)
	return &clocked{s, clock, faulttest.MeasureLag(t, s.Addr())}
}

// client returns a client of the server at an address. It is closed when the test ends; what is lost by then cannot be released.
func (s *clocked) client(t *testing.T, addr string) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(clockLease), redlatch.WithCloseGrace(0))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// enterAll has each object held by one client and waited for by another one.
func (s *clocked) enterAll(t *testing.T, addr string) []heldGuest {
	t.Helper()
	held := enterAll(t, s.client(t, addr), s.client(t, addr), guests(clockLease), func(g guest) string { return g.name })
	redistest.AwaitChannels(t, s.Client(t), channels(held))
	return held
}

// stayHeld requires for a time that all are held, and that nobody who waits has one.
func stayHeld(t *testing.T, all []heldGuest, d time.Duration) {
	t.Helper()
	for start := time.Now(); time.Since(start) < d; time.Sleep(20 * time.Millisecond) {
		for _, h := range all {
			require.NoError(t, h.alive(), h.name)
			select {
			case err := <-h.waited:
				require.Fail(t, "two hold it", "%s: %v", h.name, err)
			default:
			}
		}
	}
}

// F18: a clock of the server that is off by hours changes nothing.
func TestClockOfTheServerMayBeOff(t *testing.T) {
	for _, ahead := range []time.Duration{-time.Hour, time.Hour, 24 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			s := startClocked(t, ahead)
			all := s.enterAll(t, s.Addr())
			stayHeld(t, all, 2*clockLease)
			for _, h := range all {
				h.handOver(t)
			}
			s.timely(t)
		})
	}
}

// F18: a clock that steps back ends nothing, gives nothing to anybody else, and delays no release.
func TestServerThatStepsBackEndsNothing(t *testing.T) {
	for _, back := range []time.Duration{time.Hour, 24 * time.Hour} {
		t.Run(back.String(), func(t *testing.T) {
			t.Parallel()
			s := startClocked(t, 0)
			all := s.enterAll(t, s.Addr())
			s.clock.Set(-back)
			stayHeld(t, all, 2*clockLease)
			for _, h := range all {
				if h.name == "task" { // the one that waits became due by the clock that has stepped back
					require.NoError(t, h.release(t.Context()), h.name)
					continue
				}
				h.handOver(t)
			}
			s.timely(t)
		})
	}
}

// F18: a clock that steps ahead ends all leases. Whoever had one learns of it at the next renewal; what has no lease stays as it was.
func TestHoldersLearnThatTheServerSteppedAhead(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, 24 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			s := startClocked(t, 0)
			all := s.enterAll(t, s.Addr())
			s.clock.Set(ahead)
			stepped := time.Now()
			for _, h := range all {
				if h.name == "semaphore" || h.name == "latch" {
					stayHeld(t, []heldGuest{h}, clockLease/10)
					h.handOver(t)
				}
			}
			for _, h := range all {
				switch h.name {
				case "semaphore", "latch":
				case "queue", "scheduler", "task": // a renewal may come before the next claim, which gives it to somebody else
					time.Sleep(time.Until(stepped.Add(clockLease)))
					if h.alive() == nil {
						h.handOver(t)
						continue
					}
					_ = h.release(t.Context()) // it complains if the message came back to the client that had it
					h.gotten(t)
				default:
					redistest.Eventually(t, clockLease-time.Since(stepped)+s.lag.Late(), h.name+": its holder learns of the loss", func() error {
						if h.alive() == nil {
							return errors.New("it is held")
						}
						return nil
					})
					h.gotten(t)
				}
			}
			s.timely(t)
		})
	}
}

// timely requires that a lease ends, and that a message is delivered, when they should by any right clock.
func (s *clocked) timely(t *testing.T) {
	t.Helper()
	const after = 600 * time.Millisecond
	c, other := s.client(t, s.Addr()), s.client(t, s.Addr())
	var all sync.WaitGroup
	defer all.Wait()
	timed := func(what string, start time.Time, wait func() error) {
		all.Go(func() {
			assert.NoError(t, wait(), what)
			took := time.Since(start)
			assert.Greater(t, took, after*98/100, what) // a hold ends 1 % early, and is released then
			late := 50 * time.Millisecond
			if what == "red" { // nobody tells it of an end: it asks every 200 ms at the longest
				late = 200 * time.Millisecond
			}
			assert.Less(t, took, after+late+s.lag.Late(), what)
		})
	}
	kinds := take(after)
	delete(kinds, "message")
	require.NoError(t, c.GetPermitSemaphore("timely-permit").SetPermits(t.Context(), 1))
	for kind, acquire := range kinds {
		start := time.Now()
		_, err := acquire(t.Context(), c, "timely-"+kind)
		require.NoError(t, err, kind)
		timed(kind, start, func() error {
			h, err := kinds[rivalOf(kind)](t.Context(), other, "timely-"+kind)
			if err == nil {
				err = h.release(t.Context())
			}
			return err
		})
	}
	q := redlatch.GetDelayedQueue[string](c, "timely-queue")
	start := time.Now()
	_, err := q.Offer(t.Context(), "later", after)
	require.NoError(t, err)
	timed("queue", start, func() error {
		m, err := redlatch.GetDelayedQueue[string](other, "timely-queue").Take(t.Context())
		if err == nil {
			err = m.Ack(t.Context())
		}
		return err
	})
}

// F18
func TestFenceHoldsWhateverTheServersClockDoes(t *testing.T) {
	t.Parallel()
	s := startClocked(t, 0)
	c := s.client(t, s.Addr())
	resource := int64(0)
	write := func(h *rlock.Hold) bool {
		ok := h.Token() >= resource
		resource = max(resource, h.Token())
		return ok
	}
	stale, err := c.GetFencedLock("a").Lock(t.Context())
	require.NoError(t, err)
	require.True(t, write(stale))
	for _, ahead := range []time.Duration{time.Hour, 24 * time.Hour, 23 * time.Hour, 48 * time.Hour} {
		s.clock.Set(ahead)
		h, err := s.client(t, s.Addr()).GetFencedLock("a").Lock(t.Context(), rlock.WithFixedLease(100*time.Millisecond))
		require.NoError(t, err)
		require.True(t, write(h), "a step to %v", ahead)
		require.False(t, write(stale), "a step to %v", ahead)
		<-h.Context().Done()
	}
	<-stale.Context().Done()
	require.ErrorIs(t, context.Cause(stale.Context()), rlock.ErrLost)
}

// F18: a Go process takes the time from the kernel, so that no library can fake the clock of a client. But an hour of difference would
// show in what the client sends: numbers that are times by its clock and not by the server's.
func TestNoClientSendsItsClock(t *testing.T) {
	t.Parallel()
	s := startClocked(t, 10*24*time.Hour)
	proxy := faulttest.NewProxy(t, s.Addr())
	var mu sync.Mutex // guards sent
	sent := map[string]string{}
	proxy.OnCommand(func(cmd []string) {
		mu.Lock()
		defer mu.Unlock()
		for _, arg := range cmd[1:] {
			for _, number := range strings.FieldsFunc(arg, func(r rune) bool { return !unicode.IsDigit(r) }) {
				sent[number] = cmd[0]
			}
		}
	})
	all := s.enterAll(t, proxy.Addr())
	stayHeld(t, all, clockLease)
	for _, h := range all {
		h.handOver(t)
	}
	one, two := s.client(t, proxy.Addr()), s.client(t, proxy.Addr())
	elected(t, one, two, "election")
	together(t, one, two, "barriers")
	scheduled(t, one, two, "scheduler")
	_, err := one.GetIDGenerator("ids", rid.WithTimePrefix(32)).Next(t.Context())
	require.NoError(t, err)
	_, err = one.GetRateLimiter("limit", rratelimiter.Per(10, time.Minute)).Allow(t.Context(), "key", 1)
	require.NoError(t, err)
	proxy.OnCommand(nil)
	times := 0 // by the server's clock
	for number, cmd := range sent {
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			continue // longer than any time
		}
		for _, at := range []time.Time{time.Unix(n, 0), time.UnixMilli(n), time.UnixMicro(n), time.Unix(0, n)} {
			assert.Greater(t, time.Since(at).Abs(), time.Hour, "%s sent %s", cmd, number)
			if time.Until(at.Add(-10*24*time.Hour)).Abs() < time.Hour {
				times++
			}
		}
	}
	assert.Positive(t, times, "what came from the server would be found")
}
