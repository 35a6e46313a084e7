package main

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed reserve.lua
	reserveSource string
	//go:embed settle.lua
	settleSource string

	reserveScript = redis.NewScript(reserveSource)
	settleScript  = redis.NewScript(settleSource)
)
