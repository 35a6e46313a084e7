package rbarrier

import (
	_ "embed"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed rounds.lua
var roundsSource string

//go:embed arrive.lua
var arriveSource string

//go:embed leave.lua
var leaveSource string

//go:embed quit.lua
var quitSource string

//go:embed inspect.lua
var inspectSource string

var (
	arriveScript  = script.Embedded("rbarrier.arrive", &roundsSource, &arriveSource)
	leaveScript   = script.Embedded("rbarrier.leave", &roundsSource, &leaveSource)
	quitScript    = script.Embedded("rbarrier.quit", &roundsSource, &quitSource)
	inspectScript = script.Embedded("rbarrier.inspect", &roundsSource, &inspectSource)
)

const (
	longest    = 5 * time.Second // a place, without being renewed
	remembered = time.Minute     // an ended round, and the number of participants
)

// keys are those of a barrier. Its channel is none.
type keys struct {
	barrier, arrived, ended string
	inside, leaving         string // of a double barrier
	channel                 string
}

func keysOf(name string) keys {
	return keys{
		barrier: core.Prefixed("redlatch_barrier", name),
		arrived: core.Prefixed("redlatch_barrier_arrived", name),
		ended:   core.Prefixed("redlatch_barrier_ended", name),
		channel: core.Prefixed("redlatch_barrier_channel", name),
	}
}

func doubleKeysOf(name string) keys {
	return keys{
		barrier: core.Prefixed("redlatch_double", name),
		arrived: core.Prefixed("redlatch_double_arrived", name),
		ended:   core.Prefixed("redlatch_double_ended", name),
		inside:  core.Prefixed("redlatch_double_inside", name),
		leaving: core.Prefixed("redlatch_double_leaving", name),
		channel: core.Prefixed("redlatch_double_channel", name),
	}
}

// doubled returns the keys that a double barrier alone has.
func (k *keys) doubled() []any {
	if k.inside == "" {
		return nil
	}
	return []any{k.inside, k.leaving}
}

func (k *keys) arrive(who string, n int, good time.Duration, had bool) *script.Call {
	list := append([]any{k.barrier, k.arrived, k.ended}, k.doubled()...)
	return arriveScript.Call(len(list), append(list, who, n, good.Milliseconds(), remembered.Milliseconds(), k.channel, script.Flag(had))...)
}

func (k *keys) leave(who string, n int, good time.Duration, leaves bool) *script.Call {
	return leaveScript.Call(4, k.inside, k.leaving, k.ended, k.barrier,
		who, script.Flag(leaves), good.Milliseconds(), remembered.Milliseconds(), k.channel, n)
}

func (k *keys) quit(who string) *script.Call {
	list := append([]any{k.arrived, k.ended}, k.doubled()...)
	return quitScript.Call(len(list), append(list, who, remembered.Milliseconds(), k.channel)...)
}

func (k *keys) inspect() *script.Call {
	list := append([]any{k.barrier, k.arrived}, k.doubled()...)
	return inspectScript.Call(len(list), append(list, core.MostListed)...)
}

// code is the first value of the replies of arrive.lua and leave.lua.
type code int64

const (
	otherNumber code = iota - 2
	broken
	placed
	complete
	full
)

func readCode(c *script.Call) (code, int, error) {
	row := c.Row()
	is, n := code(row.Int()), int(row.Int())
	return is, n, row.Err()
}
