package rid

import (
	_ "embed"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed block.lua
var blockSource string

//go:embed day.lua
var daySource string

var (
	blockScript = script.Embedded("rid.block", &blockSource)
	dayScript   = script.Embedded("rid.day", &daySource)
)
