package locker

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// Kind is one kind of lock: what is done to one that is held, and how one is acquired and waited for. What is marked as optional is
// nil, or the zero value, for a plain lock.
type Kind struct {
	lease.Kind

	// Acquire asks for the lock.
	Acquire func(AcquireArgs) *script.Call
	// Inspect asks who holds the lock, and InspectAll, which is optional, for the last token besides. See [ReadInspected].
	Inspect, InspectAll func(key string) *script.Call
	// Holder asks who holds the lock; optional, and for kinds without Inspect.
	Holder func(ctx context.Context, n *Name) (Info, error)

	// Sharing says how many may hold a lock.
	Sharing Sharing
	// Permits, for kinds that are not Exclusive, returns how many waiters may ask after a message; 0 for one that means nothing.
	Permits func(payload string) int
	// NewOwner, for a Pool, returns a fresh owner id of a call that asks for n leases. Acquire and Release take it too.
	NewOwner func(c *core.Core, n int) any
	// Split, for a Pool, returns the owner ids of which such an id is made.
	Split func(owner any) []any

	// Leave is for kinds whose waiters are known to Redis, and optional. A waiting call has one entry there, whose id is the owner id of
	// all its attempts. Leave takes out the entry of a call that waited for at most limit, 0 for no limit, frees what it may have been
	// granted meanwhile, and wakes whose turn it is. It may run twice.
	Leave func(key, entry any, limit time.Duration) *script.Call
	// Heard, which is optional, is told of a lock that was released while somebody listened, on any goroutine.
	Heard func(key string)
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

// AcquireArgs are the arguments of one attempt to acquire.
type AcquireArgs struct {
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
	// Waited is for how long the call has waited, 0 for one that asks for the first time.
	Waited time.Duration
}

// ordersWaiters reports whether Redis orders the waiters and has each woken alone, as the fair lock does.
func (k *Kind) ordersWaiters() bool { return k.Upkeep != nil }

// shared reports whether several may hold a lock.
func (k *Kind) shared() bool { return k.Sharing != Exclusive }
