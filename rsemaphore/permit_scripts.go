package rsemaphore

import (
	_ "embed"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed permit_acquire.lua
var permitAcquireSource string

//go:embed permit_keep.lua
var permitKeepSource string

//go:embed permit_release.lua
var permitReleaseSource string

//go:embed permit_renew.lua
var permitRenewSource string

//go:embed permit_available.lua
var permitAvailableSource string

//go:embed permit_inspect.lua
var permitInspectSource string

//go:embed permit_resize.lua
var permitResizeSource string

var (
	permitAcquireScript   = script.Embedded("rsemaphore.permit_acquire", &permitAcquireSource)
	permitKeepScript      = script.Embedded("rsemaphore.permit_keep", &permitKeepSource)
	permitReleaseScript   = script.Embedded("rsemaphore.permit_release", &permitReleaseSource)
	permitRenewScript     = script.Embedded("rsemaphore.permit_renew", &permitRenewSource)
	permitAvailableScript = script.Embedded("rsemaphore.permit_available", &permitAvailableSource)
	permitInspectScript   = script.Embedded("rsemaphore.permit_inspect", &permitInspectSource)
	permitResizeScript    = script.Embedded("rsemaphore.permit_resize", &permitResizeSource)
)

// idSize is the length of a permit's id in Redis.
const idSize = 16

// permitKind is the leased permit as package locker sees it. An owner id is a permit's id, or the concatenated ids of
// several permits.
type permitKind struct{}

func (k permitKind) locker() *locker.Kind {
	held := lease.Kind{
		Name: kinds.Permits, Noun: "permit", ID: idOf, Channel: semaphoreChannel,
		Acquired: k.Acquired, Keep: k.Keep, Release: k.Release, Renew: k.Renew,
	}
	return &locker.Kind{
		Kind: held, Acquire: k.Acquire,
		Sharing: locker.Pool, Permits: k.permits, NewOwner: k.newOwner, Split: k.split,
	}
}

func (permitKind) Acquire(a locker.AcquireArgs) *script.Call {
	available, out, channel := permitKeys(a.Key)
	return permitAcquireScript.Call(2, available, out, a.Owner, script.Millis(a.Lease), channel)
}

func (permitKind) Acquired(c *script.Call) (lease.Reply, error) {
	n, err := c.Int()
	switch {
	case err != nil:
		return lease.Reply{}, err
	case n == -2:
		return lease.Reply{Granted: true}, nil
	case n < 0:
		return lease.Reply{TTL: -1}, nil
	}
	return lease.Reply{TTL: time.Duration(n) * time.Millisecond}, nil
}

func (permitKind) Keep(key, owner any, _ lease.Levels, length, most time.Duration) *script.Call {
	_, out, _ := permitKeys(key)
	return permitKeepScript.Call(1, out, owner, script.Millis(length), script.Millis(most))
}

func (permitKind) Release(key, owner any) *script.Call {
	available, out, channel := permitKeys(key)
	return permitReleaseScript.Call(2, available, out, owner, channel)
}

func (permitKind) Renew(_ lease.Mode, keys, owners []any, length time.Duration) *script.Call {
	args := make([]any, 0, 2*len(keys)+1)
	for _, key := range keys {
		name, _ := key.(string)
		args = append(args, outKey(name))
	}
	args = append(args, script.Millis(length))
	args = append(args, owners...)
	return permitRenewScript.Call(len(keys), args...)
}

// permits returns how many waiters may ask: the payload of a message is a number of permits.
func (permitKind) permits(payload string) int {
	n, err := strconv.Atoi(payload)
	if err != nil {
		return 0
	}
	return n
}

// newOwner returns ids of permits. Each begins with the digits that the client's id ends with, so that it says whose it is.
func (permitKind) newOwner(c *core.Core, n int) any {
	ids, unique := make([]byte, 0, n*idSize), c.Unique()
	for range n {
		ids = append(ids, unique...)
		ids = binary.BigEndian.AppendUint64(ids, c.NextNumber())
	}
	return string(ids)
}

func (permitKind) split(owner any) []any {
	ids, _ := owner.(string)
	var each []any
	for ; len(ids) >= idSize; ids = ids[idSize:] {
		each = append(each, ids[:idSize])
	}
	return each
}

func (permitKind) available(key string) *script.Call {
	return permitAvailableScript.Call(2, key, outKey(key))
}

// permitKeys returns the keys and the channel of a semaphore.
func permitKeys(key any) (available, out, channel string) {
	name, _ := key.(string)
	return name, outKey(name), semaphoreChannel(name)
}

func outKey(name string) string { return core.Suffixed(name, "timeout") }
