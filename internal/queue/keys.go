package queue

import "github.com/redlatch/redlatch/internal/core"

// layout is the version of the keys below. Version 1 is not frozen.
const layout = 1

// keys are the names of a queue's keys, all in one slot.
type keys struct {
	meta, due, flight, dead, bodies, claims, errors, done, receipts, waiters, gone string
	channel                                                                        string // prefix of the clients' channels
	calls                                                                          string // prefix of the clients' last claims
	asked                                                                          string // prefix of the clients' numbered calls
	offer                                                                          [7]any // what each offer.lua begins with
}

func keysOf(name string) *keys {
	base := core.Prefixed("redlatch_dq", name) + ":"
	k := &keys{
		meta: base + "meta", due: base + "due", flight: base + "flight", dead: base + "dead", bodies: base + "bodies",
		claims: base + "claims", errors: base + "errors", done: base + "done", receipts: base + "receipts",
		waiters: base + "waiters", gone: base + "gone", channel: base + "wake:", calls: base + "call:", asked: base + "asked:",
	}
	k.offer = [...]any{k.meta, k.due, k.bodies, k.done, k.waiters, k.gone, layout}
	return k
}
