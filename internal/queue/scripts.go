package queue

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

//go:embed gone.lua
var goneSource string

//go:embed offer.lua
var offerSource string

//go:embed wake.lua
var wakeSource string

//go:embed claim.lua
var claimSource string

//go:embed wait.lua
var waitSource string

//go:embed giveback.lua
var givebackSource string

//go:embed ack.lua
var ackSource string

//go:embed nack.lua
var nackSource string

//go:embed extend.lua
var extendSource string

//go:embed once.lua
var onceSource string

//go:embed bury.lua
var burySource string

//go:embed cancel.lua
var cancelSource string

//go:embed reschedule.lua
var rescheduleSource string

//go:embed get.lua
var getSource string

//go:embed list.lua
var listSource string

//go:embed stats.lua
var statsSource string

//go:embed redrive.lua
var redriveSource string

//go:embed purge.lua
var purgeSource string

//go:embed pause.lua
var pauseSource string

var (
	offerScript      = script.New(goneSource + offerSource)
	wakeScript       = script.New(wakeSource)
	claimScript      = script.New(claimSource)
	waitScript       = script.New(waitSource)
	givebackScript   = script.New(givebackSource)
	ackScript        = script.New(ackSource)
	nackScript       = script.New(nackSource)
	extendScript     = script.New(extendSource)
	cancelScript     = script.New(onceSource + burySource + cancelSource)
	rescheduleScript = script.New(onceSource + rescheduleSource)
	getScript        = script.New(getSource)
	listScript       = script.New(listSource)
	statsScript      = script.New(statsSource)
	redriveScript    = script.New(onceSource + redriveSource)
	purgeScript      = script.New(onceSource + burySource + purgeSource)
	pauseScript      = script.New(onceSource + pauseSource)
)

func (k *keys) offers(batch []*entry[offer]) *script.Call {
	args := make([]any, 0, 8+3*len(batch))
	stamp := ownStamp
	if slices.ContainsFunc(batch, func(e *entry[offer]) bool { return e.value.stamp != ownStamp }) {
		stamp = ""
	}
	args = append(append(args, k.offer[:]...), stamp)
	for _, e := range batch {
		payload := e.value.payload
		if stamp == "" {
			payload = append([]byte(e.value.stamp), payload...)
		}
		args = append(args, e.value.id, e.value.delay, payload)
	}
	return offerScript.Call(6, args...)
}

func (k *keys) wake() *script.Call {
	return wakeScript.Call(5, k.meta, k.due, k.flight, k.waiters, k.channel)
}

func (k *keys) claim(client string, number uint64, want int, p Terms) *script.Call {
	return claimScript.Call(9, k.meta, k.due, k.flight, k.dead, k.bodies, k.claims, k.errors, k.waiters, k.calls+client,
		layout, want, micros(p.Visibility), p.Attempts, client, number, maxBytes)
}

func (k *keys) wait(client string, listens time.Duration) *script.Call {
	return waitScript.Call(5, k.meta, k.due, k.flight, k.waiters, k.channel, client, micros(listens), micros(spareDelay))
}

// recover returns what the numbered call claimed, should it have arrived, and keeps it from claiming later.
func (k *keys) recover(client string, number uint64) *script.Call {
	return givebackScript.Call(5, k.due, k.flight, k.claims, k.waiters, k.calls+client, number)
}

func (k *keys) giveback(client string, batch []Claimed) *script.Call {
	args := make([]any, 0, 6+3*len(batch))
	args = append(args, k.due, k.flight, k.claims, k.waiters, k.calls+client, 0)
	for i := range batch {
		args = append(args, batch[i].member, batch[i].claim, batch[i].due)
	}
	return givebackScript.Call(5, args...)
}

func (k *keys) ack(batch []*entry[ack]) *script.Call {
	args := make([]any, 0, 9+3*len(batch))
	args = append(args, k.meta, k.due, k.flight, k.dead, k.bodies, k.claims, k.errors, k.done, k.receipts)
	for _, e := range batch {
		args = append(args, e.value.member, e.value.claim, e.value.keep.Milliseconds())
	}
	return ackScript.Call(9, args...)
}

