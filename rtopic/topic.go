package rtopic

import (
	"context"
	"fmt"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/pubsub"
)

// manager is a client's state for its topics.
type manager struct{ core *core.Core }

func newManager(c *core.Core) *manager { return &manager{c} }

// subject is what a Topic and a PatternTopic have in common.
type subject struct {
	core  *core.Core
	name  string // as the client's user gave it
	codec codec.Codec
	err   error // of the name or the options
}

func newSubject(c *core.Core, name string, badName error, opts []Option) subject {
	coding, err := codecOf(opts)
	if badName != nil {
		err = badName
	}
	return subject{core.Manager(c, newManager).core, name, coding, err}
}

// check validates a call before any I/O.
func (s subject) check(ctx context.Context) error {
	switch {
	case s.err != nil:
		return s.err
	case ctx == nil:
		return core.ErrNilContext
	case ctx.Err() != nil:
		return ctx.Err()
	case s.core.Closed():
		return errs.ErrClosed
	}
	return nil
}

func (s subject) wrap(verb string, err error) error { return errs.Wrap("rtopic", verb, s.name, err) }

// decode decodes a message of the topic with this name.
func decode[T any](c codec.Codec, topic, payload string) (value T, err error) {
	if err := codec.Unmarshal(c, []byte(payload), &value); err != nil {
		var none T
		return none, errs.Wrap("rtopic", "decode a value of", topic, err)
	}
	return value, nil
}

// Topic is a topic of values of type T. It has no state: any number of goroutines may use one, and two of the same name are
// the same topic, in all clients. It is safe for concurrent use.
type Topic[T any] struct {
	subject

	channel string
}

// New returns the topic with this name, as redlatch.GetTopic does. client is a *redlatch.Client. It does no I/O and
// keeps nothing alive; bad input is the error of every method.
func New[T any](client core.Client, name string, opts ...Option) *Topic[T] {
	c := core.Of(client)
	channel := c.Prefix + name
	return &Topic[T]{newSubject(c, name, core.CheckUserName(name, channel), opts), channel}
}

// Name returns the topic's name as it was given to the client.
func (t *Topic[T]) Name() string { return t.name }

// Publish sends a value to all that subscribe to the topic, and returns how many connections the server sent it to: a client
// counts once, however many subscriptions it has, and once more for each pattern that matches. On a cluster only those of
// the topic's node are counted. It returns 0 if nobody subscribes; the value is then lost.
//
// It ends with the reply, when ctx is done, or after 3 s: keep values small. After redlatch.ErrUnknown the value may have been
// published; it is never sent twice. After redlatch.ErrUnavailable it was not. A value that the codec refuses is redlatch.ErrInvalid.
//
// It costs one round trip, which concurrent calls share. Values of one goroutine are published in its order, but for one whose
// outcome is unknown.
func (t *Topic[T]) Publish(ctx context.Context, value T) (receivers int, err error) {
	receivers, err = t.publish(ctx, value)
	return receivers, t.wrap("publish", err)
}

func (t *Topic[T]) publish(ctx context.Context, value T) (int, error) {
	if err := t.check(ctx); err != nil {
		return 0, err
	}
	payload, err := codec.Marshal(t.codec, value)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	sent, err := t.core.Once(ctx, func() *script.Call { return t.publication(payload) })
	if err != nil {
		return 0, err
	}
	n, err := sent.Int()
	return int(n), err
}

// publication returns the call that publishes a value: a plain command, but on a cluster a script. Any node of a cluster takes a
// PUBLISH, and only the node of the channel's slot the script, so that values stay in order when the slot moves.
func (t *Topic[T]) publication(payload []byte) *script.Call {
	if t.core.Cluster {
		return publishScript.Call(1, t.channel, t.channel, payload)
	}
	return publishCommand.Call(1, t.channel, payload)
}

