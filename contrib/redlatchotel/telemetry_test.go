package redlatchotel_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/redlatchotel"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rscheduler"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lab is a client whose spans and metrics stay in memory.
type lab struct {
	*redlatch.Client
	told   *redlatchotel.Telemetry
	spans  *tracetest.InMemoryExporter
	tracer *trace.TracerProvider
	reader *metric.ManualReader
}

func inLab(t *testing.T, test func(t *testing.T, l *lab), opts ...redlatchotel.Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, opts...)
		var err error
		l.Client, err = embedded.Open(redlatch.WithObserver(l.told.Observer()))
		require.NoError(t, err)
		defer func() { require.NoError(t, l.Close()) }()
		test(t, l)
	})
}

// newLab returns one without a client.
func newLab(t *testing.T, opts ...redlatchotel.Option) *lab {
	t.Helper()
	l := &lab{spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader()}
	l.tracer = trace.NewTracerProvider(trace.WithSyncer(l.spans))
	var err error
	l.told, err = redlatchotel.New(append(opts, redlatchotel.WithTracerProvider(l.tracer),
		redlatchotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(l.reader))))...)
	require.NoError(t, err)
	return l
}

// gauge returns the value of a gauge for attributes, which are all that it has; false if it has none.
func (l *lab) gauge(t *testing.T, name string, labels ...attribute.KeyValue) (value float64, found bool) {
	t.Helper()
	want := attribute.NewSet(labels...)
	switch d := l.metric(t, name).(type) {
	case metricdata.Gauge[int64]:
		for _, p := range d.DataPoints {
			if p.Attributes.Equals(&want) {
				return float64(p.Value), true
			}
		}
	case metricdata.Gauge[float64]:
		for _, p := range d.DataPoints {
			if p.Attributes.Equals(&want) {
				return p.Value, true
			}
		}
	}
	return 0, false
}

// metric returns what is collected of a metric; nil if there is nothing.
func (l *lab) metric(t *testing.T, name string) metricdata.Aggregation {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, l.reader.Collect(t.Context(), &data))
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				return m.Data
			}
		}
	}
	return nil
}

// take returns the spans that have ended since it was last called, by their names.
func (l *lab) take() map[string]tracetest.SpanStub {
	all := map[string]tracetest.SpanStub{}
	for _, s := range l.spans.GetSpans() {
		all[s.Name] = s
	}
	l.spans.Reset()
	return all
}

