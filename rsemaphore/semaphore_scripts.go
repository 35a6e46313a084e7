package rsemaphore

import (
	_ "embed"
	"strconv"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed semaphore_apply.lua
var semaphoreApplySource string

//go:embed semaphore_available.lua
var semaphoreAvailableSource string

var (
	semaphoreApplyScript     = script.Embedded("rsemaphore.semaphore_apply", &semaphoreApplySource)
	semaphoreAvailableScript = script.Embedded("rsemaphore.semaphore_available", &semaphoreAvailableSource)
)

// semaphoreKind is the counting semaphore as package counter sees it.
func semaphoreKind() counter.Kind {
	return counter.Kind{
		Name:   kinds.Semaphore,
		Script: semaphoreApplyScript,
		Args:   func(key string) []any { return []any{semaphoreChannel(key)} },
	}
}

func semaphoreChannel(key string) string { return core.Prefixed("redisson_sc", key) }

// The operations as semaphore_apply.lua reads them.

func acquireOrWait(n int) string { return code('a', n) }

func acquireOnce(n int) string { return code('t', n) }

func releaseOf(n int) string { return code('r', n) }

func releaseUpTo(n, most int) string { return code('b', n) + " " + strconv.Itoa(most) }

func setOf(n int) string { return code('s', n) }

func addOf(delta int) string { return code('p', delta) }

const drainAll = "d"

func code(letter byte, n int) string {
	return string(strconv.AppendInt([]byte{letter}, int64(n), 10))
}

// countsOf reads the end of semaphore_apply.lua's reply: the permits now available, and how many clients received the
// message.
func countsOf(others []int64) (available int64, receivers int) {
	if len(others) != 2 {
		return 0, 0
	}
	return others[0], int(others[1])
}

func available(key string) *script.Call { return semaphoreAvailableScript.Call(1, key) }
