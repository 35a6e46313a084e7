package rsortedset

import (
	_ "embed"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed remove.lua
var removeSource string

//go:embed range.lua
var rangeSource string

var (
	removeScript  = script.Embedded("rsortedset.remove", &removeSource)
	rangeScript   = script.Embedded("rsortedset.range", &rangeSource)
	zadd          = script.Command("zadd")
	zincrby       = script.Command("zincrby")
	zscore        = script.Command("zscore")
	zrem          = script.Command("zrem")
	zrank         = script.Command("zrank")
	zrevrank      = script.Command("zrevrank")
	zcard         = script.Command("zcard")
	zcount        = script.Command("zcount")
	zrange        = script.Command("zrange")
	zrevrange     = script.Command("zrevrange")
	zrangebyscore = script.Command("zrangebyscore")
	zpopmin       = script.Command("zpopmin")
	zpopmax       = script.Command("zpopmax")
)