// attributes returns the attributes of a span by their names.
func attributes(s tracetest.SpanStub) map[string]any {
	all := map[string]any{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

// count returns the count of a metric for attributes, which are all that it has.
func (l *lab) count(t *testing.T, name string, labels ...attribute.KeyValue) int64 {
	t.Helper()
	want := attribute.NewSet(labels...)
	switch d := l.metric(t, name).(type) {
	case metricdata.Histogram[float64]:
		for _, p := range d.DataPoints {
			if p.Attributes.Equals(&want) {
				return int64(p.Count) //nolint:gosec // of a test
			}
		}
	case metricdata.Sum[int64]:
		for _, p := range d.DataPoints {
			if p.Attributes.Equals(&want) {
				return p.Value
			}
		}
	}
	return 0
}

func TestCallsThatAcquireAreSpans(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		ctx, parent := l.tracer.Tracer("test").Start(t.Context(), "parent")
		hold, err := l.GetLock("orders").Lock(ctx)
		require.NoError(t, err)
		s := l.take()["acquire lock"]
		assert.Equal(t, parent.SpanContext().SpanID(), s.Parent.SpanID())
		assert.Equal(t, map[string]any{
			"redlatch.kind": "lock", "redlatch.name": "orders", "redlatch.owner": hold.Owner(), "redlatch.asked": int64(1), "redlatch.result": "ok",
		}, attributes(s))
		assert.Equal(t, codes.Unset, s.Status.Code)

		_, err = l.GetLock("orders").TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		s = l.take()["acquire lock"]
		assert.Equal(t, "refused", attributes(s)["redlatch.result"])
		assert.Equal(t, codes.Unset, s.Status.Code, "a lock that is taken is no fault")
		assert.NotContains(t, attributes(s), "error.type")
		waiting, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		_, err = l.GetLock("orders").Lock(waiting)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s = l.take()["acquire lock"]
		assert.Equal(t, codes.Error, s.Status.Code)
		assert.Equal(t, "cancelled", attributes(s)["error.type"])
		assert.Equal(t, time.Second, s.EndTime.Sub(s.StartTime).Round(time.Millisecond))

		time.Sleep(time.Second)
		require.NoError(t, hold.Unlock(t.Context()))
		kind, name := attribute.String("redlatch.kind", "lock"), attribute.String("redlatch.name", "orders")
		for _, result := range []string{"ok", "refused"} {
			assert.Equal(t, int64(1), l.count(t, "redlatch.acquire.duration", kind, name, attribute.String("redlatch.result", result)), result)
		}
		assert.Equal(t, int64(1), l.count(t, "redlatch.acquire.duration", append(failed("cancelled"), kind, name)...))
		assert.Equal(t, int64(1), l.count(t, "redlatch.hold.duration", kind, name))

		secret, err := l.GetLock("customer-4711").Lock(t.Context())
		require.NoError(t, err)
		_, err = l.GetLock("customer-4711").ForceUnlock(t.Context())
		require.NoError(t, err)
		<-secret.Context().Done()
		time.Sleep(time.Second)
		assert.Equal(t, int64(1), l.count(t, "redlatch.lost", kind), "without a name that is not shown")
		parent.End()
	}, redlatchotel.WithNames("orders"))
}

// An end has the context of all starts, so a span is found by it if the one who began it was the last to do so.
func TestSpansEndAfterAnotherObserverWithSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, other := newLab(t), newLab(t)
		type key struct{}
		mine := redlatch.Observer{
			AcquireStart: func(ctx context.Context, _ redlatch.AcquireStartEvent) context.Context {
				ctx, span := other.tracer.Tracer("mine").Start(ctx, "mine")
				return context.WithValue(ctx, key{}, span.End)
			},
			AcquireEnd: func(ctx context.Context, _ redlatch.AcquireEndEvent) {
				ctx.Value(key{}).(func(...oteltrace.SpanEndOption))()
			},
		}
		c, err := embedded.Open(redlatch.WithObserver(mine), redlatch.WithObserver(l.told.Observer()))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		hold, err := c.GetLock("orders").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, hold.Unlock(t.Context()))
		span, theirs := l.take()["acquire lock"], other.take()["mine"]
		assert.Equal(t, hold.Owner(), attributes(span)["redlatch.owner"])
		assert.Equal(t, theirs.SpanContext.SpanID(), span.Parent.SpanID())
		assert.Empty(t, attributes(theirs))
	})
}

func TestNameOfAnAcquisitionIsNotJoined(t *testing.T) {
	told, err := redlatchotel.New(redlatchotel.WithTracerProvider(trace.NewTracerProvider(trace.WithSampler(trace.NeverSample()))))
	require.NoError(t, err)
	start := told.Observer().AcquireStart
	allocations := func(kind string) float64 {
		return testing.AllocsPerRun(100, func() { start(context.Background(), redlatch.AcquireStartEvent{Kind: kind, Name: "orders"}) })
	}
	for _, kind := range []string{"lock", "fair_lock", "rw_lock", "multi_lock", "permits", "limiter", "once", "election"} {
		assert.Less(t, allocations(kind), allocations("another"), kind)
	}
}

