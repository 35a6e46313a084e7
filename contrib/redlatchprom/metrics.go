package redlatchprom

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
)

// Metrics are the metrics of any number of clients. They are a [prometheus.Collector]. They are safe for concurrent use.
type Metrics struct {
	names map[string]string // to their labels

	acquire, hold, handle, late, script *prometheus.HistogramVec
	lost, renewals, offers, dead, woken *prometheus.CounterVec
	reconnects, failovers               prometheus.Counter

	children atomic.Pointer[children] // a lookup by labels, or in a sync.Map, costs more than the observation
	adding   sync.Mutex               // held while children are replaced

	watched watched
}

// key is what a child of a histogram is found by.
type key struct {
	of     *prometheus.HistogramVec
	labels [4]string
}

// children are never changed: there are few, so a new one has them copied.
type children map[key]prometheus.Observer

// Option is a setting of [New].
type Option interface{ set(s *settings) }

type setting func(*settings)

func (f setting) set(s *settings) { f(s) }

type settings struct {
	names   []string
	buckets []float64
	timeout time.Duration
}

// WithNames says which names of objects are labels. In a label, what is not UTF-8 is U+FFFD. Defaults to none.
func WithNames(names ...string) Option {
	return setting(func(s *settings) { s.names = append(s.names, names...) })
}

// WithBuckets sets the upper bounds of all histograms, in seconds. Defaults to bounds from 250 µs to about 9 minutes, each
// four times the one before.
func WithBuckets(bounds ...float64) Option { return setting(func(s *settings) { s.buckets = bounds }) }

// WithScrapeTimeout sets how long a scrape waits for the states of all queues together. Defaults to 2 s, as 0 or less is.
func WithScrapeTimeout(d time.Duration) Option {
	return setting(func(s *settings) {
		if d > 0 {
			s.timeout = d
		}
	})
}

// The results of renewals, as the label result.
const (
	renewalsRenewed = "renewed"
	renewalsLost    = "lost"
	renewalsFailed  = "failed"
)

// New returns metrics, which are to be registered.
func New(opts ...Option) *Metrics {
	s := settings{buckets: prometheus.ExponentialBuckets(250e-6, 4, 12), timeout: 2 * time.Second}
	for _, opt := range opts {
		opt.set(&s)
	}
	m := &Metrics{names: map[string]string{}}
	m.children.Store(&children{})
	for _, name := range s.names {
		m.names[name] = utf8Of(name)
	}
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "redlatch", Name: name, Help: help, Buckets: s.buckets}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "redlatch", Name: name, Help: help}, labels)
	}
	m.acquire = histogram("acquire_seconds", "How long calls that acquire took.", "kind", "name", "result")
	m.hold = histogram("hold_seconds", "How long holds lasted that were released or lost.", "kind", "name")
	m.handle = histogram("handle_seconds", "How long handlers of messages took.", "kind", "name", "task", "result")
	m.late = histogram("late_seconds", "How long messages had been due when their handlers began.", "kind", "name", "task")
	m.script = histogram("script_seconds", "How long Redis took to answer scripts, the way included.", "script", "result")
	m.lost = counter("lost_total", "Holds that ended although nobody released them.", "kind", "name")
	m.renewals = counter("renewals_total", "Leases that were renewed or lost, and calls to renew that failed.", "result")
	m.offers = counter("offered_messages_total", "Messages that were offered to queues.", "kind", "name", "result")
	m.dead = counter("dead_letters_total", "Messages that became dead letters.", "kind", "name", "task")
	m.woken = counter("wakeups_total", "Messages from Redis that woke waiters.", "kind")
	m.reconnects = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "redlatch", Name: "reconnects_total", Help: "Subscription connections that were replaced.",
	})
	m.failovers = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "redlatch", Name: "failovers_total", Help: "Failovers and restarts of Redis that a client has noticed.",
	})
	m.watched.init(s.timeout)
	m.zero()
	return m
}

