package rmultilock

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
)

// renewers bounds the goroutines of a RedLock that renew locks which are not this module's.
const renewers = 4

// keeper renews the parts of a RedLock's hold together, and takes in again those that are missing. It is guarded by the hold's mu; its zero
// value keeps nothing.
type keeper struct {
	hold   *hold
	length time.Duration // the lease
	renews bool
	most   time.Duration // bound on renewal; 0 for none
	until  time.Time     // when that is over
	timer  *time.Timer   // nil unless it keeps
}

// startLocked begins to keep the hold.
func (k *keeper) startLocked() {
	if !k.renews {
		return
	}
	k.timer = time.AfterFunc(k.nextLocked(), k.renew)
}

// stopLocked ends renewal.
func (k *keeper) stopLocked() {
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// nextLocked returns when to renew: every third of the lease, and sooner while a part is missing.
func (k *keeper) nextLocked() time.Duration {
	if k.hold.live < len(k.hold.parts) {
		return k.soon()
	}
	return k.length/3 - rand.N(k.length/30+1)
}

// soon is the pause before a renewal that failed is repeated, several times within a lease.
func (k *keeper) soon() time.Duration {
	return k.length/12 + rand.N(k.length/24+1)
}

// soonLocked has the next renewal come soon.
func (k *keeper) soonLocked() {
	if k.timer != nil {
		k.timer.Reset(k.soon())
	}
}

// renew sends the renewal of all parts, and a try for those that are missing.
func (k *keeper) renew() {
	h := k.hold
	h.mu.Lock()
	if h.state != holding || k.timer == nil {
		h.mu.Unlock()
		return
	}
	length := k.length
	if !k.until.IsZero() {
		length = min(length, time.Until(k.until))
	}
	if length < shortestHold {
		k.stopLocked()
		h.mu.Unlock()
		return
	}
	k.timer.Reset(k.nextLocked())
	parts := append([]part(nil), h.parts...)
	for i := range h.parts {
		if p := &h.parts[i]; p.held == nil {
			p.asked = true
		}
	}
	h.mu.Unlock()
	o := &lease.Options{Lease: &length}
	for i, p := range parts {
		switch {
		case p.gone:
		case p.held != nil:
			k.extend(i, p, length)
		case !p.asked:
			h.ask(context.WithoutCancel(h.given), i, o) // the lock outlives the context that it was given
		}
	}
}

// extend renews one part. What becomes of it shows by its end; what failed is repeated soon.
func (k *keeper) extend(i int, p part, length time.Duration) {
	h := k.hold
	done := func(err error) {
		if err == nil {
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		if errors.Is(err, errs.ErrNotHeld) || errors.Is(err, errs.ErrClosed) {
			k.goneLocked(i, p.held)
			return
		}
		k.soonLocked()
	}
	if p.lease != nil {
		p.lease.BeginExtend(length, done)
		return
	}
	h.lock.workers.Go(func() {
		ctx, stop := context.WithTimeout(context.WithoutCancel(h.given), k.length/3)
		defer stop()
		done(guard(func() error { return p.held.Extend(ctx, length) }))
	})
}

// goneLocked hears that a part cannot be renewed any more. Renewal ends when too few are left that can: nobody may ever
// unlock the hold.
func (k *keeper) goneLocked(i int, who held) {
	parts := k.hold.parts
	if parts[i].held != who {
		return
	}
	parts[i].gone = true
	left := 0
	for _, p := range parts {
		if p.held != nil && !p.gone {
			left++
		}
	}
	if left < k.hold.lock.need {
		k.stopLocked()
	}
}