// A handler's span is a child of the offer's, whichever process offered.
func TestTraceTravelsWithAMessage(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		q := redlatch.GetDelayedQueue[string](l.Client, "mail", rdelayedqueue.WithMaxAttempts(1))
		ctx, parent := l.tracer.Tracer("test").Start(t.Context(), "parent")
		id, err := q.Offer(ctx, "work", time.Minute)
		require.NoError(t, err)
		parent.End()
		sent := l.take()["send mail"]
		assert.Equal(t, parent.SpanContext().SpanID(), sent.Parent.SpanID())
		assert.Equal(t, id, attributes(sent)["messaging.message.id"])
		assert.Equal(t, "mail", attributes(sent)["messaging.destination.name"])

		ctx, stop := context.WithCancel(t.Context())
		consumed := make(chan error, 1)
		go func() {
			consumed <- q.Consume(ctx, func(ctx context.Context, _ *rdelayedqueue.Message[string]) error {
				_, inner := l.tracer.Tracer("test").Start(ctx, "inner")
				inner.End()
				return errors.New("it failed")
			})
		}()
		time.Sleep(2 * time.Minute)
		stop()
		require.NoError(t, <-consumed)
		spans := l.take()
		processed := spans["process mail"]
		assert.Equal(t, sent.SpanContext.SpanID(), processed.Parent.SpanID())
		assert.Equal(t, sent.SpanContext.TraceID(), spans["inner"].SpanContext.TraceID())
		assert.Equal(t, processed.SpanContext.SpanID(), spans["inner"].Parent.SpanID())
		assert.Equal(t, codes.Error, processed.Status.Code)
		assert.Equal(t, "queue", attributes(sent)["redlatch.kind"])
		assert.Equal(t, "send", attributes(sent)["messaging.operation.name"])
		assert.Equal(t, "process", attributes(processed)["messaging.operation.name"])
		assert.NotContains(t, attributes(sent), "messaging.batch.message_count")
		_, err = q.OfferBatch(t.Context(), []rdelayedqueue.Item[string]{{Value: "a"}, {Value: "b"}})
		require.NoError(t, err)
		assert.Equal(t, int64(2), attributes(l.take()["send mail"])["messaging.batch.message_count"])
		assert.Equal(t, "queue", attributes(processed)["redlatch.kind"])
		queue := ofQueue("mail", attribute.String("redlatch.kind", "queue"))
		assert.Equal(t, int64(1), l.count(t, "redlatch.dead_letters", queue...))
		assert.Equal(t, int64(1), l.count(t, "redlatch.message.late", queue...))
		assert.Equal(t, int64(1), l.count(t, "messaging.process.duration",
			append(append(queue, attribute.String("messaging.operation.name", "process")), failed("failed")...)...))
		assert.Equal(t, int64(2), l.count(t, "messaging.client.operation.duration",
			append(queue, attribute.String("messaging.operation.name", "send"), attribute.String("redlatch.result", "ok"))...))
	}, redlatchotel.WithNames("mail"))
}

// A taken lock is no fault of a call that acquires. An attempt at a message has failed by it all the same.
func TestHandlerThatFailsForATakenLockHasFailed(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		q := redlatch.GetDelayedQueue[string](l.Client, "mail", rdelayedqueue.WithMaxAttempts(1))
		_, err := q.Offer(t.Context(), "work", 0)
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		require.NoError(t, q.Consume(ctx, func(context.Context, *rdelayedqueue.Message[string]) error {
			return fmt.Errorf("the customer is busy: %w", rlock.ErrNotAcquired)
		}))
		stats, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, stats.Dead)
		assert.Equal(t, codes.Error, l.take()["process mail"].Status.Code)
		assert.Equal(t, int64(1), l.count(t, "messaging.process.duration",
			ofQueue("mail", append(failed("refused"), attribute.String("redlatch.kind", "queue"), attribute.String("messaging.operation.name", "process"))...)...))
	}, redlatchotel.WithNames("mail"))
}

