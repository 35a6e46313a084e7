package rmap

import (
	_ "embed"

	"github.com/redlatch/redlatch/internal/grid"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed times.lua
var timesSource string

//go:embed write.lua
var writeSource string

//go:embed remove.lua
var removeSource string

//go:embed read.lua
var readSource string

//go:embed change.lua
var changeSource string

//go:embed fill.lua
var fillSource string

var (
	writeScript  = script.Embedded("rmap.write", &grid.Guard, &timesSource, &writeSource)
	removeScript = script.Embedded("rmap.remove", &removeSource)
	readScript   = script.Embedded("rmap.read", &readSource)
	changeScript = script.Embedded("rmap.change", &changeSource)
	fillScript   = script.Embedded("rmap.fill", &timesSource, &fillSource)
	hget         = script.Command("hget")
	hmget        = script.Command("hmget")
	hset         = script.Command("hset")
	hsetnx       = script.Command("hsetnx")
	hdel         = script.Command("hdel")
	hexists      = script.Command("hexists")
	hlen         = script.Command("hlen")
	hincrby      = script.Command("hincrby")
	hincrbyfloat = script.Command("hincrbyfloat")
	hpexpire     = script.Command("hpexpire")
	hpttl        = script.Command("hpttl")
)
