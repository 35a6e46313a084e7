package ronce

import (
	_ "embed"
	"time"

	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/once"
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

// names are those of keys and channels.
var names = once.Names{Keys: "redlatch_once:", Channels: "redlatch_once_channel:"}

// kind is that of the claims. // A claim ends with its run, or turns into the result.
func kind() once.Kind {
	return once.Kind{Name: kinds.Once, Names: names, Claim: claim, Release: releaseScript, Renew: renewScript}
}

func claim(a locker.AcquireArgs) *script.Call {
	return claimScript.Call(1, a.Key, a.Owner, script.Millis(a.Lease))
}

// result is what is to be kept, and for how long.
type result struct {
	once.Result
	ttl time.Duration
}

func keep(key, owner string, r result) *script.Call {
	return keepScript.Call(1, key, owner, r.Kind, r.Data, script.Millis(r.ttl), names.Channel(key))
}

func peek(key string) *script.Call { return peekScript.Call(1, key) }

// peeked reads the reply of peek.lua.
func peeked(c *script.Call) (r once.Result, ok bool, err error) {
	row := c.Row()
	if ok = row.More(); ok {
		r = once.ReadResult(row)
	}
	return r, ok, row.Err()
}

func forget(key string) *script.Call { return forgetScript.Call(1, key) }
