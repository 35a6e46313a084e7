package pipeline

import "github.com/redlatch/redlatch/internal/script"

// Outbox collects calls that are sent at the same time: those of one client share pipelines.
type Outbox map[*Batcher]*outgoing

type outgoing struct {
	calls   []Sending
	refused []func() // what to do for each call if the client has closed
}

// Add adds a call; refused is called if the client has closed when it is to be sent.
func (o *Outbox) Add(to *Batcher, call *script.Call, done func(*script.Call), refused func()) {
	if *o == nil {
		*o = Outbox{}
	}
	mine := (*o)[to]
	if mine == nil {
		mine = &outgoing{}
		(*o)[to] = mine
	}
	mine.calls, mine.refused = append(mine.calls, Sending{Call: call, Done: done}), append(mine.refused, refused)
}

// Send sends the calls.
func (o Outbox) Send(class Class) {
	for to, mine := range o {
		if to.StartAll(class, mine.calls) {
			continue
		}
		for _, refused := range mine.refused {
			refused()
		}
	}
}
