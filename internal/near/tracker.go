package near

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// Topic is where the writes of an object are published.
type Topic struct {
	// Channel of the messages.
	Channel string
	// Plain says that writes are published by PUBLISH, on a cluster too; a script says it in capitals, or the client makes it
	// SPUBLISH. Without it that is as for the client's wake-ups.
	Plain bool
	// Map is the name of the RLocalCachedMap that the channel belongs to, whose clients are answered. Empty for none.
	Map string
}

// MapTopic returns the topic of the RLocalCachedMap with a name.
func MapTopic(name string) Topic { return Topic{Channel: core.Suffixed(name, "topic"), Map: name} }

// trackers are the trackers of a client, by their topics.
type trackers struct {
	core *core.Core
	all  sync.Map   // Topic -> *tracker
	mu   sync.Mutex // held while one is made
}

func trackersOf(c *core.Core) *trackers { return core.Manager(c, newTrackers) }

func newTrackers(c *core.Core) *trackers {
	ts := &trackers{core: c}
	presence.Of(c).AddCaches(ts)
	return ts
}

// find returns the tracker of a topic; nil if the client has none.
func (ts *trackers) find(topic Topic) *tracker {
	if t, ok := ts.all.Load(topic); ok {
		return t.(*tracker)
	}
	return nil
}

// join returns the tracker of a topic. The first call joins the channel, with stripes for this many entries.
func (ts *trackers) join(topic Topic, entries int) *tracker {
	if t := ts.find(topic); t != nil {
		return t
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if t := ts.find(topic); t != nil {
		return t
	}
	t := &tracker{core: ts.core, topic: topic, stripes: make([]atomic.Uint32, stripesFor(entries)), since: ts.core.Clock.Now()}
	t.gate.Store(off)
	ts.all.Store(topic, t)
	t.join()
	return t
}

const (
	minStripes = 1 << 10
	maxStripes = 1 << 24
)

// stripesFor returns a power of two.
func stripesFor(entries int) int {
	return min(max(1<<bits.Len(uint(4*min(entries, maxStripes))), minStripes), maxStripes) //nolint:gosec // entries are not negative
}

const (
	off             = 1 // the first gate
	ring            = 1024
	maxTransactions = 256 // of which is known which keys they are about
	maxKeys         = 10_000
	maxReplies      = 100 // under way
)

// tracker knows which entries of an object are over. It is safe for concurrent use.
type tracker struct {
	core    *core.Core
	topic   Topic
	stripes []atomic.Uint32
	gate    atomic.Uint64       // even while the subscription is confirmed
	own     [ring]atomic.Uint64 // numbers of own writes that were answered
	counted atomic.Uint64       // see Stats.Invalidations
	reads   [manyShards]reads   // by the shard of a cache
	heard   atomic.Int64        // when the last message came, on the client's clock; 0 for none
	replies atomic.Int32        // to Java clients, under way
	busy    atomic.Bool         // there are transactions

	mu           sync.Mutex // guards what follows, and changes of gate; taken before the router's
	transactions map[string]transaction
	since        time.Duration         // when the subscription was confirmed, or lost, or first asked for
	caches       []func() (kept, bool) // false once the cache is gone
}

// transaction is one of Redisson's, whose keys are not to be kept.
type transaction struct {
	until   time.Duration
	all     bool
	stripes []uint32
}

var (
	_ pubsub.Listener = (*tracker)(nil)
	_ pubsub.Lost     = (*tracker)(nil)
)

// join joins the channel until the client closes.
func (t *tracker) join() {
	t.mu.Lock() // Subscribed and Lost wait until it is known what Join says
	defer t.mu.Unlock()
	router := t.core.Router
	if t.topic.Plain {
		router = t.core.Topics
	}
	if _, confirmed := router.Join(t.topic.Channel, t); confirmed {
		t.openLocked()
	}
}

// openLocked ends all entries and opens the gate.
func (t *tracker) openLocked() {
	gate := t.gate.Load()
	t.gate.Store(gate + 2 - gate%2)
}

// Subscribed opens the gate: entries from before are over.
func (t *tracker) Subscribed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.openLocked()
	t.since = t.core.Clock.Now()
}

// Lost closes the gate.
func (t *tracker) Lost() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if gate := t.gate.Load(); gate%2 == 0 {
		t.gate.Store(gate + 1)
		t.since = t.core.Clock.Now()
	}
}

// dropAll ends all entries.
func (t *tracker) dropAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.gate.Load()%2 == 0 {
		t.openLocked()
	}
}

// drop ends the entries of some keys.
func (t *tracker) drop(hashes []hash) {
	for _, h := range hashes {
		t.stripes[t.stripe(h)].Add(1)
	}
}

