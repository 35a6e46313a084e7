package redlatch

import (
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rfairlock"
	"github.com/redlatch/redlatch/rid"
	"github.com/redlatch/redlatch/rlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rmultilock"
	"github.com/redlatch/redlatch/ronce"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rrwlock"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rtopic"
)

// Client returns named objects that all clients of one Redis share. [New] and [Open] return one. It is safe for
// concurrent use.
type Client struct {
	handle
	core   *core.Core
	first  atomic.Bool   // Close has been called
	closed chan struct{} // closed when the first Close has returned
}

type handle = core.Handle // embedded: makes a client a core.Client, which the constructors of objects take

// New returns a client on a go-redis client: a *redis.Client, also one for Sentinel, or a *redis.ClusterClient.
// Anything else, nil in any form, and bad options return [ErrInvalid]. New does no I/O. The caller closes the go-redis
// client, after the Client.
//
// The Client uses a *redis.Client through a view of its own on the same connection pool, whose reads time out after 3
// s. go-redis does not call the hooks of a *redis.Client on such a view; use [WithObserver] for metrics and traces. It
// calls the hooks of a cluster client, but for calls that wait for confirmations (see [WithReplicas]).
func New(rdb redis.UniversalClient, opts ...Option) (*Client, error) {
	c, err := configure(opts)
	if err == nil {
		err = checkClient(rdb)
	}
	if err != nil {
		return nil, fmt.Errorf("redlatch: new: %w", err)
	}
	return newClient(rdb, c), nil
}

func newClient(rdb redis.UniversalClient, c core.Config) *Client {
	shared := core.New(rdb, c)
	return &Client{handle: core.HandleOf(shared), core: shared, closed: make(chan struct{})}
}

// ID returns the id of the client, which no other client has: its name (see [WithClientName]), a dot, and 16 hexadecimal
// digits. The owner id of everything that it holds begins with it, and [Open] gives it to the connections as their name.
// The id of a leased permit begins with the digits.
func (c *Client) ID() string { return c.core.ID }

func checkClient(rdb redis.UniversalClient) error {
	switch rdb.(type) {
	case *redis.Client, *redis.ClusterClient:
		if v := reflect.ValueOf(rdb); !v.IsNil() && !v.Elem().IsZero() {
			return nil
		}
	case nil:
	default:
		return fmt.Errorf("%w: a %T is neither a *redis.Client nor a *redis.ClusterClient", errs.ErrInvalid, rdb)
	}
	return fmt.Errorf("%w: the go-redis client is nil, or a zero value", errs.ErrInvalid)
}

// GetLock returns the reentrant lock with this name. It does no I/O and keeps nothing alive. The methods of the lock
// return [ErrInvalid] for a name that is empty, longer than 512 bytes with the prefix, or not valid UTF-8, that has
// control characters, or whose keys would be in several slots.
func (c *Client) GetLock(name string) *rlock.Lock {
	return rlock.New(c, name)
}

// GetFencedLock returns the reentrant lock with this name whose holds have a fencing token. It excludes holders of the
// lock that GetLock returns for the same name. It does no I/O, and reports a bad name as GetLock does.
func (c *Client) GetFencedLock(name string) *rlock.Lock {
	return rlock.NewFenced(c, name)
}

// GetFairLock returns the reentrant lock with this name that is granted first come, first served, across goroutines and
// processes. It excludes holders of the lock that GetLock returns for the same name, whose waiters do not queue. It
// does no I/O, and reports a bad name as GetLock does.
func (c *Client) GetFairLock(name string) *rfairlock.Lock { return rfairlock.New(c, name) }

// GetReadWriteLock returns the read-write lock with this name. It does no I/O, and reports a bad name or option as
// GetLock does.
func (c *Client) GetReadWriteLock(name string, opts ...rrwlock.Option) *rrwlock.Lock {
	return rrwlock.New(c, name, opts...)
}

// GetMultiLock returns a lock that consists of all the given locks, of any kind, client and server. It does no I/O and
// keeps nothing alive. The methods of the lock return [ErrInvalid] for bad input: no locks, a nil lock, or the same
// lock twice, which is one name of one client, whatever the kinds, also within given multi-locks and RedLocks.
func (c *Client) GetMultiLock(locks ...rlock.Locker) *rmultilock.Lock {
	return rmultilock.New(c, locks...)
}

