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

//go:embed window.lua
var windowSource string

//go:embed unlog.lua
var unlogSource string

// Scripts of one name do the same by another algorithm; what only looks has a name of its own, for those who count what was taken.
var (
	takeScript       = script.Embedded("rratelimiter.take", &takeSource)
	lookScript       = script.Embedded("rratelimiter.look", &takeSource)
	giveBackScript   = script.Embedded("rratelimiter.giveback", &giveBackSource)
	windowScript     = script.Embedded("rratelimiter.take", &windowSource)
	windowLookScript = script.Embedded("rratelimiter.look", &windowSource)
	unlogScript      = script.Embedded("rratelimiter.giveback", &unlogSource)
)

func (b bucket) take(key string, n int, longest time.Duration) *script.Call {
	return b.call(takeScript, key, n, longest.Microseconds())
}

func (b bucket) look(key string, n int) *script.Call { return b.call(lookScript, key, n, "") }

// call calls take.lua, without the rests if there are none.
func (b bucket) call(s *script.Script, key string, n int, longest any) *script.Call {
	cost := b.rate.span(n)
	if cost.parts == 0 && b.all.parts == 0 {
		return s.Call(1, key, int64(b.rate.count), cost.micros, b.all.micros, longest)
	}
	return s.Call(1, key, int64(b.rate.count), cost.micros, b.all.micros, longest, cost.parts, b.all.parts)
}

func (b bucket) read(c *script.Call) (taken, error) {
	row := c.Row()
	t := taken{ok: row.Int() == 1, wait: time.Duration(row.Int()) * time.Microsecond}
	used := span{micros: row.Int()}
	t.back = span{micros: row.Int()}
	if row.More() {
		used.parts = row.Int()
		t.back.parts = used.parts
	}
	t.remaining, t.reset = b.remaining(used), used.duration()
	return t, row.Err()
}

func (b bucket) giveBack(key string, n int, t taken) *script.Call {
	cost := b.rate.span(n)
	return giveBackScript.Call(1, key, t.back.micros, t.back.parts, cost.micros, cost.parts, int64(b.rate.count))
}

func (w window) take(key string, n int, longest time.Duration) *script.Call {
	return windowScript.Call(1, key, w.count, w.length.Microseconds(), n, longest.Microseconds())
}

func (w window) look(key string, n int) *script.Call {
	return windowLookScript.Call(1, key, w.count, w.length.Microseconds(), n, "")
}

func (w window) read(c *script.Call) (taken, error) {
	row := c.Row()
	t := taken{ok: row.Int() == 1, wait: time.Duration(row.Int()) * time.Microsecond}
	t.remaining = max(w.count-int(row.Int()), 0)
	t.reset = time.Duration(row.Int()) * time.Microsecond
	if row.More() {
		t.entry = row.Text()
	}
	return t, row.Err()
}

func (w window) giveBack(key string, _ int, t taken) *script.Call {
	return unlogScript.Call(1, key, t.entry)
}
