package redlatchprom_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/redlatchprom"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rscheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// value returns what a registry has under a name and labels, in the form a="b",c="d"; of a histogram the count. It fails the test if
// there is no such series.
func value(t *testing.T, r *prometheus.Registry, name, labels string) float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var pairs []string
			for _, l := range m.GetLabel() {
				if l.GetName() == "task" && l.GetValue() == "" { // which Prometheus takes for none
					continue
				}
				pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			if strings.Join(pairs, ",") != labels {
				continue
			}
			switch {
			case m.Histogram != nil:
				return float64(m.Histogram.GetSampleCount())
			case m.Counter != nil:
				return m.Counter.GetValue()
			}
			return m.Gauge.GetValue()
		}
	}
	require.Failf(t, "no series", "%s{%s}", name, labels)
	return 0
}

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := redlatchprom.New(redlatchprom.WithNames("orders", "mail"))
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(metrics)
		c, err := embedded.Open(redlatch.WithObserver(metrics.Observer()))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		unwatch := metrics.Watch(c)

		orders, err := c.GetLock("orders").Lock(t.Context())
		require.NoError(t, err)
		secret, err := c.GetLock("customer-4711").Lock(t.Context())
		require.NoError(t, err)
		_, err = c.GetLock("orders").TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		ctx, giveUp := context.WithCancel(t.Context())
		waits := make(chan error, 1)
		go func() { _, err := c.GetLock("orders").Lock(ctx); waits <- err }()
		time.Sleep(11 * time.Second)
		assert.InDelta(t, 1, value(t, registry, "redlatch_holds", `kind="lock",name="orders"`), 0)
		assert.InDelta(t, 1, value(t, registry, "redlatch_holds", `kind="lock",name=""`), 0)
		assert.InDelta(t, 11, value(t, registry, "redlatch_longest_hold_seconds", `kind="lock",name="orders"`), 0.1)
		assert.InDelta(t, 1, value(t, registry, "redlatch_waits", `kind="lock",name="orders"`), 0)
		assert.InDelta(t, 11, value(t, registry, "redlatch_longest_wait_seconds", `kind="lock",name="orders"`), 0.1)
		giveUp()
		require.ErrorIs(t, <-waits, context.Canceled)
		assert.Positive(t, value(t, registry, "redlatch_renewals_total", `result="renewed"`))
		require.NoError(t, orders.Unlock(t.Context()))
		assert.InDelta(t, 2, value(t, registry, "redlatch_acquire_seconds", `kind="lock",name="orders",result="refused"`)+
			value(t, registry, "redlatch_acquire_seconds", `kind="lock",name="orders",result="ok"`), 0)
		assert.InDelta(t, 1, value(t, registry, "redlatch_acquire_seconds", `kind="lock",name="orders",result="cancelled"`), 0)
		assert.InDelta(t, 1, value(t, registry, "redlatch_hold_seconds", `kind="lock",name="orders"`), 0)

		_, err = c.GetLock("customer-4711").ForceUnlock(t.Context())
		require.NoError(t, err)
		<-secret.Context().Done()
		time.Sleep(time.Second)
		assert.InDelta(t, 1, value(t, registry, "redlatch_lost_total", `kind="lock",name=""`), 0)
		text, err := testutil.CollectAndFormat(metrics, expfmt.TypeTextPlain)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "4711")
		unwatch()
		assert.Zero(t, testutil.CollectAndCount(metrics, "redlatch_holds"))
	})
}

func TestMetricsOfCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := redlatchprom.New(redlatchprom.WithNames("users", "prices"))
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(metrics)
		c, err := embedded.Open()
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		unwatch := metrics.Watch(c)
		load := func(_ context.Context, k string) (string, error) {
			if k == "bad" {
				return "", errors.New("no luck")
			}
			return "Ann", nil
		}
		users := rcache.New(c, "users", load, rcache.WithNear(10), rcache.WithRefresh(10*time.Second))
		secret := rcache.New(c, "customer-4711", load)
		for _, k := range []string{"a", "a", "a", "bad"} {
			_, _ = users.Get(t.Context(), k) // the failure is counted
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		for range 2 { // the old value, and the new one
			_, err = users.Get(t.Context(), "a")
			require.NoError(t, err)
			synctest.Wait()
		}
		_, err = secret.Get(t.Context(), "a")
		require.NoError(t, err)
		prices := rmap.New[string, int](c, "prices", rmap.WithNear(10))
		_, _, err = prices.Get(t.Context(), "tea")
		require.NoError(t, err)
		require.NoError(t, users.Invalidate(t.Context(), "a"))
		is := func(want float64, name, labels string) {
			t.Helper()
			assert.InDelta(t, want, value(t, registry, name, labels), 0, name)
		}
		is(1, "redlatch_cache_hits_total", `from="near",kind="cache",name="users"`)
		is(3, "redlatch_cache_hits_total", `from="redis",kind="cache",name="users"`)
		is(2, "redlatch_cache_misses_total", `kind="cache",name="users"`)
		is(1, "redlatch_cache_stale_total", `kind="cache",name="users"`)
		is(3, "redlatch_cache_loads_total", `kind="cache",name="users"`)
		is(1, "redlatch_cache_load_failures_total", `kind="cache",name="users"`)
		is(1, "redlatch_near_entries", `kind="cache",name="users"`)
		is(1, "redlatch_near_invalidations_total", `kind="cache",name="users"`)
		is(0, "redlatch_near_disconnected", `kind="cache",name="users"`)
		is(1, "redlatch_cache_misses_total", `kind="map",name="prices"`)
		is(1, "redlatch_cache_loads_total", `kind="cache",name=""`)
		text, err := testutil.CollectAndFormat(metrics, expfmt.TypeTextPlain)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "4711")
		unwatch()
		is(3, "redlatch_cache_loads_total", `kind="cache",name="users"`)
		runtime.KeepAlive(users)
	})
}

// Prometheus sees the first event as an increase only if the counter was there before.
func TestCountersOfAlertsBeginAtZero(t *testing.T) {
	metrics := redlatchprom.New(redlatchprom.WithNames("orders"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	for _, name := range []string{"", "orders"} {
		for _, kind := range []string{"lock", "fair_lock", "rw_lock", "permits", "once", "election"} {
			assert.Zero(t, value(t, registry, "redlatch_lost_total", fmt.Sprintf("kind=%q,name=%q", kind, name)))
		}
		for _, kind := range []string{"queue", "executor", "scheduler"} {
			assert.Zero(t, value(t, registry, "redlatch_dead_letters_total", fmt.Sprintf("kind=%q,name=%q", kind, name)))
		}
	}
	for _, result := range []string{"renewed", "lost", "failed"} {
		assert.Zero(t, value(t, registry, "redlatch_renewals_total", fmt.Sprintf("result=%q", result)))
	}
	assert.Equal(t, 12+6+3, testutil.CollectAndCount(metrics, "redlatch_lost_total", "redlatch_dead_letters_total", "redlatch_renewals_total"))
}

func TestMetricsOfQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := redlatchprom.New(redlatchprom.WithNames("mail"))
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(metrics)
		c, err := embedded.Open(redlatch.WithObserver(metrics.Observer()))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		q := redlatch.GetDelayedQueue[string](c, "mail", rdelayedqueue.WithMaxAttempts(1))
		defer metrics.WatchQueue(q)()
		defer metrics.WatchQueue(redlatch.GetDelayedQueue[string](c, "mail"))()
		for _, value := range []string{"good", "bad", "snoozed"} {
			_, err := q.Offer(t.Context(), value, 0)
			require.NoError(t, err)
		}
		_, err = q.Offer(t.Context(), "later", time.Hour)
		require.NoError(t, err)
		assert.InDelta(t, 3, value(t, registry, "redlatch_queue_messages", `kind="queue",name="mail",state="ready"`), 0)
		time.Sleep(10 * time.Second)
		assert.InDelta(t, 10, value(t, registry, "redlatch_queue_lag_seconds", `kind="queue",name="mail"`), 0.1)
		ctx, stop := context.WithCancel(t.Context())
		consumed := make(chan error, 1)
		go func() {
			consumed <- q.Consume(ctx, func(_ context.Context, m *rdelayedqueue.Message[string]) error {
				switch m.Value {
				case "bad":
					return errors.New("bad")
				case "snoozed":
					return rdelayedqueue.Snooze(time.Hour)
				}
				return nil
			})
		}()
		time.Sleep(time.Second)
		stop()
		require.NoError(t, <-consumed)
		assert.InDelta(t, 4, value(t, registry, "redlatch_offered_messages_total", `kind="queue",name="mail",result="ok"`), 0)
		assert.InDelta(t, 1, value(t, registry, "redlatch_handle_seconds", `kind="queue",name="mail",result="ok"`), 0)
		assert.InDelta(t, 1, value(t, registry, "redlatch_handle_seconds", `kind="queue",name="mail",result="failed"`), 0)
		assert.InDelta(t, 1, value(t, registry, "redlatch_handle_seconds", `kind="queue",name="mail",result="snoozed"`), 0)
		assert.InDelta(t, 3, value(t, registry, "redlatch_late_seconds", `kind="queue",name="mail"`), 0)
		assert.InDelta(t, 1, value(t, registry, "redlatch_dead_letters_total", `kind="queue",name="mail"`), 0)
		for state, n := range map[string]float64{"delayed": 2, "ready": 0, "in flight": 0, "dead": 1} {
			assert.InDelta(t, n, value(t, registry, "redlatch_queue_messages", fmt.Sprintf("kind=%q,name=%q,state=%q", "queue", "mail", state)), 0, state)
		}
		assert.Zero(t, value(t, registry, "redlatch_queue_paused", `kind="queue",name="mail"`))
		require.NoError(t, q.Pause(t.Context()))
		assert.InDelta(t, 1, value(t, registry, "redlatch_queue_paused", `kind="queue",name="mail"`), 0)
		assert.Positive(t, value(t, registry, "redlatch_script_seconds", `result="ok",script="rdelayedqueue.offer"`))
	})
}

