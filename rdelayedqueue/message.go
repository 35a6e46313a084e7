package rdelayedqueue

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// Message is a message that this process has claimed. [Message.Ack] acknowledges it, [Message.Nack] ends the attempt as
// failed, [Message.Reject] makes the message a dead letter, and [Message.Snooze] puts it off. It is safe for concurrent
// use. A nil Message, which a failed call returns, and one that no queue returned have ended: their methods return
// [ErrNotHeld], which is also the cause of their contexts.
type Message[T any] struct {
	// Value is the offered value.
	Value T
	// ID is the message's id.
	ID string
	// Attempt is 1 for the first delivery. A delivery that was given back before work on it began, or was snoozed, does
	// not count. After a Redrive it is 1 again.
	Attempt int
	// DueAt is when this delivery became due, by Redis's clock.
	DueAt time.Time
	// Headers are those of [WithHeaders], and those of an observer such as redlatchotel. They are not to be changed.
	Headers map[string]string

	message *queue.Message
	queue   *Queue[T]
	name    string
}

// Context returns the context of the work on the message. It descends from the context given to Take, or is the
// handler's context, and ends
//
//   - with the cause [ErrLost] at the end of the visibility less 1 % (at least 2 ms) on this machine's clock, or when
//     Redis replied that another consumer has the message; a late Ack may still count if nobody else has claimed it;
//   - with the cause [ErrCancelled], which is [ErrLost] too, if the message was cancelled or purged, or Redis has lost it;
//   - with the cause [ErrFinished] after Ack, Nack, Reject or Snooze;
//   - with the cause redlatch.ErrClosed when the client closes;
//   - with [ErrTimeout] or [ErrStopped] in a handler, see [WithTimeout] and [WithStopGrace].
func (m *Message[T]) Context() context.Context { return m.claim().Context() }

// Token returns the number of the claim, a fencing token: it is higher than that of every earlier claim of any message of
// the queue, in all processes. Pass it to the system that the work writes to, and have that refuse a token below one it
// has seen: a consumer whose visibility is over then cannot overwrite what the next one wrote. It is what Redis's clock
// shows in microseconds, or slightly more: after a loss of Redis's data tokens go on rising unless the clock stepped
// back. A nil Message has token 0.
func (m *Message[T]) Token() int64 { return m.claim().Token() }

// Ack acknowledges the message: its work is done, and it is removed. It also counts after the visibility is over, if
// nobody else has claimed the message. Otherwise it changes nothing and returns [ErrNotHeld]. A repeated Ack returns
// nil.
//
// It works although ctx is done. It returns when Redis has replied, after 3 s, or at a deadline of ctx that is still
// ahead (one nearer than 100 ms counts as 100 ms). If the outcome is unknown by then, it returns redlatch.ErrUnknown
// and goes on in the background; a repeated Ack returns the outcome. If a reply was lost and Redis has no such claim when
// it is asked again, [ErrNotHeld] is joined with redlatch.ErrUnknown: this call may have acknowledged the message before.
//
// It costs one round trip, which concurrent calls share.
func (m *Message[T]) Ack(ctx context.Context) error { return m.wrap("ack", m.claim().Ack(ctx)) }

// Nack ends the attempt as failed: the message is due again after delay, or becomes a dead letter if this was its last
// attempt. A negative delay is redlatch.ErrInvalid. It blocks, fails and costs as Ack does. A repeated Nack returns
// [ErrNotHeld]. If a reply was lost and another consumer has claimed the message since, [ErrNotHeld] is joined with
// redlatch.ErrUnknown: this call may have ended the attempt before.
func (m *Message[T]) Nack(ctx context.Context, delay time.Duration) error {
	if err := errs.Between("delay", delay, 0, maxDelay); err != nil {
		return m.wrap("nack", err)
	}
	return m.wrap("nack", m.claim().Nack(ctx, delay, ""))
}

// Reject makes the message a dead letter at once, also if attempts are left. The first 4 KiB of the reason are kept
// with it. It blocks, fails and costs as Nack does.
func (m *Message[T]) Reject(ctx context.Context, why string) error {
	return m.wrap("reject", m.claim().Reject(ctx, queue.Reason(why)))
}

// Snooze puts the message off: it is due again after d, 0 to 100 years from when Redis gets the call, and the attempt
// does not count: the next delivery has the same Attempt, and a message is never a dead letter for it. A d out of range
// is redlatch.ErrInvalid. It also counts after the visibility is over, if nobody else has claimed the message. It blocks,
// fails and costs as Nack does; a repeated Snooze returns [ErrNotHeld].
func (m *Message[T]) Snooze(ctx context.Context, d time.Duration) error {
	if err := errs.Between("delay", d, 0, maxDelay); err != nil {
		return m.wrap("snooze", err)
	}
	return m.wrap("snooze", m.claim().Snooze(ctx, d))
}

// Successor acknowledges the message and offers another under the same id, due after delay, in one step: the next part of a long job, or the
// next of a chain. It keeps the headers, the attempts, the expiry, the priority and the group of this message unless opts say otherwise; its own attempts count from 1.
// The queue's capacity and dedupe time do not matter. If another message has replaced this one in flight, the successor takes the
// place of that too. [WithID], [WithReplace], a negative delay, and a value that Offer would refuse are redlatch.ErrInvalid.
//
// It blocks, fails and costs as Nack does, and a handler that called it returns nil.
func (m *Message[T]) Successor(ctx context.Context, value T, delay time.Duration, opts ...OfferOption) error {
	return m.wrap("succeed", m.succeed(ctx, value, delay, opts))
}

func (m *Message[T]) succeed(ctx context.Context, value T, delay time.Duration, opts []OfferOption) error {
	s, err := offeringOf(opts)
	switch {
	case err != nil:
		return err
	case s.id != nil:
		return fmt.Errorf("%w: a successor has the id of its message", errs.ErrInvalid)
	case m == nil || m.queue == nil:
		return ErrNotHeld
	}
	item, err := m.queue.item(Item[T]{Value: value, Delay: delay})
	if err != nil {
		return err
	}
	item.Headers, item.Own = s.headers, m.queue.own(s)
	return m.message.Succeed(ctx, item)
}

// Extend sets the visibility anew, to end d from now, which may be sooner than before: 10 ms to 7 days. In a handler,
// renewal goes on and never shortens the visibility that Extend has set. Extend returns [ErrNotHeld] if another
// consumer has claimed the message, or if it was removed or finished.
//
// It waits for Redis until ctx is done, the call timeout is over (if ctx has no deadline), or the client closes, and
// costs one round trip. After redlatch.ErrUnknown the visibility may have been set. A repeated call sets it once more.
func (m *Message[T]) Extend(ctx context.Context, d time.Duration) error {
	if err := errs.Between("visibility", d, 10*time.Millisecond, 7*24*time.Hour); err != nil {
		return m.wrap("extend", err)
	}
	return m.wrap("extend", m.claim().Extend(ctx, d))
}

// claim returns the inside of the message; nil for a nil message.
func (m *Message[T]) claim() *queue.Message {
	if m == nil {
		return nil
	}
	return m.message
}

func (m *Message[T]) wrap(verb string, err error) error {
	name := ""
	if m != nil {
		name = m.name
	}
	return wrap(verb+" a message of", name, err)
}
