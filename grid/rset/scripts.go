package rset

import (
	_ "embed"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed put.lua
var putSource string

//go:embed has.lua
var hasSource string

//go:embed len.lua
var lenSource string

//go:embed remove.lua
var removeSource string

//go:embed scan.lua
var scanSource string

var (
	putScript    = script.Embedded("rset.put", &putSource)
	hasScript    = script.Embedded("rset.has", &hasSource)
	lenScript    = script.Embedded("rset.len", &lenSource)
	removeScript = script.Embedded("rset.remove", &removeSource)
	scanScript   = script.Embedded("rset.scan", &scanSource)
	sadd         = script.Command("sadd")
	srem         = script.Command("srem")
	sismember    = script.Command("sismember")
	smismember   = script.Command("smismember")
	scard        = script.Command("scard")
	spop         = script.Command("spop")
	srandmember  = script.Command("srandmember")
	smove        = script.Command("smove")
)
