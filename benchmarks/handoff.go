package main

import (
	"context"
	"fmt"
	"time"
)

const (
	handoffPause = 3 * time.Millisecond
	handoffBound = 2 * time.Second // of a single hand-off
)

// duel is two clients of one contestant.
type duel struct {
	name      string
	one, two  handle
	latencies []float64 // µs
	failures  int
}

// handoff measures the time from Unlock in one client to the return of Lock in another, both idle before, next to a PING
// that is sent after the same pause.
func handoff(ctx context.Context, b *bench) ([]row, error) {
	duels, pings, err := duelsOf(ctx, b, redlatchName, rawName, bsmName, redsyncName, rueidisName)
	if err != nil {
		return nil, err
	}
	rows := handoffRows("hand-off between two idle clients", duels)
	ping := percentile(pings, 0.50)
	rows[0].Targets = []target{atMost("× PING", 2, rows[0].Cells[redlatchName][0]/ping)}
	return append(rows, row{
		Measure: "PING of go-redis after the same pause: p50 / p99, µs",
		Cells:   map[string][]float64{rawName: {ping, percentile(pings, 0.99)}},
	}), b.server.empty(ctx)
}

// duelsOf has two clients of each contestant hand over to each other, by turns, and returns the PINGs besides, in µs.
func duelsOf(ctx context.Context, b *bench, names ...string) (duels []*duel, pings []float64, err error) {
	first, err := openDuelists(ctx, b, names)
	if err != nil {
		return nil, nil, err
	}
	defer closeAll(first)
	second, err := openDuelists(ctx, b, names)
	if err != nil {
		return nil, nil, err
	}
	defer closeAll(second)
	for i, o := range first {
		key := "handoff:" + o.name
		duels = append(duels, &duel{name: o.name, one: o.session.handle(key), two: second[i].session.handle(key)})
	}
	samplesEach := 300
	if b.config.quick {
		samplesEach = 80
	}
	pings, err = fight(ctx, b, duels, samplesEach)
	return duels, pings, err
}

// openDuelists lets those that poll do so ten thousand times a second, which is the best that they can do for the latency, and
// rueidislock wait for the server's message.
func openDuelists(ctx context.Context, b *bench, names []string) ([]opened, error) {
	var open []opened
	for _, c := range contestants(names...) {
		s := setup{Addr: b.server.addr, Lease: lease, Retry: 100 * time.Microsecond}
		if c.name == rueidisName {
			s.Retry = time.Second
		}
		session, err := c.open(ctx, s)
		if err != nil {
			closeAll(open)
			return nil, fmt.Errorf("open %s: %w", c.name, err)
		}
		open = append(open, opened{c, session})
	}
	return open, nil
}

// fight takes one sample after the other in turn, and returns the PINGs in µs.
func fight(ctx context.Context, b *bench, duels []*duel, samplesEach int) (pings []float64, err error) {
	rdb := newGoRedis(setup{Addr: b.server.addr})
	defer rdb.Close() // nothing is written through it
	const warmUp = 10
	for i := range warmUp + samplesEach {
		for _, d := range rotated(duels, i) {
			latency, err := d.sample(ctx)
			switch {
			case ctx.Err() != nil:
				return nil, ctx.Err()
			case err != nil:
				d.failures++
			case i >= warmUp:
				d.latencies = append(d.latencies, latency)
			}
		}
		time.Sleep(handoffPause)
		start := time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil {
			return nil, err
		}
		if i >= warmUp {
			pings = append(pings, micros(time.Since(start)))
		}
	}
	return pings, nil
}

// sample lets two wait for one, pauses, and returns the time from one's release to two's acquisition.
func (d *duel) sample(ctx context.Context) (latency float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, handoffBound)
	defer cancel()
	if err := d.one.Lock(ctx); err != nil {
		return 0, err
	}
	type acquisition struct {
		at  time.Time
		err error
	}
	acquired := make(chan acquisition, 1)
	go func() { // ends with ctx at the latest; the receive below waits for it
		err := d.two.Lock(ctx)
		acquired <- acquisition{time.Now(), err}
	}()
	time.Sleep(handoffPause)
	released := time.Now()
	err = d.one.Unlock(ctx)
	got := <-acquired
	if got.err != nil {
		return 0, got.err
	}
	if err != nil {
		return 0, err
	}
	return micros(got.at.Sub(released)), d.two.Unlock(ctx)
}

// handoffRows returns the row of the latencies, and one of those that took too long, if there are any.
func handoffRows(what string, duels []*duel) []row {
	latencies := row{Measure: what + ": p50 / p99, µs", Cells: make(map[string][]float64)}
	failures := row{Measure: what + ": not within 2 s", Cells: make(map[string][]float64)}
	failed := 0
	for _, d := range duels {
		latencies.Cells[d.name] = []float64{percentile(d.latencies, 0.50), percentile(d.latencies, 0.99)}
		failures.Cells[d.name] = []float64{float64(d.failures)}
		failed += d.failures
	}
	if failed > 0 {
		return []row{latencies, failures}
	}
	return []row{latencies}
}

func micros(d time.Duration) float64 { return d.Seconds() * 1e6 }