func TestSnoozeIsNoFailure(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		q := redlatch.GetDelayedQueue[string](l.Client, "mail")
		_, err := q.Offer(t.Context(), "work", 0)
		require.NoError(t, err)
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		require.NoError(t, q.Consume(ctx, func(context.Context, *rdelayedqueue.Message[string]) error { return rdelayedqueue.Snooze(time.Hour) }))
		processed := l.take()["process mail"]
		assert.Equal(t, codes.Unset, processed.Status.Code)
		assert.Equal(t, "snoozed", attributes(processed)["redlatch.result"])
		assert.Equal(t, int64(1), l.count(t, "messaging.process.duration", ofQueue("mail",
			attribute.String("redlatch.result", "snoozed"), attribute.String("redlatch.kind", "queue"), attribute.String("messaging.operation.name", "process"))...))
	}, redlatchotel.WithNames("mail"))
}

func TestWakeUpsReconnectionsAndFailoversAreCounted(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		sum := func(name string, labels ...attribute.KeyValue) int64 {
			t.Helper()
			require.IsType(t, metricdata.Sum[int64]{}, l.metric(t, name), name)
			return l.count(t, name, labels...)
		}
		assert.Zero(t, sum("redlatch.reconnects"), "the first one is an increase")
		assert.Zero(t, sum("redlatch.failovers"))
		latch := l.GetCountDownLatch("ready")
		_, err := latch.TrySetCount(t.Context(), 1)
		require.NoError(t, err)
		time.AfterFunc(time.Second, func() { assert.NoError(t, latch.CountDown(context.WithoutCancel(t.Context()))) })
		require.NoError(t, latch.Await(t.Context()))
		synctest.Wait() // the waiter may return before the message has been counted
		kind := attribute.String("redlatch.kind", "latch")
		assert.Equal(t, int64(1), sum("redlatch.wakeups", kind))

		o := l.told.Observer()
		assert.Zero(t, testing.AllocsPerRun(100, func() { o.Woken("latch", "ready") }))
		assert.Equal(t, int64(1+101), sum("redlatch.wakeups", kind), "without a name")
		o.Reconnected()
		o.FailedOver("127.0.0.1:6379")
		assert.Equal(t, int64(1), sum("redlatch.reconnects"))
		assert.Equal(t, int64(1), sum("redlatch.failovers"))
	}, redlatchotel.WithNames("ready"))
}

// The tick that waits for the run of the one before is due at its instant, and not when it was put back.
func TestDriftOfASchedulerIsMeasured(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		s := l.GetScheduler("billing")
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
		late, ok := l.metric(t, "redlatch.message.late").(metricdata.Histogram[float64])
		require.True(t, ok)
		require.Len(t, late.DataPoints, 1)
		want := attribute.NewSet(ofQueue("billing", attribute.String("redlatch.kind", "scheduler"))...)
		assert.True(t, late.DataPoints[0].Attributes.Equals(&want))
		assert.InDelta(t, 3, late.DataPoints[0].Sum, 0.1)
	}, redlatchotel.WithNames("billing"))
}

func TestScriptsAreObservedIfTheyAreAskedFor(t *testing.T) {
	for name, opts := range map[string][]redlatchotel.Option{"with": {redlatchotel.WithScripts()}, "without": nil} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(t *testing.T, l *lab) {
				_, err := l.GetLock("orders").IsLocked(t.Context())
				require.NoError(t, err)
				s, ok := l.take()["rlock.inspect"]
				assert.Equal(t, name == "with", ok)
				assert.Equal(t, ok, l.told.Observer().ScriptEnd != nil, "no measurement either")
				_, err = redlatch.GetTopic[string](l.Client, "prices").Publish(t.Context(), "1")
				require.NoError(t, err)
				published, ok := l.take()["publish"]
				assert.Equal(t, name == "with", ok)
				if ok {
					assert.Equal(t, "rlock.inspect", attributes(s)["db.stored_procedure.name"])
					assert.Equal(t, "PUBLISH", attributes(published)["db.operation.name"])
					assert.NotContains(t, attributes(published), "db.stored_procedure.name")
				}
			}, opts...)
		})
	}
}