// GetRedLock returns a lock that is held when a majority of the given locks is held, each of which should be on an
// independent master. See package rmultilock for what it promises. An even number of locks is allowed, but tolerates no
// more failures than one fewer. The lease of this client (see [WithWatchdogTimeout]) bounds how long a call waits for a
// master; each lock is renewed with the lease of its own client. It does no I/O, and reports bad input as GetMultiLock
// does.
func (c *Client) GetRedLock(locks ...rlock.Locker) *rmultilock.Lock {
	return rmultilock.NewRed(c, locks...)
}

// GetSemaphore returns the counting semaphore with this name. It takes rsemaphore.WithMax. It does no I/O,
// and reports a bad name or option as GetLock does.
func (c *Client) GetSemaphore(name string, opts ...rsemaphore.Option) *rsemaphore.Semaphore {
	return rsemaphore.New(c, name, opts...)
}

// GetPermitSemaphore returns the semaphore with this name whose permits are leased: the permits of a process that dies
// return. rsemaphore.WithMax limits the number of permits in one call. It does no I/O, and reports a bad name or option
// as GetLock does.
func (c *Client) GetPermitSemaphore(name string, opts ...rsemaphore.Option) *rsemaphore.PermitSemaphore {
	return rsemaphore.NewPermits(c, name, opts...)
}

// GetRateLimiter returns the rate limiter with this name, which lets rratelimiter.Per(n, d) pass for each key, and of that
// rratelimiter.WithBurst at once, or rratelimiter.Window(n, d) at most in any time d. It does no I/O, and reports a bad name, rate or option as GetLock does.
func (c *Client) GetRateLimiter(name string, rate rratelimiter.Rate, opts ...rratelimiter.Option) *rratelimiter.Limiter {
	return rratelimiter.New(c, name, rate, opts...)
}

// GetCountDownLatch returns the countdown latch with this name. It does no I/O, and reports a bad name as GetLock does;
// a name with a hash tag is also bad.
func (c *Client) GetCountDownLatch(name string) *rlatch.Latch {
	return rlatch.New(c, name)
}

// GetDelayedQueue returns the delayed queue with this name, whose messages are values of type T. It does no I/O and
// keeps nothing alive. The queue's methods return [ErrInvalid] for a bad name or option.
func GetDelayedQueue[T any](c *Client, name string, opts ...rdelayedqueue.QueueOption) *rdelayedqueue.Queue[T] {
	return rdelayedqueue.New[T](c, name, opts...)
}

// GetElection returns the election with this name, in which one candidate leads at a time. It does no I/O, and reports a
// bad name as GetLock does. The leader holds the fair lock of the same name.
func (c *Client) GetElection(name string) *relection.Election { return relection.New(c, name) }

// GetScheduler returns the scheduler with this name. All processes that use the name share its jobs. It does no I/O and keeps
// nothing alive. The scheduler's methods return [ErrInvalid] for a bad name or option.
func (c *Client) GetScheduler(name string, opts ...rscheduler.Option) *rscheduler.Scheduler {
	return rscheduler.New(c, name, opts...)
}

// GetTopic returns the topic with this name, whose values are of type T. Its only option is rtopic.WithCodec. It does no I/O
// and keeps nothing alive. The topic's methods return [ErrInvalid] for a bad name or option.
func GetTopic[T any](c *Client, name string, opts ...rtopic.Option) *rtopic.Topic[T] {
	return rtopic.New[T](c, name, opts...)
}

// GetPatternTopic returns all topics whose names match a pattern of Redis's PSUBSCRIBE, with *, ? and [a-z] (escape others
// with a backslash), after the client's prefix. Otherwise it is like GetTopic.
func GetPatternTopic[T any](c *Client, pattern string, opts ...rtopic.Option) *rtopic.PatternTopic[T] {
	return rtopic.NewPattern[T](c, pattern, opts...)
}

// GetOnce returns the object with this name that runs a function once for each key, and keeps its value of type T for all
// processes. It does no I/O and keeps nothing alive. The object's methods return [ErrInvalid] for a bad name or option.
func GetOnce[T any](c *Client, name string, opts ...ronce.Option) *ronce.Once[T] {
	return ronce.New[T](c, name, opts...)
}

