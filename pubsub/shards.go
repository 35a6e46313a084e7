package pubsub

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/backoff"
)

// Shards routes the messages of sharded channels on a cluster: a message reaches the nodes of its channel's slot alone. It has a
// [Router] for each master that has channels in use, and gives a channel to another one when its slot has moved. It is safe for
// concurrent use.
//
// A message that is published while its slot is on the move may be lost. Subscribed follows once the channel is subscribed to at the
// node that the slot has moved to. Nodes from before Redis 7 do not say that a slot has left them.
type Shards struct {
	masterOf func(ctx context.Context, channel string) (*redis.Client, error)
	opts     Options
	life     context.Context //nolint:containedctx // ended by Close
	end      context.CancelFunc

	mu       sync.Mutex // guards what follows, and every entry; taken after an entry's calls and before a router's
	entries  map[string]*entry
	routers  map[*redis.Client]*Router // by the node
	past     Stats                     // of routers that were dropped
	looking  map[*Router]bool          // whose channels are looked at again after a failure
	unplaced []*entry                  // whose node is to be looked for
	placing  chan struct{}             // closed when the goroutine that does so has ended; nil for none
}

// entry is a channel with its listeners. Its fields are guarded by the mutex of its Shards.
type entry struct {
	shards  *Shards
	channel string

	// Held while listeners are called, so that no call of the node that the channel has left comes after one of the next.
	// Taken before the mutex of Shards.
	calls sync.Mutex

	members   []*Membership
	router    *Router     // of the channel's node; nil until that is known
	inner     *Membership // there
	confirmed bool        // the subscription
	queued    bool        // it is among the unplaced
}

// placed is an entry as the listener of one router.
type placed struct {
	entry  *entry
	router *Router
}

const (
	// manyRouters is a number of routers above which those without channels are dropped: their nodes may have left the cluster.
	manyRouters = 64
	// The layout that a failure asks for comes later, and may be from a node that has not heard of a failover.
	firstLook = 500 * time.Millisecond
	lastLook  = 4 * time.Second
)

// NewSharded returns the router of a cluster's sharded channels. It does no I/O and starts no goroutine: the first Join does.
func NewSharded(cluster *redis.ClusterClient, o Options) *Shards {
	life, end := context.WithCancel(context.Background()) //nolint:forbidigo // ended by Close
	o.Sharded, o.oneSlot = true, true
	return &Shards{
		masterOf: cluster.MasterForKey, opts: o.withDefaults(), life: life, end: end,
		entries: map[string]*entry{}, routers: map[*redis.Client]*Router{}, looking: map[*Router]bool{},
	}
}

// Join adds l to the listeners of channel, as [Router.Join] does. Calls of different listeners may come from several goroutines.
func (s *Shards) Join(channel string, l Listener) (m *Membership, confirmed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[channel]
	if e == nil {
		e = &entry{shards: s, channel: channel}
	}
	m = &Membership{listener: l, entry: e}
	if s.life.Err() != nil {
		return m, false
	}
	e.members = append(e.members, m)
	if len(e.members) == 1 {
		s.entries[channel] = e
		s.placeLocked(e)
	}
	return m, e.confirmed
}

// leave takes a listener out, and the channel with the last one.
func (e *entry) leave(m *Membership) {
	s := e.shards
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(e.members, m)
	if i < 0 {
		return
	}
	e.members = slices.Delete(e.members, i, i+1)
	if len(e.members) > 0 {
		return
	}
	delete(s.entries, e.channel)
	if e.inner != nil {
		e.inner.Leave()
	}
}

// Subscribed passes on that the subscription is confirmed, unless the channel has moved to another router meanwhile.
func (p *placed) Subscribed() {
	e := p.entry
	e.calls.Lock()
	defer e.calls.Unlock()
	for _, l := range e.listeners(func() bool { return e.become(p, true) }) {
		l.Subscribed()
	}
}

// Lost passes on that the subscription has ended, unless the channel has moved to another router meanwhile.
func (p *placed) Lost() {
	e := p.entry
	e.calls.Lock()
	defer e.calls.Unlock()
	notifyLost(e.listeners(func() bool { return e.confirmed && e.become(p, false) }))
}

// Refused passes on that Redis has refused the subscription.
func (p *placed) Refused(err error) (known bool) {
	e := p.entry
	e.calls.Lock()
	defer e.calls.Unlock()
	known = true
	for _, l := range e.listeners(func() bool { return true }) {
		refused, ok := l.(Refused)
		known = ok && refused.Refused(err) && known
	}
	return known
}

// Message passes a message on.
func (p *placed) Message(payload string) {
	e := p.entry
	e.calls.Lock()
	defer e.calls.Unlock()
	for _, l := range e.listeners(func() bool { return true }) {
		l.Message(payload)
	}
}

