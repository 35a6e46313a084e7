package redlatchotel

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
)

const (
	stateKey = attribute.Key("redlatch.state") // of messages
	taskKey  = attribute.Key("redlatch.task")  // by its name
	fromKey  = attribute.Key("redlatch.from")  // of hits
)

// Queue is a queue whose states are to be shown, such as a *rdelayedqueue.Queue.
type Queue interface {
	Name() string
	Stats(ctx context.Context) (rdelayedqueue.Stats, error)
}

// watched is what is looked at when metrics are collected.
type watched struct {
	inspect.Gauges
	timeout time.Duration

	holds, waits, messages, paused, groups, up, tasks, orphaned metric.Int64ObservableGauge
	longestHold, longestWait, lag                               metric.Float64ObservableGauge

	hits, misses, stale, loads, failures, invalidations metric.Int64ObservableCounter // of caches
	entries, disconnected                               metric.Int64ObservableGauge
}

// Watch shows what a client holds and waits for, and counts what its caches do, until the result is called. Each collection then costs
// time in proportion to that.
func (t *Telemetry) Watch(c *redlatch.Client) (stop func()) { return t.watched.Watch(c) }

// WatchQueue shows the states of a queue, until the result is called. Each collection then costs a round trip. Of a queue that several
// processes share one is enough. The queue's name is always an attribute. Of several queues of one name, with different name prefixes
// or on different servers, the one that was watched first is shown.
func (t *Telemetry) WatchQueue(q Queue) (stop func()) { return t.watched.WatchQueue(q) }

// WatchExecutor shows the states of an executor's tasks, and of those of each name, at most 100, until the result is called. Each
// collection then costs some round trips, see [rexecutor.Executor.Stats]. What is said of queues in [Telemetry.WatchQueue] holds here too.
func (t *Telemetry) WatchExecutor(ex *rexecutor.Executor) (stop func()) {
	return t.watched.WatchExecutor(ex)
}

func (t *Telemetry) observables(m metric.Meter) error {
	w := &t.watched
	var failed []error
	var all []metric.Observable
	number := func(to *metric.Int64ObservableGauge, name, unit, description string) {
		g, err := m.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(description))
		*to, failed, all = g, append(failed, err), append(all, g)
	}
	seconds := func(to *metric.Float64ObservableGauge, name, description string) {
		g, err := m.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(description))
		*to, failed, all = g, append(failed, err), append(all, g)
	}
	counter := func(to *metric.Int64ObservableCounter, name, unit, description string) {
		c, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
		*to, failed, all = c, append(failed, err), append(all, c)
	}
	number(&w.holds, "redlatch.holds", "{hold}", "Locks, permits and messages that are held.")
	number(&w.waits, "redlatch.waits", "{call}", "Calls that wait for somebody else.")
	seconds(&w.longestHold, "redlatch.hold.longest", "For how long the oldest of them has been held.")
	seconds(&w.longestWait, "redlatch.wait.longest", "For how long the first of them has waited.")
	number(&w.messages, "redlatch.queue.messages", "{message}", "Messages of a queue, or tasks of an executor.")
	seconds(&w.lag, "redlatch.queue.lag", "For how long the message has been due that is delivered next, 0 if none is ready.")
	number(&w.paused, "redlatch.queue.paused", "1", "1 while the queue is paused, else 0.")
	number(&w.groups, "redlatch.queue.waiting_groups", "{group}", "Groups of which a message waits for another.")
	number(&w.tasks, "redlatch.executor.tasks", "{task}", "Tasks of an executor, by their names.")
	number(&w.orphaned, "redlatch.executor.orphaned", "1", "1 while tasks of the name wait and no worker handles them, else 0.")
	number(&w.up, "redlatch.queue.up", "1", "1 if the queue's states are known, 0 if Redis has not answered.")
	counter(&w.hits, "redlatch.cache.hits", "{read}", "Reads of caches and near maps that were answered in the client, or by a value in Redis.")
	counter(&w.misses, "redlatch.cache.misses", "{read}", "Reads of caches that had to load, or to wait for a load, and of near maps that asked Redis.")
	counter(&w.stale, "redlatch.cache.stale", "{read}", "Reads of caches that returned an old value, which is refreshed then.")
	counter(&w.loads, "redlatch.cache.loads", "{load}", "Calls of the loaders of caches.")
	counter(&w.failures, "redlatch.cache.load_failures", "{load}", "Calls of the loaders of caches that failed.")
	number(&w.entries, "redlatch.near.entries", "{entry}", "Values that clients keep near.")
	counter(&w.invalidations, "redlatch.near.invalidations", "{key}", "Keys whose near values were dropped because of a change.")
	number(&w.disconnected, "redlatch.near.disconnected", "{client}", "Clients that keep nothing near now, as they do not hear of changes.")
	if err := errors.Join(failed...); err != nil {
		return err
	}
	_, err := m.RegisterCallback(t.observe, all...)
	return err
}

