package rtopic

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// Gap says that a subscription has missed values. It comes in their place, before the oldest later value that was kept.
type Gap struct {
	// Topic is the name of the topic, or the pattern.
	Topic string
	// Dropped is the number of values that were dropped since the loop was slower than the topic (see [WithBuffer]).
	Dropped int
	// Reconnected reports that the connection was lost and that the subscription is confirmed again. Nobody knows how many
	// values were published meanwhile.
	Reconnected bool
}

// Error says what is missing.
func (g *Gap) Error() string {
	switch {
	case !g.Reconnected:
		return fmt.Sprintf("rtopic: gap in %q: %d values dropped", g.Topic, g.Dropped)
	case g.Dropped == 0:
		return fmt.Sprintf("rtopic: gap in %q: connection lost", g.Topic)
	}
	return fmt.Sprintf("rtopic: gap in %q: connection lost, %d values dropped", g.Topic, g.Dropped)
}

// Subscription receives the values of a topic, or the [Event] values of a [PatternTopic]. It ends when the context of
// Subscribe is done, at Close, or when the client closes. One that is not closed while its context lasts keeps values up to
// its buffer. It is safe for concurrent use.
type Subscription[E any] struct {
	buffer *buffer
	decode func(message) (E, error)
}

// All returns the values, as they come. An error beside a value stands in its place: a *[Gap] where values are missing, or
// one that wraps codec.ErrDecode for a value that the codec cannot decode. The loop goes on after both. If the client
// closes, the last error wraps redlatch.ErrClosed.
//
// The loop ends without an error when the subscription ends by its context or by Close, and leaves out what was not yet
// read. Between values it blocks. A loop that was left by break can be continued by another call of All. Of several loops
// at the same time, each value goes to one.
func (s *Subscription[E]) All() iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for {
			m, err := s.buffer.next()
			if errors.Is(err, errEnded) {
				return
			}
			var value E
			if err == nil {
				value, err = s.decode(m)
			}
			if !yield(value, err) || errors.Is(err, errs.ErrClosed) {
				return
			}
		}
	}
}

// Close ends the subscription. It does not block. A second Close does nothing.
func (s *Subscription[E]) Close() { s.buffer.close() }

// errEnded says that a subscription has ended as its user asked for.
var errEnded = errors.New("the subscription has ended")

// message is a value as it was published.
type message struct {
	lost             lost // before it
	channel, payload string
}

// lost is what is missing at one place.
type lost struct {
	dropped     int
	reconnected bool
}

// buffer has the messages of one subscription that its loop has not read. It is safe for concurrent use.
type buffer struct {
	core  *core.Core
	name  string // of the topic, or the pattern
	limit int
	done  <-chan struct{} // of the context of Subscribe
	ended chan struct{}   // closed by close
	began chan struct{}   // closed when the subscription was confirmed or refused for the first time
	ready chan struct{}   // one element: a loop is to look; never closed

	mu        sync.Mutex         // guards the rest; taken before the mutex of the router
	stop      func() bool        // has the end of the context no longer call close
	member    *pubsub.Membership // nil once left
	confirmed bool
	refusal   error     // why it was not confirmed
	messages  []message // the oldest first
	lost      lost      // after the newest
}

var _ pubsub.Refused = (*buffer)(nil)

// open returns the buffer of a new subscription, once that is confirmed.
func (s subject) open(ctx context.Context, opts []SubscribeOption, join func(*buffer) (*pubsub.Membership, bool)) (*buffer, error) {
	limit, err := bufferSize(opts)
	if err == nil || s.err != nil {
		err = s.check(ctx)
	}
	if err != nil {
		return nil, s.wrap("subscribe to", err)
	}
	b := &buffer{
		core: s.core, name: s.name, limit: limit, done: ctx.Done(),
		ended: make(chan struct{}), began: make(chan struct{}), ready: make(chan struct{}, 1),
	}
	b.join(ctx, join)
	if err := b.await(ctx); err != nil {
		b.close()
		return nil, s.wrap("subscribe to", err)
	}
	return b, nil
}