// listeners returns the listeners of the channel if the condition holds, which is asked under the mutex of Shards.
func (e *entry) listeners(cond func() bool) []Listener {
	e.shards.mu.Lock()
	defer e.shards.mu.Unlock()
	if !cond() {
		return nil
	}
	all := make([]Listener, len(e.members))
	for i, m := range e.members {
		all[i] = m.listener
	}
	return all
}

// become notes whether the subscription is confirmed, and returns false if the channel is at another router.
func (e *entry) become(p *placed, confirmed bool) bool {
	if e.router != p.router {
		return false
	}
	e.confirmed = confirmed
	return true
}

// placeLocked has the node of a channel looked for.
func (s *Shards) placeLocked(e *entry) {
	if !e.queued {
		e.queued = true
		s.unplaced = append(s.unplaced, e)
	}
	if s.placing == nil && s.life.Err() == nil {
		s.placing = make(chan struct{})
		go s.place(s.placing)
	}
}

// place gives channels to the routers of their nodes, until each has one or Close ends it.
func (s *Shards) place(done chan<- struct{}) {
	defer close(done)
	for failures := 0; ; {
		e := s.next()
		if e == nil {
			return
		}
		node, err := s.masterOf(s.life, e.channel) // of the layout that go-redis knows; it loads the first one
		if err == nil {
			failures = 0
			s.give(e, node)
			continue
		}
		s.opts.OnFailure()
		s.mu.Lock()
		s.placeLocked(e)
		s.mu.Unlock()
		sleep(s.life, backoff.Pause(failures, firstBackoff, maxBackoff))
		failures++
	}
}

// next returns a channel whose node is to be looked for; nil if there is none.
func (s *Shards) next() *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.unplaced) > 0 && s.life.Err() == nil {
		e := s.unplaced[0]
		s.unplaced = s.unplaced[1:]
		e.queued = false
		if len(e.members) > 0 {
			return e
		}
	}
	s.unplaced, s.placing = nil, nil
	return nil
}

// give subscribes to a channel at its node, unless it is there already.
func (s *Shards) give(e *entry, node *redis.Client) {
	e.calls.Lock()
	defer e.calls.Unlock()
	was, is := false, false
	listeners := e.listeners(func() bool {
		r := s.routerLocked(node)
		if r == e.router || len(e.members) == 0 || s.life.Err() != nil {
			return false
		}
		if e.inner != nil {
			e.inner.Leave()
		}
		was, e.router = e.confirmed, r
		e.inner, e.confirmed = r.Join(e.channel, &placed{entry: e, router: r})
		is = e.confirmed
		return true
	})
	if was {
		notifyLost(listeners)
	}
	if !is {
		return
	}
	for _, l := range listeners { // a subscription that lingered notifies nobody
		l.Subscribed()
	}
}

// routerLocked returns the router of a node.
func (s *Shards) routerLocked(node *redis.Client) *Router {
	r := s.routers[node]
	if r != nil {
		return r
	}
	if len(s.routers) >= manyRouters {
		maps.DeleteFunc(s.routers, func(_ *redis.Client, r *Router) bool {
			unused := r.unused()
			if unused {
				s.past.add(r.Stats())
			}
			return unused
		})
	}
	o := s.opts
	o.OnFailure = func() { s.failed(r) }
	r = New(node, o)
	s.routers[node] = r
	return r
}

// failed has the nodes of a router's channels looked for: its connection has failed, or a slot has left its node.
func (s *Shards) failed(r *Router) {
	s.opts.OnFailure()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.router == r {
			s.placeLocked(e)
		}
	}
	if !s.looking[r] {
		s.looking[r] = true
		time.AfterFunc(firstLook, func() { s.lookAgain(r, firstLook) })
	}
}

// lookAgain does so some more times. A master that has become a replica takes subscriptions all the same.
func (s *Shards) lookAgain(r *Router, after time.Duration) {
	if s.life.Err() != nil {
		return
	}
	s.opts.OnFailure()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.router == r {
			s.placeLocked(e)
		}
	}
	if after *= 2; after > lastLook {
		delete(s.looking, r)
		return
	}
	time.AfterFunc(after, func() { s.lookAgain(r, after) })
}

// Stats returns the current counts. Channels are those with listeners.
func (s *Shards) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.past
	for _, r := range s.routers {
		sum.add(r.Stats())
	}
	sum.Channels = len(s.entries)
	return sum
}

func (s *Stats) add(other Stats) {
	s.Messages += other.Messages
	s.Reconnects += other.Reconnects
}

// Close ends all subscriptions, as [Router.Close] does. Listeners must not call it.
func (s *Shards) Close() {
	s.end()
	s.mu.Lock()
	placing := s.placing
	var closing sync.WaitGroup
	for _, r := range s.routers {
		closing.Go(r.Close)
	}
	clear(s.entries)
	s.mu.Unlock()
	closing.Wait()
	if placing != nil {
		awaitEnd(placing)
	}
}
