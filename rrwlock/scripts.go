package rrwlock

import (
	_ "embed"
	"fmt"
	"math"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed read_acquire.lua
var readAcquireSource string

//go:embed read_keep.lua
var readKeepSource string

//go:embed read_release.lua
var readReleaseSource string

//go:embed renew.lua
var renewSource string

//go:embed write_acquire.lua
var writeAcquireSource string

//go:embed write_keep.lua
var writeKeepSource string

//go:embed write_release.lua
var writeReleaseSource string

//go:embed leave.lua
var leaveSource string

//go:embed force.lua
var forceSource string

//go:embed inspect.lua
var inspectSource string

var (
	readAcquireScript  = script.New(readAcquireSource)
	readKeepScript     = script.New(readKeepSource)
	readReleaseScript  = script.New(readReleaseSource)
	renewScript        = script.New(renewSource)
	writeAcquireScript = script.New(writeAcquireSource)
	writeKeepScript    = script.New(writeKeepSource)
	writeReleaseScript = script.New(writeReleaseSource)
	leaveScript        = script.New(leaveSource)
	forceScript        = script.New(forceSource)
	inspectScript      = script.New(inspectSource)
)

const (
	// markFor is how long the mark of a waiting writer is good. It is set anew each time that the writer asks, about once a
	// second, so that one lost try does not let readers in.
	markFor = 3 * time.Second
	// closeLook is how many other readers a reader that leaves looks at.
	closeLook = 8
)

// common is what the kinds of a read-write lock share.
type common struct{}

func (common) Title() string { return "rrwlock" }

func (common) Channel(key string) string { return channelOf(key) }

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

// readKind is the read lock as package lease sees it.
type readKind struct {
	common
	heeds bool // waiting writers hold it back
}

// Heads has all who want to read ask when a writer has released the lock. The release of a reader lets none of them in.
func (readKind) Heads(payload string) int {
	if payload == "1" {
		return math.MaxInt
	}
	return 0
}

func (k readKind) Acquire(a lease.Ask) *script.Call {
	return readAcquireScript.Call(3, a.Key, readersOf(a.Key), writersOf(a.Key), a.Owner, script.Millis(a.Lease), script.Flag(a.TakeOver), script.Flag(k.heeds))
}

func (readKind) Keep(key, owner any, levels int, length, most time.Duration) *script.Call {
	return readKeepScript.Call(2, key, readersOf(key), owner, levels, script.Millis(length), script.Millis(most))
}

func (readKind) Release(key, owner any) *script.Call {
	return readReleaseScript.Call(3, key, readersOf(key), channelOf(key), owner, closeLook)
}

func (readKind) Renew(keys, owners []any, length time.Duration) *script.Call {
	args := make([]any, 0, 3*len(keys)+1)
	args = append(args, keys...)
	for _, key := range keys {
		args = append(args, readersOf(key))
	}
	args = append(args, script.Millis(length))
	args = append(args, owners...)
	return renewScript.Call(2*len(keys), args...)
}

// besideKind is the read lock that the writer takes: a field of the same owner beside that of the writer.
type besideKind struct{ readKind }

func (besideKind) Acquire(a lease.Ask) *script.Call {
	return readKeepScript.Call(2, a.Key, readersOf(a.Key), a.Owner, 1, script.Millis(a.Lease), 0)
}

func (besideKind) Acquired(c *script.Call) (lease.Reply, error) {
	kept, err := c.Int()
	return lease.Reply{Granted: kept == 1}, err
}

func (k besideKind) Leave(key, owner any) *script.Call { return k.Release(key, owner) }

// writeKind is the write lock as package lease sees it.
type writeKind struct{ common }

func (writeKind) Acquire(a lease.Ask) *script.Call {
	mark := time.Duration(0)
	if a.Waits {
		mark = markFor
	}
	return writeAcquireScript.Call(3, a.Key, readersOf(a.Key), writersOf(a.Key), a.Owner, script.Millis(a.Lease), takeOver(a), script.Millis(mark))
}

// takeOver returns what a try takes over: 0 for nothing, 1 for all that its owner has, 2 for what an earlier try got.
func takeOver(a lease.Ask) int {
	if a.Again {
		return 2
	}
	return script.Flag(a.TakeOver)
}

func (writeKind) Leave(key, owner any) *script.Call {
	return leaveScript.Call(3, key, writersOf(key), channelOf(key), owner)
}

func (writeKind) Keep(key, owner any, levels int, length, most time.Duration) *script.Call {
	return writeKeepScript.Call(1, key, owner, levels, script.Millis(length), script.Millis(most))
}

func (writeKind) Release(key, owner any) *script.Call {
	return writeReleaseScript.Call(3, key, readersOf(key), channelOf(key), owner)
}

func (writeKind) Renew(keys, owners []any, length time.Duration) *script.Call {
	args := make([]any, 0, 2*len(keys)+1)
	args = append(args, keys...)
	args = append(args, script.Millis(length))
	for _, owner := range owners {
		args = append(args, text(owner)+writeSuffix)
	}
	return renewScript.Call(len(keys), args...)
}

// writeSuffix follows the owner in the field of a writer.
const writeSuffix = ":write"

func force(key string) *script.Call { return forceScript.Call(2, key, channelOf(key)) }

func inspect(key, field string) *script.Call {
	return inspectScript.Call(2, key, readersOf(key), field)
}

// inspected reads inspect's reply: how long the lock is held yet, -2 when free and -1 without end, and the field's levels.
func inspected(c *script.Call) (left time.Duration, levels int, err error) {
	pair, err := c.Ints()
	if err == nil && len(pair) != 2 {
		err = fmt.Errorf("a script answered with %d integers, not 2", len(pair))
	}
	if err != nil {
		return 0, 0, err
	}
	left = time.Duration(pair[0])
	if left > 0 {
		left *= time.Millisecond
	}
	return left, int(pair[1]), nil
}

func channelOf(key any) string { return core.Prefixed("redisson_rwlock", text(key)) }

// readersOf is what the keys of readers begin with: the owner and what belongs to one level follow.
func readersOf(key any) string { return core.Suffixed(text(key), "") }

// writersOf is where waiting writers leave their marks. It is no key of the wire format, which knows of none: a field of the
// lock's hash would be taken for a reader.
func writersOf(key any) string { return core.Prefixed("redlatch_rwlock_writers", text(key)) }

func text(v any) string { s, _ := v.(string); return s }
