package rsemaphore

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
)

// Permit is an acquired permit. It may move between goroutines and is safe for concurrent use. A nil Permit, which a
// failed call returns, and a zero one have ended: their methods return [ErrNotHeld], which is also the cause of their
// contexts.
type Permit struct{ hold *lease.Hold }

// level returns the permit's hold; nil for a nil permit.
func (p *Permit) level() *lease.Hold {
	if p == nil {
		return nil
	}
	return p.hold
}

// ID returns the permit's id, 32 hexadecimal digits. Redisson can release a permit by its id.
func (p *Permit) ID() string { return idOf(p.level().Owner()) }

// idOf returns a permit's id as users know it.
func idOf(owner string) string { return hex.EncodeToString([]byte(owner)) }

// Context returns the permit's context. It descends from the context that was given to the acquiring call, and ends
//
//   - on Release, with the cause [ErrUnlocked];
//   - when the permit is lost, with the cause [ErrLost]: at the end of the lease less 1 % (at least 2 ms) on this
//     machine's clock, or when a renewal finds that Redis no longer has the permit, which takes a third of the lease at
//     most. A permit with [WithFixedLease] is not renewed;
//   - when the client closes, with the cause redlatch.ErrClosed;
//   - with the context that was given. The permit does not end with it: it stays held and renewed until Release.
//
// Use [context.Cause] to tell these apart.
func (p *Permit) Context() context.Context { return p.level().Context() }

// Release releases the permit. It works although ctx is done.
//
// It returns when Redis has replied, after 3 s or the call timeout, when the lease has run out, or at a deadline of ctx that is still ahead
// (one nearer than 100 ms counts as 100 ms). Cancelling ctx does not end it. The permit has ended whatever Release
// returns, except for redlatch.ErrInvalid, which a nil ctx causes. If the outcome is unknown it returns
// redlatch.ErrUnknown, and the release goes on in the background.
//
// It returns [ErrNotHeld] if the permit had already ended, by a Release or a loss; no permit is released then. It costs
// one round trip.
func (p *Permit) Release(ctx context.Context) error { return p.wrap("release", p.level().Unlock(ctx)) }

// Extend sets the lease anew, to end d from now, which may be sooner than before, and ends renewal. From 10 ms to 24 h.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline, and retries transport errors for one lease. It returns [ErrLost] if the permit
// is lost, [ErrNotHeld] after Release, and redlatch.ErrUnknown if the outcome is unknown, joined with the error of ctx
// if that has ended; renewal has ended in any case. It costs one round trip. A repeated call sets the lease once more.
func (p *Permit) Extend(ctx context.Context, d time.Duration) error {
	return p.wrap("extend", p.level().Extend(ctx, d))
}

// ExpiresAt returns the time until which the permit is promised, as of now; each renewal moves it. The time has a
// monotonic clock reading.
func (p *Permit) ExpiresAt() time.Time { return p.level().ExpiresAt() }

func (p *Permit) wrap(verb string, err error) error { return wrapPermit(verb, p.level().Name(), err) }
