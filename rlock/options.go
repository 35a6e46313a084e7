package rlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
)

// Option is a setting of one acquiring call.
type Option func(*lease.Options)

// WithLease fixes the lease at d, 10 ms to 24 h. The hold is not renewed, and is lost when d has passed. Without
// WithLease the lease is the client's, 30 s by default, and is renewed until Unlock.
func WithLease(d time.Duration) Option { return func(o *lease.Options) { o.Lease = &d } }

// WithWait limits the wait to d, from 0 to ten years. A call that has not acquired the lock by then returns
// [ErrNotAcquired]. With 0 it tries once: Do with WithWait(0) runs its function now or not at all. Without WithWait,
// Lock and Do wait without limit, and TryLock does not wait.
func WithWait(d time.Duration) Option { return func(o *lease.Options) { o.Wait = &d } }

// WithMaxHold limits renewal: the hold is lost d after it was acquired. From 10 ms to ten years. Without WithMaxHold
// there is no limit. It has no effect beside a shorter [WithLease].
func WithMaxHold(d time.Duration) Option { return func(o *lease.Options) { o.MaxHold = &d } }

// WithOwner holds the lock under an id of the caller's own instead of a fresh one, so that a service which restarts
// takes back at once what it held before: whoever held the lock under this id counts as gone. The id must belong to
// one live process at a time. 1 to 200 printable ASCII bytes without blanks and braces; "mode" and the suffix ":write" are reserved.
//
// Within one client, no two holds of one name have one id at a time, of whichever kind their locks are, and no context re-enters through
// them: the second call waits, or is ErrNotAcquired. A call whose id is in use, or was used by a try that is not settled yet, stands in no
// queue of Redis, and holds up those behind it in this client's line.
func WithOwner(id string) Option { return func(o *lease.Options) { o.Owner = &id } }

// WithoutReentry makes a call that would nest return [ErrHeld].
func WithoutReentry() Option { return func(o *lease.Options) { o.NoNest = true } }

// Detach returns a context like ctx, with its values, deadline and cancellation, under which no lock is re-entered. Use
// it in a goroutine that received a hold's context and must compete for the lock.
func Detach(ctx context.Context) context.Context { return lease.Detach(ctx) }
