// Package presence lets a client be known and asked while it holds or waits for something: what that is, and what it has lost.
package presence

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/timer"
	"github.com/redlatch/redlatch/pubsub"
)

const (
	lookPause = 3 * time.Second // from the first use on, and between looks at what is in use
	maxIdle   = 10              // looks in a row that found nothing in use, after which the client stops to listen
	maxWaited = 10              // looks that a subscription may take; Redis refuses one that takes longer
	restLooks = 1200            // looks without one after that: an hour
	maxRate   = 10              // answers a second
	maxOpen   = 5               // answers that are made or wait for it; more would come too late for who asks
)

// Presence has a client listen to a channel of its own while it holds or waits for anything, or reads caches. So it is known to live,
// and can be asked. It is safe for concurrent use.
type Presence struct {
	core  *core.Core
	timer timer.Timer

	mu        sync.Mutex // guards the rest
	reporters []Reporter
	caching   caching            // nil for a client without caches
	reads     uint64             // of caches, at the last look
	member    *pubsub.Membership // nil unless it listens
	heard     bool               // Redis has confirmed that
	refused   bool               // Redis has refused it once
	idle      int                // looks in a row that found nothing in use
	waited    int                // looks since it began to listen, until that is confirmed
	rest      int                // looks until it may listen again
	admitted  []time.Duration    // when the last questions were, at most maxRate
	open      int                // of these, those without an answer yet
}

var _ pubsub.Refused = (*Presence)(nil)

// Of returns the presence of a client. It begins to look at what is in use with the first call, unless the client is to have none.
func Of(c *core.Core) *Presence { return core.Manager(c, begin) }

func begin(c *core.Core) *Presence {
	p := &Presence{core: c}
	p.timer.Task = p
	if !c.WithoutPresence {
		c.Timers.Set(&p.timer, c.Clock.Now()+lookPause)
	}
	return p
}

// Due looks at what is in use.
func (p *Presence) Due(now time.Duration) {
	c := p.core
	if c.Closed() {
		return
	}
	c.Timers.Set(&p.timer, now+lookPause)
	reads := uint64(0)
	if caches := p.cachesNow(); caches != nil {
		reads = caches.reads()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	others := c.Subscriptions().Channels
	if p.member != nil {
		others--
	}
	if others > 0 || c.Open() > 0 || reads != p.reads {
		p.idle = 0
	} else {
		p.idle++
	}
	p.reads = reads
	switch {
	case p.rest > 0:
		p.rest--
	case p.member == nil && p.idle == 0:
		p.waited = 0
		p.member, p.heard = c.Router.Join(Channel(c, c.ID), p)
	case p.member != nil && p.idle >= maxIdle:
		p.leaveLocked()
	case p.member != nil && !p.heard:
		if p.waited++; p.waited >= maxWaited {
			p.leaveLocked()
			p.rest = restLooks
		}
	}
}

func (p *Presence) leaveLocked() {
	p.member.Leave()
	p.member, p.heard = nil, false
}

// Subscribed notes that the client listens.
func (p *Presence) Subscribed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = true
}

// Refused notes that Redis refuses the subscription, so that the next look ends it, before it is tried again. The first
// refusal is logged, and says all.
func (p *Presence) Refused(error) (known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, p.waited, p.refused = p.refused, maxWaited, true
	return known
}

// Message takes a question. Who may publish on the channel is not known: what is no question, or too many of them, has no answer.
func (p *Presence) Message(text string) {
	q, ok := parseQuestion(text)
	if !ok || !p.admit(p.core.Clock.Now()) {
		return
	}
	p.core.Answers.Go(func() { p.answer(q) })
}

// answered ends an answer.
func (p *Presence) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
}

// admit reports whether one more question may be answered, and counts it.
func (p *Presence) admit(now time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == maxOpen {
		return false
	}
	if len(p.admitted) == maxRate {
		if now-p.admitted[0] < time.Second {
			return false
		}
		p.admitted = p.admitted[1:]
	}
	p.admitted = append(p.admitted, now)
	p.open++
	return true
}
