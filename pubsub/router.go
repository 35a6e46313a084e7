package pubsub

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	defaultLinger      = time.Second
	defaultHealthCheck = 15 * time.Second
	maxReplyWait       = 5 * time.Second // after which an unanswered command means a dead connection
	closeWait          = 2 * time.Second // how long Close waits for the connection to end
	logInterval        = time.Second
)

// Subscriber opens subscription connections. [*redis.Client] and [*redis.ClusterClient] implement it.
type Subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// Listener receives the messages of one channel. A router calls its listeners one call at a time and from one goroutine,
// without a lock that Join or Leave takes. The methods must return at once, and must not call the router. When
// [Membership.Leave] returns, a last call may still be running or about to start.
type Listener interface {
	// Subscribed reports that the subscription is confirmed: first, and again after each reconnection, when messages
	// may have been missed. It may be called before Join returns.
	Subscribed()

	// Message receives the payload of one message.
	Message(payload string)
}

// PatternListener receives the messages of the channels that match a pattern. The rules for a [Listener] apply to it.
type PatternListener interface {
	// Subscribed reports that the subscription is confirmed, as for a Listener.
	Subscribed()

	// Message receives the payload of one message and its channel.
	Message(channel, payload string)
}

// Refused is what a listener of a [Router] may implement too, to learn that Redis has refused the subscription. The router
// tries again after half a minute. It logs a refusal unless each listener of the channel says that it is known.
type Refused interface{ Refused(err error) (known bool) }

// Lost is what a listener may implement too, to learn that its confirmed subscription has ended: messages may be missed from
// now on. The rules for a [Listener] apply to the call. It comes once for each confirmation that ends, also one that Join has
// returned, and before the next Subscribed: when the connection is closed or fails, when it has been silent for too long (see
// [Options].HealthCheck), when the router replaces it or the channel's slot moves, and when the router closes. It may come
// before Join returns. A listener that leaves is not notified.
type Lost interface{ Lost() }

// notifyLost notifies those listeners that implement [Lost].
func notifyLost(listeners []Listener) {
	for _, l := range listeners {
		if l, ok := l.(Lost); ok {
			l.Lost()
		}
	}
}

// patterned is a PatternListener among the Listeners.
type patterned struct{ PatternListener }

// Message is not called: the messages of a pattern have a channel.
func (patterned) Message(string) {}

// Refused passes on that Redis has refused the subscription.
func (p patterned) Refused(err error) (known bool) {
	l, ok := p.PatternListener.(Refused)
	return ok && l.Refused(err)
}

// Lost passes on that the subscription has ended.
func (p patterned) Lost() {
	if l, ok := p.PatternListener.(Lost); ok {
		l.Lost()
	}
}

// Options are the settings of a [Router]. The zero value sets every default.
type Options struct {
	// Linger is how long a channel stays subscribed after its last listener has left. Defaults to 1 s.
	Linger time.Duration

	// HealthCheck is how long the connection may be silent before a PING is sent. If no reply follows within another
	// HealthCheck, or 5 s if that is less, the connection is replaced. Defaults to 15 s.
	HealthCheck time.Duration

	// Logger receives one line when an outage of the connection begins and one when it ends, and refused subscriptions
	// at most once a second. Defaults to none.
	Logger *slog.Logger

	// Sharded subscribes by SSUBSCRIBE; by SUBSCRIBE where the server is older than Redis 7. For a cluster use [NewSharded]. Defaults
	// to SUBSCRIBE.
	Sharded bool

	oneSlot bool // the channels of a command have to be of one slot

	// OnFailure is called when the connection was lost or could not be made, before the next attempt. It must return at
	// once. Defaults to none.
	OnFailure func()

	// OnReconnect is called, under the rules for a [Listener], when a lost connection has been replaced. Defaults
	// to none.
	// A [Shards] calls it from several goroutines.
	OnReconnect func()
}

