package rmultilock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const (
	fiveLease = 600 * time.Millisecond
	settled   = 1500 * time.Millisecond // a release whose reply was lost is repeated after 0.1 and 0.5 s
)

// five are independent servers, each behind a proxy for each of some processes.
type five struct {
	servers [5]*redistest.Server
	redis   [5]*redis.Client // go past the proxies
}

func startFive(t *testing.T, start func() *redistest.Server) *five {
	t.Helper()
	f := &five{}
	for i := range f.servers {
		f.servers[i] = start()
		f.redis[i] = f.servers[i].Client(t)
	}
	return f
}

// process returns clients, one for each server, as a maker of RedLocks, and the proxies that they go through.
func (f *five) process(t *testing.T) (redLock func(name string) rlock.Locker, proxies []*faulttest.Proxy) {
	t.Helper()
	var clients []*redlatch.Client
	for _, s := range f.servers {
		proxy := faulttest.NewProxy(t, s.Addr())
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(fiveLease), redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() }) // what a dead server had cannot be released
		clients, proxies = append(clients, c), append(proxies, proxy)
	}
	return func(name string) rlock.Locker {
		var locks []rlock.Locker
		for _, c := range clients {
			locks = append(locks, c.GetLock(name))
		}
		return clients[0].GetRedLock(locks...)
	}, proxies
}

// enterAndLeave takes the lock again and again under the eyes of a witness, until that is enough. It returns the sections whose hold ended before them.
func enterAndLeave(t *testing.T, l rlock.Locker, c *contested, who string, enough func() bool, holds *atomic.Int64) (over []string) {
	for n := 0; !enough(); n++ {
		h, err := l.Lock(t.Context(), rlock.WithWait(time.Second))
		if err != nil {
			assert.ErrorIs(t, err, rlock.ErrNotAcquired)
			continue
		}
		holds.Add(1)
		section := fmt.Sprint(who, "/", n)
		c.enter(t, h.Context(), section) // at the very time of the entry; the witness sees only whole sections
		c.witness.Enter(section)
		if rand.N(8) == 0 { // some are held for several renewals
			select {
			case <-h.Context().Done():
			case <-time.After(rand.N(2 * fiveLease)):
			}
		}
		c.witness.Exit(section)
		c.exit(h.Context())
		if h.Context().Err() != nil {
			over = append(over, section)
		}
		_ = h.Unlock(t.Context()) // it may have been lost
	}
	return over
}

// disturbProxy breaks something between a process and a server, which is whole again after a while.
func disturbProxy(p *faulttest.Proxy) {
	switch rand.N(9) {
	case 0:
		p.DropReply(faulttest.Script, 1+rand.N(3))
	case 1:
		p.Cut()
	case 2:
		p.Delay(rand.N(80 * time.Millisecond))
	case 3:
		p.Blackhole(true)
	default:
		p.Delay(0)
		p.Blackhole(false)
	}
}

// roundOfDeath kills one server after another. Each stays down until nothing that it has granted is held, and comes back empty: one that
// came back sooner could grant the lock to a second one, as docs/guarantees.md says.
func (f *five) roundOfDeath(enough func() bool) {
	for !enough() {
		s := f.servers[rand.N(5)]
		s.Kill()
		time.Sleep(fiveLease*5/4 + rand.N(fiveLease))
		s.Restart()
		time.Sleep(rand.N(fiveLease))
	}
}

// contested is a name for which several processes compete.
type contested struct {
	witness *faulttest.Witness
	claimants
	mu   sync.Mutex // guards over
	over map[string]bool
}

func (f *five) exclude(t *testing.T) {
	t.Helper()
	var all []*faulttest.Proxy
	var running sync.WaitGroup
	var holds atomic.Int64
	var names []*contested
	witnesses := redistest.Start(t).Addr()
	rounds := int64(faulttest.Rounds(t, 60, 12_000))
	for n := range max(2, rounds/240) {
		w := faulttest.NewWitness(t, witnesses, fmt.Sprint("five-", n))
		names = append(names, &contested{witness: w, claimants: claimants{live: map[context.Context]string{}}, over: map[string]bool{}})
	}
	limit := time.Now().Add(10 * time.Minute)
	enough := func() bool { return holds.Load() >= rounds || time.Now().After(limit) }
	for i := range 2 {
		redLock, proxies := f.process(t)
		all = append(all, proxies...)
		for n, c := range names {
			for j := range 2 {
				running.Go(func() {
					for _, section := range enterAndLeave(t, redLock(fmt.Sprint("a", n)), c, fmt.Sprint(i, "-", j), enough, &holds) {
						c.mu.Lock()
						c.over[section] = true
						c.mu.Unlock()
					}
				})
			}
		}
	}
	running.Go(func() { f.roundOfDeath(enough) })
	for !enough() {
		disturbProxy(all[rand.N(len(all))])
		time.Sleep(rand.N(80 * time.Millisecond))
	}
	for _, p := range all {
		p.Delay(0)
		p.Blackhole(false)
	}
	running.Wait()
	over := 0
	for _, c := range names {
		over += len(c.over)
		c.excluded(t)
	}
	t.Logf("%d holds, %d of them ended before their work", holds.Load(), over)
	assert.GreaterOrEqual(t, holds.Load(), rounds)
	f.empty(t, fiveLease+settled, 0, 1, 2, 3, 4)
}

