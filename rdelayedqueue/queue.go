package rdelayedqueue

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// Queue is a queue of values of type T. [Queue.Consume] hands messages to a function and settles them; [Queue.Take]
// leaves that to the caller. A Queue has no state: any number of goroutines may use one, and two of the same name are
// the same queue, in all clients. It is safe for concurrent use.
//
// The methods that look at messages (Get, List, Dead, Stats) or change what is there (Offer, Cancel, Reschedule, Redrive, RedriveAll, Purge,
// Pause, Resume) wait for a silent Redis, and while a cluster moves the queue, until ctx is done, the call timeout is over
// (redlatch.WithCallTimeout, if ctx has no deadline), or the client closes (redlatch.ErrClosed). Of a refused connection, and of what
// Redis cannot do just now, they return redlatch.ErrUnavailable within a third of a second: nothing was done. A change is made once, however
// often it is repeated; after redlatch.ErrUnknown it may have been made. A queue that a newer version of this library has written is
// [ErrLayout].
type Queue[T any] struct {
	queue    *queue.Queue
	settings settings
	err      error // what is wrong with the name or the options
}

// New returns the named queue of a client. It is for package redlatch: users call GetDelayedQueue there.
func New[T any](c *core.Core, name string, opts ...QueueOption) *Queue[T] {
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

// bad returns what is wrong with the queue itself.
func (q *Queue[T]) bad() error { return q.err }

// Item is a message of OfferBatch.
type Item[T any] struct {
	Value T
	Delay time.Duration // not negative; 0 for at once
	ID    string        // as for WithID; empty for a fresh one
}

const maxDelay = queue.MaxDelay

// Offer puts a value into the queue, to be delivered once the delay has passed, and returns the message's id: that of [WithID], whose
// message may be there already and is left as it is then, or a fresh UUIDv7. A delay of 0 is for at once.
//
// It waits and fails as [Queue] says; a lost reply is asked for again, which never makes two messages. A negative delay, a bad id, and a value that the codec refuses or that is larger than
// [WithMaxPayload] says are redlatch.ErrInvalid. After any other error the message may have been offered, and its id is returned even so: to
// be sure, offer again under it, by [WithID].
//
// It costs one round trip, which it shares with concurrent offers and which wakes a consumer.
func (q *Queue[T]) Offer(ctx context.Context, value T, delay time.Duration, opts ...OfferOption) (id string, err error) {
	id, _, err = q.offerOne(ctx, Item[T]{Value: value, Delay: delay}, time.Time{}, opts)
	return id, q.wrap("offer to", err)
}

// OfferAt is Offer with the time, by the clock of Redis, at which the message is due in place of a delay: a time that has passed is for
// at once, one more than 100 years ahead is redlatch.ErrInvalid.
func (q *Queue[T]) OfferAt(ctx context.Context, value T, t time.Time, opts ...OfferOption) (id string, err error) {
	if d := time.Until(t); d > maxDelay {
		return "", q.wrap("offer to", fmt.Errorf("%w: %v is more than %v ahead", errs.ErrInvalid, t, maxDelay))
	}
	if t.Before(time.Unix(1, 0)) {
		t = time.Unix(1, 0) // long past, as the zero time
	}
	id, _, err = q.offerOne(ctx, Item[T]{Value: value}, t, opts)
	return id, q.wrap("offer to", err)
}

// OfferNew is Offer, and reports whether this call added the message: false if one of this id was there, or done not long ago.
func (q *Queue[T]) OfferNew(ctx context.Context, value T, delay time.Duration, opts ...OfferOption) (id string, added bool, err error) {
	id, added, err = q.offerOne(ctx, Item[T]{Value: value, Delay: delay}, time.Time{}, opts)
	return id, added, q.wrap("offer to", err)
}

// offerOne offers an item, which is due at the given time if that is not zero.
func (q *Queue[T]) offerOne(ctx context.Context, i Item[T], at time.Time, opts []OfferOption) (string, bool, error) {
	if err := q.bad(); err != nil {
		return "", false, err
	}
	id, err := idOf(opts)
	if err != nil {
		return "", false, err
	}
	i.ID = id
	item, err := q.item(i)
	if err != nil {
		return "", false, err
	}
	item.At = at
	ids, added, err := q.queue.Offer(ctx, []queue.Item{item})
	if len(ids) == 0 {
		return "", false, err
	}
	return ids[0], len(added) > 0 && added[0], err
}

// OfferBatch offers many messages, 100 and 1 MiB in a round trip, and returns their ids in the order of the items. Messages that are due
// at the same time are delivered in that order. Items are judged before anything is sent.
//
// It waits as Offer does. It is not a transaction: after an error some messages may have been offered, in part or all; ids are returned
// even so, unless the error is redlatch.ErrInvalid, to offer them again under.
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
		if item.ID != "" {
			err = checkID(item.ID)
		}
		if err == nil {
			encoded[i], err = q.item(item)
		}
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
	}
	ids, _, err := q.queue.Offer(ctx, encoded)
	return ids, err
}

// item judges and encodes an item whose id is in order.
func (q *Queue[T]) item(i Item[T]) (queue.Item, error) {
	if err := between("delay", i.Delay, 0, maxDelay); err != nil {
		return queue.Item{}, err
	}
	payload, err := codec.Marshal(q.settings.codec, i.Value)
	if err != nil {
		return queue.Item{}, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	if len(payload) > q.settings.maxPayload {
		return queue.Item{}, fmt.Errorf("%w: the payload has %d bytes, more than %d", errs.ErrInvalid, len(payload), q.settings.maxPayload)
	}
	return queue.Item{ID: i.ID, Delay: i.Delay, Payload: payload}, nil
}

// maxID is the longest id, in bytes.
const maxID = 512

func checkID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: the id is empty", errs.ErrInvalid)
	case len(id) > maxID:
		return fmt.Errorf("%w: the id has %d bytes, more than %d", errs.ErrInvalid, len(id), maxID)
	case !utf8.ValidString(id):
		return fmt.Errorf("%w: the id is not valid UTF-8", errs.ErrInvalid)
	case strings.ContainsFunc(id, unicode.IsControl):
		return fmt.Errorf("%w: the id has a control character", errs.ErrInvalid)
	}
	return nil
}

// Cancel removes the message of this id if it waits or is a dead letter; its id is free at once. It returns false for one that is in
// flight, and if there is none. It waits and fails as [Queue] says, and costs one round trip.
func (q *Queue[T]) Cancel(ctx context.Context, id string) (bool, error) {
	if err := q.check(id); err != nil {
		return false, q.wrap("cancel in", err)
	}
	ok, err := q.queue.Cancel(ctx, id)
	return ok, q.wrap("cancel in", err)
}

// Reschedule has the message of this id be due d from now, if it waits. It returns false for one that is in flight or a dead letter, and
// if there is none. It waits and fails as [Queue] says, and costs one round trip.
func (q *Queue[T]) Reschedule(ctx context.Context, id string, d time.Duration) (bool, error) {
	err := q.check(id)
	if err == nil {
		err = between("delay", d, 0, maxDelay)
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
