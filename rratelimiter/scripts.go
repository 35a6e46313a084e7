package rratelimiter

import (
	_ "embed"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed take.lua
var takeSource string

//go:embed giveback.lua
var giveBackSource string

var (
	takeScript     = script.New("rratelimiter.take", takeSource)
	lookScript     = script.New("rratelimiter.look", takeSource) // the same by another name, for those who count what was taken
	giveBackScript = script.New("rratelimiter.giveback", giveBackSource)
)

// span is an exact time: whole microseconds and a rest in parts of one, of which one has as many as a period has tokens.
type span struct{ micros, parts int64 }

// duration returns the time, rounded up to a microsecond.
func (s span) duration() time.Duration {
	return time.Duration(s.micros+min(s.parts, 1)) * time.Microsecond
}

// takeOf takes what needs so long to come back, of all that needs so long.
func takeOf(key string, count int64, cost, all span, longest time.Duration) *script.Call {
	return call(takeScript, key, count, cost, all, longest.Microseconds())
}

// lookOf takes nothing. Otherwise it is takeOf.
func lookOf(key string, count int64, cost, all span) *script.Call {
	return call(lookScript, key, count, cost, all, "")
}

// call calls take.lua, without the rests if there are none.
func call(s *script.Script, key string, count int64, cost, all span, longest any) *script.Call {
	if cost.parts == 0 && all.parts == 0 {
		return s.Call(1, key, count, cost.micros, all.micros, longest)
	}
	return s.Call(1, key, count, cost.micros, all.micros, longest, cost.parts, all.parts)
}

// taken is the reply of take.lua.
type taken struct {
	ok   bool
	wait time.Duration // until the tokens are there
	used span          // until all tokens are back
	back span          // when they are, by the server's clock
}

func readTaken(c *script.Call) (taken, error) {
	row := c.Row()
	t := taken{
		ok:   row.Int() == 1,
		wait: time.Duration(row.Int()) * time.Microsecond,
		used: span{micros: row.Int()},
		back: span{micros: row.Int()},
	}
	if row.More() {
		t.used.parts = row.Int()
		t.back.parts = t.used.parts
	}
	return t, row.Err()
}

func giveBackOf(key string, count int64, back, cost span) *script.Call {
	return giveBackScript.Call(1, key, back.micros, back.parts, cost.micros, cost.parts, count)
}
