package rlatch

import (
	_ "embed"
	"fmt"
	"strconv"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed apply.lua
var applySource string

//go:embed count.lua
var countSource string

var (
	applyScript = script.New(applySource)
	countScript = script.New(countSource)
)

// kind is the latch as package counter sees it.
func kind() counter.Kind {
	return counter.Kind{
		Script: applyScript,
		Keys: func(key string) []any {
			return []any{core.Prefixed("redlatch_latch_once", key), openedKey(key), channel(key)}
		},
	}
}

// openedKey changes whenever the latch opens, so that a waiter which missed that knows of it when the count is set again.
func openedKey(key string) string { return core.Prefixed("redlatch_latch_opened", key) }

func channel(key string) string { return "redisson_countdownlatch__channel__{" + key + "}" }

// The operations as apply.lua reads them.

func countBy(n int) string { return "c" + strconv.Itoa(n) }

func countOnce(participant string) string { return "o" + participant }

func setTo(n int) string { return "s" + strconv.Itoa(n) }

const deleteIt = "k"

func countOf(key string) *script.Call { return countScript.Call(2, key, openedKey(key)) }

// counted reads count.lua's reply.
func counted(c *script.Call) (n int, opened string, err error) {
	pair, err := c.StringSlice()
	if err != nil {
		return 0, "", err
	}
	if len(pair) != 2 {
		return 0, "", fmt.Errorf("a script answered with %d strings, not 2", len(pair))
	}
	n, err = strconv.Atoi(pair[0])
	return n, pair[1], err
}