// GetBarrier returns the barrier with this name, at which n participants wait for each other. It does no I/O, and reports a bad
// name or number as GetLock does.
func (c *Client) GetBarrier(name string, n int) *rbarrier.Barrier {
	return rbarrier.New(c, name, n)
}

// GetDoubleBarrier returns a new participant of the double barrier with this name, which n of them enter and leave together. It
// does no I/O and keeps nothing alive, and reports a bad name or number as GetLock does.
func (c *Client) GetDoubleBarrier(name string, n int) *rbarrier.DoubleBarrier {
	return rbarrier.NewDouble(c, name, n)
}

// GetIDGenerator returns the generator of ids with this name. It does no I/O, and reports a bad name or option as GetLock does.
func (c *Client) GetIDGenerator(name string, opts ...rid.Option) *rid.Generator {
	return rid.New(c, name, opts...)
}

// HoldInfo is something that a client holds: a lock, a leased permit, or a message of a queue. A multi-lock is listed as its
// parts. Nobody knows who has permits of a counting semaphore.
type HoldInfo struct {
	// Kind is that of the object, see [Observer], and Name is its name.
	Kind, Name string
	// Owner is the owner id of the hold, see rlock.Hold.Owner; of a permit and of a message its id.
	Owner string
	// Mode is read or write for a read-write lock, write if it is held for both; "" for anything else.
	Mode string
	// Since is when the client acquired it. A lock that was passed on from one goroutine to another within the client has been
	// held since the first of them acquired it.
	Since time.Time
	// Left is for how long it is held yet, as far as the client knows, unless it is renewed.
	Left time.Duration
	// Levels is the number of nested levels; 0 for a message.
	Levels int
	// Renewed is how often it was renewed: three times in a lease, and about once a second while another call of this client
	// waits for it.
	Renewed int
	// Site is the file and the line that acquired it, with [WithCallSites]; of nested levels the first one; of a message where it was claimed.
	Site string
}

// Holds returns what this client holds, the longest-held first. What is being released is not listed, though Redis
// may have it yet. It asks nobody and does not block; it costs time in
// proportion to what is held.
func (c *Client) Holds() []HoldInfo {
	return each(presence.Of(c.core).Holds(), func(h presence.Hold) HoldInfo { return HoldInfo(h) })
}

// WaitInfo is a call that waits for somebody else to release, offer or count down something.
type WaitInfo struct {
	// Kind is that of the object, see [Observer], and Name is its name.
	Kind, Name string
	// Since is when the call began to wait.
	Since time.Time
	// Site is the file and the line that called, with [WithCallSites]; for locks, leased permits and queues only.
	Site string
}

// Waits returns the calls of this client that wait, the one that has waited longest first. A multi-lock waits for one of its
// parts at a time, and a RedLock is not listed, since it does not wait but asks again. It asks nobody and does not block; it
// costs time in proportion to what is held and waited for.
func (c *Client) Waits() []WaitInfo {
	return each(presence.Of(c.core).Waits(), func(w presence.Wait) WaitInfo { return WaitInfo(w) })
}

// Caches returns what this client has counted of its caches, and of maps that keep entries near, in the order of their names. It asks
// nobody and does not block; it costs a few microseconds for each of them.
func (c *Client) Caches() []CacheInfo { return each(presence.Of(c.core).Caches(), cacheInfo) }

// Close closes the client. It refuses new calls, ends every wait and the context of every hold with [ErrClosed], and
// waits for holders to unlock and for handlers of messages, up to the close grace (5 s by default, see [WithCloseGrace]);
// their locks and messages are renewed meanwhile. Then it releases what is still held, messages of Take among it, or
// leaves it to its lease with [WithAbandonOnClose]. In either case
// it releases what calls in flight are granted meanwhile, unless Redis replies too late: then that is left to its
// lease.
//
// It returns at once if nothing is held and no call is in flight, and after the grace and 3 s at the latest, also if
// Redis is down. No goroutine is left, except for calls to a silent cluster, which end with the ReadTimeout of the
// cluster client. A second Close waits for the first and returns nil.
func (c *Client) Close() error {
	if !c.first.CompareAndSwap(false, true) {
		<-c.closed
		return nil
	}
	defer close(c.closed)
	c.core.Close()
	if c.core.OnClosed == nil {
		return nil
	}
	return c.core.OnClosed()
}
