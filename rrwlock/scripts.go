package rrwlock

import (
	_ "embed"
	"math"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed reader.lua
var readerSource string

//go:embed read_acquire.lua
var readAcquireSource string

//go:embed keep.lua
var keepSource string

//go:embed release.lua
var releaseSource string

//go:embed renew.lua
var renewSource string

//go:embed renew_level.lua
var renewLevelSource string

//go:embed write_acquire.lua
var writeAcquireSource string

//go:embed leave.lua
var leaveSource string

//go:embed foreign.lua
var foreignSource string

//go:embed force.lua
var forceSource string

//go:embed inspect.lua
var inspectSource string

var (
	readAcquireScript  = script.Embedded("rrwlock.read_acquire", &readAcquireSource)
	keepScript         = script.Embedded("rrwlock.keep", &keepSource)
	releaseScript      = script.Embedded("rrwlock.release", &readerSource, &releaseSource)
	renewScript        = script.Embedded("rrwlock.renew", &renewSource)
	renewLevelScript   = script.Embedded("rrwlock.renew_level", &renewLevelSource)
	writeAcquireScript = script.Embedded("rrwlock.write_acquire", &readerSource, &writeAcquireSource)
	leaveScript        = script.Embedded("rrwlock.leave", &leaveSource)
	foreignScript      = script.Embedded("rrwlock.foreign", &foreignSource)
	forceScript        = script.Embedded("rrwlock.force", &forceSource)
	inspectScript      = script.Embedded("rrwlock.inspect", &readerSource, &inspectSource)
)

const (
	// markFor is how long the mark of a waiting writer lasts. Each attempt of the writer, about one a second, sets it
	// anew, so that one lost attempt does not let readers in.
	markFor = 3 * time.Second
	// foreignFor is how long readers are held back for a writer of Redisson, unless all have left sooner.
	foreignFor = 5 * time.Second
	// noteAge and noteFor say how long the note that somebody listens has to be there before readers are held back, and how long it is
	// kept. A channel of this library stays subscribed for a second after its last waiter.
	noteAge, noteFor = 1500 * time.Millisecond, 3 * time.Second
	// closeLook is up to how many other readers the release of a reader examines.
	closeLook = 8
)

const title = "rrwlock"

// common has what the kinds of a read-write lock share.
type common struct{ core *core.Core }

// locker is what package locker sees of both kinds alike.
func (k common) locker() *locker.Kind {
	held := lease.Kind{
		Name: kinds.RWLock, Modes: true, Channel: func(key string) string { return channelOf(key) },
		Acquired: k.Acquired, Keep: k.Keep, Release: k.Release, Renew: k.Renew, RenewApart: k.RenewApart,
	}
	return &locker.Kind{Kind: held, Holder: k.holder}
}

func (common) Acquired(c *script.Call) (lease.Reply, error) {
	left, err := c.Int()
	switch left {
	case -2:
		return lease.Reply{Granted: true}, err
	case -1:
		return lease.Reply{TTL: -1}, err
	}
	return lease.Reply{TTL: time.Duration(left) * time.Millisecond}, err
}

func (common) Keep(key, owner any, levels lease.Levels, length, most time.Duration) *script.Call {
	prefix := levelsOf(key, owner)
	args := make([]any, 0, levels.Read+7)
	args = append(args, key)
	for i := range levels.Read {
		args = append(args, prefix+strconv.Itoa(i+1))
	}
	args = append(args, owner, prefix, levels.Write, script.Millis(length), script.Millis(most), channelOf(key))
	return keepScript.Call(levels.Read+1, args...)
}

func (common) Release(key, owner any) *script.Call {
	return releaseScript.Call(1, key, channelOf(key), readersOf(key), owner, closeLook)
}

func (common) Renew(mode lease.Mode, keys, owners []any, length time.Duration) *script.Call {
	args := make([]any, 0, 3*len(keys)+1)
	args = append(args, keys...)
	if mode == lease.Read {
		for i, key := range keys {
			args = append(args, levelsOf(key, owners[i])+"1")
		}
	}
	count := len(args)
	args = append(args, script.Millis(length))
	for _, owner := range owners {
		args = append(args, fieldOf(owner, mode))
	}
	return renewScript.Call(count, args...)
}

// RenewApart renews the key of the lock and, for a reader, the key of its first level, each where it is. A nested level
// is left to the renewal for all levels: the first one keeps the lock.
func (common) RenewApart(mode lease.Mode, key, owner any, length time.Duration) []*script.Call {
	calls := []*script.Call{renewScript.Call(1, key, script.Millis(length), fieldOf(owner, mode))}
	if mode == lease.Read {
		calls = append(calls, renewLevelScript.Call(1, levelsOf(key, owner)+"1", script.Millis(length)))
	}
	return calls
}

// readKind is the read lock as package locker sees it.
type readKind struct {
	common
	heeds   bool     // waiting writers hold back readers
	foreign *foreign // nil if those of Redisson do not
}

func (k readKind) locker() *locker.Kind {
	all := k.common.locker()
	all.Acquire, all.Acquired, all.Sharing, all.Permits = k.Acquire, k.Acquired, locker.Readers, k.permits
	if k.foreign != nil {
		all.Heard = k.foreign.mayWait
	}
	return all
}

// permits lets all waiting readers ask when a writer has released the lock. The release of a reader lets none of them in.
func (readKind) permits(payload string) int {
	if payload == "1" {
		return math.MaxInt
	}
	return 0
}

func (k readKind) Acquire(a locker.AcquireArgs) *script.Call {
	keys := []any{a.Key, levelsOf(a.Key, a.Owner) + "1", writersOf(a.Key)}
	if !k.heeds {
		keys = keys[:2]
	}
	return readAcquireScript.Call(len(keys), append(keys, a.Owner, script.Millis(a.Lease))...)
}

func (k readKind) Acquired(c *script.Call) (lease.Reply, error) {
	if left, err := c.Int(); err != nil || left != -3 {
		return k.common.Acquired(c)
	}
	if k.foreign != nil {
		k.foreign.mayWait(c.Key())
	}
	return lease.Reply{Granted: true}, nil
}

// writeKind is the write lock as package locker sees it.
type writeKind struct{ common }

func (k writeKind) locker() *locker.Kind {
	all := k.common.locker()
	all.Acquire, all.Leave = k.Acquire, k.Leave
	return all
}

func (writeKind) Acquire(a locker.AcquireArgs) *script.Call {
	keys := []any{a.Key, writersOf(a.Key)}
	if !a.Waits {
		keys = keys[:1]
	}
	return writeAcquireScript.Call(len(keys), append(keys, readersOf(a.Key), a.Owner, script.Millis(a.Lease), a.From, script.Millis(markFor))...)
}

func (writeKind) Leave(key, owner any, _ time.Duration) *script.Call {
	return leaveScript.Call(2, key, writersOf(key), channelOf(key), owner)
}

// fieldOf is the hash's field for an owner in a mode.
func fieldOf(owner any, mode lease.Mode) string {
	if mode == lease.Read {
		return text(owner)
	}
	return text(owner) + ":write"
}

// holdBack notes that somebody listens to a lock's channel, or holds back readers for who does.
func holdBack(key string) *script.Call {
	return foreignScript.Call(2, key, writersOf(key), script.Millis(foreignFor), script.Millis(noteAge), script.Millis(noteFor))
}

func force(key string) *script.Call { return forceScript.Call(1, key, channelOf(key)) }

// inspectLock looks at the lock alone.
func inspectLock(key, cursor, field string) *script.Call {
	return inspectScript.Call(1, key, readersOf(key), core.MostListed, cursor, field)
}

// inspect looks at waiting writers too.
func inspect(key, cursor, field string) *script.Call {
	return inspectScript.Call(2, key, writersOf(key), readersOf(key), core.MostListed, cursor, field)
}

func channelOf(key any) string { return core.Prefixed("redisson_rwlock", text(key)) }

// readersOf returns the prefix of the readers' keys: the owner and a suffix for each level follow.
func readersOf(key any) string { return core.Suffixed(text(key), "") }

// levelsOf returns the prefix of the keys of an owner's levels: a number follows.
func levelsOf(key, owner any) string { return readersOf(key) + text(owner) + ":rwlock_timeout:" }

// writersOf returns the key of the marks of waiting writers. It is not part of the wire format: Java would take a
// further field of the lock's hash for a reader.
func writersOf(key any) string { return core.Prefixed("redlatch_rwlock_writers", text(key)) }

func text(v any) string { s, _ := v.(string); return s }