func TestScriptsAreMeasuredByServer(t *testing.T) {
	l := newLab(t, redlatchotel.WithScripts())
	server := redistest.Start(t)
	var err error
	l.Client, err = redlatch.Open(t.Context(), server.URL(), redlatch.WithObserver(l.told.Observer()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	inspect := func() (span map[string]any, labels []attribute.KeyValue) {
		l.take()
		_, _ = l.GetLock("orders").IsLocked(t.Context())
		span = attributes(l.take()["rlock.inspect"])
		return span, []attribute.KeyValue{
			attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", "EVALSHA"), attribute.String("db.stored_procedure.name", "rlock.inspect"),
			attribute.String("server.address", "127.0.0.1"), attribute.Int64("server.port", span["server.port"].(int64)),
		}
	}
	span, labels := inspect()
	assert.Equal(t, server.Addr(), fmt.Sprintf("%v:%v", span["server.address"], span["server.port"]))
	assert.NotContains(t, span, "error.type")
	assert.Equal(t, int64(1), l.count(t, "db.client.operation.duration", labels...))

	require.NoError(t, server.Client(t).Set(t.Context(), "orders", "text", 0).Err())
	span, labels = inspect()
	assert.Equal(t, "failed", span["error.type"])
	assert.Equal(t, int64(1), l.count(t, "db.client.operation.duration", append(labels, attribute.String("error.type", "failed"))...))
}

// failed are the attributes of what failed.
func failed(result string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("redlatch.result", result), attribute.String("error.type", result)}
}

// object are the attributes of a gauge of an object; "" is a name that is not shown.
func object(kind, name string) []attribute.KeyValue {
	if name == "" {
		return []attribute.KeyValue{attribute.String("redlatch.kind", kind)}
	}
	return []attribute.KeyValue{attribute.String("redlatch.kind", kind), attribute.String("redlatch.name", name)}
}

// ofQueue are the attributes of a queue, and inQueue those of its gauges.
func ofQueue(name string, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(more, attribute.String("messaging.system", "redlatch"), attribute.String("messaging.destination.name", name))
}

func inQueue(kind, name string, more ...attribute.KeyValue) []attribute.KeyValue {
	return ofQueue(name, append(more, attribute.String("redlatch.kind", kind))...)
}

func TestGaugesShowWhatIsHeldAndWaitedFor(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		is := func(want float64, name string, labels []attribute.KeyValue) {
			t.Helper()
			got, found := l.gauge(t, name, labels...)
			assert.True(t, found, name)
			assert.InDelta(t, want, got, 0.1, name)
		}
		unwatch := l.told.Watch(l.Client)
		orders, err := l.GetLock("orders").Lock(t.Context())
		require.NoError(t, err)
		secret, err := l.GetLock("customer-4711").Lock(t.Context())
		require.NoError(t, err)
		ctx, withdraw := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := l.GetLock("orders").Lock(ctx); ended <- err }()
		time.Sleep(11 * time.Second)
		is(1, "redlatch.holds", object("lock", "orders"))
		is(1, "redlatch.holds", object("lock", ""))
		is(11, "redlatch.hold.longest", object("lock", "orders"))
		is(1, "redlatch.waits", object("lock", "orders"))
		is(11, "redlatch.wait.longest", object("lock", "orders"))
		_, found := l.gauge(t, "redlatch.holds", object("lock", "customer-4711")...)
		assert.False(t, found)
		withdraw()
		require.ErrorIs(t, <-ended, context.Canceled)
		unwatch()
		_, found = l.gauge(t, "redlatch.holds", object("lock", "orders")...)
		assert.False(t, found)
		require.NoError(t, orders.Unlock(t.Context()))
		require.NoError(t, secret.Unlock(t.Context()))
	}, redlatchotel.WithNames("orders"))
}

