package redlatchotel

import (
	"context"
	"errors"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
)

const scope = "github.com/redlatch/redlatch/contrib/redlatchotel"

// The attributes that the semantic conventions do not know.
const (
	kindKey    = attribute.Key("redlatch.kind")    // of the object
	nameKey    = attribute.Key("redlatch.name")    // of the object
	ownerKey   = attribute.Key("redlatch.owner")   // of the hold
	askedKey   = attribute.Key("redlatch.asked")   // how often Redis was asked
	resultKey  = attribute.Key("redlatch.result")  // ok, refused, unavailable, unwritable, cancelled, failed
	attemptKey = attribute.Key("redlatch.attempt") // of a message
)

// The operations on queues.
const (
	send    = "send"
	process = "process"
)

// Telemetry makes spans and metrics of what clients do. It is safe for concurrent use.
type Telemetry struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	names      map[string]bool
	acquiring  map[string]string // the names of spans, by kind: to join one costs an allocation
	scripts    bool

	acquire, hold, send, process, late, script metric.Float64Histogram
	lost, renewals, dead                       metric.Int64Counter
	woken, reconnects, failovers               metric.Int64Counter
	watched                                    watched

	series atomic.Pointer[seriesByKey] // a set of attributes costs more to make than a measurement
	adding sync.Mutex                  // held while the series are replaced
}

// asClient is the kind of spans of calls; a variable, so that a span does not make it anew.
var asClient = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient)} //nolint:gochecknoglobals // a constant in all but name

// seriesByKey are never changed: there are few, so a new one has them copied.
type seriesByKey map[seriesKey]*series

// seriesKey is what a series is found by. The first is object, script, or the operation on a queue; a name is a label, of which there
// are few.
type seriesKey struct{ of, kind, node, name, task, result string }

// series has the attributes of a time series.
type series struct {
	record []metric.RecordOption
	add    []metric.AddOption
}

// Option is a setting of [New].
type Option interface{ set(s *settings) }

type setting func(*settings)

func (f setting) set(s *settings) { f(s) }

type settings struct {
	tracers    trace.TracerProvider
	meters     metric.MeterProvider
	propagator propagation.TextMapPropagator
	names      []string
	scripts    bool
	timeout    time.Duration
}

// WithTracerProvider sets where spans go. A sampler sees the name of the span of a call that acquires, which has the kind of the
// object, and not its attributes. Defaults to the global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return setting(func(s *settings) { s.tracers = p })
}

// WithMeterProvider sets where metrics go. Defaults to the global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return setting(func(s *settings) { s.meters = p })
}

// WithPropagator sets how the context of a trace travels with a message. Defaults to W3C's trace context.
func WithPropagator(p propagation.TextMapPropagator) Option {
	return setting(func(s *settings) { s.propagator = p })
}

// WithNames says which names of objects are attributes of metrics, where each is a time series of its own. Spans have all
// names. Defaults to none.
func WithNames(names ...string) Option {
	return setting(func(s *settings) { s.names = append(s.names, names...) })
}

// WithScripts adds a span and a measurement, db.client.operation.duration, for each script that is sent to Redis, of which a lock
// and its release need two. Each script is a time series for each server. Defaults to neither.
func WithScripts() Option { return setting(func(s *settings) { s.scripts = true }) }

// WithCollectTimeout sets how long a collection of metrics waits for the states of all queues together. Defaults to 2 s,
// as 0 or less is.
func WithCollectTimeout(d time.Duration) Option {
	return setting(func(s *settings) {
		if d > 0 {
			s.timeout = d
		}
	})
}

// New returns telemetry. It fails if the meter provider refuses an instrument.
func New(opts ...Option) (*Telemetry, error) {
	s := settings{tracers: otel.GetTracerProvider(), meters: otel.GetMeterProvider(), propagator: propagation.TraceContext{}, timeout: 2 * time.Second}
	for _, opt := range opts {
		opt.set(&s)
	}
	t := &Telemetry{
		tracer: s.tracers.Tracer(scope), propagator: s.propagator, names: map[string]bool{}, acquiring: map[string]string{}, scripts: s.scripts,
	}
	for _, kind := range []string{kinds.Lock, kinds.FairLock, kinds.RWLock, kinds.MultiLock, kinds.Semaphore, kinds.Permits, kinds.Limiter, kinds.Once, kinds.Cache, kinds.Election} {
		t.acquiring[kind] = "acquire " + kind
	}
	t.series.Store(&seriesByKey{})
	for _, name := range s.names {
		t.names[name] = true
	}
	t.watched.timeout = s.timeout
	meter := s.meters.Meter(scope)
	return t, errors.Join(t.instruments(meter), t.observables(meter))
}

