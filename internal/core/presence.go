package core

import (
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/timer"
	"github.com/redlatch/redlatch/pubsub"
)

const (
	presenceLook = 3 * time.Second // from the first use on, and between looks at what is in use
	presenceIdle = 10              // looks in a row that found nothing in use, after which the client stops to listen
	presenceWait = 10              // looks that a subscription may take; Redis refuses one that takes longer
	presenceRest = 1200            // looks without one after that: an hour
	presenceRate = 10              // answers a second
	presenceMost = 5               // answers that are made or wait for it; more would come too late for who asks
)

// presence has a client listen to a channel of its own while it holds or waits for anything. So it is known to live, and can be asked.
type presence struct {
	core  *Core
	timer timer.Timer

	mu       sync.Mutex
	member   *pubsub.Membership // nil unless it listens
	heard    bool               // Redis has confirmed that
	refused  bool               // Redis has refused it once
	idle     int                // looks in a row that found nothing in use
	waited   int                // looks since it began to listen, until that is confirmed
	rest     int                // looks until it may listen again
	admitted []time.Duration    // when the last questions were, at most presenceRate
	open     int                // of these, those without an answer yet

	answers *timer.Workers // one at a time, and beside the client's own work: of 100,000 holds each takes 0.2 s
}

var _ pubsub.Refused = (*presence)(nil)

// begin is called when the first object of the client is made.
func (p *presence) begin(c *Core) {
	if c.WithoutPresence {
		return
	}
	p.core = c
	p.timer.Task = p
	c.Timers.Set(&p.timer, c.Clock.Now()+presenceLook)
}

// Due looks at what is in use.
func (p *presence) Due(now time.Duration) {
	c := p.core
	if c.Closed() {
		return
	}
	c.Timers.Set(&p.timer, now+presenceLook)
	p.mu.Lock()
	defer p.mu.Unlock()
	others := c.Subscriptions().Channels
	if p.member != nil {
		others--
	}
	if others > 0 || c.open() > 0 {
		p.idle = 0
	} else {
		p.idle++
	}
	switch {
	case p.rest > 0:
		p.rest--
	case p.member == nil && p.idle == 0:
		p.waited = 0
		p.member, p.heard = c.Router.Join(c.ClientChannel(c.ID), p)
	case p.member != nil && p.idle >= presenceIdle:
		p.leaveLocked()
	case p.member != nil && !p.heard:
		if p.waited++; p.waited >= presenceWait {
			p.leaveLocked()
			p.rest = presenceRest
		}
	}
}

func (p *presence) leaveLocked() {
	p.member.Leave()
	p.member, p.heard = nil, false
}

// Subscribed notes that the client listens.
func (p *presence) Subscribed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = true
}

// Refused notes that Redis refuses the subscription, so that the next look ends it, before it is tried again. The first
// refusal is logged, and says all.
func (p *presence) Refused(error) (known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	known, p.waited, p.refused = p.refused, presenceWait, true
	return known
}

// Message takes a question. Who may publish on the channel is not known: what is no question, or too many of them, has no answer.
func (p *presence) Message(text string) {
	q, ok := parseQuestion(text)
	if !ok || !p.admit(p.core.Clock.Now()) {
		return
	}
	p.answers.Go(func() { p.answer(q) })
}

// answered ends an answer.
func (p *presence) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
}

// admit reports whether one more question may be answered, and counts it.
func (p *presence) admit(now time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == presenceMost {
		return false
	}
	if len(p.admitted) == presenceRate {
		if now-p.admitted[0] < time.Second {
			return false
		}
		p.admitted = p.admitted[1:]
	}
	p.admitted = append(p.admitted, now)
	p.open++
	return true
}

// ClientChannels is what the channels on which clients are asked begin with, whatever their name prefix.
const ClientChannels = "redlatch_client:"

// ClientChannel returns the channel on which a client is asked.
func (c *Core) ClientChannel(id string) string { return c.channel(ClientChannels) + id }

// SplitClientChannel returns the name prefix and the id of the client that is asked on a channel. Some prefixes with braces cannot be
// told from others: {a} from a, and {a}b- from one without b-, where an id may begin with that.
func SplitClientChannel(channel string) (prefix, id string, ok bool) {
	rest, ok := strings.CutPrefix(channel, ClientChannels)
	from := 1 + strings.LastIndexAny(rest, "{}:/") // none of them is in an id
	prefix, id = rest[:from], rest[from:]
	if strings.HasPrefix(prefix, "{") && strings.IndexByte(prefix, '}') == len(prefix)-1 {
		prefix = prefix[1 : len(prefix)-1]
	}
	return prefix, id, ok && IsClientID(id)
}

func (c *Core) channel(kind string) string {
	if c.Prefix == "" || strings.Contains(c.Prefix, "{") {
		return kind + c.Prefix
	}
	return kind + "{" + c.Prefix + "}"
}