func TestCachesAreCounted(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		defer l.told.Watch(l.Client)()
		users := rcache.New(l.Client, "users", func(_ context.Context, k string) (string, error) {
			if k == "bad" {
				return "", errors.New("no luck")
			}
			return "Ann", nil
		}, rcache.WithNear(10))
		for _, k := range []string{"a", "a", "a", "bad"} {
			_, _ = users.Get(t.Context(), k) // the failure is counted
			synctest.Wait()
		}
		l.take()
		_, err := users.Get(t.Context(), "a")
		require.NoError(t, err)
		assert.Empty(t, l.take(), "a hit has no span")
		sum := func(name string, labels ...attribute.KeyValue) int64 {
			t.Helper()
			d, ok := l.metric(t, name).(metricdata.Sum[int64])
			require.True(t, ok, name)
			assert.True(t, d.IsMonotonic)
			want := attribute.NewSet(labels...)
			for _, p := range d.DataPoints {
				if p.Attributes.Equals(&want) {
					return p.Value
				}
			}
			require.Fail(t, "no such series", name)
			return 0
		}
		of := object("cache", "users")
		assert.EqualValues(t, 2, sum("redlatch.cache.hits", append(of, attribute.String("redlatch.from", "near"))...))
		assert.EqualValues(t, 1, sum("redlatch.cache.hits", append(of, attribute.String("redlatch.from", "redis"))...))
		assert.EqualValues(t, 2, sum("redlatch.cache.misses", of...))
		assert.EqualValues(t, 2, sum("redlatch.cache.loads", of...))
		assert.EqualValues(t, 1, sum("redlatch.cache.load_failures", of...))
		assert.EqualValues(t, 0, sum("redlatch.cache.stale", of...))
		assert.EqualValues(t, 0, sum("redlatch.near.invalidations", of...))
		for name, want := range map[string]float64{"redlatch.near.entries": 1, "redlatch.near.disconnected": 0} {
			got, found := l.gauge(t, name, of...)
			assert.True(t, found, name)
			assert.InDelta(t, want, got, 0, name)
		}
		runtime.KeepAlive(users)
	}, redlatchotel.WithNames("users"))
}

func TestGaugesOfQueues(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		q := redlatch.GetDelayedQueue[string](l.Client, "mail")
		defer l.told.WatchQueue(q)()
		defer l.told.WatchQueue(down{})()
		for _, delay := range []time.Duration{0, 0, time.Hour} {
			_, err := q.Offer(t.Context(), "hello", delay)
			require.NoError(t, err)
		}
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		for state, want := range map[string]float64{"delayed": 1, "ready": 1, "in flight": 1, "dead": 0} {
			got, found := l.gauge(t, "redlatch.queue.messages", inQueue("queue", "mail", attribute.String("redlatch.state", state))...)
			assert.True(t, found, state)
			assert.InDelta(t, want, got, 0, state)
		}
		for name, want := range map[string]float64{"mail": 1, "down": 0} {
			got, found := l.gauge(t, "redlatch.queue.up", inQueue("queue", name)...)
			assert.True(t, found, name)
			assert.InDelta(t, want, got, 0, name)
		}
		for _, want := range []float64{0, 1} {
			got, found := l.gauge(t, "redlatch.queue.paused", inQueue("queue", "mail")...)
			assert.True(t, found)
			assert.InDelta(t, want, got, 0)
			require.NoError(t, q.Pause(t.Context()))
		}
		_, found := l.gauge(t, "redlatch.queue.lag", inQueue("queue", "mail")...)
		assert.True(t, found)
		_, found = l.gauge(t, "redlatch.queue.paused", inQueue("queue", "down")...)
		assert.False(t, found)
		require.NoError(t, m.Ack(t.Context()))
	}, redlatchotel.WithCollectTimeout(10*time.Millisecond), redlatchotel.WithCollectTimeout(0))
}

