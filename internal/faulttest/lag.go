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
	return max(time.Duration(l.worst.Load()), time.Since(l.since)-time.Duration(l.due.Load()))
}

// Late is how late the end of several steps may be: messages, timers, calls, each of which waits for the one before.
func (l *Lag) Late() time.Duration { return 8 * l.Worst() }

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