func (o Options) withDefaults() Options {
	if o.Linger <= 0 {
		o.Linger = defaultLinger
	}
	if o.HealthCheck <= 0 {
		o.HealthCheck = defaultHealthCheck
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnFailure == nil {
		o.OnFailure = func() {}
	}
	if o.OnReconnect == nil {
		o.OnReconnect = func() {}
	}
	return o
}

// Stats are the counts of a [Router].
type Stats struct {
	Channels   int    // channels with listeners, or still subscribed
	Messages   uint64 // messages received
	Reconnects uint64 // lost connections that were replaced
}

// Router shares one subscription connection among all listeners. It is safe for concurrent use.
type Router struct {
	subscriber Subscriber
	opts       Options
	wake       chan struct{} // one element: the sender is to check the table; never closed

	mu         sync.Mutex // guards what follows; not held during I/O or a call of a listener
	table      table
	running    bool
	closed     bool
	stop       context.CancelFunc // ends the current run
	done       chan struct{}      // closed by the current run when it has ended
	messages   uint64
	reconnects uint64
	logged     time.Time // when a refusal was last logged
	failed     time.Time // when the current outage began; zero without one
}

// New returns a router that subscribes through s. It does no I/O and starts no goroutine: the first Join does. With a
// nil s the router is closed.
func New(s Subscriber, o Options) *Router {
	o = o.withDefaults()
	return &Router{
		subscriber: s,
		closed:     s == nil,
		opts:       o,
		wake:       make(chan struct{}, 1),
		table:      newTable(o),
	}
}

// Join adds l to the listeners of channel, and never blocks. If confirmed is true, the channel is already subscribed,
// and Subscribed is called only after a reconnection. After Close nothing is ever confirmed. A listener that joins
// twice receives each message twice.
func (r *Router) Join(channel string, l Listener) (m *Membership, confirmed bool) {
	return r.join(key{name: channel}, l)
}

// JoinPattern adds l to the listeners of a pattern, as Join does: it receives the messages of all channels that match it
// by the rules of Redis's PSUBSCRIBE. On a sharded Router these are the plain channels.
func (r *Router) JoinPattern(pattern string, l PatternListener) (m *Membership, confirmed bool) {
	return r.join(key{pattern, true}, patterned{l})
}

func (r *Router) join(k key, l Listener) (m *Membership, confirmed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m = &Membership{router: r, listener: l}
	if r.closed {
		return m, false
	}
	confirmed = r.table.join(k, m, time.Now())
	if !confirmed {
		r.pokeLocked()
	}
	r.startLocked()
	return m, confirmed
}

// startLocked starts the goroutine that owns the connection. It ends when there are no channels any more, or at Close,
// which waits for it.
func (r *Router) startLocked() {
	if r.running {
		return
	}
	//nolint:forbidigo // Close cancels it: the connection outlives every single Join.
	ctx, stop := context.WithCancel(context.Background())
	r.running, r.stop, r.done = true, stop, make(chan struct{})
	go r.run(ctx, r.done)
}

// pokeLocked makes the sender check the table. If a command is in flight, its reply does that anyway.
func (r *Router) pokeLocked() {
	if r.table.inFlight != nil {
		return
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Stats returns the current counts.
func (r *Router) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{Channels: len(r.table.channels), Messages: r.messages, Reconnects: r.reconnects}
}

// unused reports whether the router has neither channels nor a connection.
func (r *Router) unused() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.running && len(r.table.channels) == 0
}

// Close ends all subscriptions and closes the connection. It waits for the router's goroutines, for 2 s at most: a dial
// that ignores its context ends with the Redis client's own timeouts. Listeners must not call it. A repeated Close
// waits again.
func (r *Router) Close() {
	r.mu.Lock()
	r.closed = true
	lost := r.table.confirmed(nil)
	r.table.clear()
	stop, done := r.stop, r.done
	r.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	awaitEnd(done) // until then the reader may call the same listeners
	notifyLost(lost)
}

// awaitEnd waits for a goroutine that Close has stopped, but not for long: a dial may ignore its context.
func awaitEnd(done <-chan struct{}) {
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// lost logs the beginning of an outage.
func (r *Router) lost(err error) {
	r.mu.Lock()
	channels := len(r.table.channels)
	begins := r.failed.IsZero() && !r.closed
	if begins {
		r.failed = time.Now()
	}
	r.mu.Unlock()
	if begins {
		r.opts.Logger.Warn("redlatch: subscription connection lost", "cause", err, "channels", channels)
	}
}

// back logs the end of an outage, if there is one: Redis has answered.
func (r *Router) back() {
	r.mu.Lock()
	began := r.failed
	r.failed = time.Time{}
	r.mu.Unlock()
	if !began.IsZero() {
		r.opts.Logger.Info("redlatch: subscription connection is back", "length", time.Since(began))
	}
}

// refused logs a refusal, at most one a second.
func (r *Router) refused(err error) {
	now := time.Now()
	r.mu.Lock()
	channels := len(r.table.channels)
	quiet := r.closed || now.Sub(r.logged) < logInterval
	if !quiet {
		r.logged = now
	}
	r.mu.Unlock()
	if !quiet {
		r.opts.Logger.Warn("redlatch: subscription refused", "cause", err, "channels", channels)
	}
}

// Membership is one listener's place in a channel.
type Membership struct {
	router   *Router
	listener Listener
	channel  *channel // nil once left; guarded by router.mu, as is place
	place    int      // index in channel.members

	entry *entry // of a [Shards], which has no router of its own
}

// Leave ends the membership, and never blocks. A second Leave does nothing.
func (m *Membership) Leave() {
	if m.entry != nil {
		m.entry.leave(m)
		return
	}
	r := m.router
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table.leave(m, time.Now()) {
		r.pokeLocked()
	}
}