// join joins the channel. A message that comes before the confirmation is of an earlier subscription, which ends.
func (b *buffer) join(ctx context.Context, join func(*buffer) (*pubsub.Membership, bool)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stop = context.AfterFunc(ctx, b.close)
	if b.member, b.confirmed = join(b); b.confirmed {
		close(b.began)
	}
}

// await waits until the subscription is confirmed.
func (b *buffer) await(ctx context.Context) error {
	timer := time.NewTimer(b.core.CallTimeout)
	defer timer.Stop()
	select {
	case <-b.began:
		b.mu.Lock()
		defer b.mu.Unlock()
		return core.Explain(b.refusal)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ctx.Err(), errs.ErrUnavailable)
	case <-b.core.Closing():
		return errs.ErrClosed
	case <-timer.C:
		return fmt.Errorf("%w: not confirmed within %v", errs.ErrUnavailable, b.core.CallTimeout)
	}
}

// channelListener is the buffer as the listener of a channel.
type channelListener struct{ *buffer }

// Message takes the message of a topic.
func (l channelListener) Message(payload string) { l.add("", payload) }

// patternListener is the buffer as the listener of a pattern.
type patternListener struct{ *buffer }

// Message takes the message of a topic that matches.
func (l patternListener) Message(channel, payload string) { l.add(channel, payload) }

// Subscribed notes the confirmation; from the second one on, that messages may be missing.
func (b *buffer) Subscribed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.confirmed:
		b.lost.reconnected = true
		b.pokeLocked()
	case b.refusal == nil:
		b.confirmed = true
		close(b.began)
	}
}

// Refused ends a Subscribe that waits, unless Redis may confirm soon. Later it is an outage like others.
func (b *buffer) Refused(err error) (known bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.confirmed && b.refusal == nil && script.Final(err) {
		b.refusal = err
		close(b.began)
	}
	return false
}

// add keeps a message, and drops the oldest if there are too many.
func (b *buffer) add(channel, payload string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.confirmed || b.member == nil {
		return
	}
	b.messages = append(b.messages, message{b.lost, channel, payload})
	b.lost = lost{}
	if len(b.messages) > b.limit {
		dropped := b.popLocked().lost
		next := &b.messages[0].lost
		next.dropped += dropped.dropped + 1
		next.reconnected = next.reconnected || dropped.reconnected
	}
	b.pokeLocked()
}

func (b *buffer) popLocked() message {
	m := b.messages[0]
	b.messages[0] = message{} // keep no payload alive
	b.messages = b.messages[1:]
	return m
}

func (b *buffer) pokeLocked() {
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// next returns the next message, a *Gap before it, or why there will be none.
func (b *buffer) next() (message, error) {
	for {
		if err := b.over(); err != nil {
			return message{}, err
		}
		if m, gap, ok := b.take(); gap != nil {
			return message{}, gap
		} else if ok {
			return m, nil
		}
		select {
		case <-b.ready:
		case <-b.done:
		case <-b.ended:
		case <-b.core.Closing():
		}
	}
}

// over returns why the subscription has ended; nil if it has not. What its user did comes first.
func (b *buffer) over() error {
	switch {
	case isClosed(b.done), isClosed(b.ended):
		return errEnded
	case b.core.Closed():
		b.leave()
		return errs.Wrap("rtopic", "receive from", b.name, errs.ErrClosed)
	}
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// take returns the oldest message, unless a gap comes first.
func (b *buffer) take() (m message, gap *Gap, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	missing := &b.lost
	if len(b.messages) > 0 {
		missing = &b.messages[0].lost
	}
	switch {
	case *missing != lost{}:
		gap = &Gap{b.name, missing.dropped, missing.reconnected}
		*missing = lost{}
	case len(b.messages) > 0:
		m, ok = b.popLocked(), true
	}
	if len(b.messages) > 0 || b.lost != (lost{}) { // for another loop
		b.pokeLocked()
	}
	return m, gap, ok
}

// close ends the subscription.
func (b *buffer) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaveLocked()
	if !isClosed(b.ended) {
		close(b.ended)
	}
}

// leave frees what the subscription uses.
func (b *buffer) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leaveLocked()
}

func (b *buffer) leaveLocked() {
	if b.member != nil {
		b.stop()
		b.member.Leave()
		b.member, b.messages = nil, nil
	}
}
