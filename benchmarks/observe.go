package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/redlatchotel"
	"github.com/redlatch/redlatch/contrib/redlatchprom"
)

// openSilent leaves out what a client does to be seen.
func openSilent(_ context.Context, s setup) (session, error) {
	return newRedlatch(s, reentrantLock, redlatch.WithoutPresence())
}

// openWithSites notes for each hold from which line it was acquired.
func openWithSites(_ context.Context, s setup) (session, error) {
	return newRedlatch(s, reentrantLock, redlatch.WithCallSites())
}

func openObserved(o func() (redlatch.Observer, error)) func(context.Context, setup) (session, error) {
	return func(_ context.Context, s setup) (session, error) {
		observer, err := o()
		if err != nil {
			return nil, err
		}
		return newRedlatch(s, reentrantLock, redlatch.WithClientName("bench"), redlatch.WithObserver(observer))
	}
}

// emptyObserver has every function that a pair of Lock and Unlock calls.
func emptyObserver() (redlatch.Observer, error) {
	return redlatch.Observer{
		AcquireStart: func(ctx context.Context, _ redlatch.AcquireStartEvent) context.Context { return ctx },
		AcquireEnd:   func(context.Context, redlatch.AcquireEndEvent) {},
		HoldEnd:      func(context.Context, redlatch.HoldEndEvent) {},
		ScriptStart:  func(ctx context.Context, _ redlatch.ScriptStartEvent) context.Context { return ctx },
		ScriptEnd:    func(context.Context, redlatch.ScriptEndEvent) {},
	}, nil
}

func prometheusObserver() (redlatch.Observer, error) { return redlatchprom.New().Observer(), nil }

// otelObserver traces one pair of a hundred, and has metrics that a reader can collect. What it exports goes nowhere.
func otelObserver() (redlatch.Observer, error) {
	t, err := redlatchotel.New(
		redlatchotel.WithTracerProvider(trace.NewTracerProvider(
			trace.WithSampler(trace.ParentBased(trace.TraceIDRatioBased(0.01))), trace.WithBatcher(tracetest.NewNoopExporter()))),
		redlatchotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))))
	if err != nil {
		return redlatch.Observer{}, err
	}
	return t.Observer(), nil
}

// observe measures what it costs to be seen, and to be observed.
func observe(ctx context.Context, b *bench) ([]row, error) {
	names := []string{silentName, redlatchName, sitesName, emptyName, promName, otelName}
	open, err := openAll(ctx, b, names...)
	if err != nil {
		return nil, err
	}
	defer closeAll(open)
	release, err := beSeen(ctx, b, open)
	if err != nil {
		return nil, err
	}
	often := *b // and short, so that a slow moment of the machine affects all contestants
	often.rounds, often.window = 8*b.rounds, b.window/2
	var rows []row
	for _, l := range []level{{1, true, plural(1)}, {64, true, plural(64)}} { // what is traced is most often a request, whose context can end
		found, err := l.measure(ctx, &often, open)
		if err != nil {
			return nil, err
		}
		ratios := row{Measure: "observe, " + l.label + ": ratio to no presence, median / quartiles", Cells: make(map[string][]float64)}
		for _, name := range names[1:] {
			all := found.quotients(name, silentName)
			ratios.Cells[name] = []float64{median(all), percentile(all, 0.25), percentile(all, 0.75)}
		}
		ratios.Targets = []target{
			atLeast("redlatch, the upper quartile", 1, ratios.Cells[redlatchName][2]),
			atLeast("redlatchprom × redlatch", 0.95, found.ratio(promName, redlatchName)),
			atLeast("redlatchotel × redlatch", 0.9, found.ratio(otelName, redlatchName)),
		}
		rows = append(rows, row{Measure: "observe, " + l.label + ": pairs/s", Cells: found.cells(), Rounds: found}, ratios)
	}
	allocated := row{Measure: "observe, 1 goroutine: allocations per pair", Cells: make(map[string][]float64)}
	sent := row{Measure: "observe, 1 goroutine: commands sent per pair", Cells: make(map[string][]float64)}
	for _, c := range contestants(names...) {
		n, err := allocationsOf(ctx, b, c)
		if err != nil {
			return nil, fmt.Errorf("count the allocations of %s: %w", c.name, err)
		}
		allocated.Cells[c.name] = []float64{n}
		if n, err = commandsPerPair(ctx, b, c, 1); err != nil {
			return nil, fmt.Errorf("count the commands of %s: %w", c.name, err)
		}
		sent.Cells[c.name] = []float64{n}
	}
	before, now := allocated.Cells[silentName][0], allocated.Cells[redlatchName][0]
	allocated.Targets = []target{atMost("more than without presence", 0, now-before)}
	sent.Targets = []target{{Text: "exactly 2", Got: sent.Cells[redlatchName][0], Reached: sent.Cells[redlatchName][0] == 2}}
	return append(rows, allocated, sent), errors.Join(release(), b.server.empty(ctx))
}

// beSeen has each client hold a lock of its own, and waits until those with presence listen to their channels.
func beSeen(ctx context.Context, b *bench, open []opened) (release func() error, err error) {
	var held []handle
	for _, o := range open {
		h := o.session.handle("kept:" + o.name)
		if err := h.Lock(ctx); err != nil {
			return nil, err
		}
		held = append(held, h)
	}
	release = func() error {
		var failed []error
		for _, h := range held {
			failed = append(failed, h.Unlock(ctx))
		}
		return errors.Join(failed...)
	}
	return release, within(ctx, 30*time.Second, 50*time.Millisecond, "clients listen", func(ctx context.Context) (bool, error) {
		seen, err := b.server.admin.PubSubChannels(ctx, "redlatch_client:*").Result()
		return len(seen) == len(open)-1, err
	})
}
