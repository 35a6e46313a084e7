package pubsub

import (
	"container/list"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// state is the state of a channel's subscription on the current connection.
type state uint8

const (
	unsent        state = iota // queued for its SUBSCRIBE
	subscribing                // SUBSCRIBE is in flight
	subscribed                 // SUBSCRIBE is confirmed
	unsubscribing              // UNSUBSCRIBE is in flight
	refused                    // Redis answered SUBSCRIBE with an error
)

// key is what a channel is found by. The channels of a pattern count as one, whose name is the pattern.
type key struct {
	name    string
	pattern bool
}

// channel is one name with its listeners. It is in at most one of the table's lists.
type channel struct {
	key
	members []*Membership
	state   state
	list    *list.List
	element *list.Element
	lingers time.Time // for a lingering channel: when to unsubscribe
	retryAt time.Time // for a refused channel: when to try again
}

func (c *channel) add(m *Membership) {
	m.channel, m.place = c, len(c.members)
	c.members = append(c.members, m)
}

func (c *channel) remove(m *Membership) {
	last := len(c.members) - 1
	moved := c.members[last]
	c.members[m.place], moved.place = moved, m.place
	c.members[last] = nil
	c.members = c.members[:last]
	if cap(c.members) > 64 && len(c.members) < cap(c.members)/4 {
		c.members = slices.Clone(c.members)
	}
	m.channel = nil
}

// enlist moves the channel to the end of l.
func (c *channel) enlist(l *list.List) {
	c.unlist()
	c.list, c.element = l, l.PushBack(c)
}

// enlistFirst moves the channel to the front of l.
func (c *channel) enlistFirst(l *list.List) {
	c.unlist()
	c.list, c.element = l, l.PushFront(c)
}

func (c *channel) unlist() {
	if c.list != nil {
		c.list.Remove(c.element)
		c.list, c.element = nil, nil
	}
}

// first returns the channel at the front of l; nil if l is empty.
func first(l *list.List) *channel {
	if e := l.Front(); e != nil {
		return e.Value.(*channel)
	}
	return nil
}

// verb is the kind of a command.
type verb string

const (
	subscribe   verb = "subscribe"
	unsubscribe verb = "unsubscribe"
	ping        verb = "ping"
)

// verbOf returns the verb that a confirmation confirms.
func verbOf(kind string) verb {
	switch kind {
	case "ssubscribe", "psubscribe":
		return subscribe
	case "sunsubscribe", "punsubscribe":
		return unsubscribe
	}
	return verb(kind)
}

const (
	maxBatch      = 500
	maxBatchBytes = 32 << 10
)

// command is one command on the connection. Only one is in flight at a time: a send into an empty socket buffer does
// not block (the Redis client reads under the mutex that it writes under), a refusal belongs to a known command, and
// what arrives in the meantime forms the next batch.
type command struct {
	verb     verb
	pattern  bool // its channels are patterns
	oneSlot  bool // see Options
	channels []*channel
	bytes    int
	answered int // confirmations so far; they come in the order of channels
	sent     time.Time
}

func (c *command) fits(ch *channel, limit int) bool {
	if len(c.channels) == 0 {
		return true
	}
	if c.pattern != ch.pattern || c.oneSlot && script.Tag(ch.name) != script.Tag(c.channels[0].name) {
		return false
	}
	return len(c.channels) < limit && c.bytes+len(ch.name) <= maxBatchBytes
}

func (c *command) add(ch *channel, s state) {
	ch.unlist()
	ch.state = s
	c.pattern = ch.pattern
	c.channels = append(c.channels, ch)
	c.bytes += len(ch.name)
}

func (c *command) names() []string {
	names := make([]string, len(c.channels))
	for i, ch := range c.channels {
		names[i] = ch.name
	}
	return names
}
