package grid

import (
	_ "embed"

	"github.com/redlatch/redlatch/internal/script"
)

// Guard is put before the scripts of objects that need its function, see guard.lua.
//
//go:embed guard.lua
var Guard string

//go:embed delete.lua
var deleteSource string

//go:embed expire.lua
var expireSource string

//go:embed info.lua
var infoSource string

//go:embed scan.lua
var scanSource string

var (
	deleteScript = script.Embedded("grid.delete", &Guard, &deleteSource)
	expireScript = script.Embedded("grid.expire", &Guard, &expireSource)
	infoScript   = script.Embedded("grid.info", &Guard, &infoSource)
	scanScript   = script.Embedded("grid.scan", &scanSource)
	pttl         = script.Command("pttl")
)