// zero has the counters that alerts look at begin at 0: the first event of one that began at 1 would be no increase.
func (m *Metrics) zero() {
	for _, name := range append(slices.Collect(maps.Values(m.names)), "") {
		for _, kind := range []string{kinds.Lock, kinds.FairLock, kinds.RWLock, kinds.Permits, kinds.Once, kinds.Election} {
			m.lost.WithLabelValues(kind, name)
		}
		for _, kind := range []string{kinds.Queue, kinds.Executor, kinds.Scheduler} {
			m.dead.WithLabelValues(kind, name, "")
		}
	}
	for _, result := range []string{renewalsRenewed, renewalsLost, renewalsFailed} {
		m.renewals.WithLabelValues(result)
	}
}

// all are the metrics that are counted as things happen.
func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.acquire, m.hold, m.handle, m.late, m.script, m.lost, m.renewals, m.offers, m.dead, m.woken, m.reconnects, m.failovers,
	}
}

// Describe sends the descriptions of all metrics.
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(to)
	}
	m.watched.describe(to)
}

// Collect sends all metrics. It asks Redis for the states of the queues of [Metrics.WatchQueue].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(to)
	}
	m.watched.collect(m.name, to)
}

// Observer returns the observer that counts, for redlatch.WithObserver. Several clients may have it.
func (m *Metrics) Observer() redlatch.Observer {
	return redlatch.Observer{
		AcquireEnd: func(_ context.Context, e redlatch.AcquireEndEvent) {
			m.observe(m.acquire, e.Waited, e.Kind, m.name(e.Name), Result(e.Err))
		},
		HoldEnd: func(_ context.Context, e redlatch.HoldEndEvent) {
			m.observe(m.hold, e.Held, e.Kind, m.name(e.Name))
			if e.Err != nil {
				m.lost.WithLabelValues(e.Kind, m.name(e.Name)).Inc()
			}
		},
		Renewed: func(renewed, lost int, err error) {
			if err != nil {
				m.renewals.WithLabelValues(renewalsFailed).Inc()
				return
			}
			m.renewals.WithLabelValues(renewalsRenewed).Add(float64(renewed))
			m.renewals.WithLabelValues(renewalsLost).Add(float64(lost))
		},
		Woken:       func(kind, _ string) { m.woken.WithLabelValues(kind).Inc() },
		Reconnected: m.reconnects.Inc,
		FailedOver:  func(string) { m.failovers.Inc() },
		OfferEnd: func(_ context.Context, e redlatch.OfferEndEvent) {
			m.offers.WithLabelValues(e.Kind, m.name(e.Name), Result(e.Err)).Add(float64(e.Messages))
		},
		HandleStart: func(ctx context.Context, e redlatch.HandleStartEvent) context.Context {
			m.observe(m.late, e.Late, e.Kind, m.name(e.Name), utf8Of(e.Task))
			return ctx
		},
		HandleEnd: func(_ context.Context, e redlatch.HandleEndEvent) {
			m.observe(m.handle, e.Took, e.Kind, m.name(e.Name), utf8Of(e.Task), inspect.Handled(e))
		},
		DeadLetter: func(_ context.Context, e redlatch.DeadLetterEvent) {
			m.dead.WithLabelValues(e.Kind, m.name(e.Name), utf8Of(e.Task)).Inc()
		},
		ScriptEnd: func(_ context.Context, e redlatch.ScriptEndEvent) {
			m.observe(m.script, e.Took, e.Name, Result(e.Err))
		},
	}
}

// observe counts a time.
func (m *Metrics) observe(of *prometheus.HistogramVec, d time.Duration, labels ...string) {
	k := key{of: of}
	copy(k.labels[:], labels)
	child, ok := (*m.children.Load())[k]
	if !ok {
		child = m.add(k, slices.Clone(labels)) // a clone, so that labels stay on the stack
	}
	child.Observe(d.Seconds())
}

func (m *Metrics) add(k key, labels []string) prometheus.Observer {
	m.adding.Lock()
	defer m.adding.Unlock()
	more := maps.Clone(*m.children.Load())
	more[k] = k.of.WithLabelValues(labels...)
	if k.of == m.late {
		m.dead.WithLabelValues(labels...) // begins at 0, as in zero
	}
	m.children.Store(&more)
	return more[k]
}

// utf8Of returns a text as a label may have it.
func utf8Of(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// name returns the label of a name; empty for one that is no label.
func (m *Metrics) name(name string) string { return m.names[name] }

// Result returns the label that says what came of a call.
func Result(err error) string { return inspect.Result(err) }
