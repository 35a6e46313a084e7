package near

import (
	_ "embed"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed release.lua
var releaseSource string

var (
	releaseScript  = script.Embedded("near.release", &releaseSource)
	publishCommand = script.Command("publish")
)

// release gives a permit to Redisson's semaphore of that name.
func release(name string) *script.Call {
	return releaseScript.Call(1, name, core.Prefixed("redisson_sc", name))
}

// acknowledge answers a transaction. Redisson waits for that on a plain channel, also on a cluster.
func acknowledge(channel string) *script.Call {
	return publishCommand.Call(1, channel, acknowledgement)
}