func (t *tracker) stripe(h hash) uint32 {
	return binary.BigEndian.Uint32(h[:]) & uint32(len(t.stripes)-1) //nolint:gosec // at most maxStripes
}

// end ends the entries that a change is about.
func (t *tracker) end(m *message) {
	if m.kind == clearAll {
		t.dropAll()
	} else {
		t.drop(m.hashes)
	}
}

// answered ends the entries that an own write is about, whose messages are over from then on.
func (t *tracker) answered(m *message) {
	t.own[m.writer.number%ring].Store(m.writer.number)
	t.end(m)
}

// isOver reports whether a message is of an own write that was answered. It may not know of one whose number later ones have displaced.
func (t *tracker) isOver(w writer) bool {
	return w.client == [8]byte(t.core.Unique()) && t.own[w.number%ring].Load() == w.number
}

// Ticket is what was known of a key before Redis was asked. The zero Ticket is that of a reply that is not to be kept.
type Ticket struct {
	gate          uint64
	asked         time.Duration // on the client's clock
	stripe, count uint32
}

// ticket returns the ticket of a key for which Redis is asked now.
func (t *tracker) ticket(h hash) Ticket {
	ticket := Ticket{gate: t.gate.Load(), asked: t.core.Clock.Now(), stripe: t.stripe(h)}
	ticket.count = t.stripes[ticket.stripe].Load()
	// A transaction is noted before it ends entries: this ticket ends with them, or the transaction is seen here.
	if ticket.gate%2 != 0 || t.busy.Load() && t.paused(ticket.stripe, ticket.asked) {
		return Ticket{}
	}
	return ticket
}

// valid reports whether nothing has ended what was asked for with the ticket, but age.
func (t *tracker) valid(ticket *Ticket) bool {
	return ticket.gate == t.gate.Load() && ticket.count == t.stripes[ticket.stripe].Load()
}

// Message takes a message of another client, of Java, or of a write of this client.
func (t *tracker) Message(payload string) {
	t.heard.Store(int64(t.core.Clock.Now()))
	m, ok := parse(payload)
	if !ok {
		m = message{kind: clearAll} // it may have been about any key
	}
	t.counted.Add(m.count())
	switch m.kind {
	case clearAll, invalidate, update:
		if t.isOver(m.writer) {
			return
		}
		t.end(&m)
		if m.waits && t.topic.Map != "" {
			t.reply(release(t.topic.Map + ":clear:" + hex.EncodeToString([]byte(m.request))))
		}
	case disable:
		t.pause(&m)
		if t.topic.Map != "" {
			t.reply(acknowledge(core.Suffixed(t.topic.Map, m.request+":topic")))
		}
	case enable:
		t.resume(m.request)
	}
}

// reply answers a Java client, which waits for a while. Answers are not repeated, and not sent without bound.
func (t *tracker) reply(call *script.Call) {
	done := func(*script.Call) { t.replies.Add(-1) }
	if t.replies.Add(1) > maxReplies || !t.core.Batch.Start(call, pipeline.Normal, done) {
		done(nil)
	}
}

// pause notes a transaction, and ends the entries of its keys. One too many, or of too many keys, counts as one of all keys.
func (t *tracker) pause(m *message) {
	now := t.core.Clock.Now()
	tx := transaction{until: now + m.timeout, all: m.all || len(m.hashes) > maxKeys}
	if !tx.all {
		for _, h := range m.hashes {
			tx.stripes = append(tx.stripes, t.stripe(h))
		}
	}
	t.mu.Lock()
	t.expireLocked(now)
	if t.transactions == nil {
		t.transactions = map[string]transaction{}
	}
	request := m.request
	if _, known := t.transactions[request]; !known && len(t.transactions) >= maxTransactions {
		request, tx.all, tx.stripes = "", true, nil
		tx.until = max(tx.until, t.transactions[request].until)
	}
	t.transactions[request] = tx
	t.busy.Store(true)
	t.mu.Unlock()
	if tx.all {
		t.dropAll()
	} else {
		t.drop(m.hashes)
	}
}

// resume forgets a transaction.
func (t *tracker) resume(request string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if request != "" {
		delete(t.transactions, request)
	}
	t.expireLocked(t.core.Clock.Now())
}

func (t *tracker) expireLocked(now time.Duration) {
	for request, tx := range t.transactions {
		if now >= tx.until {
			delete(t.transactions, request)
		}
	}
	t.busy.Store(len(t.transactions) > 0)
}

// paused reports whether a transaction is about keys of a stripe.
func (t *tracker) paused(stripe uint32, now time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.expireLocked(now)
	for _, tx := range t.transactions {
		if tx.all || slices.Contains(tx.stripes, stripe) {
			return true
		}
	}
	return false
}