func TestMetricsOfExecutors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := redlatchprom.New(redlatchprom.WithNames("media"))
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(metrics)
		c, err := embedded.Open(redlatch.WithObserver(metrics.Observer()))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		ex := rexecutor.New(c, "media", rexecutor.WithCapacity(4))
		defer metrics.WatchExecutor(ex)()
		resize, report := rexecutor.NewTask[string, struct{}]("resize"), rexecutor.NewTask[string, struct{}]("report")
		work, stop := context.WithCancel(t.Context())
		require.NoError(t, resize.Handle(ex, func(_ context.Context, c rexecutor.Call[string]) (struct{}, error) {
			if c.Args == "bad" {
				assert.Equal(t, 6+1, testutil.CollectAndCount(metrics, "redlatch_dead_letters_total"), "that of the task begins at 0")
				return struct{}{}, rexecutor.Reject(errors.New("bad"))
			}
			<-work.Done()
			return struct{}{}, nil
		}))
		worked := make(chan error, 1)
		go func() { worked <- ex.Work(work) }()
		for _, picture := range []string{"bad", "good", "other"} {
			require.NoError(t, resize.Send(t.Context(), ex, picture, rexecutor.WithGroup("ann")))
			synctest.Wait()
		}
		require.NoError(t, report.Send(t.Context(), ex, "today"))
		require.NoError(t, report.Send(t.Context(), ex, "tomorrow", rexecutor.WithDelay(time.Hour)))
		require.ErrorIs(t, report.Send(t.Context(), ex, "in vain"), rexecutor.ErrFull)
		time.Sleep(10 * time.Second)
		of := `kind="executor",name="media"`
		assert.InDelta(t, 1, value(t, registry, "redlatch_queue_up", of), 0)
		assert.Zero(t, value(t, registry, "redlatch_queue_paused", of))
		assert.InDelta(t, 10, value(t, registry, "redlatch_queue_lag_seconds", of), 0.1)
		assert.InDelta(t, 1, value(t, registry, "redlatch_queue_waiting_groups", of), 0)
		assert.InDelta(t, 1, value(t, registry, "redlatch_offered_messages_total", of+`,result="full"`), 0)
		for state, want := range map[string][3]float64{"delayed": {1, 1, 0}, "ready": {2, 1, 1}, "in flight": {1, 0, 1}, "dead": {1, 0, 1}} {
			assert.InDelta(t, want[0], value(t, registry, "redlatch_queue_messages", fmt.Sprintf("%s,state=%q", of, state)), 0, state)
			assert.InDelta(t, want[1], value(t, registry, "redlatch_executor_tasks", fmt.Sprintf("name=%q,state=%q,task=%q", "media", state, "report")), 0, state)
			assert.InDelta(t, want[2], value(t, registry, "redlatch_executor_tasks", fmt.Sprintf("name=%q,state=%q,task=%q", "media", state, "resize")), 0, state)
		}
		assert.InDelta(t, 1, value(t, registry, "redlatch_executor_orphaned", `name="media",task="report"`), 0)
		assert.Zero(t, value(t, registry, "redlatch_executor_orphaned", `name="media",task="resize"`))
		stop()
		require.NoError(t, <-worked)
		for result, n := range map[string]float64{"failed": 1, "ok": 1} {
			assert.InDelta(t, n, value(t, registry, "redlatch_handle_seconds", fmt.Sprintf("%s,result=%q,task=%q", of, result, "resize")), 0, result)
		}
		assert.InDelta(t, 2, value(t, registry, "redlatch_late_seconds", of+`,task="resize"`), 0)
		assert.InDelta(t, 1, value(t, registry, "redlatch_dead_letters_total", of+`,task="resize"`), 0)
	})
}

