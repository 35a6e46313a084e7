package pubsub

import (
	"container/list"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/backoff"
)

const (
	maxLingering  = 1000
	idleTime      = 30 * time.Second       // how long a connection without channels stays open
	retryRefused  = 30 * time.Second       // before a refused channel is tried again
	maxRefusalGap = 250 * time.Millisecond // longest pause after refusals in a row
	smallMap      = 1024                   // maps that were never larger are not replaced
	largeSession  = 50_000                 // the same for the Redis client's own map of a connection
)

var (
	errIdle       = errors.New("no channels")
	errOversized  = errors.New("connection remembers too many channels")
	errSilent     = errors.New("connection is silent")
	errUnexpected = errors.New("unexpected reply")
	errMoved      = errors.New("a slot has left the node")
	errPlain      = errors.New("the server knows no sharded channels")
)

// table holds the channels and decides which command is due. It does no I/O and is guarded by the router's mutex.
type table struct {
	linger    time.Duration
	health    time.Duration
	replyWait time.Duration
	oneSlot   bool // see Options

	channels map[key]*channel
	peak     int // most channels since the map was made
	widest   int // most channels since the connection was opened

	queue     list.List // unsent, in sending order
	lingering list.List // without listeners, subscribed or refused, oldest first
	refusals  list.List // refused, with listeners

	inFlight *command
	last     verb      // of the last command in flight
	batch    int       // channels in the next SUBSCRIBE; halved by a refusal, to find the refused channel
	strikes  int       // refusals in a row
	hold     time.Time // no SUBSCRIBE before this time
	received time.Time // when something was last received
	emptied  time.Time // when the table was first seen empty; zero if it is not
	armed    time.Time // when the sender's timer fires
}

func newTable(o Options) table {
	return table{
		linger:    o.Linger,
		health:    o.HealthCheck,
		replyWait: min(o.HealthCheck, maxReplyWait),
		oneSlot:   o.oneSlot,
		channels:  make(map[key]*channel),
		batch:     maxBatch,
	}
}

// join adds m to the channel, and reports whether that is subscribed.
func (t *table) join(k key, m *Membership, now time.Time) bool {
	ch := t.channels[k]
	if ch == nil {
		ch = &channel{key: k}
		t.channels[k] = ch
		t.peak = max(t.peak, len(t.channels))
		t.widest = max(t.widest, len(t.channels))
		ch.enlist(&t.queue)
	}
	ch.add(m)
	if ch.list == &t.lingering {
		ch.unlist()
		if ch.state == refused {
			t.requeueRefused(ch, now)
		}
	}
	return ch.state == subscribed
}

// requeueRefused queues a refused channel that has listeners again for its next attempt.
func (t *table) requeueRefused(ch *channel, now time.Time) {
	if now.Before(ch.retryAt) {
		ch.enlist(&t.refusals)
		return
	}
	ch.state = unsent
	ch.enlist(&t.queue)
}

// leave removes m from its channel, and reports whether the sender must check the table earlier than planned.
func (t *table) leave(m *Membership, now time.Time) bool {
	ch := m.channel
	if ch == nil {
		return false
	}
	ch.remove(m)
	if len(ch.members) > 0 || t.channels[ch.key] != ch {
		return false
	}
	switch ch.state {
	case unsent:
		t.drop(ch)
		return false
	case unsubscribing: // dropped when that is confirmed
		return false
	}
	// A refused channel lingers too, so that a hot one is not refused each time.
	ch.lingers = now.Add(t.linger)
	ch.enlist(&t.lingering)
	return ch.lingers.Before(t.armed) || t.lingering.Len() > maxLingering
}

// drop deletes a channel without listeners. Go's maps do not shrink, so a map that has become much smaller is replaced.
func (t *table) drop(ch *channel) {
	ch.unlist()
	delete(t.channels, ch.key)
	if t.peak > smallMap && len(t.channels) < t.peak/8 {
		m := make(map[key]*channel, len(t.channels))
		maps.Copy(m, t.channels)
		t.channels, t.peak = m, len(m)
	}
}