// Subscribe subscribes to the topic until ctx is done or [Subscription.Close] is called. When it returns, the server has
// confirmed the subscription: no value that is published later is missed. Until then it blocks, at most until ctx is done,
// the client closes (redlatch.ErrClosed), or the call timeout is over (10 s by default, see redlatch.WithCallTimeout), also
// if ctx has a deadline, since that is the deadline of the subscription. The last one is redlatch.ErrUnavailable. If Redis
// refuses the subscription, for example without permission, it returns that error at once. The client asks again after half
// a minute; until then, and within a second after that error, Subscribe returns redlatch.ErrUnavailable.
//
// The first subscription of a client to a topic costs one round trip. Others cost none while it lasts.
func (t *Topic[T]) Subscribe(ctx context.Context, opts ...SubscribeOption) (*Subscription[T], error) {
	b, err := t.open(ctx, opts, func(b *buffer) (*pubsub.Membership, bool) {
		return t.core.Topics.Join(t.channel, channelListener{b})
	})
	if err != nil {
		return nil, err
	}
	return &Subscription[T]{b, func(m message) (T, error) { return decode[T](t.codec, t.name, m.payload) }}, nil
}

// Info is the state of a topic in Redis at one moment.
type Info struct {
	// Name is the topic's name.
	Name string
	// Subscribers is the number of connections that subscribe to the topic, at all nodes of a cluster: one for each client,
	// however many subscriptions it has. A client that has left the topic counts for a second more. Patterns do not count.
	Subscribers int
}

// Info returns how many connections subscribe to the topic. It ends as Publish does, with redlatch.ErrUnavailable if Redis
// did not answer. It costs one round trip, on a cluster one to each node at the same time. The user needs +pubsub.
func (t *Topic[T]) Info(ctx context.Context) (Info, error) {
	if err := t.check(ctx); err != nil {
		return Info{}, t.wrap("info", err)
	}
	n, err := presence.Subscribers(ctx, t.core, t.channel)
	if err != nil {
		return Info{}, t.wrap("info", err)
	}
	return Info{t.name, n}, nil
}

// PatternTopic is all topics whose names match a pattern. Otherwise it is like a [Topic], but nothing can be published to it.
type PatternTopic[T any] struct{ subject }

// Event is a value with the topic that it was published to.
type Event[T any] struct {
	Topic string // its name without the client's prefix
	Value T
}

// NewPattern returns all topics whose names match a pattern, as redlatch.GetPatternTopic does. client is a
// *redlatch.Client. It does no I/O and keeps nothing alive; bad input is the error of every method.
func NewPattern[T any](client core.Client, pattern string, opts ...Option) *PatternTopic[T] {
	c := core.Of(client)
	bad := core.CheckText(pattern)
	if bad == nil {
		bad = core.CheckText(c.Prefix + pattern)
	}
	return &PatternTopic[T]{newSubject(c, pattern, bad, opts)}
}

// Pattern returns the pattern as it was given to the client.
func (t *PatternTopic[T]) Pattern() string { return t.name }

// Subscribe subscribes to all topics that match, also to those that are used later only. It blocks, fails and costs as
// [Topic.Subscribe] does. Values of one topic come in their order; values of several topics in any. If one cannot be
// decoded, its event comes with the error and has the topic.
//
// Every message of a matching channel is received, whoever publishes it. The server compares each message that it
// publishes with each pattern that a connection subscribes to.
func (t *PatternTopic[T]) Subscribe(ctx context.Context, opts ...SubscribeOption) (*Subscription[Event[T]], error) {
	b, err := t.open(ctx, opts, func(b *buffer) (*pubsub.Membership, bool) {
		return t.core.Topics.JoinPattern(core.EscapePattern(t.core.Prefix)+t.name, patternListener{b})
	})
	if err != nil {
		return nil, err
	}
	return &Subscription[Event[T]]{b, func(m message) (Event[T], error) {
		topic := t.core.UserName(m.channel)
		value, err := decode[T](t.codec, topic, m.payload)
		return Event[T]{topic, value}, err
	}}, nil
}
