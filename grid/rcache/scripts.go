package rcache

import (
	_ "embed"
	"time"

	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/once"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed entry.lua
var entrySource string

//go:embed read.lua
var readSource string

//go:embed claim.lua
var claimSource string

//go:embed renew.lua
var renewSource string

//go:embed release.lua
var releaseSource string

//go:embed keep.lua
var keepSource string

//go:embed set.lua
var setSource string

//go:embed invalidate.lua
var invalidateSource string

//go:embed drop.lua
var dropSource string

var (
	readScript       = script.Embedded("rcache.read", &readSource)
	claimScript      = script.Embedded("rcache.claim", &entrySource, &claimSource)
	renewScript      = script.Embedded("rcache.renew", &renewSource)
	releaseScript    = script.Embedded("rcache.release", &releaseSource)
	keepScript       = script.Embedded("rcache.keep", &entrySource, &keepSource)
	setScript        = script.Embedded("rcache.set", &entrySource, &setSource)
	invalidateScript = script.Embedded("rcache.invalidate", &entrySource, &invalidateSource)
	dropScript       = script.Embedded("rcache.drop", &dropSource)
)

// names are those of keys and channels.
var names = once.Names{Keys: "redlatch_cache:", Channels: "redlatch_cache_load_channel:"}

// kind is that of the claims.
func kind() once.Kind {
	return once.Kind{Name: kinds.Cache, Names: names, Claim: claim, Release: releaseScript, Renew: renewScript}
}

// The kinds of results beside those of package once.
const (
	none   = "none"   // the loader found nothing
	failed = "failed" // an error for those who waited, which is not kept
)

// claim asks for the claim of a key. A call that does not wait refreshes.
func claim(a locker.AcquireArgs) *script.Call {
	waited := int64(-1)
	if a.Waits {
		waited = a.Waited.Milliseconds()
	}
	return claimScript.Call(1, a.Key, a.Owner, script.Millis(a.Lease), waited)
}

// found is what is kept for a key.
type found struct {
	once.Result
	fresh time.Duration // what is left
	due   bool          // somebody is to refresh it
}

func read(key string) *script.Call { return readScript.Call(1, key) }

func readFound(c *script.Call) (f found, ok bool, err error) {
	row := c.Row()
	if ok = row.More(); ok {
		f.Result = once.ReadResult(row)
		f.fresh = time.Duration(row.Int()) * time.Millisecond
		f.due = row.Int() == 1
	}
	return f, ok, row.Err()
}

// outcome is what is to be kept of a load.
type outcome struct {
	once.Result
	ttl, fresh time.Duration
}

func keep(key, owner string, o outcome) *script.Call {
	return keepScript.Call(1, key, owner, o.Kind, o.Data, script.Millis(o.ttl), script.Millis(o.fresh), names.Channel(key))
}

func set(key string, o outcome, channel string, message []byte) *script.Call {
	return setScript.Call(1, key, o.Data, script.Millis(o.ttl), script.Millis(o.fresh), names.Channel(key), channel, message)
}

func invalidate(key, channel string, message []byte) *script.Call {
	return invalidateScript.Call(1, key, channel, message)
}

func drop(key, data string) *script.Call { return dropScript.Call(1, key, data) }
