package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

const (
	safetyLeast = 10 * time.Second // between the looks of a claimer that hears nothing
	safetyMost  = 15 * time.Second
	listenTime  = safetyMost + 5*time.Second // for how long Redis counts on a claimer that does not come back
	spareDelay  = 300 * time.Millisecond     // by which a second client looks in after the one that should
	leaveLimit  = 500 * time.Millisecond     // of the call by which a claimer that closes hands on what it was to look for
)

// claimer claims messages for all demands of one queue in this client, one call at a time.
//
//	idle     -> claiming  somebody wants messages
//	claiming -> resting   nothing more is due, or a call failed
//	resting  -> asleep    the timer is set
//	claiming -> idle      nobody wants messages
//	asleep   -> claiming  the timer, a wake-up
//	any      -> closed    the client closes
//
// It has a goroutine while it claims or rests.
type claimer struct {
	client *client

	mu      sync.Mutex // guards all below
	demands []*demand  // first come, first served
	phase   phase
	next    look // what the goroutine has to do after what it does
	timer   *time.Timer
	wakeAt  time.Duration // when the timer fires, by the client's clock
	member  *pubsub.Membership
	hearing hearing
	standby standby
	limited []Terms       // that claim nothing before Redis has said when to look again, for their rate or for their tasks
	ahead   int64         // that Redis was asked with when it last said so, see aheadLocked
	works   atomic.Bool   // somebody works on tasks
	spent   int           // 1 if the last claim made dead letters, else 0; of its goroutine
	lost    uint64        // number of a claim that was not answered, 0 if none
	failing int           // tries in a row that failed
	failure error         // of the last of them
	since   time.Duration // when they began, by the client's clock
}

type phase int

const (
	idle     phase = iota
	claiming       // messages are being asked for
	resting        // Redis is being asked when to look again, or the timer is set already
	asleep         // until the timer or a wake-up
	closed
)

// look is a reason to ask Redis, the more pressing ones last.
type look int

const (
	none  look = iota
	raise      // more are wanted: claim, unless Redis says that nothing is due
	peek       // most likely nothing is due: ask when something is
	claim      // something may be due
)

// hearing says whether wake-ups are heard.
type hearing int

const (
	deaf hearing = iota
	subscribed
)

// standby says whether Redis counts on this client to look in.
type standby int

const (
	unlisted standby = iota
	listed
)

// demand is somebody who wants messages.
type demand struct {
	terms   Terms
	stay    stay
	site    events.Site   // where it was called
	want    int           // messages; guarded by the claimer's mu
	transit int           // messages that are about to be delivered; guarded by the claimer's mu
	asked   int           // answers of Redis since it came; guarded by the claimer's mu
	since   time.Duration // when it came; guarded by the claimer's mu

	deliver func([]Claimed, time.Duration) // the claims, and the client's time before they were asked for; must return at once
	// For one that stays it only reports what came of a claim: an error, or nil for the first success after errors. It must return at once.
	report func(error)
}

// stay says for how long a demand wants messages.
type stay int

const (
	once   stay = iota
	always      // until it is removed
)

func (l *claimer) add(d *demand) {
	l.mu.Lock()
	if l.phase == closed || l.client.core.Closed() { // Close may have begun before it could see this claimer
		l.mu.Unlock()
		d.report(errs.ErrClosed)
		return
	}
	d.since = l.client.core.Clock.Now()
	l.demands = append(l.demands, d)
	l.wantMoreLocked(d, d.want)
	l.mu.Unlock()
}

// report returns the calls that Redis has told that nothing is due, and that wait.
func (l *claimer) report() []presence.Wait {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []presence.Wait
	c := l.client.core
	for _, d := range l.demands {
		if d.stay == once && d.asked > 0 {
			all = append(all, presence.Wait{Kind: l.client.kind, Name: l.client.user, Since: c.Clock.Time(d.since), Site: d.site.String()})
		}
	}
	return all
}

// wantMoreLocked looks for more messages, unless nothing is due for d, or Redis is about to say so.
func (l *claimer) wantMoreLocked(d *demand, more int) {
	ahead := d.terms.Rate.ahead()
	slower := l.failing == 0 && l.ahead >= 0 && (ahead < 0 || ahead > l.ahead) // the rate that Redis knows
	unasked := l.failing == 0 && d.terms.Tasks != nil && d.want == more        // nobody has asked for its tasks
	switch {
	case more <= 0:
	case slower || unasked:
		l.lookLocked(claim)
	case l.phase == idle || l.phase == claiming:
		l.lookLocked(raise)
	}
}

