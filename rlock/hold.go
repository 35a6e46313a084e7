package rlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/hold"
)

// Hold is a lock that is held, or one nested level of it. It may move between goroutines and is safe for concurrent
// use. A nil Hold, which a failed call returns, has ended: its methods return [ErrNotHeld], which is also the cause of
// its context.
type Hold hold.Hold

// Context returns the hold's context. It descends from the context that was given to the acquiring call, and ends
//
//   - on Unlock, with the cause [ErrUnlocked];
//   - when the lock is lost, with the cause [ErrLost]: at the end of the lease less 1 % (at least 2 ms) on this
//     machine's clock, or when a renewal finds that Redis no longer has the hold (force-unlocked, deleted, evicted),
//     which takes a third of the lease at most. A hold with [WithFixedLease] is not renewed: it notices that only while
//     others in the client wait, or at its end;
//   - when the client closes, with the cause redlatch.ErrClosed;
//   - with the context that was given. The lock does not end with it: it stays held and renewed until Unlock.
//
// Use [context.Cause] to tell these apart; [context.Context.Err] is [context.Canceled] for all but the last. The
// context of a nested hold outlives the release of an outer level.
func (h *Hold) Context() context.Context { return h.inside().Context() }

// Unlock ends this level of the hold, and with the last level it releases the lock. It works although ctx is done.
//
// It returns when Redis has replied, after 3 s or the call timeout, when the lease has run out, or at a deadline of ctx that is still ahead
// (one nearer than 100 ms counts as 100 ms). Cancelling ctx does not end it. The hold has ended whatever Unlock
// returns, except for redlatch.ErrInvalid, which a nil ctx causes. If the outcome is unknown it returns
// redlatch.ErrUnknown, and the release goes on in the background.
//
// It returns [ErrNotHeld] if the hold had already ended, by an Unlock or a loss, or if the lock is lost while a nested
// level waits for another operation; it then leaves the lock alone, whoever holds it. It returns redlatch.ErrWrongType if
// data of another type has replaced the lock, and redlatch.ErrClosed after Close with redlatch.WithAbandonOnClose, which
// leaves the lock to its lease.
//
// It costs one round trip, or none if the lock passes to another goroutine of this client.
func (h *Hold) Unlock(ctx context.Context) error {
	return h.wrap("unlock", (*hold.Hold)(h).Unlock(ctx))
}

// Extend sets the lease anew, to end d from now, which may be sooner than before, and ends renewal of this level. From
// 10 ms to 24 h.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline, and retries transport errors for one lease. It returns [ErrLost] if the lock is
// lost, [ErrNotHeld] after Unlock and once Close has released it, redlatch.ErrWrongType if data of another type has
// replaced it, redlatch.ErrClosed after Close with redlatch.WithAbandonOnClose, and redlatch.ErrUnknown if the outcome
// is unknown, joined with the error of ctx if that has ended; renewal has ended in any case.
//
// It costs one round trip. A repeated call sets the lease once more.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	return h.wrap("extend", h.inside().Extend(ctx, d))
}

// Token returns the fencing token of a hold of a fenced lock: a number higher than that of every earlier hold of this
// lock. It returns 0 for a lock that is not fenced. Hand the token to the resource that the lock protects, which
// refuses a number lower than the highest it has seen. A nested level has the token of its outermost hold.
//
// If Redis has forgotten the last token, the next one is Redis's clock, which must not have stepped back.
func (h *Hold) Token() int64 { return h.inside().Token() }

// ExpiresAt returns the time until which exclusion is promised, as of now; each renewal moves it. The time has a
// monotonic clock reading.
func (h *Hold) ExpiresAt() time.Time { return h.inside().ExpiresAt() }

// Owner returns the id under which Redis knows the holder, `<client id>:<number>`. No lease's id is ever used again;
// holds handed on within a client share one. Save it to take the lock back after a restart; see [WithTakeOver].
func (h *Hold) Owner() string { return h.inside().Owner() }

func (h *Hold) inside() hold.Inside { return (*hold.Hold)(h).Inside() }

func (h *Hold) wrap(verb string, err error) error { return (*hold.Hold)(h).Wrap(verb, err) }
