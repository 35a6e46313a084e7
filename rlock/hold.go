package rlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
)

// Hold is a lock that is held, or one level of it. It may be passed between goroutines and used by several at once. A nil Hold, as a call
// returns it with an error, and a zero one have ended: their methods return [ErrNotHeld], which is also the cause of their contexts.
type Hold struct {
	hold  held
	title string // of the package whose lock it is, for messages
}

// held is what a hold is made of: one lease, or those of several locks.
type held interface {
	Context() context.Context
	Unlock(ctx context.Context) error
	Extend(ctx context.Context, d time.Duration) error
	Token() int64
	Deadline() time.Time
	Owner() string
	Name() string
}

// NewHold returns the public face of an internal hold; title is the name of its kind's package. It is for this module's
// kinds of lock.
func NewHold(title string, h held) *Hold { return &Hold{hold: h, title: title} }

// Unwrap returns what [NewHold] was given. It is for this module's kinds of lock.
func Unwrap(h *Hold) any {
	if h == nil {
		return nil
	}
	return h.hold
}

// Context returns the hold's context. It descends from the one that was given to the acquiring call, and ends
//
//   - on Unlock, with the cause [ErrUnlocked];
//   - when the lock is lost, with the cause [ErrLost]: at the end of the lease less 1 % (at least 2 ms) on this machine's clock,
//     or when a renewal finds that Redis no longer has the hold (force-unlocked, deleted, evicted), at the latest a third of the lease
//     later; a hold with [WithLease] is not renewed, and hears of that only while others in the client wait, or at its end;
//   - when the client closes, with the cause redlatch.ErrClosed;
//   - with the context that was given. The lock does not: it stays held and renewed until Unlock.
//
// Use [context.Cause] to tell which; [context.Context.Err] is context.Canceled for all but the last. The context of a nested
// hold outlives the release of an outer level.
func (h *Hold) Context() context.Context { return h.held().Context() }

// Unlock ends this level of the hold, and releases the lock with the last one. It works although ctx is done.
//
// It returns once Redis has answered, after 3 s, when the lease has run out, or at a deadline of ctx that is still ahead (one nearer
// than 100 ms counts as 100 ms); cancellation of ctx does not end it. The hold is over whatever it returns, but for redlatch.ErrInvalid, which a nil ctx is.
// If the outcome is not known it returns redlatch.ErrUnknown, and the release goes on in the background; Redis may count an inner level
// until the hold's next operation there.
//
// It returns [ErrNotHeld] if the hold has ended already, by an Unlock or a loss; the lock is then left alone, whoever has it. A lock
// that data of another type has replaced meanwhile is redlatch.ErrWrongType. After Close with redlatch.WithAbandonOnClose it is
// redlatch.ErrClosed, and the lock is left to its lease.
//
// It costs one round trip, or none when the lock passes to another goroutine of this client.
func (h *Hold) Unlock(ctx context.Context) error {
	return h.wrap("unlock", h.held().Unlock(ctx))
}

// Extend sets the lease anew, to end d from now, which may be sooner than before, and ends renewal of this level. From 10 ms
// to 24 h.
//
// It waits for Redis until ctx is done, and retries transport errors for one lease. It returns [ErrLost] when the lock is gone,
// [ErrNotHeld] after Unlock and once Close has released it, redlatch.ErrWrongType when data of another type has replaced it,
// redlatch.ErrClosed after Close with redlatch.WithAbandonOnClose, and redlatch.ErrUnknown when the outcome is not known; renewal has
// ended even so.
//
// It costs one round trip. A repeated call sets the lease once more.
func (h *Hold) Extend(ctx context.Context, d time.Duration) error {
	return h.wrap("extend", h.held().Extend(ctx, d))
}

// Token returns the fencing token of a fenced lock's hold: a number that is higher than that of every earlier hold of this lock. Where Redis
// has forgotten the last one it takes its clock instead, which must not step back then. Hand the token to the resource that the lock
// protects, which refuses a number lower than the highest it has seen. A nested level has its
// outermost hold's token. It is 0 for a lock that is not fenced.
func (h *Hold) Token() int64 { return h.held().Token() }

// Deadline returns until when exclusion is promised as of now. The watchdog moves it on. It carries a monotonic reading.
func (h *Hold) Deadline() time.Time { return h.held().Deadline() }

// Owner returns the id under which Redis knows the holder: the client's UUID and a number, or the id given by [WithOwner].
func (h *Hold) Owner() string { return h.held().Owner() }

func (h *Hold) held() held {
	if h == nil || h.hold == nil {
		return (*lease.Hold)(nil)
	}
	return h.hold
}

func (h *Hold) wrap(verb string, err error) error {
	title := "rlock"
	if h != nil && h.title != "" {
		title = h.title
	}
	return errs.Wrap(title, verb, h.held().Name(), err)
}
