package rtopic

import (
	_ "embed"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed publish.lua
var publishSource string

var (
	publishScript  = script.Embedded("rtopic.publish", &publishSource)
	publishCommand = script.Command("publish")
)
