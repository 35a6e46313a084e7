package queue

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

// Manager has what one redlatch client does with delayed queues just now. It is safe for concurrent use.
type Manager struct {
	core    *core.Core
	workers core.Goroutines // the goroutines of all queues
	life    context.Context //nolint:containedctx // until Drain gives up what is in flight
	over    context.CancelFunc

	mu      sync.Mutex         // guards all below, and the users of each client; a leaf
	clients map[string]*client // by the name of the queue
	live    map[*Message]struct{}
	handled int // of live, those of consumers
}

// New returns a manager that closes with its core.
func New(e *core.Core) *Manager {
	m := &Manager{core: e, clients: map[string]*client{}, live: map[*Message]struct{}{}}
	m.life, m.over = context.WithCancel(context.Background()) //nolint:forbidigo // ended by Drain
	e.Register(m)
	presence.Of(e).Add(m)
	return m
}

// client is what one redlatch client does with one queue. It exists while somebody uses it.
type client struct {
	manager *Manager
	core    *core.Core
	kind    string // the name of the public package
	user    string // without the prefix
	name    string
	keys    *keys
	users   int // guarded by the manager's mu

	offers    batcher[offer]
	cancels   batcher[cancellation]
	moves     batcher[move]
	acks      batcher[ack]
	nacks     batcher[nack]
	returns   batcher[Claimed]
	passes    batcher[Claimed]       // returns of what another client has to work on
	waiting   chan struct{}          // 1: a token while an offer waits for room, see await
	operating chan struct{}          // 1: a token while an operation is in flight, see operate
	due       *timer.Batch[*Message] // to be renewed
	claimer   claimer
}

// use returns the client of a queue, which stays until it is left as often.
func (m *Manager) use(q *Queue) *client {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.clients[q.full]
	if c == nil {
		c = newClient(m, q)
		m.clients[q.full] = c
	}
	c.users++
	return c
}

func newClient(m *Manager, q *Queue) *client {
	c := &client{
		manager: m, core: m.core, kind: q.kind, user: q.user, name: q.full, keys: q.names(),
		operating: make(chan struct{}, 1), waiting: make(chan struct{}, 1),
	}
	k, id := c.keys, m.core.ID
	c.offers = batcher[offer]{
		manager: m, second: whenFull, weight: func(o *offer) int { return len(o.payload) },
		call:  func(n callNumber, b []*entry[offer]) *script.Call { return k.offers(id, n, b) },
		apart: apart,
	}
	c.cancels = batcher[cancellation]{
		manager: m, call: func(n callNumber, b []*entry[cancellation]) *script.Call { return k.cancels(id, n, b) },
		apart: func(a, b *entry[cancellation]) bool { return a.value.keep != b.value.keep },
	}
	c.moves = batcher[move]{
		manager: m, call: func(n callNumber, b []*entry[move]) *script.Call { return k.reschedules(id, n, b) },
	}
	c.acks = batcher[ack]{
		manager: m, after: untilSettled, weight: func(a *ack) int { return len(a.record) },
		call: func(_ callNumber, b []*entry[ack]) *script.Call { return k.acks(b) },
	}
	c.nacks = batcher[nack]{
		manager: m, after: untilSettled, weight: func(n *nack) int { return len(n.text) },
		call: func(_ callNumber, b []*entry[nack]) *script.Call { return k.nacks(b) },
	}
	c.returns = batcher[Claimed]{
		manager: m, after: untilSettled, call: func(_ callNumber, b []*entry[Claimed]) *script.Call { return k.giveback("", b) },
	}
	c.passes = batcher[Claimed]{
		manager: m, after: untilSettled, call: func(_ callNumber, b []*entry[Claimed]) *script.Call { return k.giveback(id, b) },
	}
	c.due = timer.NewBatch(m.core.Timers, c.renew)
	c.claimer.client = c
	return c
}

// stay keeps a client that somebody else uses, and reports whether anybody does: one that was left by all may have a successor.
func (c *client) stay() bool {
	m := c.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.users == 0 {
		return false
	}
	c.users++
	return true
}

func (c *client) leave() {
	m := c.manager
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.users--; c.users == 0 && m.clients[c.name] == c {
		delete(m.clients, c.name)
	}
}

// cancelled ends the context of a message that was cancelled in flight.
func (c *client) cancelled(claim string) {
	for _, message := range c.messages() {
		if message.claim == claim {
			message.loseTo(ErrCancelled, "it was removed")
		}
	}
}

// recheck has the messages of the queue renewed now, which finds out about those that were cancelled.
func (c *client) recheck() {
	now := c.core.Clock.Now()
	for _, message := range c.messages() {
		c.core.Timers.Set(&message.timer, now)
	}
}

// messages returns those of the queue that are live.
func (c *client) messages() []*Message {
	c.manager.mu.Lock()
	defer c.manager.mu.Unlock()
	return slices.DeleteFunc(c.manager.messagesLocked(), func(m *Message) bool { return m.queue.full != c.name })
}

// Holds returns the messages that the client has claimed.
func (m *Manager) Holds() []presence.Hold {
	m.mu.Lock()
	live := m.messagesLocked()
	m.mu.Unlock()
	all := make([]presence.Hold, 0, len(live))
	for _, message := range live {
		all = append(all, message.report())
	}
	return all
}

// Waits returns the calls that wait for messages; consumers always do, and are not among them.
func (m *Manager) Waits() []presence.Wait {
	m.mu.Lock()
	clients := slices.Collect(maps.Values(m.clients))
	m.mu.Unlock()
	var all []presence.Wait
	for _, c := range clients {
		all = append(all, c.claimer.report()...)
	}
	return all
}

// Verify has the messages renewed that are renewed at all.
func (m *Manager) Verify() {
	m.mu.Lock()
	live := m.messagesLocked()
	m.mu.Unlock()
	now := m.core.Clock.Now()
	for _, message := range live {
		m.core.Timers.Set(&message.timer, now)
	}
}

// Closing ends the contexts of all messages and all waits for messages.
func (m *Manager) Closing() {
	m.mu.Lock()
	var clients []*client
	for _, c := range m.clients {
		clients = append(clients, c)
	}
	live := m.messagesLocked()
	m.mu.Unlock()
	for _, c := range clients {
		c.claimer.close()
	}
	for _, message := range live {
		message.cancel(errs.ErrClosed)
	}
}

func (m *Manager) messagesLocked() []*Message {
	live := make([]*Message, 0, len(m.live))
	for message := range m.live {
		live = append(live, message)
	}
	return live
}

// Open returns the number of messages of consumers that are neither finished nor lost. Nobody may ever finish one of Take.
func (m *Manager) Open() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.handled
}

// Drain has the messages that are left redelivered at once, unless they are to be abandoned, and waits for what is in flight,
// until the limit is over.
func (m *Manager) Drain(limit time.Duration) {
	m.mu.Lock()
	live := m.messagesLocked()
	m.mu.Unlock()
	//nolint:forbidigo // bounded by the limit
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if !m.core.Abandon {
		nackAll(ctx, live)
	}
	m.workers.Wait(ctx)
	m.over()
}

// Wait waits until then for the workers, of which some wait for replies of a server that is silent.
func (m *Manager) Wait(until time.Time) {
	//nolint:forbidigo // bounded by the time
	ctx, cancel := context.WithDeadline(context.Background(), until)
	defer cancel()
	m.workers.Wait(ctx)
}
