// Package fair is the fair lock as package locker sees it: a reentrant lock with a queue in Redis, whose waiters this client keeps alive.
package fair

import (
	"context"
	_ "embed"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/reentrant"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed head.lua
var headSource string

//go:embed enqueue.lua
var enqueueSource string

//go:embed acquire.lua
var acquireSource string

//go:embed leave.lua
var leaveSource string

//go:embed release.lua
var releaseSource string

//go:embed upkeep.lua
var upkeepSource string

//go:embed force.lua
var forceSource string

//go:embed inspect.lua
var inspectSource string

var (
	acquireScript = script.Embedded("rfairlock.acquire", &headSource, &enqueueSource, &acquireSource)
	leaveScript   = script.Embedded("rfairlock.leave", &headSource, &leaveSource)
	releaseScript = script.Embedded("rfairlock.release", &headSource, &releaseSource)
	upkeepScript  = script.Embedded("rfairlock.upkeep", &headSource, &upkeepSource)
	forceScript   = script.Embedded("rfairlock.force", &headSource, &forceSource)
	inspectScript = script.Embedded("rfairlock.inspect", &headSource, &inspectSource)
)

// Title is the package of the fair lock, for messages.
const Title = "rfairlock"

// Locks is a client's state for its fair locks. Locks and elections of one name exclude each other.
type Locks struct {
	Plain, Elections *locker.Manager
	kind             *kind
}

// NewLocks returns the state of a client.
func NewLocks(c *core.Core) *Locks {
	k := newKind(c)
	ns, fair := locker.NewNamespace(c), k.fair(c)
	election := *fair
	election.Name, election.Noun = kinds.Election, "leadership"
	return &Locks{kind: k, Plain: locker.NewManager(ns, fair), Elections: locker.NewManager(ns, &election)}
}

// Force releases a lock whoever holds it.
func (l *Locks) Force(key string) *script.Call { return l.kind.force(key) }

// Look asks who holds a lock, and who waits for it: some of them. The row has the owner id of each waiter, and for how long it keeps its
// place; its Err is to be looked at in the end.
func (l *Locks) Look(ctx context.Context, n *locker.Name, some int) (locker.Info, *script.Row, error) {
	return l.kind.look(ctx, n, some)
}

// kind makes the calls of the fair locks of a client.
type kind struct {
	placeTTL time.Duration // how long a waiter keeps its place without renewing it
	java     int           // 1 for Redisson's layout of the scores
	lone     int           // 1 if a single server knows all subscribers
	queues   *keyCache
}

func newKind(e *core.Core) *kind {
	return &kind{placeTTL: e.FairTimeout(), java: script.Flag(e.RedissonQueue), lone: script.Flag(!e.Cluster), queues: newKeyCache()}
}

// fair is the fair lock as package locker sees it. It is stored as a reentrant lock is; what acquires and releases it also keeps the
// queue.
func (k *kind) fair(e *core.Core) *locker.Kind {
	l := reentrant.Kind()
	l.Name, l.Acquire, l.Release, l.Leave = kinds.FairLock, k.acquire, k.release, k.leave
	l.Holder = k.holder
	l.Upkeep = &upkeeps{core: e, kind: k, of: map[string]*upkeep{}}
	return l
}

func (k *kind) acquire(a locker.AcquireArgs) *script.Call {
	return k.call(acquireScript, a.Key, a.Owner, script.Millis(a.Lease), a.From, script.Flag(a.Verify), script.Flag(a.Waits), k.wait(a.Limit), k.java)
}

func (k *kind) release(key, owner any) *script.Call {
	return k.call(releaseScript, key, owner, k.java, k.lone*(1-k.java))
}

func (k *kind) leave(key, entry any, limit time.Duration) *script.Call {
	return k.call(leaveScript, key, entry, k.wait(limit), k.java)
}

func (k *kind) upkeep(key any, entries []any) *script.Call {
	return k.call(upkeepScript, key, append([]any{script.Millis(k.placeTTL), k.java}, entries...)...)
}

// period is a third of the time for which a waiter keeps its place. In Redisson's layout places are not renewed.
func (k *kind) period() time.Duration {
	if k.java == 1 {
		return 0
	}
	return k.placeTTL / 3
}

func (k *kind) look(ctx context.Context, n *locker.Name, some int) (locker.Info, *script.Row, error) {
	answer, err := n.Ask(ctx, func(key string) *script.Call { return k.inspect(key, some) })
	if err != nil {
		return locker.Info{}, nil, err
	}
	row := answer.Row()
	info := locker.ReadInfo(n.User(), row)
	info.Waiting = int(row.Int())
	return info, row, nil
}

// holder asks who holds a lock, and how many wait.
func (k *kind) holder(ctx context.Context, n *locker.Name) (locker.Info, error) {
	info, row, err := k.look(ctx, n, 0)
	if err != nil {
		return info, err
	}
	return info, row.Err()
}

func (k *kind) force(key string) *script.Call { return k.call(forceScript, key, k.java) }

func (k *kind) inspect(key string, waiters int) *script.Call {
	q := k.queues.of(key)
	return inspectScript.Call(3, key, q.queue, q.timeouts, waiters)
}

// wait returns the time, in ms, that one waiter adds to the scores. With Redisson's layout it is the limit of the wait,
// if there is one.
func (k *kind) wait(limit time.Duration) int64 {
	if k.java == 1 && limit > 0 {
		return script.Millis(limit)
	}
	return script.Millis(k.placeTTL)
}

// call is a call of one of the queue's scripts, which all have the same keys, and the channel as their first argument.
func (k *kind) call(s *script.Script, key any, args ...any) *script.Call {
	q := k.queues.of(key)
	list := make([]any, 0, 12) // enough but for an upkeep call, so that it need not be on the heap
	list = append(list, key, q.queue, q.timeouts, q.channel)
	return s.Call(3, append(list, args...)...)
}

func channel(key string) string { return core.Prefixed("redisson_lock__channel", key) }
