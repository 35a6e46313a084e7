package rlatch

import (
	_ "embed"
	"slices"
	"strconv"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed apply.lua
var applySource string

//go:embed count.lua
var countSource string

//go:embed mark.lua
var markSource string

var (
	applyScript = script.New("rlatch.apply", applySource)
	countScript = script.New("rlatch.count", countSource)
	markScript  = script.New("rlatch.mark", markSource)
)

// kind is the latch as package counter sees it.
func kind() counter.Kind {
	return counter.Kind{
		Script: applyScript,
		Keys:   neededKeys,
		Extra:  extraKeys,
		Args:   func(key string) []any { return []any{channel(key)} },
	}
}

func neededKeys(key string, codes []string) []any {
	switch {
	case slices.ContainsFunc(codes, isSet):
		return []any{membersKey(key), markKey(key)}
	case !slices.ContainsFunc(codes, needsMembers):
		return nil
	}
	return []any{membersKey(key)}
}

// extraKeys returns the participants' key for a count that may reach zero: where they cannot be deleted with it,
// TrySetCount deletes them.
func extraKeys(key string, codes []string) []any {
	if slices.ContainsFunc(codes, needsMembers) {
		return nil
	}
	return []any{membersKey(key)}
}

func isSet(code string) bool { return code[0] == 's' }

func needsMembers(code string) bool { return code[0] != 'c' && code != counter.Blank }

func membersKey(key string) string { return core.Prefixed("redlatch_latch_once", key) }

// markKey changes whenever the count is set, so that a waiter that missed the zero before notices it.
func markKey(key string) string { return core.Prefixed("redlatch_latch_set", key) }

func channel(key string) string { return "redisson_countdownlatch__channel__{" + key + "}" }

// The operations as apply.lua reads them.

func countBy(n int) string { return "c" + strconv.Itoa(n) }

func countOnce(participant string) string { return "o" + participant }

func setTo(n int) string { return "s" + strconv.Itoa(n) }

const deleteIt = "k"

// countOf reads the count alone, which also works while the latch's slot moves.
func countOf(key string) *script.Call { return countScript.Call(1, key) }

// readOf reads the count and the mark.
func readOf(key string) *script.Call { return countScript.Call(2, key, markKey(key)) }

func markOf(key string) *script.Call { return markScript.Call(1, markKey(key)) }

// counted reads count.lua's reply.
func counted(c *script.Call) (n int, mark string, err error) {
	row := c.Row()
	n, mark = int(row.Int()), row.Text()
	return n, mark, row.Err()
}
