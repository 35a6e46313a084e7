package scenario_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rid"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rscheduler"
)

// F19: whichever key of a barrier Redis evicts, nobody passes without the other participant; the round goes on, or it breaks for whoever
// is in it, and the next one is whole.
func TestEvictionOfASingleKeyLetsNobodyPassABarrierAlone(t *testing.T) {
	broken := map[string]string{
		"redlatch_barrier_arrived:{await barrier}": "await ",
		"redlatch_double_arrived:{enter double}":   "enter ",
		"redlatch_double_inside:{leave double}":    "leave ",
		"redlatch_double_leaving:{leave double}":   "leave ",
	}
	evicted := evictEach(t, func(t *testing.T, b *locktest.Bubble) func(t *testing.T, key string) {
		t.Helper()
		one, two := b.Peer(t).Client, b.Peer(t).Client
		met := meetings(t, b.Redis, one, two)
		return func(t *testing.T, key string) {
			t.Helper()
			time.Sleep(3 * time.Second) // all have asked
			for _, m := range met {
				is := broken[key] == m.name
				if !is {
					assert.Empty(t, m.first, m.name)
				}
				m.end(t, is)
				together(t, one, two, m.name)
			}
		}
	})
	assert.Subset(t, evicted, slices.Collect(maps.Keys(broken)))
}

// F19: ids go on above Redis's clock, and a rate limiter gives its tokens back, once.
func TestEvictionRepeatsNoIDAndGivesTokensBackOnce(t *testing.T) {
	evictEach(t, func(t *testing.T, b *locktest.Bubble) func(t *testing.T, key string) {
		t.Helper()
		clients := []*redlatch.Client{b.Peer(t).Client, b.Peer(t).Client}
		ids := []use{idsInTurn(clients, "plain ids"), idsInTurn(clients, "timed ids", rid.WithTimePrefix(20), rid.WithEpoch(time.Unix(0, 0)))}
		l := clients[0].GetRateLimiter("limiter", rratelimiter.Per(10, time.Minute))
		taken := func() (n int) {
			for range 20 {
				res, err := l.Allow(t.Context(), "k", 1)
				require.NoError(t, err)
				if res.Allowed {
					n++
				}
			}
			return n
		}
		for i, u := range ids {
			ids[i].once = func(ctx context.Context) error {
				time.Sleep(time.Millisecond) // Redis's clock goes on
				return u.once(ctx)
			}
		}
		useEach(t, ids, 20)
		require.Equal(t, 10, taken())
		return func(t *testing.T, key string) {
			t.Helper()
			want := 0
			if strings.Contains(key, "limiter") {
				want = 10
			}
			assert.Equal(t, want, taken())
			assert.Zero(t, taken())
			time.Sleep(time.Second) // within one second ids with a time may repeat, as documented
			useEach(t, ids, 20)
		}
	})
}

// F8, F19: whichever key of a scheduler Redis evicts, no two runs of a job go on at once, its ticks come again, and a paused job runs only
// if its pause was evicted.
func TestEvictionOfASingleKeyLeavesASchedulerThatWorks(t *testing.T) {
	redistest.Long(t)
	evicted := evictEach(t, func(t *testing.T, b *locktest.Bubble) func(t *testing.T, key string) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		ends, begun := make(chan error, 2), make(chan struct{}, 100)
		var mu sync.Mutex // guards the rest
		running, ticks, paused := map[context.Context]bool{}, map[time.Time]bool{}, 0
		work := func(ctx context.Context, run rscheduler.Run) error {
			mu.Lock()
			for other := range running {
				assert.Error(t, other.Err(), "two runs at once")
			}
			running[ctx], ticks[run.Scheduled] = true, true
			mu.Unlock()
			begun <- struct{}{}
			select {
			case <-time.After(5 * time.Second):
			case <-ctx.Done():
			}
			mu.Lock()
			defer mu.Unlock()
			delete(running, ctx)
			return nil
		}
		var schedulers []*rscheduler.Scheduler
		for range 2 {
			s := b.Peer(t, redlatch.WithCloseGrace(0)).GetScheduler("n", rscheduler.WithLease(6*time.Second))
			require.NoError(t, s.Register("job", rscheduler.Every(10*time.Second), work))
			require.NoError(t, s.Register("paused", rscheduler.Every(time.Minute), func(context.Context, rscheduler.Run) error {
				mu.Lock()
				defer mu.Unlock()
				paused++
				return nil
			}))
			go func() { ends <- s.Run(ctx) }()
			schedulers = append(schedulers, s)
		}
		<-begun
		require.NoError(t, schedulers[0].Pause(t.Context(), "paused", "why"))
		<-begun
		mu.Lock()
		clear(ticks)
		paused = 0
		mu.Unlock()
		time.Sleep(time.Second)
		return func(t *testing.T, key string) {
			t.Helper()
			time.Sleep(3 * time.Minute)
			stop()
			assert.NoError(t, errors.Join(<-ends, <-ends))
			assert.Greater(t, len(ticks), 12, "of 18 ticks")
			assert.Equal(t, strings.HasSuffix(key, ":paused"), paused > 0, "the paused job ran")
		}
	})
	for _, suffix := range []string{"alive", "jobs", "job:job", "meta", "job:paused", "runs:job", "ticks:bodies", "ticks:due", "ticks:flight"} {
		assert.True(t, slices.ContainsFunc(evicted, func(key string) bool { return strings.HasSuffix(key, ":"+suffix) }), suffix)
	}
}