// remove takes d out, and reports whether it was still there.
func (l *claimer) remove(d *demand) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.demands, d)
	if i < 0 {
		return false
	}
	l.demands = slices.Delete(l.demands, i, i+1)
	if l.wantedLocked() == 0 {
		l.lookLocked(claim) // Redis must not count on this client any more
	}
	return true
}

// aim sets how many messages a demand that stays has room for, those included that are about to be delivered.
func (l *claimer) aim(d *demand, room int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := d.want
	d.want = max(0, room-d.transit)
	l.wantMoreLocked(d, d.want-before)
	if d.want == 0 && before > 0 && l.phase == asleep && l.wantedLocked() == 0 {
		l.lookLocked(claim) // as above
	}
}

// arrived says that a demand that stays has counted what was delivered.
func (l *claimer) arrived(d *demand, n int) {
	l.mu.Lock()
	d.transit -= n
	l.mu.Unlock()
}

func (l *claimer) wantedLocked() int {
	n := 0
	for _, d := range l.demands {
		n += d.wants()
	}
	return n
}

// wants returns how many messages a demand wants of those that it may have.
func (d *demand) wants() int {
	if d.terms.Tasks == nil {
		return d.want
	}
	return min(d.want, d.terms.Tasks.room())
}

// lookLocked has the claimer look again.
func (l *claimer) lookLocked(why look) {
	if l.phase == closed {
		return
	}
	l.next = max(l.next, why)
	if (l.phase == idle || l.phase == asleep) && l.client.stay() {
		l.phase = claiming
		l.client.manager.workers.Go(l.run) // ends when there is nothing to look at; Drain waits for it
	}
}

func (l *claimer) run() {
	defer l.client.leave()
	for {
		l.mu.Lock()
		why := l.next
		l.next = none
		if why == none || l.phase == closed {
			last := l.restLocked()
			l.mu.Unlock()
			last()
			return
		}
		l.stopTimerLocked()
		l.phase = claiming
		terms, want := l.nextLocked()
		waits := want == 0 && l.wantedLocked() > 0 // for their rates
		peeks := why == peek && l.hearing == subscribed && l.lost == 0 && want > 0
		l.mu.Unlock()
		switch {
		case peeks:
			l.sleep()
		case !l.settleLost():
		case want > 0:
			l.claim(terms, want)
		case waits:
			l.sleep()
		default:
			l.leave()
		}
	}
}

// restLocked ends the goroutine. The result is to be called without the mutex.
func (l *claimer) restLocked() func() {
	switch {
	case l.phase == closed && l.standby == listed:
		return l.handOver
	case l.phase == closed:
	case l.timer != nil:
		l.phase = asleep
	default:
		l.phase = idle
	}
	if l.standby == unlisted && l.member != nil && len(l.demands) == 0 {
		l.member.Leave()
		l.member, l.hearing = nil, deaf
	}
	return func() {}
}

// nextLocked returns how many messages the first demands want that have the same terms, and are not limited by their rate.
func (l *claimer) nextLocked() (terms Terms, want int) {
	for _, d := range l.demands {
		wants := d.wants()
		if wants == 0 || slices.Contains(l.limited, d.terms) {
			continue
		}
		if want == 0 {
			terms = d.terms
		}
		if d.terms == terms {
			want += wants
		}
	}
	return terms, min(want, maxBatch)
}

