package rsemaphore

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
)

// Permit is one permit that was acquired. It may be passed between goroutines and used by several at once. A nil Permit, as a call returns
// it with an error, and a zero one have ended: their methods return [ErrNotHeld], which is also the cause of their contexts.
type Permit struct{ hold *lease.Hold }

// level returns what the permit is made of; nil for nothing.
func (p *Permit) level() *lease.Hold {
	if p == nil {
		return nil
	}
	return p.hold
}

// ID returns the permit's id, 32 hexadecimal digits: Redisson can release a permit by it.
func (p *Permit) ID() string { return hex.EncodeToString([]byte(p.level().Owner())) }

// Context returns the permit's context. It descends from the one that was given to the acquiring call, and ends
//
//   - on Release, with the cause [ErrUnlocked];
//   - when the permit is lost, with the cause [ErrLost]: at the end of the lease less 1 % (at least 2 ms) on this machine's clock, or when
//     a renewal finds that Redis no longer has it, at the latest a third of the lease later; one with [WithLease] is not renewed;
//   - when the client closes, with the cause redlatch.ErrClosed;
//   - with the context that was given. The permit does not: it stays out and renewed until Release.
//
// Use [context.Cause] to tell which.
func (p *Permit) Context() context.Context { return p.level().Context() }

// Release gives the permit back. It works although ctx is done.
//
// It returns once Redis has answered, after 3 s, when the lease has run out, or at a deadline of ctx that is still ahead (one nearer than
// 100 ms counts as 100 ms); cancellation of ctx does not end it. The permit is over whatever it returns. If the outcome is not known it
// returns redlatch.ErrUnknown, and the release goes on in the background.
//
// It returns [ErrNotHeld] if the permit has ended already, by a Release or a loss; nothing is given back then. It costs one round trip.
func (p *Permit) Release(ctx context.Context) error { return p.wrap("release", p.level().Unlock(ctx)) }

// Extend sets the lease anew, to end d from now, which may be sooner than before, and ends renewal. From 10 ms to 24 h.
//
// It waits for Redis until ctx is done, and retries transport errors for one lease. It returns [ErrLost] when the permit is gone,
// [ErrNotHeld] after Release, and redlatch.ErrUnknown when the outcome is not known; renewal has ended even so.
func (p *Permit) Extend(ctx context.Context, d time.Duration) error {
	return p.wrap("extend", p.level().Extend(ctx, d))
}

// Deadline returns until when the permit is promised as of now. The watchdog moves it on. It carries a monotonic reading.
func (p *Permit) Deadline() time.Time { return p.level().Deadline() }

func (p *Permit) wrap(verb string, err error) error { return wrapPermit(verb, p.level().Name(), err) }
