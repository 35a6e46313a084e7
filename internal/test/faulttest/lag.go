package faulttest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// lagPace is the time between two samples.
const lagPace = 4 * time.Millisecond

// Lag is how much later than it should a busy machine does things. A test that bounds a time adds to its bound what it
// has measured meanwhile: what the machine could not do is not the fault of what is tested.
type Lag struct {
	rdb   *redis.Client // nil without a server
	since time.Time
	worst atomic.Int64 // ns
	due   atomic.Int64 // when the timer of the sample under way fires, in ns after since
}

// MeasureLag measures until the test ends. A sample is a timer, by which it fires late, and the way to the server at addr
// and back; an empty addr leaves that out.
func MeasureLag(tb testing.TB, addr string) *Lag {
	tb.Helper()
	l := &Lag{since: time.Now()}
	if addr != "" {
		l.rdb = direct(addr)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	var sampler sync.WaitGroup
	sampler.Go(func() { l.sample(ctx) }) // the cleanup ends it and waits
	tb.Cleanup(func() {
		cancel()
		if l.rdb != nil {
			_ = l.rdb.Close() // Nobody waits for it any more.
		}
		sampler.Wait()
	})
	return l
}

// Worst is the longest sample so far, the one under way included. Something that takes n steps may be late by n times as
// much.
func (l *Lag) Worst() time.Duration {
	underWay := time.Since(l.since) - time.Duration(l.due.Load()) // first: a sample that ends now is among the worst then
	return max(time.Duration(l.worst.Load()), underWay)
}

// Late is how late the end of several steps may be: messages, timers, calls, each of which waits for the one before.
func (l *Lag) Late() time.Duration { return 8 * l.Worst() }

const (
	steadyRuns    = 3 // at most, in Steady
	steadyStretch = 4 // by how much longer the lease of each further run is
)

// Steady has run succeed with a lease of which the machine never stood still for more than one of so many parts. A run
// that fails although the machine stood still for less has failed; another one is repeated with a lease four times as
// long, twice at most. So the bounds of a run need no allowance for a busy machine, which would make them void there.
// The server at addr is asked as [MeasureLag] does it.
func Steady(tb testing.TB, addr string, lease time.Duration, parts int, run func(lease time.Duration) error) {
	tb.Helper()
	err := steady(lease, parts, func(lease time.Duration) (still time.Duration, err error) {
		lag := MeasureLag(tb, addr)
		err = run(lease)
		tb.Logf("lease %v, worst lag %v, error %v", lease, lag.Worst(), err)
		return lag.Worst(), err
	})
	if err != nil {
		tb.Fatal(err)
	}
}

func steady(lease time.Duration, parts int, run func(lease time.Duration) (still time.Duration, err error)) error {
	for again := steadyRuns - 1; ; again-- {
		still, err := run(lease)
		if err == nil || again == 0 || still <= lease/time.Duration(parts) {
			return err
		}
		lease *= steadyStretch
	}
}

func (l *Lag) sample(ctx context.Context) {
	timer := time.NewTimer(lagPace)
	defer timer.Stop()
	for {
		due := time.Now().Add(lagPace)
		l.due.Store(int64(due.Sub(l.since)))
		timer.Reset(lagPace)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		late := time.Since(due)
		if l.rdb == nil || l.rdb.Ping(ctx).Err() == nil {
			late = time.Since(due)
		}
		l.worst.Store(max(l.worst.Load(), int64(late)))
	}
}