func TestGaugesOfExecutors(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		ex := rexecutor.New(l.Client, "media")
		defer l.told.WatchExecutor(ex)()
		require.NoError(t, rexecutor.NewTask[int, struct{}]("resize").Send(t.Context(), ex, 1))
		require.NoError(t, rexecutor.NewTask[int, struct{}]("report").Send(t.Context(), ex, 1, rexecutor.WithDelay(time.Hour)))
		is := func(want float64, name string, more ...attribute.KeyValue) {
			t.Helper()
			got, found := l.gauge(t, name, inQueue("executor", "media", more...)...)
			assert.True(t, found, name)
			assert.InDelta(t, want, got, 0, name)
		}
		task, ready := attribute.String("redlatch.task", "resize"), attribute.String("redlatch.state", "ready")
		is(1, "redlatch.queue.up")
		is(0, "redlatch.queue.waiting_groups")
		is(1, "redlatch.queue.messages", ready)
		is(1, "redlatch.executor.tasks", task, ready)
		is(0, "redlatch.executor.tasks", attribute.String("redlatch.task", "report"), ready)
		is(1, "redlatch.executor.orphaned", task)
	})
}

func TestTasksAreToldApart(t *testing.T) {
	inLab(t, func(t *testing.T, l *lab) {
		ex := rexecutor.New(l.Client, "media")
		resize := rexecutor.NewTask[int, struct{}]("resize")
		require.NoError(t, resize.Handle(ex, func(_ context.Context, c rexecutor.Call[int]) (struct{}, error) {
			if c.Args == 0 {
				return struct{}{}, rexecutor.Reject(errors.New("bad"))
			}
			return struct{}{}, nil
		}))
		require.NoError(t, resize.Send(t.Context(), ex, 0))
		require.NoError(t, resize.Send(t.Context(), ex, 1))
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		require.NoError(t, ex.Work(ctx))
		spans := l.take()
		assert.Equal(t, "resize", attributes(spans["process media"])["redlatch.task"])
		of := ofQueue("media", attribute.String("redlatch.kind", "executor"), attribute.String("redlatch.task", "resize"))
		assert.Equal(t, int64(2), l.count(t, "redlatch.message.late", of...))
		assert.Equal(t, int64(1), l.count(t, "redlatch.dead_letters", of...))
		assert.Equal(t, int64(1), l.count(t, "messaging.process.duration",
			append(of, attribute.String("redlatch.result", "ok"), attribute.String("messaging.operation.name", "process"))...))
	}, redlatchotel.WithNames("media"))
}

// down is a queue on a server that does not answer.
type down struct{}

func (down) Name() string { return "down" }

func (down) Stats(ctx context.Context) (rdelayedqueue.Stats, error) {
	<-ctx.Done()
	return rdelayedqueue.Stats{}, ctx.Err()
}

// F29: the main path on nodes that each have a part of the names.
func TestTelemetryOfACluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	l := newLab(t, redlatchotel.WithNames("mail"))
	var err error
	l.Client, err = redlatch.New(cluster.Client(t), redlatch.WithObserver(l.told.Observer()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	q := redlatch.GetDelayedQueue[string](l.Client, "mail")
	t.Cleanup(l.told.Watch(l.Client))
	t.Cleanup(l.told.WatchQueue(q))
	const n = 12
	nodes := map[string]bool{}
	for i := range n {
		name := fmt.Sprint("order:", i)
		nodes[cluster.Owner(t, name).Addr()] = true
		hold, err := l.GetLock(name).Lock(t.Context())
		require.NoError(t, err)
		defer func() { assert.NoError(t, hold.Unlock(context.WithoutCancel(t.Context()))) }()
		assert.Contains(t, l.take(), "acquire lock", name)
		_, err = q.Offer(t.Context(), "hello", 0)
		require.NoError(t, err)
	}
	require.Len(t, nodes, 3, "each node has some of the locks")
	assert.Equal(t, int64(n), l.count(t, "redlatch.acquire.duration", append(object("lock", ""), attribute.String("redlatch.result", "ok"))...))
	held, found := l.gauge(t, "redlatch.holds", object("lock", "")...)
	assert.True(t, found)
	assert.InDelta(t, n, held, 0)
	ready, found := l.gauge(t, "redlatch.queue.messages", inQueue("queue", "mail", attribute.String("redlatch.state", "ready"))...)
	assert.True(t, found)
	assert.InDelta(t, n, ready, 0)
}