// claim claims once, and goes to sleep if that brought less than was wanted. A claim is not repeated: one that was not answered
// is returned before the next one.
func (l *claimer) claim(terms Terms, want int) {
	c := l.client
	var tasks []any
	if terms.Tasks != nil {
		if tasks = terms.Tasks.wanted(); len(tasks) == 0 {
			l.skip(terms)
			return
		}
		l.works.Store(true)
		l.join() // whoever claims something may be told that it was cancelled, however long it does not sleep
	}
	number := c.core.NextNumber()
	asked := c.core.Clock.Now()
	call := c.keys.claim(c.core.ID, number, want, l.spent*maxBatch, terms, l.listens(terms), tasks)
	ctx := context.Background() //nolint:forbidigo // bounded by the limit
	err := c.core.Batch.Do(ctx, call, background())
	if script.Judge(err) == script.Unknown {
		l.lose(number)
	}
	var a answer
	if err == nil {
		a, err = readClaims(call)
	}
	if err != nil {
		l.failed(err)
		return
	}
	l.spent = script.Flag(len(a.dead) > 0)
	for _, d := range a.dead {
		d.Kind, d.Name = c.kind, c.user
		c.core.Events.DeadLetter(d)
	}
	wanted := l.assign(a, terms, asked)
	again := a.left == more || len(a.claims) == want || (a.left == limited || terms.Tasks != nil) && l.limit(terms)
	switch {
	case a.look != nowhere && !again:
		l.mu.Lock()
		l.limited, l.ahead = nil, -1 // its terms have no rate
		l.mu.Unlock()
		l.rested(a.look, true)
	case wanted > 0 && !again:
		l.sleep()
	case wanted > 0:
		l.mu.Lock()
		l.lookLocked(claim)
		l.mu.Unlock()
	case len(a.claims) < want:
		l.handOver() // claim.lua took it for one that comes back
	}
}

// listens returns for how long this client listens after a claim that brings less than is wanted. It is 0 if wait.lua is to say when to look
// again: others have other terms, the terms have a rate, or a task has a limit, below which it may be again when the claim has come.
func (l *claimer) listens(terms Terms) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hearing != subscribed || terms.Rate.Count > 0 || terms.Tasks != nil && len(terms.Tasks.limits) > 0 {
		return 0
	}
	for _, d := range l.demands {
		if d.want > 0 && d.terms != terms {
			return 0
		}
	}
	return listenTime
}

// skip has those claim that have other terms, or goes to sleep.
func (l *claimer) skip(terms Terms) {
	if !l.limit(terms) {
		l.sleep()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookLocked(claim)
}

// freed has the claimer look for messages of a task that was not claimed before.
func (l *claimer) freed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failing == 0 {
		l.lookLocked(claim)
	}
}

// limit notes terms whose rate allows no claim now, or whose tasks have nothing that is due, and reports whether others may claim.
func (l *claimer) limit(terms Terms) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limited = append(l.limited, terms)
	_, others := l.nextLocked()
	return others > 0
}

// aheadLocked returns the ahead of the rate that allows a claim first, of those who want messages.
func (l *claimer) aheadLocked() int64 {
	most := int64(-1)
	for _, d := range l.demands {
		ahead := d.terms.Rate.ahead()
		switch {
		case d.want == 0:
		case ahead < 0:
			return -1
		default:
			most = max(most, ahead)
		}
	}
	return most
}

// lose notes a claim that was not answered, which is returned before the next one, or at once if the client closes.
func (l *claimer) lose(number uint64) {
	l.mu.Lock()
	closes := l.phase == closed
	if !closes {
		l.lost = number
	}
	l.mu.Unlock()
	if closes {
		l.recover(number)
		return
	}
	l.client.stay() // until it is settled
}

// settleLost returns what an unanswered claim may have brought, and reports whether the way is free.
func (l *claimer) settleLost() bool {
	l.mu.Lock()
	number := l.lost
	l.mu.Unlock()
	if number == 0 {
		return true
	}
	c := l.client
	ctx := context.Background() //nolint:forbidigo // bounded by the limit
	if err := c.core.Batch.Do(ctx, c.keys.recover(c.core.ID, number), background()); err != nil {
		l.failed(err)
		return false
	}
	l.mu.Lock()
	settled := l.lost == number
	l.lost = 0
	l.mu.Unlock()
	if settled {
		c.leave()
	}
	return true
}

// recover returns what an unanswered claim may have brought, as the client closes. What fails is left to its visibility.
func (l *claimer) recover(number uint64) {
	c := l.client
	_, _, _ = c.manager.end(func() *script.Call { return c.keys.recover(c.core.ID, number) }) // as said above
}

// leave has Redis not count on this client any more, if it does.
func (l *claimer) leave() {
	l.mu.Lock()
	was := l.standby
	l.standby = unlisted
	l.mu.Unlock()
	if was == listed {
		l.handOver()
	}
}

