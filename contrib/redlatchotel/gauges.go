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
	"github.com/redlatch/redlatch/rdelayedqueue"
)

const stateKey = attribute.Key("redlatch.state") // of messages

// Queue is a queue whose states are to be shown, such as a *rdelayedqueue.Queue.
type Queue interface {
	Name() string
	Stats(ctx context.Context) (rdelayedqueue.Stats, error)
}

// watched is what is looked at when metrics are collected.
type watched struct {
	inspect.Gauges
	timeout time.Duration

	holds, waits, messages, paused, up metric.Int64ObservableGauge
	longestHold, longestWait           metric.Float64ObservableGauge
}

// Watch shows what a client holds and waits for, until the result is called. Each collection then costs time in proportion to that.
func (t *Telemetry) Watch(c *redlatch.Client) (stop func()) { return t.watched.Watch(c) }

// WatchQueue shows the states of a queue, until the result is called. Each collection then costs a round trip. Of a queue that several
// processes share one is enough. The queue's name is always an attribute. Of several queues of one name, with different name prefixes
// or on different servers, the one that was watched first is shown.
func (t *Telemetry) WatchQueue(q Queue) (stop func()) { return t.watched.WatchQueue(q) }

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
	number(&w.holds, "redlatch.holds", "{hold}", "Locks, permits and messages that are held.")
	number(&w.waits, "redlatch.waits", "{call}", "Calls that wait for somebody else.")
	seconds(&w.longestHold, "redlatch.hold.longest", "For how long the oldest of them has been held.")
	seconds(&w.longestWait, "redlatch.wait.longest", "For how long the first of them has waited.")
	number(&w.messages, "redlatch.queue.messages", "{message}", "Messages of a queue.")
	number(&w.paused, "redlatch.queue.paused", "1", "1 while the queue is paused, else 0.")
	number(&w.up, "redlatch.queue.up", "1", "1 if the queue's states are known, 0 if Redis has not answered.")
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
	ctx, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	w.Queues(ctx, func(name string, s rdelayedqueue.Stats, err error) {
		of := func(more ...attribute.KeyValue) metric.MeasurementOption {
			return metric.WithAttributes(append(more, system, semconv.MessagingDestinationName(name))...)
		}
		if err != nil {
			o.ObserveInt64(w.up, 0, of())
			return
		}
		o.ObserveInt64(w.up, 1, of())
		for state, n := range inspect.StateCounts(s) {
			o.ObserveInt64(w.messages, int64(n), of(stateKey.String(state)))
		}
		paused := int64(0)
		if s.Paused {
			paused = 1
		}
		o.ObserveInt64(w.paused, paused, of())
	})
	return nil
}