// listeners appends the listeners of the channel to to.
func (t *table) listeners(to []Listener, k key) []Listener {
	if ch := t.channels[k]; ch != nil {
		for _, m := range ch.members {
			to = append(to, m.listener)
		}
	}
	return to
}

// confirmed appends the listeners of subscribed channels that implement [Lost] to to.
func (t *table) confirmed(to []Listener) []Listener {
	for _, ch := range t.channels {
		if ch.state != subscribed {
			continue
		}
		for _, m := range ch.members {
			if _, ok := m.listener.(Lost); ok {
				to = append(to, m.listener)
			}
		}
	}
	return to
}

// next returns the command to send now; or how long the sender may sleep; or why to close the connection.
func (t *table) next(now time.Time, open bool) (*command, time.Duration, error) {
	if t.inFlight != nil {
		silence := min(now.Sub(t.inFlight.sent), now.Sub(t.received))
		if silence >= t.replyWait {
			return nil, 0, errSilent
		}
		return nil, t.replyWait - silence, nil
	}
	if err := t.outlived(now, open); err != nil {
		return nil, 0, err
	}
	cmd := t.pick(now)
	if cmd == nil && open && now.Sub(t.received) >= t.health {
		cmd = &command{verb: ping}
	}
	if cmd == nil {
		t.armed = t.nextLook(now, open)
		return nil, t.armed.Sub(now), nil
	}
	return t.launch(cmd, now), 0, nil
}

// launch notes that a command is in flight.
func (t *table) launch(cmd *command, now time.Time) *command {
	cmd.sent = now
	t.inFlight, t.last = cmd, cmd.verb
	return cmd
}

// outlived returns why to close a healthy connection; nil if it is needed.
func (t *table) outlived(now time.Time, open bool) error {
	if len(t.channels) > 0 {
		t.emptied = time.Time{}
		// The Redis client's map of a connection's channels does not shrink either.
		if open && t.widest > largeSession && len(t.channels) < t.widest/16 {
			return errOversized
		}
		return nil
	}
	if t.emptied.IsZero() {
		t.emptied = now
	}
	if !open || now.Sub(t.emptied) >= idleTime {
		return errIdle
	}
	return nil
}

// pick alternates between SUBSCRIBE and UNSUBSCRIBE, so that neither starves.
func (t *table) pick(now time.Time) *command {
	one, other := t.pickSubscribe, t.pickUnsubscribe
	if t.last == subscribe {
		one, other = other, one
	}
	if cmd := one(now); cmd != nil {
		return cmd
	}
	return other(now)
}

func (t *table) pickSubscribe(now time.Time) *command {
	if now.Before(t.hold) {
		return nil
	}
	cmd := &command{verb: subscribe, oneSlot: t.oneSlot}
	for ch := first(&t.queue); ch != nil && cmd.fits(ch, t.batch); ch = first(&t.queue) {
		cmd.add(ch, subscribing)
	}
	// A refused channel is tried again on its own, so that it does not fail a whole batch.
	if ch := first(&t.refusals); len(cmd.channels) == 0 && ch != nil && !now.Before(ch.retryAt) {
		cmd.add(ch, subscribing)
	}
	if len(cmd.channels) == 0 {
		return nil
	}
	return cmd
}

func (t *table) pickUnsubscribe(now time.Time) *command {
	cmd := &command{verb: unsubscribe, oneSlot: t.oneSlot}
	for ch := first(&t.lingering); ch != nil && cmd.fits(ch, maxBatch); ch = first(&t.lingering) {
		if now.Before(ch.lingers) && t.lingering.Len() <= maxLingering {
			break
		}
		if ch.state != subscribed {
			t.drop(ch)
			continue
		}
		cmd.add(ch, unsubscribing)
	}
	if len(cmd.channels) == 0 {
		return nil
	}
	return cmd
}

