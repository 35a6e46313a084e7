package rdelayedqueue

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// Queue is a queue of values of type T. [Queue.Consume] passes messages to a function and acknowledges them;
// [Queue.Take] leaves that to the caller. A Queue has no state: any number of goroutines may use one, and two of the
// same name are the same queue, in all clients. It is safe for concurrent use.
//
// Get, All, Dead and Stats, which read, and Offer, Cancel, Reschedule, Redrive, RedriveAll, Purge, Pause, PauseFor and
// Resume, which change the queue, block as follows. If Redis does not answer, or a cluster moves the queue to another node,
// they wait until ctx is done, the call timeout is over if ctx has no deadline (10 s by default, see
// redlatch.WithCallTimeout), or the client closes (redlatch.ErrClosed). If Redis refuses the connection or cannot serve
// at the moment, they return redlatch.ErrUnavailable within a third of a second, and nothing was done. A change is made
// once, also if its reply is lost and it is repeated; after redlatch.ErrUnknown it may have been made. If a newer
// version of this library has written the queue, they return [ErrLayout].
type Queue[T any] struct {
	queue    *queue.Queue
	settings settings
	err      error // of the name or the options
}

// New returns the delayed queue with this name, as redlatch.GetDelayedQueue does. client is a *redlatch.Client. It
// does no I/O and keeps nothing alive; bad input is the error of every method.
func New[T any](client core.Client, name string, opts ...QueueOption) *Queue[T] {
	c := core.Of(client)
	q := &Queue[T]{queue: core.Manager(c, queue.New).Queue(name)}
	q.err = q.queue.Check()
	s, err := queueSettings(opts)
	if q.err == nil {
		q.err = err
	}
	q.settings = s
	return q
}

// Name returns the queue's name as it was given to the client.
func (q *Queue[T]) Name() string { return q.queue.Name() }

// bad returns the error of the name or the options.
func (q *Queue[T]) bad() error { return q.err }

// Item is a message for OfferBatch. The options of an offer with the names of its fields say what they do.
type Item[T any] struct {
	Value       T
	Delay       time.Duration     // not negative; 0 to be due at once
	ID          string            // as for WithID; empty for a generated one
	Replace     bool              // as WithReplace
	Expiry      time.Duration     // as for WithExpiry; 0 for no end
	Headers     map[string]string // as for WithHeaders
	MaxAttempts int               // as for WithMaxAttempts; 0 for the consumer's
	Priority    int               // as for WithPriority
	Group       string            // as for WithGroup; empty for none
}

const maxDelay = queue.MaxDelay

// Offer adds a message with the value to the queue, due after delay (0 for at once), and returns the message's id: that
// of [WithID], or a generated UUIDv7. If the queue has a message with the id of WithID, Offer leaves it as it is, unless [WithReplace] is
// given, and returns [ErrDead] if it is a dead letter. A repeated call without WithID adds another message.
//
// It blocks and fails as [Queue] describes; an offer whose reply is lost is repeated and adds one message. A negative
// delay, a bad id, and a value that the codec refuses or that exceeds [WithMaxPayload] are redlatch.ErrInvalid. After
// any other error Offer returns the id too: after redlatch.ErrUnknown, offer again with the same id by WithID to be
// sure.
//
// It costs one round trip, which concurrent offers share and which also wakes a consumer.
func (q *Queue[T]) Offer(ctx context.Context, value T, delay time.Duration, opts ...OfferOption) (id string, err error) {
	id, _, err = q.offerOne(ctx, Item[T]{Value: value, Delay: delay}, time.Time{}, opts)
	return id, q.wrap("offer to", err)
}

// OfferAt is Offer with the time at which the message is due, by Redis's clock, instead of a delay. A message with a
// past time is due at once. A time more than 100 years ahead is redlatch.ErrInvalid.
func (q *Queue[T]) OfferAt(ctx context.Context, value T, t time.Time, opts ...OfferOption) (id string, err error) {
	if d := time.Until(t); d > maxDelay {
		return "", q.wrap("offer to", fmt.Errorf("%w: time %v is more than %v ahead", errs.ErrInvalid, t, maxDelay))
	}
	if t.Before(time.Unix(1, 0)) {
		t = time.Unix(1, 0) // long past, as the zero time
	}
	id, _, err = q.offerOne(ctx, Item[T]{Value: value}, t, opts)
	return id, q.wrap("offer to", err)
}

// Outcome is what an offer came to. The zero value, which comes with an error, says that it is not known.
type Outcome int

const (
	// Added is the outcome of an offer that added the message.
	Added Outcome = iota + 1
	// Kept is the outcome of an offer that changed nothing: a message with the id exists, or was acknowledged within the
	// time of [WithDedupe].
	Kept
	// Replaced is the outcome of an offer with [WithReplace] that took the place of another message, or will after its claim.
	Replaced
)

// String returns the name of the outcome, in lower case.
func (o Outcome) String() string {
	switch o {
	case Added:
		return "added"
	case Kept:
		return "kept"
	case Replaced:
		return "replaced"
	}
	return "unknown"
}

// OfferNew is Offer, and also returns whether it added the message ([Added]), found one with this id ([Kept]), or replaced one
// ([Replaced]); 0 with [ErrDead] and [ErrFull]. With redlatch.ErrNotConfirmed the outcome may be Added or Replaced: the message is there, unconfirmed.
func (q *Queue[T]) OfferNew(ctx context.Context, value T, delay time.Duration, opts ...OfferOption) (id string, o Outcome, err error) {
	id, o, err = q.offerOne(ctx, Item[T]{Value: value, Delay: delay}, time.Time{}, opts)
	return id, o, q.wrap("offer to", err)
}

