package ronce

import (
	_ "embed"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed claim.lua
var claimSource string

//go:embed renew.lua
var renewSource string

//go:embed release.lua
var releaseSource string

//go:embed keep.lua
var keepSource string

//go:embed peek.lua
var peekSource string

//go:embed forget.lua
var forgetSource string

var (
	claimScript   = script.Embedded("ronce.claim", &claimSource)
	renewScript   = script.Embedded("ronce.renew", &renewSource)
	releaseScript = script.Embedded("ronce.release", &releaseSource)
	keepScript    = script.Embedded("ronce.keep", &keepSource)
	peekScript    = script.Embedded("ronce.peek", &peekSource)
	forgetScript  = script.Embedded("ronce.forget", &forgetSource)
)

const (
	keyPrefix     = "redlatch_once:"
	channelPrefix = "redlatch_once_channel:"
	ended         = "1" // a run has ended, with a result or without
)

// kind is the claim as package locker sees it: a leased permit of which there is one, until a result is kept. No level of it nests and
// none is extended, so that it has no Keep.
func kind() *locker.Kind {
	held := lease.Kind{Name: kinds.Once, Noun: "claim", Named: nameIn, Channel: channel, Acquired: claimed, Release: release, Renew: renew}
	return &locker.Kind{
		Kind: held, Acquire: claim,
		Sharing: locker.Pool, Permits: permits,
		NewOwner: func(c *core.Core, _ int) any { return c.NextOwner() }, Split: func(owner any) []any { return []any{owner} },
	}
}

// keyOf returns the Redis key of a key of the object with a name.
func keyOf(name, key string) string { return core.Keyed(keyPrefix, name, key) }

// nameIn returns the name in such a Redis key.
func nameIn(redisKey string) string {
	size, rest, _ := strings.Cut(strings.TrimPrefix(redisKey, keyPrefix), ":")
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 || n > len(rest) {
		return redisKey
	}
	if name := rest[:n]; strings.Contains(name, "}") { // a hash tag of its own
		return name
	}
	return rest[1 : n+1]
}

func channel(redisKey string) string { return channelPrefix + strings.TrimPrefix(redisKey, keyPrefix) }

func channelOf(redisKey any) string {
	key, _ := redisKey.(string)
	return channel(key)
}

// permits returns how many waiters of a client are to ask after a message: the first one, as a result is the answer for all of them.
func permits(payload string) int {
	if payload == ended {
		return 1
	}
	return 0
}

func claim(a locker.AcquireArgs) *script.Call {
	return claimScript.Call(1, a.Key, a.Owner, script.Millis(a.Lease))
}

func claimed(c *script.Call) (lease.Reply, error) {
	row := c.Row()
	left := row.Int()
	switch left {
	case -1:
		return lease.Reply{TTL: -1}, row.Err()
	case -2:
		return lease.Reply{Granted: true}, row.Err()
	case -3:
		r := readResult(row)
		return lease.Reply{Instead: &r}, row.Err()
	}
	return lease.Reply{TTL: time.Duration(left) * time.Millisecond}, row.Err()
}

func release(key, owner any) *script.Call { return releaseScript.Call(1, key, owner, channelOf(key)) }

func renew(_ lease.Mode, keys, owners []any, length time.Duration) *script.Call {
	args := append(make([]any, 0, 2*len(keys)+1), keys...)
	args = append(args, script.Millis(length))
	return renewScript.Call(len(keys), append(args, owners...)...)
}

// result is what is kept. It is the error of a call that waited for a claim, and need not have it any more.
type result struct {
	failed bool
	data   string        // the encoded value, or the error's text
	ttl    time.Duration // of one that is to be kept
}

// The words for a result in Redis.
const (
	aValue = "value"
	anErr  = "error"
)

func (*result) Error() string { return "a result is kept" }

// Is says that the claim was not acquired, for those who observe it.
func (*result) Is(target error) bool { return target == errs.ErrNotAcquired }

func keep(key, owner string, r result) *script.Call {
	kept := aValue
	if r.failed {
		kept = anErr
	}
	return keepScript.Call(1, key, owner, kept, r.data, script.Millis(r.ttl), channel(key))
}

func readResult(row *script.Row) result { return result{failed: row.Text() == anErr, data: row.Text()} }

func peek(key string) *script.Call { return peekScript.Call(1, key) }

// peeked reads the reply of peek.lua.
func peeked(c *script.Call) (r result, ok bool, err error) {
	row := c.Row()
	if ok = row.More(); ok {
		r = readResult(row)
	}
	return r, ok, row.Err()
}

func forget(key string) *script.Call { return forgetScript.Call(1, key) }
