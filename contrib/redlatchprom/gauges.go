package redlatchprom

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
)

// Queue is a queue whose states are to be shown, such as a *rdelayedqueue.Queue.
type Queue interface {
	Name() string
	Stats(ctx context.Context) (rdelayedqueue.Stats, error)
}

// watched is what is looked at when it is asked for.
type watched struct {
	inspect.Gauges
	timeout time.Duration

	holds, waits, longestHold, longestWait, messages, lag, paused, groups, up, tasks, orphaned *prometheus.Desc

	hits, misses, stale, loads, failures, entries, invalidations, disconnected *prometheus.Desc // of caches
}

func (g *watched) init(timeout time.Duration) {
	g.timeout = timeout
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("redlatch_"+name, help, labels, nil)
	}
	g.holds = desc("holds", "Locks, permits and messages that are held.", "kind", "name")
	g.waits = desc("waits", "Calls that wait for somebody else.", "kind", "name")
	g.longestHold = desc("longest_hold_seconds", "For how long the oldest of them has been held.", "kind", "name")
	g.longestWait = desc("longest_wait_seconds", "For how long the first of them has waited.", "kind", "name")
	g.hits = desc("cache_hits_total", "Reads of caches and near maps that were answered in the client, or by a value in Redis.", "kind", "name", "from")
	g.misses = desc("cache_misses_total", "Reads of caches that had to load, or to wait for a load, and of near maps that asked Redis.", "kind", "name")
	g.stale = desc("cache_stale_total", "Reads of caches that returned an old value, which is refreshed then.", "kind", "name")
	g.loads = desc("cache_loads_total", "Calls of the loaders of caches.", "kind", "name")
	g.failures = desc("cache_load_failures_total", "Calls of the loaders of caches that failed.", "kind", "name")
	g.entries = desc("near_entries", "Values that clients keep near.", "kind", "name")
	g.invalidations = desc("near_invalidations_total", "Keys whose near values were dropped because of a change.", "kind", "name")
	g.disconnected = desc("near_disconnected", "Clients that keep nothing near now, as they do not hear of changes.", "kind", "name")
	g.messages = desc("queue_messages", "Messages of a queue, or tasks of an executor.", "kind", "name", "state")
	g.lag = desc("queue_lag_seconds", "For how long the message has been due that is delivered next, 0 if none is ready.", "kind", "name")
	g.paused = desc("queue_paused", "1 while the queue is paused, else 0.", "kind", "name")
	g.groups = desc("queue_waiting_groups", "Groups of which a message waits for another.", "kind", "name")
	g.up = desc("queue_up", "1 if the queue's states are known, 0 if Redis has not answered.", "kind", "name")
	g.tasks = desc("executor_tasks", "Tasks of an executor, by their names.", "name", "task", "state")
	g.orphaned = desc("executor_orphaned", "1 while tasks of the name wait and no worker handles them, else 0.", "name", "task")
}

func (g *watched) describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		g.holds, g.waits, g.longestHold, g.longestWait, g.messages, g.lag, g.paused, g.groups, g.up, g.tasks, g.orphaned,
		g.hits, g.misses, g.stale, g.loads, g.failures, g.entries, g.invalidations, g.disconnected,
	} {
		to <- d
	}
}

// Watch shows what a client holds and waits for, and counts what its caches do, until the result is called. Each scrape then costs time
// in proportion to that.
func (m *Metrics) Watch(c *redlatch.Client) (stop func()) { return m.watched.Watch(c) }

// WatchQueue shows the states of a queue, until the result is called. Each scrape then costs a round trip. Of a queue that several
// processes share one is enough. The queue's name is always a label. Of several queues of one name, with different name prefixes
// or on different servers, the one that was watched first is shown.
func (m *Metrics) WatchQueue(q Queue) (stop func()) { return m.watched.WatchQueue(q) }

// WatchExecutor shows the states of an executor's tasks, and of those of each name, at most 100, until the result is called. Each scrape
// then costs some round trips, see [rexecutor.Executor.Stats]. What is said of queues in [Metrics.WatchQueue] holds here too.
func (m *Metrics) WatchExecutor(ex *rexecutor.Executor) (stop func()) {
	return m.watched.WatchExecutor(ex)
}

func (g *watched) collect(name func(string) string, to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	crowds := func(all map[inspect.Object]*inspect.Crowd, number, longest *prometheus.Desc) {
		for o, c := range all {
			send(number, float64(c.Count), o.Kind, o.Name)
			send(longest, c.Longest().Seconds(), o.Kind, o.Name)
		}
	}
	holds, waits := g.Crowds(name)
	crowds(holds, g.holds, g.longestHold)
	crowds(waits, g.waits, g.longestWait)
	g.caches(name, to)
	ctx, cancel := context.WithTimeout(context.Background(), g.timeout) //nolint:forbidigo // a scrape has no context
	defer cancel()
	g.Queues(ctx, func(o inspect.Object, s rexecutor.Stats, err error) {
		if err != nil {
			send(g.up, 0, o.Kind, o.Name)
			return
		}
		send(g.up, 1, o.Kind, o.Name)
		for state, n := range inspect.StateCounts(s.Delayed, s.Ready, s.InFlight, s.Dead) {
			send(g.messages, float64(n), o.Kind, o.Name, state)
		}
		send(g.lag, s.Oldest.Seconds(), o.Kind, o.Name)
		send(g.paused, float64(script.Flag(s.Paused)), o.Kind, o.Name)
		send(g.groups, float64(s.Groups), o.Kind, o.Name)
		for _, t := range s.Tasks {
			task := utf8Of(t.Name)
			for state, n := range inspect.StateCounts(t.Delayed, t.Ready, t.InFlight, t.Dead) {
				send(g.tasks, float64(n), o.Name, task, state)
			}
			send(g.orphaned, float64(script.Flag(t.Orphaned)), o.Name, task)
		}
	})
}

func (g *watched) caches(name func(string) string, to chan<- prometheus.Metric) {
	for o, c := range g.Caches(name) {
		count := func(d *prometheus.Desc, n uint64, more ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), append([]string{o.Kind, o.Name}, more...)...)
		}
		gauge := func(d *prometheus.Desc, n int) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), o.Kind, o.Name)
		}
		count(g.misses, c.Misses)
		if o.Kind == kinds.Cache {
			count(g.hits, c.Hits, inspect.FromRedis)
			count(g.stale, c.Stale)
			count(g.loads, c.Loads)
			count(g.failures, c.Failures)
		}
		if c.Near {
			count(g.hits, c.NearHits, inspect.FromNear)
			count(g.invalidations, c.Invalidations)
			gauge(g.entries, c.Entries)
			gauge(g.disconnected, c.Lost)
		}
	}
}