// offerOne offers an item; if at is not zero, it is due at that time instead of after its delay.
func (q *Queue[T]) offerOne(ctx context.Context, i Item[T], at time.Time, opts []OfferOption) (string, Outcome, error) {
	if err := q.bad(); err != nil {
		return "", 0, err
	}
	s, err := offeringOf(opts)
	if err != nil {
		return "", 0, err
	}
	item, err := q.item(i)
	if err != nil {
		return "", 0, err
	}
	item.ID, item.At, item.Headers, item.Replace, item.Own = or(s.id, ""), at, s.headers, s.replace, q.own(s)
	room := queue.Room{Capacity: q.settings.room.Capacity, Wait: or(s.wait, q.settings.room.Wait)}
	ids, outcomes, err := q.queue.Offer(ctx, []queue.Item{item}, room)
	if len(ids) == 0 {
		return "", 0, err
	}
	switch outcome := outcomes[0]; {
	case outcome == queue.Added:
		return ids[0], Added, err
	case outcome == queue.Replaced:
		return ids[0], Replaced, err
	case err == nil:
		return ids[0], Kept, nil
	}
	return ids[0], 0, err
}

// OfferBatch offers many messages and returns their ids in the order of the items. Messages that are due at the same
// time are delivered in that order. All items are validated before anything is sent.
//
// It blocks as Offer does. It is not a transaction: after an error any of the messages may have been added. Unless the
// error is redlatch.ErrInvalid, it returns the ids, so that the caller can offer the items again under them. If dead letters have some of
// the ids, the others are added, and the error is [ErrDead] and names them.
//
// It costs one round trip for each 100 messages or 1 MiB.
func (q *Queue[T]) OfferBatch(ctx context.Context, items []Item[T]) ([]string, error) {
	ids, err := q.offerAll(ctx, items)
	return ids, q.wrap("offer to", err)
}

func (q *Queue[T]) offerAll(ctx context.Context, items []Item[T]) ([]string, error) {
	if err := q.bad(); err != nil {
		return nil, err
	}
	encoded := make([]queue.Item, len(items))
	for i, item := range items {
		var err error
		if encoded[i], err = q.itemOf(item); err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
	}
	ids, _, err := q.queue.Offer(ctx, encoded, q.settings.room)
	return ids, err
}

// itemOf validates and encodes an item.
func (q *Queue[T]) itemOf(i Item[T]) (queue.Item, error) {
	s := offering{headers: i.Headers, replace: i.Replace, own: queue.Own{Expiry: i.Expiry}, expires: i.Expiry != 0}
	if i.ID != "" {
		s.id = &i.ID
	}
	if i.MaxAttempts != 0 {
		s.own.Attempts = &i.MaxAttempts
	}
	if i.Priority != 0 {
		s.own.Priority = &i.Priority
	}
	if i.Group != "" {
		s.group = &i.Group
	}
	if err := s.validate(); err != nil {
		return queue.Item{}, err
	}
	item, err := q.item(i)
	item.ID, item.Headers, item.Replace, item.Own = i.ID, i.Headers, i.Replace, q.own(s)
	return item, err
}

// own returns the terms of a message with these settings.
func (q *Queue[T]) own(s offering) queue.Own {
	if s.group != nil {
		group := q.settings.groups
		group.Key = *s.group
		s.own.Group = &group
	}
	return s.own
}

// item validates and encodes the value and the delay of an item.
func (q *Queue[T]) item(i Item[T]) (queue.Item, error) {
	if err := errs.Between("delay", i.Delay, 0, maxDelay); err != nil {
		return queue.Item{}, err
	}
	payload, err := codec.Marshal(q.settings.codec, i.Value)
	if err != nil {
		return queue.Item{}, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	if len(payload) > q.settings.maxPayload {
		return queue.Item{}, fmt.Errorf("%w: the payload has %d bytes, more than %d", errs.ErrInvalid, len(payload), q.settings.maxPayload)
	}
	return queue.Item{Delay: i.Delay, Payload: payload}, nil
}

func checkID(id string) error { return queue.CheckText("id", id) }

// Cancel deletes the message with this id; the id is free at once. It returns false if there is none. If the message is in flight, the
// context of its handler ends with the cause [ErrCancelled], in any process, and what the handler returns is ignored. A consumer is notified
// at once, or finds out when it renews the message, after a third of the visibility; a message of [Queue.Take] at the end of its
// visibility. It blocks and fails as [Queue] describes, and costs one round trip.
func (q *Queue[T]) Cancel(ctx context.Context, id string) (bool, error) {
	if err := q.check(id); err != nil {
		return false, q.wrap("cancel in", err)
	}
	ok, err := q.queue.Cancel(ctx, id)
	return ok, q.wrap("cancel in", err)
}

// Reschedule makes the message with this id due d from now, if it waits. It returns false if the message is in flight,
// is a dead letter or does not exist. It blocks and fails as [Queue] describes, and costs one round trip.
func (q *Queue[T]) Reschedule(ctx context.Context, id string, d time.Duration) (bool, error) {
	err := q.check(id)
	if err == nil {
		err = errs.Between("delay", d, 0, maxDelay)
	}
	if err != nil {
		return false, q.wrap("reschedule in", err)
	}
	ok, err := q.queue.Reschedule(ctx, id, d)
	return ok, q.wrap("reschedule in", err)
}

func (q *Queue[T]) check(id string) error {
	if err := q.bad(); err != nil {
		return err
	}
	return checkID(id)
}

func (q *Queue[T]) wrap(verb string, err error) error { return wrap(verb, q.Name(), err) }

func wrap(verb, name string, err error) error { return errs.Wrap("rdelayedqueue", verb, name, err) }
