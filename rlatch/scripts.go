package rlatch

import (
	_ "embed"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed apply.lua
var applySource string

//go:embed count.lua
var countSource string

//go:embed mark.lua
var markSource string

var (
	applyScript = script.Embedded("rlatch.apply", &applySource)
	countScript = script.Embedded("rlatch.count", &countSource)
	markScript  = script.Embedded("rlatch.mark", &markSource)
)

// kind is the latch as package counter sees it.
func kind() counter.Kind {
	return counter.Kind{
		Name:   kinds.Latch,
		Script: applyScript,
		Keys:   neededKeys,
		Extra:  extraKeys,
		Args:   func(key string) []any { return []any{channel(key)} },
	}
}

func neededKeys(key string, codes []string) []any {
	switch {
	case slices.ContainsFunc(codes, isSet):
		return []any{membersKey(key), openKey(key), markKey(key)}
	case slices.Contains(codes, deleteIt):
		return []any{membersKey(key), openKey(key)}
	case !slices.ContainsFunc(codes, needsMembers):
		return nil
	}
	return []any{membersKey(key)}
}

// extraKeys returns the other keys that change when the count reaches zero. Where they cannot, TrySetCount deletes the
// participants, and the latch stays open from the next operation on that finds it open.
func extraKeys(key string, codes []string) []any {
	return []any{membersKey(key), openKey(key)}[min(len(neededKeys(key, codes)), 2):]
}

func isSet(code string) bool { return code[0] == 's' || code[0] == 't' }

func needsMembers(code string) bool { return code[0] != 'c' && code != counter.Blank }

func membersKey(key string) string { return core.Prefixed("redlatch_latch_once", key) }

// openKey has for how long the latch stays open.
func openKey(key string) string { return core.Prefixed("redlatch_latch_open", key) }

// markKey changes whenever the count is set, so that a waiter that missed the zero before notices it.
func markKey(key string) string { return core.Prefixed("redlatch_latch_set", key) }

func channel(key string) string { return "redisson_countdownlatch__channel__{" + key + "}" }

// The operations as apply.lua reads them.

func countBy(n int) string { return "c" + strconv.Itoa(n) }

func countOnce(participant string) string { return "o" + participant }

func setTo(n int) string { return "s" + strconv.Itoa(n) }

func setOnceTo(n int, ttl time.Duration) string {
	return "t" + strconv.Itoa(n) + ":" + strconv.FormatInt(ttl.Milliseconds(), 10)
}

const deleteIt = "k"

// countOf reads the count alone, which also works while the latch's slot moves.
func countOf(key string) *script.Call { return countScript.Call(1, key) }

// readOf reads the count, the mark, and whether a latch without a count stays open.
func readOf(key string) *script.Call { return countScript.Call(3, key, markKey(key), openKey(key)) }

func markOf(key string) *script.Call { return markScript.Call(1, markKey(key)) }

// counted reads count.lua's reply.
func counted(c *script.Call) (found, error) {
	row := c.Row()
	f := found{count: int(row.Int()), mark: row.Text()}
	f.stays = row.Text() != "" && f.count == 0
	return f, row.Err()
}

// found is what a read has found.
type found struct {
	count int
	mark  string
	stays bool // open, since TrySetCountOnce has set the count that was there
}
