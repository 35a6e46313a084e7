// Package reentrant is the reentrant lock and the fenced one as package locker sees them: a hash with its holder as the only field. Other kinds
// of lock that are stored in the same way begin with its kind.
package reentrant

import (
	_ "embed"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed acquire.lua
var acquireSource string

//go:embed acquire_fenced.lua
var acquireFencedSource string

//go:embed keep.lua
var keepSource string

//go:embed release.lua
var releaseSource string

//go:embed renew.lua
var renewSource string

//go:embed force.lua
var forceSource string

//go:embed inspect.lua
var inspectSource string

var (
	acquireScript       = script.Embedded("rlock.acquire", &acquireSource)
	acquireFencedScript = script.Embedded("rlock.acquire_fenced", &acquireFencedSource)
	keepScript          = script.Embedded("rlock.keep", &keepSource)
	releaseScript       = script.Embedded("rlock.release", &releaseSource)
	renewScript         = script.Embedded("rlock.renew", &renewSource)
	forceScript         = script.Embedded("rlock.force", &forceSource)
	inspectScript       = script.Embedded("rlock.inspect", &inspectSource)
)

// Locks is a client's state for its reentrant and fenced locks. Locks of one name exclude each other across the two.
type Locks struct{ Plain, Fenced *locker.Manager }

// NewLocks returns the state of a client.
func NewLocks(c *core.Core) *Locks {
	ns := locker.NewNamespace(c)
	return &Locks{Plain: locker.NewManager(ns, Kind()), Fenced: locker.NewManager(ns, fencedKind(c.TokenTTL))}
}

// Kind returns the reentrant lock.
func Kind() *locker.Kind {
	held := lease.Kind{Name: kinds.Lock, Channel: channel, Acquired: acquired, Keep: keep, Release: release, Renew: renew}
	return &locker.Kind{Kind: held, Acquire: acquire, Inspect: inspect}
}

func channel(key string) string { return core.Prefixed("redisson_lock__channel", key) }

func acquire(a locker.AcquireArgs) *script.Call {
	return acquireScript.Call(1, a.Key, a.Owner, script.Millis(a.Lease), a.From, script.Flag(a.Verify))
}

func acquired(c *script.Call) (lease.Reply, error) {
	left, err := c.Int()
	return reply(left, 0), err
}

func keep(key, owner any, levels lease.Levels, length, most time.Duration) *script.Call {
	return keepScript.Call(1, key, owner, levels.Write, script.Millis(length), script.Millis(most))
}

func release(key, owner any) *script.Call {
	return releaseScript.Call(1, key, owner, channelOf(key))
}

func renew(_ lease.Mode, keys, owners []any, length time.Duration) *script.Call {
	var room [201]any // on the stack: a call renews a hundred locks at most
	args := append(room[:0], keys...)
	args = append(args, script.Millis(length))
	args = append(args, owners...)
	return renewScript.Call(len(keys), args...)
}

func channelOf(key any) string {
	name, _ := key.(string)
	return channel(name)
}

// Force releases a lock whoever holds it.
func Force(key string) *script.Call { return forceScript.Call(1, key, channel(key)) }

func inspect(key string) *script.Call { return inspectScript.Call(1, key) }

func inspectFenced(key string) *script.Call { return inspectScript.Call(2, key, tokenOf(key)) }

func tokenOf(key any) string {
	name, _ := key.(string)
	return core.Prefixed("redisson_lock_token", name)
}

// fencedKind is the fenced lock: its acquisition draws a token, which is kept for so long. Everything else is the reentrant lock's.
func fencedKind(keepToken time.Duration) *locker.Kind {
	k := Kind()
	k.Acquired, k.InspectAll = acquiredFenced, inspectFenced
	k.Acquire = func(a locker.AcquireArgs) *script.Call {
		return acquireFencedScript.Call(2, a.Key, tokenOf(a.Key), a.Owner, script.Millis(a.Lease), a.From, script.Flag(a.Verify), script.Millis(keepToken))
	}
	return k
}

func acquiredFenced(c *script.Call) (lease.Reply, error) {
	pair, err := pairOf(c)
	if err != nil {
		return lease.Reply{}, err
	}
	return reply(pair[0], pair[1]), nil
}

// pairOf reads a reply of two integers.
func pairOf(c *script.Call) ([]int64, error) {
	pair, err := c.Ints()
	if err == nil && len(pair) != 2 {
		err = fmt.Errorf("a script answered with %d integers, not 2", len(pair))
	}
	return pair, err
}

func reply(left, token int64) lease.Reply {
	switch left {
	case -2:
		return lease.Reply{Granted: true, Token: token}
	case -1:
		return lease.Reply{TTL: -1}
	}
	return lease.Reply{TTL: time.Duration(left) * time.Millisecond}
}
