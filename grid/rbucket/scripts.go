package rbucket

import (
	_ "embed"

	"github.com/redlatch/redlatch/internal/grid"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed write.lua
var writeSource string

//go:embed remove.lua
var removeSource string

//go:embed read.lua
var readSource string

var (
	writeScript  = script.Embedded("rbucket.write", &grid.Guard, &writeSource)
	removeScript = script.Embedded("rbucket.remove", &removeSource)
	readScript   = script.Embedded("rbucket.read", &readSource)
	get          = script.Command("get")
	set          = script.Command("set")
	getdel       = script.Command("getdel")
)