func (t *Telemetry) instruments(m metric.Meter) error {
	var failed []error
	histogram := func(to *metric.Float64Histogram, name, description string) {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(0.00025, 0.001, 0.004, 0.016, 0.064, 0.256, 1, 4, 16, 64, 256))
		*to, failed = h, append(failed, err)
	}
	counter := func(to *metric.Int64Counter, name, unit, description string) {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
		*to, failed = c, append(failed, err)
	}
	histogram(&t.acquire, "redlatch.acquire.duration", "How long calls that acquire took.")
	histogram(&t.hold, "redlatch.hold.duration", "How long holds lasted that were released or lost.")
	histogram(&t.send, "messaging.client.operation.duration", "How long calls that offer messages took.")
	histogram(&t.process, "messaging.process.duration", "How long handlers of messages took.")
	histogram(&t.late, "redlatch.message.late", "How long messages had been due when their handlers began.")
	histogram(&t.script, "db.client.operation.duration", "How long Redis took to answer scripts, the way included.")
	counter(&t.lost, "redlatch.lost", "{hold}", "Holds that ended although nobody released them.")
	counter(&t.renewals, "redlatch.renewals", "{lease}", "Leases that were renewed or lost, and calls to renew that failed.")
	counter(&t.dead, "redlatch.dead_letters", "{message}", "Messages that became dead letters.")
	counter(&t.woken, "redlatch.wakeups", "{message}", "Messages from Redis that woke waiters.")
	counter(&t.reconnects, "redlatch.reconnects", "{connection}", "Subscription connections that were replaced.")
	counter(&t.failovers, "redlatch.failovers", "{failover}", "Failovers and restarts of Redis that a client has noticed.")
	if err := errors.Join(failed...); err != nil {
		return err
	}
	t.reconnects.Add(context.Background(), 0) //nolint:forbidigo // so that the first one is an increase
	t.failovers.Add(context.Background(), 0)  //nolint:forbidigo // likewise
	return nil
}

// Observer returns the observer for redlatch.WithObserver. Several clients may have it.
func (t *Telemetry) Observer() redlatch.Observer {
	o := redlatch.Observer{
		AcquireStart: t.acquireStart, AcquireEnd: t.acquireEnd,
		HoldEnd: t.holdEnd,
		Renewed: t.renewed,
		Woken:   t.wokenUp, Reconnected: t.reconnected, FailedOver: t.failedOver,
		OfferStart: t.offerStart, OfferEnd: t.offerEnd,
		HandleStart: t.handleStart, HandleEnd: t.handleEnd,
		DeadLetter: t.deadLetter,
	}
	if t.scripts {
		o.ScriptStart, o.ScriptEnd = t.scriptStart, t.scriptEnd
	}
	return o
}

func (t *Telemetry) acquireStart(ctx context.Context, e redlatch.AcquireStartEvent) context.Context {
	name, ok := t.acquiring[e.Kind]
	if !ok {
		name = "acquire " + e.Kind
	}
	ctx, span := t.tracer.Start(ctx, name, asClient...)
	if span.IsRecording() { // most are not sampled
		span.SetAttributes(kindKey.String(e.Kind), nameKey.String(e.Name))
	}
	return ctx
}

func (t *Telemetry) acquireEnd(ctx context.Context, e redlatch.AcquireEndEvent) {
	span := trace.SpanFromContext(ctx)
	if span.IsRecording() {
		span.SetAttributes(askedKey.Int(e.Asked), ownerKey.String(e.Owner))
	}
	end(span, "", inspect.Result(e.Err), e.Err)
	t.acquire.Record(ctx, e.Waited.Seconds(), t.object(e.Kind, e.Name, inspect.Result(e.Err)).record...)
}