// The tick that waits for the run of the one before is due at its instant, and not when it was put back.
func TestDriftOfASchedulerIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := redlatchprom.New(redlatchprom.WithNames("billing"))
		c, err := embedded.Open(redlatch.WithObserver(metrics.Observer()))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		s := c.GetScheduler("billing")
		took := 13 * time.Second // of the first run
		require.NoError(t, s.Register("close", rscheduler.Every(10*time.Second), func(context.Context, rscheduler.Run) error {
			time.Sleep(took)
			took = 0
			return nil
		}, rscheduler.WithOverlap(rscheduler.Queue)))
		time.Sleep(time.Until(time.Now().Truncate(10 * time.Second).Add(15 * time.Second)))
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		require.NoError(t, s.Run(ctx))
		text, err := testutil.CollectAndFormat(metrics, expfmt.TypeTextPlain, "redlatch_late_seconds")
		require.NoError(t, err)
		assert.Regexp(t, `redlatch_late_seconds_sum\{kind="scheduler",name="billing",task=""\} 3(\.0\d*)?\n`, string(text))
	})
}

// Each call of such a queue returns ErrInvalid. A scrape lives on, and has all other metrics.
func TestQueueWithABadNameBreaksNoScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		metrics := redlatchprom.New(redlatchprom.WithNames("mail\xff"))
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(metrics)
		assert.Zero(t, value(t, registry, "redlatch_dead_letters_total", `kind="queue",name="mail�"`))
		c, err := embedded.Open()
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		for _, name := range []string{"mail", "mail\xff", "mail\xfe"} {
			defer metrics.WatchQueue(redlatch.GetDelayedQueue[string](c, name))()
		}
		assert.InDelta(t, 1, value(t, registry, "redlatch_queue_up", `kind="queue",name="mail"`), 0)
		assert.Zero(t, value(t, registry, "redlatch_queue_up", `kind="queue",name="mail�"`))
	})
}

func TestQueueThatDoesNotAnswerIsDown(t *testing.T) {
	metrics := redlatchprom.New(redlatchprom.WithScrapeTimeout(10*time.Millisecond), redlatchprom.WithScrapeTimeout(0))
	defer metrics.WatchQueue(silent{})()
	began := time.Now()
	assert.Equal(t, 1, testutil.CollectAndCount(metrics, "redlatch_queue_up"))
	assert.Zero(t, testutil.CollectAndCount(metrics, "redlatch_queue_messages"))
	assert.Less(t, time.Since(began), 5*time.Second)
}

