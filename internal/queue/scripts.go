package queue

import (
	_ "embed"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// WakeSource defines a Lua function that PlaceSource calls.
//
//go:embed wake.lua
var WakeSource string

// PlaceSource defines the Lua functions put, withdraw, holds and finish, for a script of another package that changes something else together with
// a message. See [Queue.Places] and [Message.Share].
//
//go:embed place.lua
var PlaceSource string

//go:embed lanes.lua
var lanesSource string

//go:embed order.lua
var orderSource string

//go:embed group.lua
var groupSource string

//go:embed numbers.lua
var numbersSource string

//go:embed tasks.lua
var tasksSource string

//go:embed ended.lua
var endedSource string

//go:embed look.lua
var lookSource string

//go:embed beat.lua
var beatSource string

//go:embed census.lua
var censusSource string

//go:embed history.lua
var historySource string

//go:embed try.lua
var trySource string

//go:embed removed.lua
var removedSource string

//go:embed once.lua
var onceSource string

//go:embed idle.lua
var idleSource string

//go:embed bury.lua
var burySource string

//go:embed rest.lua
var restSource string

//go:embed next.lua
var nextSource string

//go:embed rate.lua
var rateSource string

//go:embed expire.lua
var expireSource string

//go:embed room.lua
var roomSource string

//go:embed replace.lua
var replaceSource string

//go:embed series.lua
var seriesSource string

//go:embed offer.lua
var offerSource string

//go:embed claim.lua
var claimSource string

//go:embed wait.lua
var waitSource string

//go:embed leave.lua
var leaveSource string

//go:embed giveback.lua
var givebackSource string

//go:embed ack.lua
var ackSource string

//go:embed nack.lua
var nackSource string

//go:embed extend.lua
var extendSource string

//go:embed renew.lua
var renewSource string

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

//go:embed minutes.lua
var minutesSource string

//go:embed redrive.lua
var redriveSource string

//go:embed purge.lua
var purgeSource string

//go:embed pause.lua
var pauseSource string

var (
	offerScript      = script.Embedded("rdelayedqueue.offer", &onceSource, &WakeSource, &roomSource, &lanesSource, &numbersSource, &trySource, &orderSource, &groupSource, &seriesSource, &replaceSource, &offerSource)
	claimScript      = script.Embedded("rdelayedqueue.claim", &roomSource, &WakeSource, &lanesSource, &numbersSource, &tasksSource, &trySource, &orderSource, &groupSource, &seriesSource, &historySource, &expireSource, &rateSource, &restSource, &claimSource)
	waitScript       = script.Embedded("rdelayedqueue.wait", &WakeSource, &lanesSource, &numbersSource, &tasksSource, &nextSource, &restSource, &waitSource)
	leaveScript      = script.Embedded("rdelayedqueue.leave", &WakeSource, &lanesSource, &tasksSource, &nextSource, &leaveSource)
	givebackScript   = script.Embedded("rdelayedqueue.giveback", &WakeSource, &lanesSource, &trySource, &orderSource, &groupSource, &removedSource, &givebackSource)
	ackScript        = script.Embedded("rdelayedqueue.ack", &roomSource, &WakeSource, &lanesSource, &trySource, &orderSource, &groupSource, &removedSource, &idleSource, &seriesSource, &ackSource)
	nackScript       = script.Embedded("rdelayedqueue.nack", &roomSource, &WakeSource, &lanesSource, &trySource, &orderSource, &groupSource, &removedSource, &seriesSource, &historySource, &nackSource)
	extendScript     = script.Embedded("rdelayedqueue.extend", &WakeSource, &lanesSource, &trySource, &orderSource, &groupSource, &extendSource)
	renewScript      = script.Embedded("rdelayedqueue.renew", &renewSource)
	cancelScript     = script.Embedded("rdelayedqueue.cancel", &roomSource, &onceSource, &WakeSource, &lanesSource, &endedSource, &trySource, &orderSource, &groupSource, &removedSource, &idleSource, &burySource, &cancelSource)
	lookScript       = script.Embedded("rexecutor.look", &roomSource, &WakeSource, &lanesSource, &endedSource, &trySource, &orderSource, &groupSource, &seriesSource, &historySource, &expireSource, &lookSource)
	beatScript       = script.Embedded("rexecutor.beat", &numbersSource, &idleSource, &beatSource)
	censusScript     = script.Embedded("rexecutor.census", &lanesSource, &censusSource)
	rescheduleScript = script.Embedded("rdelayedqueue.reschedule", &onceSource, &WakeSource, &lanesSource, &trySource, &orderSource, &groupSource, &rescheduleSource)
	getScript        = script.Embedded("rdelayedqueue.get", &lanesSource, &getSource)
	listScript       = script.Embedded("rdelayedqueue.list", &lanesSource, &listSource)
	statsScript      = script.Embedded("rdelayedqueue.stats", &lanesSource, &statsSource)
	minutesScript    = script.Embedded("rdelayedqueue.minutes", &minutesSource)
	redriveScript    = script.Embedded("rdelayedqueue.redrive", &onceSource, &WakeSource, &lanesSource, &trySource, &orderSource, &groupSource, &redriveSource)
	purgeScript      = script.Embedded("rdelayedqueue.purge", &roomSource, &onceSource, &WakeSource, &lanesSource, &trySource, &orderSource, &groupSource, &removedSource, &idleSource, &burySource, &purgeSource)
	pauseScript      = script.Embedded("rdelayedqueue.pause", &onceSource, &WakeSource, &lanesSource, &nextSource, &idleSource, &pauseSource)
)

// record returns the key of a client's last call of a kind.
func (k *keys) record(client, kind string, n callNumber) string {
	return k.called + client + ":" + kind + strconv.Itoa(n.lane)
}

func (k *keys) offers(client string, n callNumber, batch []*entry[offer]) *script.Call {
	args := make([]any, 0, 20+3*len(batch))
	args = append(args, k.meta, k.due, k.bodies, k.waiters, k.record(client, "offer", n), k.series)
	own, given, grouped := true, false, false
	for _, e := range batch {
		own, given, grouped = own && e.value.mark == ownMark, given || isGiven(e.value.mark), grouped || e.value.grouped
	}
	numKeys := len(args)
	mark := ownMark
	room := batch[0].value.room
	if given || room > 0 || grouped {
		args = append(args, k.done, k.dead, k.flight, k.claims, k.errors, k.groups, k.places, k.none)
		numKeys = len(args)
	}
	if !own {
		mark = ""
	}
	whole := script.Flag(len(batch) > 1 && batch[0].request == batch[1].request)
	args = append(args, layout, k.channel, n.number, mark, room, whole)
	for _, e := range batch {
		payload := e.value.payload
		if mark == "" {
			payload = append([]byte(e.value.mark), payload...)
		}
		args = append(args, e.value.id, e.value.delay, payload)
	}
	call := offerScript.Call(numKeys, args...)
	call.Confirms = true
	return call
}

// claim claims up to want messages. After a claim that made dead letters it looks at more of them in a call. A client that listens waits for
// wake-ups if nothing more is due.
func (k *keys) claim(client string, number uint64, want, more int, p Terms, listens time.Duration, tasks []any) *script.Call {
	args := []any{
		k.meta, k.due, k.flight, k.dead, k.bodies, k.claims, k.errors, k.waiters, k.claimed + client, k.groups, k.places, k.series, k.none,
		layout, k.channel, want, micros(p.Visibility), p.Attempts, client, number, maxBytes, p.Rate.Count, micros(p.Rate.Period), more,
		micros(listens), micros(spareDelay),
	}
	return claimScript.Call(13, append(args, tasks...)...)
}

// wait asks when to look again. Ahead is that of the rate; negative without one.
func (k *keys) wait(client string, listens time.Duration, ahead int64, tasks []any) *script.Call {
	args := []any{k.meta, k.due, k.flight, k.waiters, k.channel, client, micros(listens), micros(spareDelay), ahead}
	return waitScript.Call(4, append(args, tasks...)...)
}

func (k *keys) leave(client string, works bool) *script.Call {
	args := []any{k.meta, k.due, k.flight, k.waiters, k.channel, client}
	if works {
		args = append(args, 1)
	}
	return leaveScript.Call(4, args...)
}

// look asks what became of tasks.
func (k *keys) look(ids []string) *script.Call {
	args := make([]any, 0, 17+len(ids))
	args = append(args, k.meta, k.due, k.flight, k.dead, k.bodies, k.claims, k.errors, k.done, k.receipts, k.series, k.waiters, k.groups, k.places, k.none,
		layout, k.channel, maxBytes)
	for _, id := range ids {
		args = append(args, id)
	}
	return lookScript.Call(14, args...)
}

// beat notes that somebody works on tasks, of which the names are escaped.
func (k *keys) beat(names []any) *script.Call {
	return beatScript.Call(2, append([]any{k.meta, k.bodies, layout}, names...)...)
}

// recover returns what the numbered call claimed, should it have arrived, and keeps it from claiming later.
func (k *keys) recover(client string, number uint64) *script.Call {
	return givebackScript.Call(9, k.meta, k.due, k.flight, k.claims, k.waiters, k.groups, k.places, k.none, k.claimed+client,
		k.channel, number)
}

// giveback returns claims. The passer is a client that is not to look in for them; empty for none.
func (k *keys) giveback(passer string, batch []*entry[Claimed]) *script.Call {
	args := make([]any, 0, 11+3*len(batch))
	args = append(args, k.meta, k.due, k.flight, k.claims, k.waiters, k.groups, k.places, k.none, k.channel, 0, passer)
	for _, e := range batch {
		args = append(args, e.value.member, e.value.claim, e.value.due)
	}
	return givebackScript.Call(8, args...)
}

func (k *keys) acks(batch []*entry[ack]) *script.Call {
	args := make([]any, 0, 15+3*len(batch))
	args = append(args, k.meta, k.due, k.flight, k.dead, k.bodies, k.claims, k.errors, k.done, k.receipts, k.series)
	channel := ""
	if slices.ContainsFunc(batch, func(e *entry[ack]) bool { return isGrouped(e.value.member) }) {
		args = append(args, k.waiters, k.groups, k.places)
		channel = k.channel
	}
	args = append(args, k.none)
	numKeys := len(args)
	if slices.ContainsFunc(batch, func(e *entry[ack]) bool { return e.value.bounded || e.value.record != "" }) {
		channel = k.channel
	}
	args = append(args, channel)
	for _, e := range batch {
		keep := any(e.value.keep.Milliseconds())
		if e.value.record != "" {
			keep = fmt.Sprintf("%d %s %s", keep, e.value.watcher, e.value.record)
		}
		args = append(args, e.value.member, e.value.claim, keep)
	}
	return ackScript.Call(numKeys, args...)
}

func (k *keys) nacks(batch []*entry[nack]) *script.Call {
	args := make([]any, 0, 13+5*len(batch))
	args = append(args, k.meta, k.due, k.flight, k.dead, k.claims, k.errors, k.waiters, k.series)
	if slices.ContainsFunc(batch, func(e *entry[nack]) bool {
		return e.value.end == toSuccessor || e.value.grouped || isGrouped(e.value.member)
	}) {
		args = append(args, k.bodies, k.groups, k.places)
	}
	args = append(args, k.none)
	numKeys := len(args)
	args = append(args, k.channel)
	for _, e := range batch {
		delay, attempts, text := micros(e.value.delay), any(e.value.attempts), e.value.text
		switch e.value.end {
		case toDead:
			delay, text = -1, e.value.tried()
		case toDueUncounted:
			attempts = -1
		case toSuccessor:
			attempts = -2
		case toDue:
			text = e.value.tried()
		}
		if e.value.watcher != "" {
			attempts = fmt.Sprint(attempts, " ", e.value.watcher)
		}
		args = append(args, e.value.member, e.value.claim, delay, attempts, text)
	}
	return nackScript.Call(numKeys, args...)
}

// extension is a claim whose visibility is to be set anew.
type extension struct {
	member, claim string
	visibility    time.Duration
}

func (k *keys) extend(e extension) *script.Call {
	if isGrouped(e.member) {
		return extendScript.Call(8, k.meta, k.due, k.flight, k.claims, k.waiters, k.groups, k.places, k.none,
			k.channel, e.member, e.claim, micros(e.visibility))
	}
	return extendScript.Call(5, k.meta, k.due, k.flight, k.claims, k.waiters, k.channel, e.member, e.claim, micros(e.visibility))
}

// renew prolongs claims. While the slot of the keys is on the move it has to do with one of them.
func (k *keys) renew(batch []extension, slot slotState) *script.Call {
	args := make([]any, 0, 2+3*len(batch))
	args = append(args, k.flight)
	if slot == still {
		args = append(args, k.claims)
	}
	numKeys := len(args)
	for _, e := range batch {
		args = append(args, e.member, e.claim, micros(e.visibility))
	}
	return renewScript.Call(numKeys, args...)
}

func (k *keys) cancels(client string, n callNumber, batch []*entry[cancellation]) *script.Call {
	args := make([]any, 0, 18+len(batch))
	args = append(args, k.meta, k.record(client, "cancel", n), k.due, k.flight, k.dead, k.bodies, k.claims, k.errors,
		k.waiters, k.groups, k.places)
	keep := batch[0].value.keep
	if keep > 0 {
		args = append(args, k.done, k.receipts)
	}
	args = append(args, k.none)
	numKeys := len(args)
	args = append(args, layout, n.number, k.channel, keep.Milliseconds())
	for _, e := range batch {
		id := e.value.id
		if keep > 0 {
			id = url.QueryEscape(e.value.task) + "\x01" + id
		}
		args = append(args, id)
	}
	return cancelScript.Call(numKeys, args...)
}

func (k *keys) reschedules(client string, n callNumber, batch []*entry[move]) *script.Call {
	args := make([]any, 0, 12+2*len(batch))
	args = append(args, k.meta, k.record(client, "move", n), k.due, k.flight, k.bodies, k.waiters, k.groups, k.places, k.none,
		layout, k.channel, n.number)
	for _, e := range batch {
		args = append(args, e.value.id, micros(e.value.delay))
	}
	return rescheduleScript.Call(9, args...)
}

func (k *keys) get(id string) *script.Call {
	return getScript.Call(7, k.meta, k.due, k.flight, k.dead, k.bodies, k.claims, k.errors, layout, id)
}

func (k *keys) list(p place, score, member string, n int) *script.Call {
	return listScript.Call(5, k.meta, p.set, k.bodies, k.claims, k.errors, layout, p.passed, score, member, n, maxBytes)
}

func (k *keys) purge(client string, n callNumber, p place) *script.Call {
	return purgeScript.Call(12, k.meta, k.record(client, "operate", n), p.set, k.bodies, k.claims, k.errors,
		k.due, k.flight, k.waiters, k.groups, k.places, k.none,
		layout, n.number, p.passed, k.channel)
}

// place is where messages of a state are: a sorted set, in which their scores have passed: 1, have not: 0, or either: -1.
type place struct {
	set    string
	passed int
}

func (k *keys) setsOf(s State) []place {
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

func (k *keys) stats(lane string) *script.Call {
	return statsScript.Call(6, k.due, k.flight, k.dead, k.meta, k.errors, k.groups, layout, lane, countedLanes)
}

func (k *keys) census(from, n int, lane string) *script.Call {
	return censusScript.Call(4, k.meta, k.due, k.flight, k.dead, layout, from, n, lane, countedLanes)
}

func (k *keys) minutes() *script.Call { return minutesScript.Call(2, k.meta, k.series, layout) }

func (k *keys) redrive(client string, n callNumber, id string, until int64) *script.Call {
	return redriveScript.Call(12, k.meta, k.record(client, "operate", n), k.due, k.dead, k.bodies, k.claims, k.errors, k.waiters,
		k.flight, k.groups, k.places, k.none,
		layout, k.channel, n.number, id, until)
}

// pause pauses the queue for a time, without an end if it is negative. 0 ends a pause.
func (k *keys) pause(client string, n callNumber, d time.Duration) *script.Call {
	lasts := micros(d)
	if d < 0 {
		lasts = -1
	}
	return pauseScript.Call(6, k.meta, k.record(client, "operate", n), k.bodies, k.due, k.flight, k.waiters, layout, k.channel, n.number, lasts)
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

// texts reads the texts at some places, and allocates nothing.
func (r reply) texts(into []string, at ...int) (err error) {
	for n, i := range at {
		if into[n], err = r.text(i); err != nil {
			return err
		}
	}
	return nil
}