func (k *keys) nack(batch []*entry[nack]) *script.Call {
	args := make([]any, 0, 6+5*len(batch))
	args = append(args, k.due, k.flight, k.dead, k.claims, k.errors, k.waiters)
	for _, e := range batch {
		delay := micros(e.value.delay)
		if e.value.reject {
			delay = -1
		}
		args = append(args, e.value.member, e.value.claim, delay, e.value.attempts, e.value.text)
	}
	return nackScript.Call(6, args...)
}

// extension is a claim whose visibility is to be set anew.
type extension struct {
	member, claim string
	visibility    time.Duration
}

// extend is what Extend asks for.
func (k *keys) extend(e extension) *script.Call { return k.extensions(1, e) }

// renew is what the watchdog asks for: no claim ends sooner for it, since it may arrive later than an Extend.
func (k *keys) renew(batch []extension) *script.Call { return k.extensions(0, batch...) }

func (k *keys) extensions(sooner int, batch ...extension) *script.Call {
	args := make([]any, 0, 4+3*len(batch))
	args = append(args, k.due, k.flight, k.claims, sooner)
	for _, e := range batch {
		args = append(args, e.member, e.claim, micros(e.visibility))
	}
	return extendScript.Call(3, args...)
}

func (k *keys) cancel(t turn, id string) *script.Call {
	return cancelScript.Call(9, k.meta, k.asked+t.client, k.due, k.flight, k.dead, k.bodies, k.claims, k.errors, k.gone,
		layout, t.number, t.floor, id)
}

func (k *keys) reschedule(t turn, id string, delay time.Duration) *script.Call {
	return rescheduleScript.Call(6, k.meta, k.asked+t.client, k.due, k.flight, k.bodies, k.waiters,
		layout, t.number, t.floor, id, micros(delay))
}

func (k *keys) get(id string) *script.Call {
	return getScript.Call(7, k.meta, k.due, k.flight, k.dead, k.bodies, k.claims, k.errors, layout, id)
}

func (k *keys) list(p place, score, member string, n int) *script.Call {
	return listScript.Call(5, k.meta, p.set, k.bodies, k.claims, k.errors, layout, p.passed, score, member, n, maxBytes)
}

func (k *keys) purge(t turn, p place) *script.Call {
	return purgeScript.Call(7, k.meta, k.asked+t.client, p.set, k.bodies, k.claims, k.errors, k.gone,
		layout, t.number, t.floor, p.passed, maxBytes)
}

// place is where messages of a state are: a sorted set, in which their scores have passed: 1, have not: 0, or either: -1.
type place struct {
	set    string
	passed int
}

func (k *keys) places(s State) []place {
	switch s {
	case Delayed:
		return []place{{k.due, 0}}
	case Ready:
		return []place{{k.due, 1}, {k.flight, 1}} // those whose claims ran out may be taken too
	case InFlight:
		return []place{{k.flight, 0}}
	}
	return []place{{k.dead, -1}}
}

func (k *keys) stats() *script.Call {
	return statsScript.Call(4, k.due, k.flight, k.dead, k.meta, layout)
}

func (k *keys) redrive(t turn, id string, until int64) *script.Call {
	return redriveScript.Call(8, k.meta, k.asked+t.client, k.due, k.dead, k.bodies, k.claims, k.errors, k.waiters,
		layout, t.number, t.floor, id, until)
}

func (k *keys) pause(t turn, on int) *script.Call {
	return pauseScript.Call(4, k.meta, k.asked+t.client, k.bodies, k.waiters, layout, t.number, t.floor, on)
}

// micros returns a time as scripts take it, rounded up.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

// reply is a script's array of integers and strings.
type reply []any

func replyOf(c *script.Call) (reply, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	return c.Slice()
}

func (r reply) int(i int) (int64, error) {
	if i >= len(r) {
		return 0, fmt.Errorf("a script answered with %d values", len(r))
	}
	switch v := r[i].(type) {
	case int64:
		return v, nil
	case string:
		f, err := strconv.ParseFloat(v, 64) // scores may be written with an exponent
		return int64(f), err
	}
	return 0, fmt.Errorf("a script answered with a %T for a number", r[i])
}

func (r reply) text(i int) (string, error) {
	if i >= len(r) {
		return "", fmt.Errorf("a script answered with %d values", len(r))
	}
	s, ok := r[i].(string)
	if !ok {
		return "", fmt.Errorf("a script answered with a %T for a text", r[i])
	}
	return s, nil
}
