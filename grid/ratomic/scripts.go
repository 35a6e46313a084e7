package ratomic

import (
	_ "embed"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed int64.lua
var int64Source string

//go:embed float64.lua
var float64Source string

var (
	int64Script   = script.Embedded("ratomic.int64", &int64Source)
	float64Script = script.Embedded("ratomic.float64", &float64Source)
	get           = script.Command("get")
	set           = script.Command("set")
	incrby        = script.Command("incrby")
	incrbyfloat   = script.Command("incrbyfloat")
)