// F28: Redis answers, so nothing is unavailable, and yet nothing can be acquired.
func TestFullRedisIsTold(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	metrics := redlatchprom.New()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	c, err := redlatch.Open(t.Context(), server.URL(), redlatch.WithObserver(metrics.Observer()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	require.NoError(t, server.Client(t).ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = c.GetLock("orders").TryLock(t.Context())
	require.ErrorIs(t, err, redlatch.ErrUnwritable)
	_, err = redlatch.GetDelayedQueue[string](c, "mail").Offer(t.Context(), "hello", 0)
	require.ErrorIs(t, err, redlatch.ErrUnwritable)
	assert.InDelta(t, 1, value(t, registry, "redlatch_acquire_seconds", `kind="lock",name="",result="unwritable"`), 0)
	assert.InDelta(t, 1, value(t, registry, "redlatch_offered_messages_total", `kind="queue",name="",result="unwritable"`), 0)
	assert.Positive(t, value(t, registry, "redlatch_script_seconds", `result="unwritable",script="rlock.acquire"`))
	assert.Positive(t, value(t, registry, "redlatch_script_seconds", `result="unwritable",script="rdelayedqueue.offer"`))
}

// F29: the main path on nodes that each have a part of the names.
func TestMetricsOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	metrics := redlatchprom.New(redlatchprom.WithNames("mail"))
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics)
	c, err := redlatch.New(cluster.Client(t), redlatch.WithObserver(metrics.Observer()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	q := redlatch.GetDelayedQueue[string](c, "mail")
	t.Cleanup(metrics.Watch(c))
	t.Cleanup(metrics.WatchQueue(q))
	const n = 12
	nodes := map[string]bool{}
	for i := range n {
		name := fmt.Sprint("order:", i)
		nodes[cluster.Owner(t, name).Addr()] = true
		hold, err := c.GetLock(name).Lock(t.Context())
		require.NoError(t, err)
		defer func() { assert.NoError(t, hold.Unlock(context.WithoutCancel(t.Context()))) }()
		_, err = q.Offer(t.Context(), "hello", 0)
		require.NoError(t, err)
	}
	require.Len(t, nodes, 3, "each node has some of the locks")
	assert.InDelta(t, n, value(t, registry, "redlatch_acquire_seconds", `kind="lock",name="",result="ok"`), 0)
	assert.InDelta(t, n, value(t, registry, "redlatch_holds", `kind="lock",name=""`), 0)
	assert.InDelta(t, 1, value(t, registry, "redlatch_queue_up", `kind="queue",name="mail"`), 0)
	assert.InDelta(t, n, value(t, registry, "redlatch_queue_messages", `kind="queue",name="mail",state="ready"`), 0)
}

// silent is a queue on a server that does not answer.
type silent struct{}

func (silent) Name() string { return "silent" }

func (silent) Stats(ctx context.Context) (rdelayedqueue.Stats, error) {
	<-ctx.Done()
	return rdelayedqueue.Stats{}, ctx.Err()
}

func TestMetricsKeepTheRulesOfPrometheus(t *testing.T) {
	problems, err := testutil.CollectAndLint(redlatchprom.New())
	require.NoError(t, err)
	assert.Empty(t, problems)
}

// full is the reply of a full Redis.
type full struct{}

func (full) Error() string { return "OOM command not allowed when used memory > 'maxmemory'." }
func (full) RedisError()   {}

func TestResultTellsBusyFromDown(t *testing.T) {
	for result, err := range map[string]error{
		"ok":          nil,
		"refused":     fmt.Errorf("x: %w", rlock.ErrNotAcquired),
		"unavailable": fmt.Errorf("x: %w: %w", rlock.ErrNotAcquired, redlatch.ErrUnavailable),
		"unwritable":  fmt.Errorf("x: %w", full{}),
		"full":        fmt.Errorf("x: %w", rdelayedqueue.ErrFull),
		"cancelled":   context.DeadlineExceeded,
		"failed":      errors.New("x"),
	} {
		assert.Equal(t, result, redlatchprom.Result(err))
	}
}