// observe is called when metrics are collected.
func (t *Telemetry) observe(ctx context.Context, o metric.Observer) error {
	w := &t.watched
	crowds := func(all map[inspect.Object]*inspect.Crowd, number metric.Int64Observable, longest metric.Float64Observable) {
		for which, c := range all {
			of := metric.WithAttributeSet(attribute.NewSet(object(which.Kind, which.Name)...))
			o.ObserveInt64(number, int64(c.Count), of)
			o.ObserveFloat64(longest, c.Longest().Seconds(), of)
		}
	}
	holds, waits := w.Crowds(t.name)
	crowds(holds, w.holds, w.longestHold)
	crowds(waits, w.waits, w.longestWait)
	t.observeCaches(o)
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	w.Queues(ctx, func(q inspect.Object, s rexecutor.Stats, err error) {
		of := func(more ...attribute.KeyValue) metric.MeasurementOption {
			return metric.WithAttributes(append(more, system, kindKey.String(q.Kind), semconv.MessagingDestinationName(q.Name))...)
		}
		if err != nil {
			o.ObserveInt64(w.up, 0, of())
			return
		}
		o.ObserveInt64(w.up, 1, of())
		for state, n := range inspect.StateCounts(s.Delayed, s.Ready, s.InFlight, s.Dead) {
			o.ObserveInt64(w.messages, int64(n), of(stateKey.String(state)))
		}
		o.ObserveFloat64(w.lag, s.Oldest.Seconds(), of())
		o.ObserveInt64(w.paused, int64(script.Flag(s.Paused)), of())
		o.ObserveInt64(w.groups, int64(s.Groups), of())
		for _, t := range s.Tasks {
			for state, n := range inspect.StateCounts(t.Delayed, t.Ready, t.InFlight, t.Dead) {
				o.ObserveInt64(w.tasks, int64(n), of(taskKey.String(t.Name), stateKey.String(state)))
			}
			o.ObserveInt64(w.orphaned, int64(script.Flag(t.Orphaned)), of(taskKey.String(t.Name)))
		}
	})
	return nil
}

func (t *Telemetry) observeCaches(to metric.Observer) {
	w := &t.watched
	for which, c := range w.Caches(t.name) {
		count := func(of metric.Int64Observable, n uint64, more ...attribute.KeyValue) {
			to.ObserveInt64(of, int64(n), metric.WithAttributes(append(more, object(which.Kind, which.Name)...)...)) //nolint:gosec // no count comes near the limit
		}
		count(w.misses, c.Misses)
		if which.Kind == kinds.Cache {
			count(w.hits, c.Hits, fromKey.String(inspect.FromRedis))
			count(w.stale, c.Stale)
			count(w.loads, c.Loads)
			count(w.failures, c.Failures)
		}
		if c.Near {
			count(w.hits, c.NearHits, fromKey.String(inspect.FromNear))
			count(w.invalidations, c.Invalidations)
			count(w.entries, uint64(c.Entries))   //nolint:gosec // not negative
			count(w.disconnected, uint64(c.Lost)) //nolint:gosec // likewise
		}
	}
}