// handOver has another client look in when the next message is due. If that fails they find it by their safety checks.
func (l *claimer) handOver() {
	c := l.client
	ctx := context.Background() //nolint:forbidigo // bounded by the limit
	ask := pipeline.SendOptions{Class: pipeline.Urgent, Limit: leaveLimit}
	_, _ = c.core.Run(ctx, func() *script.Call { return c.keys.leave(c.core.ID, l.works.Load()) }, ask) // as said above
}

// assign hands what was claimed to the demands with these terms, in their order, and returns how many messages are wanted after it.
func (l *claimer) assign(a answer, terms Terms, asked time.Duration) int {
	type parcel struct {
		to     *demand
		claims []Claimed
	}
	var parcels []parcel
	claims := a.claims
	l.mu.Lock()
	again := l.failing > 0
	l.failing, l.standby = 0, unlisted
	if a.look != nowhere {
		l.standby = listed
	}
	var left, waited []*demand
	for _, d := range l.demands {
		d.asked++
		n := 0
		if d.terms == terms {
			n = min(d.want, len(claims))
		}
		if n > 0 {
			parcels = append(parcels, parcel{d, claims[:n:n]})
			claims = claims[n:]
			d.want -= n
			d.transit += n
		}
		if d.stay == always || n == 0 {
			left = append(left, d)
		}
		if d.stay == always && again {
			waited = append(waited, d)
		}
	}
	l.demands = left
	wanted := l.wantedLocked()
	l.mu.Unlock()
	for _, d := range waited {
		d.report(nil)
	}
	for _, p := range parcels {
		p.to.deliver(p.claims, asked)
	}
	l.client.giveBack(claims) // who wanted them is gone
	return wanted
}

// sleep asks Redis when to look again, and sets the timer.
func (l *claimer) sleep() {
	l.join()
	l.mu.Lock()
	listens := time.Duration(0)
	if l.hearing == subscribed {
		listens = listenTime
	}
	l.next = none // whatever is due by now, the answer says so
	l.limited = nil
	if l.wantedLocked() == 0 { // since the claim, which took it for one that comes back
		l.standby = unlisted
		l.mu.Unlock()
		l.handOver()
		return
	}
	ahead := l.aheadLocked()
	l.ahead = ahead
	if l.phase == claiming {
		l.phase = resting
	}
	tasks := l.tasksLocked()
	l.mu.Unlock()
	c := l.client
	ctx := context.Background() //nolint:forbidigo // bounded by the limit
	call := c.keys.wait(c.core.ID, listens, ahead, tasks)
	left := int64(0)
	err := c.core.Batch.Do(ctx, call, background())
	if err == nil {
		left, err = call.Int()
	}
	if err != nil {
		l.failed(err)
		return
	}
	l.rested(left, left != 0 && listens > 0) // else Redis has not looked at who waits
}

// rested sets the timer to what Redis has said: the µs until this client is to look, -1 to wait for a wake-up, or 0 for now.
func (l *claimer) rested(left int64, noted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if noted {
		l.standby = listed
	}
	if l.next == raise {
		l.next = none // nothing is due for them
	}
	if l.wantedLocked() == 0 || left == 0 || l.next != none {
		l.lookLocked(claim)
		return
	}
	d := safetyLeast + rand.N(safetyMost-safetyLeast)
	if due := time.Duration(left) * time.Microsecond; due > 0 {
		d = min(d, due)
	}
	l.setTimerLocked(d)
}

// tasksLocked returns the tasks of which demands want messages; nil if they have none.
func (l *claimer) tasksLocked() (all []any) {
	for _, d := range l.demands {
		if d.terms.Tasks != nil {
			l.works.Store(true)
		}
		if d.terms.Tasks != nil && d.want > 0 {
			all = append(all, d.terms.Tasks.wanted()...)
		}
	}
	return all
}

// setTimerLocked has the claimer claim later.
func (l *claimer) setTimerLocked(d time.Duration) {
	l.stopTimerLocked()
	if l.phase == closed {
		return
	}
	l.wakeAt = l.client.core.Clock.Now() + d
	l.timer = time.AfterFunc(d, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lookLocked(claim)
	})
}

func (l *claimer) stopTimerLocked() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
}