func (t *Telemetry) holdEnd(ctx context.Context, e redlatch.HoldEndEvent) {
	of := t.object(e.Kind, e.Name, "")
	t.hold.Record(ctx, e.Held.Seconds(), of.record...)
	if e.Err != nil {
		t.lost.Add(ctx, 1, of.add...)
	}
}

func (t *Telemetry) renewed(renewed, lost int, err error) {
	ctx := context.Background() //nolint:forbidigo // a renewal has none
	if err != nil {
		t.renewals.Add(ctx, 1, metric.WithAttributes(resultKey.String("failed"), semconv.ErrorTypeKey.String(inspect.Result(err))))
		return
	}
	t.renewals.Add(ctx, int64(renewed), metric.WithAttributes(resultKey.String("renewed")))
	t.renewals.Add(ctx, int64(lost), metric.WithAttributes(resultKey.String("lost")))
}

func (t *Telemetry) wokenUp(kind, _ string) {
	t.woken.Add(context.Background(), 1, t.object(kind, "", "").add...) //nolint:forbidigo // a message has none
}

func (t *Telemetry) reconnected() { t.reconnects.Add(context.Background(), 1) } //nolint:forbidigo // it has none

func (t *Telemetry) failedOver(string) { t.failovers.Add(context.Background(), 1) } //nolint:forbidigo // it has none

func (t *Telemetry) offerStart(ctx context.Context, e redlatch.OfferStartEvent) context.Context {
	attributes := []attribute.KeyValue{
		system, semconv.MessagingOperationTypeSend, semconv.MessagingOperationName(send),
		kindKey.String(e.Kind), semconv.MessagingDestinationName(e.Name),
	}
	if e.Messages > 1 { // the convention forbids it for one
		attributes = append(attributes, semconv.MessagingBatchMessageCount(e.Messages))
	}
	ctx, _ = t.tracer.Start(ctx, "send "+e.Name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
	t.propagator.Inject(ctx, propagation.MapCarrier(e.Headers))
	return ctx
}

func (t *Telemetry) offerEnd(ctx context.Context, e redlatch.OfferEndEvent) {
	span := trace.SpanFromContext(ctx)
	if span.IsRecording() && len(e.IDs) == 1 {
		span.SetAttributes(semconv.MessagingMessageID(e.IDs[0]))
	}
	end(span, send, inspect.Result(e.Err), e.Err)
	t.send.Record(ctx, e.Took.Seconds(), t.queue(seriesKey{of: send, kind: e.Kind, name: e.Name, result: inspect.Result(e.Err)}).record...)
}

func (t *Telemetry) handleStart(ctx context.Context, e redlatch.HandleStartEvent) context.Context {
	ctx = t.propagator.Extract(ctx, propagation.MapCarrier(e.Headers))
	attributes := []attribute.KeyValue{
		system, semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName(process),
		kindKey.String(e.Kind), semconv.MessagingDestinationName(e.Name), semconv.MessagingMessageID(e.ID), attemptKey.Int(e.Attempt),
	}
	if e.Task != "" {
		attributes = append(attributes, taskKey.String(e.Task))
	}
	ctx, _ = t.tracer.Start(ctx, "process "+e.Name, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...))
	t.late.Record(ctx, e.Late.Seconds(), t.queue(seriesKey{kind: e.Kind, name: e.Name, task: e.Task}).record...)
	return ctx
}

func (t *Telemetry) handleEnd(ctx context.Context, e redlatch.HandleEndEvent) {
	result := inspect.Handled(e)
	end(trace.SpanFromContext(ctx), process, result, e.Err)
	t.process.Record(ctx, e.Took.Seconds(), t.queue(seriesKey{of: process, kind: e.Kind, name: e.Name, task: e.Task, result: result}).record...)
}

func (t *Telemetry) deadLetter(ctx context.Context, e redlatch.DeadLetterEvent) {
	t.dead.Add(ctx, 1, t.queue(seriesKey{kind: e.Kind, name: e.Name, task: e.Task}).add...)
}

func (t *Telemetry) scriptStart(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
	ctx, _ = t.tracer.Start(ctx, e.Name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(scriptOn(e.Name, e.Node)...))
	return ctx
}

