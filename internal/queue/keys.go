package queue

import "github.com/redlatch/redlatch/internal/core"

// layout is the version of the keys below; in one of version 1 no message has terms of its own, and it goes on.
const layout = 2

// keys are the names of a queue's keys, all in one slot, and of its channels.
type keys struct {
	meta, due, flight, dead, bodies, claims, errors, done, receipts, waiters, groups, places, series string

	// A key that is never there: with it Redis refuses a script while the slot is half-moved. Else the node which the slot leaves runs one as
	// long as all its keys are there, and stops it in the middle where it looks at a key that it has just emptied.
	none string

	channel string // prefix of the clients' channels
	claimed string // prefix of the clients' last claims
	called  string // prefix of the clients' last numbered calls
}

func keysOf(name string) *keys {
	base := core.Prefixed("redlatch_dq", name) + ":"
	return &keys{
		meta: base + "meta", due: base + "due", flight: base + "flight", dead: base + "dead", bodies: base + "bodies",
		claims: base + "claims", errors: base + "errors", done: base + "done", receipts: base + "receipts",
		waiters: base + "waiters", groups: base + "groups", places: base + "places", series: base + "series",
		none: base + "none", channel: base + "wake:", claimed: base + "call:", called: base + "asked:",
	}
}

// Places are the names that a script of another package needs to put messages into a queue, or take them out, with the functions of
// [PlaceSource].
type Places struct {
	Base                                               string // prefix of all keys
	Meta, Due, Flight, Bodies, Waiters, Claims, Errors string
	Channel                                            string // prefix of the clients' channels
}