// nextLook returns when something is due if nothing happens before.
func (t *table) nextLook(now time.Time, open bool) time.Time {
	at := now.Add(t.health)
	if open {
		at = t.received.Add(t.health)
	}
	if !t.emptied.IsZero() {
		at = earlier(at, t.emptied.Add(idleTime))
	}
	if t.queue.Len() > 0 {
		at = earlier(at, t.hold)
	}
	if ch := first(&t.lingering); ch != nil {
		at = earlier(at, ch.lingers)
	}
	if ch := first(&t.refusals); ch != nil {
		at = earlier(at, later(ch.retryAt, t.hold))
	}
	return at
}

// confirm counts one confirmation and changes the channel's state. It appends the listeners to notify to to.
func (t *table) confirm(to []Listener, v verb, k key) ([]Listener, error) {
	cmd := t.inFlight
	if cmd == nil || cmd.verb != v || cmd.channels[cmd.answered].key != k {
		// The Redis client has reconnected and subscribed by itself: messages may have been missed.
		return to, errUnexpected
	}
	ch := cmd.channels[cmd.answered]
	cmd.answered++
	if cmd.answered == len(cmd.channels) {
		t.inFlight = nil
	}
	if v == subscribe {
		ch.state = subscribed
		t.strikes, t.batch = 0, max(t.batch, min(2*len(cmd.channels), maxBatch))
		return t.listeners(to, k), nil
	}
	if len(ch.members) == 0 {
		t.drop(ch)
		return to, nil
	}
	ch.state = unsent // joined again in the meantime
	ch.enlist(&t.queue)
	return to, nil
}

// pong takes the reply to a PING.
func (t *table) pong() {
	if t.inFlight != nil && t.inFlight.verb == ping {
		t.inFlight = nil
	}
}

// refuse takes an error reply. What is refused for a passing reason is tried again soon. Otherwise a batch is tried again in halves, and a
// channel after a pause: its listeners are appended to to.
func (t *table) refuse(to []Listener, now time.Time, passing bool) ([]Listener, error) {
	cmd := t.inFlight
	if cmd == nil || cmd.answered > 0 {
		return to, errUnexpected
	}
	t.inFlight = nil
	switch cmd.verb {
	case ping:
		return to, nil // an answer all the same
	case unsubscribe:
		t.keep(cmd, now)
		return to, nil
	}
	t.strikes++
	t.hold = now.Add(backoff.Doubled(t.strikes, time.Millisecond, maxRefusalGap))
	if !passing {
		t.batch = max(1, len(cmd.channels)/2)
	}
	for _, ch := range slices.Backward(cmd.channels) {
		switch {
		case len(cmd.channels) == 1 && !passing:
			ch.state, ch.retryAt = refused, now.Add(retryRefused)
			if len(ch.members) > 0 {
				ch.enlist(&t.refusals)
			}
			to = t.listeners(to, ch.key)
		case len(ch.members) == 0:
			t.drop(ch)
		default:
			ch.state = unsent
			ch.enlistFirst(&t.queue)
		}
	}
	return to, nil
}

// keep takes a refused UNSUBSCRIBE: its channels are subscribed as before, and those without listeners linger once more.
func (t *table) keep(cmd *command, now time.Time) {
	for _, ch := range cmd.channels {
		if len(ch.members) == 0 {
			ch.state, ch.lingers = subscribed, now.Add(t.linger)
			ch.enlist(&t.lingering)
		} else { // who has joined in the meantime waits for a confirmation
			ch.state = unsent
			ch.enlist(&t.queue)
		}
	}
}

// reset forgets the connection: channels with listeners are queued to be subscribed again, the others are dropped.
func (t *table) reset() {
	t.inFlight, t.last = nil, ""
	for _, ch := range t.channels {
		switch {
		case len(ch.members) == 0:
			t.drop(ch)
		case ch.state != refused && ch.list != &t.queue:
			ch.state = unsent
			ch.enlist(&t.queue)
		}
	}
	t.widest = len(t.channels)
}

// clear forgets everything for good.
func (t *table) clear() {
	t.channels = nil
	t.queue.Init()
	t.lingering.Init()
	t.refusals.Init()
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