// join makes the claimer hear its channel.
func (l *claimer) join() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.member != nil || l.phase == closed {
		return
	}
	confirmed := false
	l.member, confirmed = l.client.core.Router.Join(l.client.keys.channel+l.client.core.ID, l)
	if confirmed {
		l.hearing = subscribed
	}
}

// Subscribed has the claimer look again: what was published before was not heard.
func (l *claimer) Subscribed() {
	if l.works.Load() {
		l.client.recheck() // some may have been cancelled
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hearing = subscribed
	switch {
	case len(l.demands) == 0:
	case l.phase == asleep && l.failing == 0:
		l.lookLocked(peek)
	default:
		l.lookLocked(claim)
	}
}

// Message brings the time until this client should look, in microseconds, with a plus sign if it is only the spare; or an x and the number of
// a claim whose message was cancelled.
func (l *claimer) Message(payload string) {
	if claim, ok := strings.CutPrefix(payload, "x"); ok {
		l.client.cancelled(claim)
		return
	}
	left, err := strconv.ParseInt(payload, 10, 64)
	if err != nil {
		return
	}
	c := l.client
	if left == 0 && l.waits() {
		c.core.Events.Woken(c.kind, c.user)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wantedLocked() == 0 {
		l.standby = listed // leave.lua then has somebody else look in
		l.lookLocked(claim)
		return
	}
	sleeps := left > 0 && l.phase == asleep
	switch d := time.Duration(left) * time.Microsecond; {
	case sleeps && strings.HasPrefix(payload, "+"):
		if c.core.Clock.Now()+d < l.wakeAt {
			l.setTimerLocked(d)
		}
	case sleeps:
		// It has to say that it heard: a cluster may count it as deaf, and then notifies it no more. It also finds a spare.
		l.lookLocked(peek)
	default:
		l.lookLocked(claim)
	}
}

// waits reports whether anybody wants messages.
func (l *claimer) waits() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.demands) > 0
}

// unanswered returns the error of the last call, or that Redis has answered none since the demand came; nil if it has.
func (l *claimer) unanswered(d *demand) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.failing > 0:
		return l.failure
	case d.asked == 0 && l.phase == claiming:
		return fmt.Errorf("%w: %w", errs.ErrUnavailable, script.ErrNoAnswer)
	}
	return nil
}

// failed counts a try that failed, reports it to those whom it concerns, and sets the time of the next one.
func (l *claimer) failed(err error) {
	newer := errors.Is(err, ErrLayout)
	final := script.Final(err) || newer
	err = core.Explain(err)
	if !newer && script.Judge(err) == script.Unknown { // of a claim, which is returned: nothing was done for the caller
		err = fmt.Errorf("%w: %w", errs.ErrUnavailable, err)
	}
	now := l.client.core.Clock.Now()
	l.mu.Lock()
	if l.failing == 0 || script.Parted(err) { // a slot may be on the move for long
		l.since = now
	}
	l.failing, l.failure = l.failing+1, err
	long := now-l.since > l.client.core.Lease
	var concerned, left []*demand
	for _, d := range l.demands {
		ends := final || script.Refused(err) && d.asked == 0 || long
		if d.stay == always || ends {
			concerned = append(concerned, d)
		}
		if d.stay == always || !ends {
			left = append(left, d)
		}
	}
	l.demands = left
	if len(left) == 0 {
		l.standby = unlisted // those that wait find out
	}
	if len(left) > 0 || l.lost != 0 {
		if l.phase == claiming {
			l.phase = resting
		}
		l.next = none
		l.setTimerLocked(pause(l.failing))
	}
	l.mu.Unlock()
	for _, d := range concerned {
		d.report(err)
	}
}

// close ends all waits.
func (l *claimer) close() {
	l.mu.Lock()
	running := l.phase == claiming || l.phase == resting
	l.phase = closed
	l.stopTimerLocked()
	demands := l.demands
	l.demands = nil
	number := l.lost
	l.lost = 0
	hands := l.standby == listed && !running // its goroutine sees to it itself
	if l.member != nil {
		l.member.Leave()
		l.member = nil
	}
	l.mu.Unlock()
	for _, d := range demands {
		d.report(errs.ErrClosed)
	}
	if number != 0 {
		l.client.manager.workers.Go(func() { l.recover(number) }) // Drain waits for it
	}
	if hands {
		l.client.manager.workers.Go(l.handOver) // Drain waits for it
	}
}
