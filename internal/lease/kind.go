package lease

import (
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// Kind is one kind of lock: it makes script calls and reads their replies, and says how its waiters wait. What is marked as optional
// is nil, or the zero value, for a plain lock.
type Kind struct {
	Title string // the name of the kind's package, for messages
	Noun  string // what is held, for messages; optional, for "lock"

	// Channel is where a release of the named lock is announced.
	Channel func(key string) string
	// Acquire asks for the lock.
	Acquire func(Ask) *script.Call
	// Acquired reads Acquire's reply.
	Acquired func(*script.Call) (Reply, error)
	// Keep sets the levels and the lease of a lock that the owner holds. It does not shorten a lease of which more than most is left:
	// a newer call has set that. Its reply is 0 if the owner does not hold the lock, and 1 if it was set; if it changed nothing because of
	// most, it may be what is left, in ms.
	Keep func(key, owner any, levels Levels, lease, most time.Duration) *script.Call
	// Release frees the lock if the owner holds it, and wakes its waiters. Its reply is 0 if the owner does not hold it, else one
	// more than the number of clients that received the message, or -1 if the user may not publish it.
	Release func(key, owner any) *script.Call
	// Renew sets the lease of locks that share a slot, each if its owner holds it: all have levels of reading, or none has. Its reply
	// lists those that are lost. It must not keep the slices.
	Renew func(mode Mode, keys, owners []any, lease time.Duration) *script.Call
	// RenewApart, which is optional, renews one lease of several keys by calls of one key each, whose replies are as that of Renew. While
	// a slot moves to another node the keys may be in two places: then Renew is refused.
	RenewApart func(mode Mode, key, owner any, lease time.Duration) []*script.Call

	// Sharing says how many may hold a lock.
	Sharing Sharing
	// Permits, for kinds that are not Exclusive, returns how many waiters may ask after a message; 0 for one that means nothing.
	Permits func(payload string) int
	// NewOwner, for a Pool, returns a fresh owner id of a call that asks for n leases. Acquire and Release take it too.
	NewOwner func(n int) any
	// Split, for a Pool, returns the owner ids of which such an id is made.
	Split func(owner any) []any

	// Leave is for kinds whose waiters are known to Redis, and optional. A waiting call has one entry there, whose id is the owner id of
	// all its attempts. Leave takes out the entry of a call that waited for at most limit, 0 for no limit, frees what it may have been
	// granted meanwhile, and wakes whose turn it is. It may run twice.
	Leave func(key, entry any, limit time.Duration) *script.Call
	// Upkeep is for kinds with Leave of which each waiter is woken alone, and optional.
	Upkeep Upkeep
}

// Sharing says how many may hold a lock.
type Sharing uint8

// Who may hold a lock at once.
const (
	Exclusive Sharing = iota // one
	Readers                  // several. Callers ask in parallel until one is refused; then they queue. Nothing is handed on
	Pool                     // as well, and the leases have nothing to do with one another: none nests, and one call may ask for several
)

// Upkeep looks after waiters that Redis keeps in a queue of its own. Its methods must not block, and must not call a waiter's: they
// are called under a mutex that those take. Channel may be called at any time.
type Upkeep interface {
	// Channel is where a waiter is notified that it is its turn.
	Channel(key, entry string) string
	// Refused looks after a waiter from here on, if it does not yet: the lock is another's, for at most left; negative for no end.
	Refused(w *Waiter, left time.Duration)
	// Listening says that messages to the waiter arrive from here on.
	Listening(w *Waiter)
	// Left looks after it no more. It does nothing for a waiter that was never refused.
	Left(w *Waiter)
	// Silent reports whether a question for the waiter is in flight, and its reply counts as missing.
	Silent(w *Waiter, now time.Duration) bool
}

// Ask is one attempt to acquire.
type Ask struct {
	Key, Owner any
	Lease      time.Duration
	// From is an owner from whom the lock passes to Owner if it holds it; empty for none.
	From string
	// Verify looks at the type of a key that is busy.
	Verify bool
	// Waits says that the call goes on waiting if it is refused, and Limit for how long in all; 0 for no limit. The owner of a kind
	// with Leave that waits may hold the lock already, by an earlier attempt of the same call.
	Waits bool
	Limit time.Duration
}

// Reply is the answer to an attempt.
type Reply struct {
	Granted bool
	// TTL is how long the present lease lasts if it was not granted; negative if it has no end.
	TTL time.Duration
	// Token is the fencing token of what was granted; 0 if the kind has none.
	Token int64
}

// shared reports whether several may hold a lock.
func (k *Kind) shared() bool { return k.Sharing != Exclusive }