// scriptOn returns the attributes of a script, or a command, that a server runs.
func scriptOn(name, node string) []attribute.KeyValue {
	all := []attribute.KeyValue{semconv.DBSystemNameRedis}
	if strings.Contains(name, ".") {
		all = append(all, semconv.DBOperationName("EVALSHA"), semconv.DBStoredProcedureName(name))
	} else {
		all = append(all, semconv.DBOperationName(strings.ToUpper(name)))
	}
	host, port, err := net.SplitHostPort(node)
	if err != nil { // a socket of this machine, or a node that is not known yet
		host = node
	}
	if host != "" {
		all = append(all, semconv.ServerAddress(host))
	}
	if n, err := strconv.Atoi(port); err == nil {
		all = append(all, semconv.ServerPort(n))
	}
	return all
}

func (t *Telemetry) scriptEnd(ctx context.Context, e redlatch.ScriptEndEvent) {
	end(trace.SpanFromContext(ctx), "", inspect.Result(e.Err), e.Err)
	k := seriesKey{of: "script", node: e.Node, name: e.Name, result: inspect.Result(e.Err)}
	of := t.known(k)
	if of == nil { // the convention has an error, and no result
		of = t.learn(k, append(scriptOn(e.Name, e.Node), outcome("", k.result)[1:]...)...)
	}
	t.script.Record(ctx, e.Took.Seconds(), of.record...)
}

// system is what the messages are sent by.
var system = semconv.MessagingSystemKey.String("redlatch") //nolint:gochecknoglobals // a constant in all but name

// outcome returns the attributes of a result. A lock that somebody else has is no fault, unless a handler failed for it, and neither is a
// message that a handler has put off.
func outcome(operation, result string) []attribute.KeyValue {
	if result == "ok" || result == inspect.Snoozed || result == "refused" && operation != process {
		return []attribute.KeyValue{resultKey.String(result)}
	}
	return []attribute.KeyValue{resultKey.String(result), semconv.ErrorTypeKey.String(result)}
}

// end ends a span.
func end(span trace.Span, operation, result string, err error) {
	if span.IsRecording() {
		with := outcome(operation, result)
		span.SetAttributes(with...)
		if len(with) > 1 {
			span.RecordError(err)
			span.SetStatus(codes.Error, result)
		}
	}
	span.End()
}

// known returns a series that was measured before; nil for none.
func (t *Telemetry) known(k seriesKey) *series { return (*t.series.Load())[k] }

// learn makes a series.
func (t *Telemetry) learn(k seriesKey, attributes ...attribute.KeyValue) *series {
	t.adding.Lock()
	defer t.adding.Unlock()
	option := metric.WithAttributeSet(attribute.NewSet(attributes...))
	more := maps.Clone(*t.series.Load())
	more[k] = &series{[]metric.RecordOption{option}, []metric.AddOption{option}}
	t.series.Store(&more)
	return more[k]
}

// object returns the series of an object; without a result if that is "".
func (t *Telemetry) object(kind, name, result string) *series {
	k := seriesKey{of: "object", kind: kind, name: t.name(name), result: result}
	if s := t.known(k); s != nil {
		return s
	}
	attributes := object(kind, k.name)
	if result != "" {
		attributes = append(attributes, outcome("", result)...)
	}
	return t.learn(k, attributes...)
}

// object returns the attributes of an object; without a name if that is "". Each attribute costs time at each measurement.
func object(kind, name string) []attribute.KeyValue {
	if name == "" {
		return []attribute.KeyValue{kindKey.String(kind)}
	}
	return []attribute.KeyValue{kindKey.String(kind), nameKey.String(name)}
}

// queue returns the series of an operation on a queue, with what there is of the key.
func (t *Telemetry) queue(k seriesKey) *series {
	k.name = t.name(k.name)
	if s := t.known(k); s != nil {
		return s
	}
	attributes := []attribute.KeyValue{system, kindKey.String(k.kind)}
	if k.name != "" {
		attributes = append(attributes, semconv.MessagingDestinationName(k.name))
	}
	if k.task != "" {
		attributes = append(attributes, taskKey.String(k.task))
	}
	if k.of != "" {
		attributes = append(append(attributes, semconv.MessagingOperationName(k.of)), outcome(k.of, k.result)...)
	}
	return t.learn(k, attributes...)
}

func (t *Telemetry) name(name string) string {
	if t.names[name] {
		return name
	}
	return ""
}
