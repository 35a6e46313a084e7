package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// slotState says whether the slot of a queue is moving to another node of a cluster, key by key.
type slotState int

const (
	still slotState = iota
	moving
)

// renew sends the renewals of messages that are due together.
func (c *client) renew(due []*Message) {
	sentAt := c.core.Clock.Now()
	for some := range slices.Chunk(due, maxBatch) {
		renewals := make([]renewal, len(some))
		for i, m := range some {
			renewals[i] = m.renewal(sentAt)
		}
		c.sendRenewals(renewals, sentAt, still)
	}
}

// sendRenewals sends a renewal of messages. One that Redis could not run since only some of its keys have moved asks for one key
// alone, which is somewhere: so no message is lost however long the slot moves.
func (c *client) sendRenewals(renewals []renewal, sentAt time.Duration, slot slotState) {
	extensions := make([]extension, len(renewals))
	for i, one := range renewals {
		extensions[i] = extension{one.member, one.claim, one.visibility}
	}
	call := c.keys.renew(extensions, slot)
	c.core.LookForFailover(call.Key())
	c.core.Batch.Start(call, pipeline.Urgent, func(call *script.Call) {
		results, err := call.Ints()
		if slot == still && script.Parted(err) {
			c.core.Workers.Go(func() { c.sendRenewals(renewals, c.core.Clock.Now(), moving) })
			return
		}
		kept, gone := 0, 0
		for i, one := range renewals {
			switch {
			case err != nil || i >= len(results): // the timer is set for the next try
			case results[i] == renewed:
				kept++
				one.done(sentAt)
			case one.ending():
			case results[i] == removed:
				gone++
				c.core.Workers.Go(func() { one.loseTo(ErrCancelled, "it was removed") })
			case results[i] == notHeld:
				gone++
				c.core.Workers.Go(func() { one.lose("somebody else has it") })
			default:
				gone++
			}
		}
		c.core.Events.Renewed(call.Key(), kept, gone, err)
	})
}

// What renew.lua says of a message, beside those that are not in flight: their claim ran out, and nobody has claimed them since.
const (
	notHeld = 0
	renewed = 1
	removed = 3 // by Cancel or Purge, or Redis has lost it
)

// renewal is a message whose visibility is being renewed.
type renewal struct {
	*Message
	visibility time.Duration
	extended   int // times, before
}

// renewal returns what is to be asked for: the visibility, or what is left of a longer one.
func (m *Message) renewal(now time.Duration) renewal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return renewal{m, max(m.terms.Visibility, m.until-now), m.extends}
}

// done notes that Redis renewed the visibility. An Extend meanwhile may have been later, and has the last word.
func (r renewal) done(sentAt time.Duration) {
	r.mu.Lock()
	superseded := r.extends != r.extended
	if !superseded {
		r.until, r.length = sentAt+r.visibility, r.visibility
		r.renewed++
	}
	r.mu.Unlock()
	if !superseded {
		r.watch(sentAt)
	}
}

// watch sets the timer after a call that was sent at the given time has set the visibility anew.
func (m *Message) watch(sentAt time.Duration) {
	m.mu.Lock()
	over := m.state != held
	next := m.next(sentAt)
	m.mu.Unlock()
	if !over {
		m.client.core.Timers.Set(&m.timer, next)
	}
}

// shorten notes that an Extend was sent that may end the claim sooner: Redis may give the message away then, whether or not it answers.
// It returns what takes that back.
func (m *Message) shorten(sentAt, d time.Duration) (undo func()) {
	m.mu.Lock()
	until, length := m.until, m.length
	sooner := sentAt+d < until
	if sooner {
		m.extends++
		m.until, m.length = sentAt+d, d
	}
	extends := m.extends
	m.mu.Unlock()
	if !sooner {
		return func() {}
	}
	m.watch(sentAt)
	return func() {
		m.mu.Lock()
		if m.extends == extends {
			m.until, m.length = until, length
		}
		m.mu.Unlock()
		m.watch(sentAt)
	}
}

// Extend sets the visibility anew.
func (m *Message) Extend(ctx context.Context, d time.Duration) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	if m.Finished() {
		return m.notHeld()
	}
	c := m.client
	var sentAt time.Duration
	undo := func() {} // nothing, if nothing is sent
	firstTry := sync.OnceFunc(func() {
		sentAt = c.core.Clock.Now()
		undo = m.shorten(sentAt, d)
	})
	call, _, err := c.core.Query(ctx, func() *script.Call {
		firstTry()
		return c.keys.extend(extension{m.member, m.claim, d})
	})
	if err != nil {
		if errors.Is(err, errs.ErrUnknown) {
			m.shorten(sentAt, d) // again: a renewal that Redis ran before it may have been answered meanwhile
		} else {
			undo()
		}
		return err
	}
	switch result, err := call.Int(); {
	case err != nil:
		return err
	case result == notHeld:
		m.lose("somebody else has it, or it was removed")
		return ErrNotHeld
	}
	m.mu.Lock()
	m.extends++
	m.until, m.length = sentAt+d, d
	m.mu.Unlock()
	m.watch(sentAt)
	return nil
}
