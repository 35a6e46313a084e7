package redlatchprom

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// Queue is a queue whose states are to be shown, such as a *rdelayedqueue.Queue.
type Queue interface {
	Name() string
	Stats(ctx context.Context) (rdelayedqueue.Stats, error)
}

// gauges are what is looked at when it is asked for.
type gauges struct {
	metrics *Metrics
	timeout time.Duration

	holds, waits, longestHold, longestWait, messages, paused, up *prometheus.Desc

	mu      sync.Mutex // guards the rest
	next    int
	clients map[int]*redlatch.Client
	queues  map[int]Queue
}

func (g *gauges) init(m *Metrics, timeout time.Duration) {
	g.metrics, g.timeout = m, timeout
	g.clients, g.queues = map[int]*redlatch.Client{}, map[int]Queue{}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("redlatch_"+name, help, labels, nil)
	}
	g.holds = desc("holds", "Locks, permits and messages that are held.", "kind", "name")
	g.waits = desc("waits", "Calls that wait for somebody else.", "kind", "name")
	g.longestHold = desc("longest_hold_seconds", "For how long the oldest of them has been held.", "kind", "name")
	g.longestWait = desc("longest_wait_seconds", "For how long the first of them has waited.", "kind", "name")
	g.messages = desc("queue_messages", "Messages of a queue.", "name", "state")
	g.paused = desc("queue_paused", "1 while the queue is paused, else 0.", "name")
	g.up = desc("queue_up", "1 if the queue's states are known, 0 if Redis did not tell.", "name")
}

func (g *gauges) describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.holds, g.waits, g.longestHold, g.longestWait, g.messages, g.paused, g.up} {
		to <- d
	}
}

// Watch shows what a client holds and waits for, until the result is called. Each scrape then costs time in proportion to that.
func (m *Metrics) Watch(c *redlatch.Client) (stop func()) {
	return watch(&m.gauges, m.gauges.clients, c)
}

// WatchQueue shows the states of a queue, until the result is called. Each scrape then costs a round trip. Of a queue that several
// processes share one is enough. The queue's name is always a label.
func (m *Metrics) WatchQueue(q Queue) (stop func()) { return watch(&m.gauges, m.gauges.queues, q) }

func watch[T any](g *gauges, all map[int]T, one T) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	id := g.next
	g.next++
	all[id] = one
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(all, id)
	}
}

// object is what holds and waits are counted by.
type object struct{ kind, name string }

// crowd is how many there are of an object, and since when.
type crowd struct {
	count int
	since time.Time
}

func (c *crowd) add(since time.Time) {
	c.count++
	if c.since.IsZero() || since.Before(c.since) {
		c.since = since
	}
}

func (g *gauges) collect(to chan<- prometheus.Metric) {
	g.mu.Lock()
	clients, queues := slices.Collect(maps.Values(g.clients)), slices.Collect(maps.Values(g.queues))
	g.mu.Unlock()
	holds, waits := map[object]*crowd{}, map[object]*crowd{}
	add := func(to map[object]*crowd, kind, name string, since time.Time) {
		o := object{kind, g.metrics.name(name)}
		if to[o] == nil {
			to[o] = &crowd{}
		}
		to[o].add(since)
	}
	for _, c := range clients {
		for _, h := range c.Holds() {
			add(holds, h.Kind, h.Name, h.Since)
		}
		for _, w := range c.Waits() {
			add(waits, w.Kind, w.Name, w.Since)
		}
	}
	now := time.Now()
	send := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for o, c := range holds {
		send(g.holds, float64(c.count), o.kind, o.name)
		send(g.longestHold, max(0, now.Sub(c.since).Seconds()), o.kind, o.name)
	}
	for o, c := range waits {
		send(g.waits, float64(c.count), o.kind, o.name)
		send(g.longestWait, max(0, now.Sub(c.since).Seconds()), o.kind, o.name)
	}
	g.collectQueues(queues, send)
}

// collectQueues asks for the states of all queues at the same time. A queue that is watched twice is shown once.
func (g *gauges) collectQueues(queues []Queue, send func(d *prometheus.Desc, value float64, labels ...string)) {
	//nolint:forbidigo // a scrape has no context
	ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
	defer cancel()
	byName := map[string]Queue{}
	for _, q := range queues {
		byName[q.Name()] = q
	}
	var asking sync.WaitGroup
	for name, q := range byName {
		asking.Go(func() {
			s, err := q.Stats(ctx)
			if err != nil {
				send(g.up, 0, name)
				return
			}
			send(g.up, 1, name)
			for state, n := range map[string]int{"delayed": s.Delayed, "ready": s.Ready, "in flight": s.InFlight, "dead": s.Dead} {
				send(g.messages, float64(n), name, state)
			}
			paused := 0.0
			if s.Paused {
				paused = 1
			}
			send(g.paused, paused, name)
		})
	}
	asking.Wait()
}