// excluded requires that nobody was inside with another one while its hold lasted.
func (c *contested) excluded(t *testing.T) {
	t.Helper()
	for _, e := range c.witness.Events() {
		if e.Kind != "enter" || c.over[e.Who] {
			continue
		}
		for _, other := range strings.FieldsFunc(e.Others, func(r rune) bool { return r == ' ' || r == ',' }) {
			assert.True(t, c.over[other], "%s entered, and %s was inside", e.Who, other)
		}
	}
}

// empty requires that these servers have no key, after so long.
func (f *five) empty(t *testing.T, after time.Duration, which ...int) {
	t.Helper()
	for _, i := range which {
		redistest.Eventually(t, after, "no key is left", func() error {
			keys, err := f.redis[i].Keys(t.Context(), "*").Result()
			if len(keys) > 0 {
				err = errors.Join(err, fmt.Errorf("server %d has %v", i, keys))
			}
			return err
		})
	}
}

// F14
func TestNoOverlapOnFiveServers(t *testing.T) {
	redistest.Long(t)
	startFive(t, func() *redistest.Server { return redistest.Start(t) }).exclude(t)
}

// The clocks are hours apart, and each wanders by less than the 1 % of the lease that docs/guarantees.md allows.
//
// F14, F18
func TestNoOverlapOnFiveServersWhoseClocksWander(t *testing.T) {
	var clocks []*redistest.Clock
	f := startFive(t, func() *redistest.Server {
		s, clock := redistest.StartClock(t, 0)
		clocks = append(clocks, clock)
		return s
	})
	stop, stopped := make(chan struct{}), make(chan struct{})
	for i, clock := range clocks {
		clock.Set(time.Duration(i-2) * time.Hour)
	}
	go func() {
		defer close(stopped)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				i := rand.N(5)
				clocks[i].Step(time.Duration(i-2)*time.Hour + rand.N(5*time.Millisecond))
			}
		}
	}()
	defer func() { <-stopped }()
	defer close(stop)
	f.exclude(t)
}

// A server that was not touched has nothing of a failed try after 100 ms, one whose reply was lost after the repeated release.
//
// F14
func TestFailedTryLeavesNothingOnFiveServers(t *testing.T) {
	f := startFive(t, func() *redistest.Server { return redistest.Start(t) })
	lag := faulttest.MeasureLag(t, f.servers[0].Addr())
	redLock, proxies := f.process(t)
	l := redLock("a")
	taken, failed := 0, 0
	for round := range faulttest.Rounds(t, 25, 300) {
		var whole, lossy, dead []int
		spared := 1 + rand.N(3)
		if round < 3 { // which succeed
			spared = 5
		}
		for i, n := range rand.Perm(5) {
			switch p := proxies[n]; {
			case i < spared:
				whole = append(whole, n)
			case rand.N(3) == 0:
				p.DropReply(faulttest.Script, 1)
				lossy = append(lossy, n)
			case rand.N(2) == 0:
				p.Blackhole(true)
				dead = append(dead, n)
			default:
				f.servers[n].Kill()
				dead = append(dead, n)
			}
		}
		h, err := l.TryLock(t.Context())
		if err == nil {
			taken++
			if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrUnknown) { // a lossy server may answer too late
				require.NoError(t, err)
			}
		} else {
			failed++
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
		}
		f.empty(t, 100*time.Millisecond+lag.Late(), whole...)
		f.empty(t, settled+lag.Late(), lossy...)
		for _, n := range dead {
			proxies[n].Blackhole(false)
			if f.redis[n].Ping(t.Context()).Err() != nil {
				f.servers[n].Restart()
			}
		}
		f.empty(t, fiveLease+settled+lag.Late(), 0, 1, 2, 3, 4)
	}
	t.Logf("%d tries succeeded, %d failed", taken, failed)
	assert.Positive(t, taken)
	assert.Positive(t, failed)
}
