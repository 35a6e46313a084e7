package rdelayedqueue

import (
	"context"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/queue"
)

// Message is a message that this process has claimed. [Message.Ack] says that its work is done, [Message.Nack] that it failed,
// [Message.Reject] that it is not to be tried again. It is safe for concurrent use. A nil Message, as Take returns it with an error, and one
// that no queue has returned, are nobody's: their methods return [ErrNotHeld], which is also the cause of their contexts.
type Message[T any] struct {
	// Value is what was offered.
	Value T
	// ID is the message's id.
	ID string
	// Attempt is 1 for the first delivery. A delivery that nobody began to work on does not count; Redrive begins again at 1.
	Attempt int
	// DueAt is when this delivery became due, by Redis's clock.
	DueAt time.Time

	message *queue.Message
	name    string
}

// Context returns the context of the work on the message. It descends from that given to Take, or is the handler's own, and ends
//
//   - with the cause [ErrLost] when the visibility is over on this machine's clock, or Redis said that the message is another
//     consumer's; a late Ack may still count as long as nobody else has claimed the message;
//   - with the cause [ErrFinished] after Ack, Nack or Reject;
//   - with the cause redlatch.ErrClosed when the client closes;
//   - with [ErrHandlerTimeout] or [ErrStopped] in a handler, see [WithHandlerTimeout] and [WithStopGrace].
func (m *Message[T]) Context() context.Context { return m.claim().Context() }

// Ack removes the message: its work is done. It counts also after the visibility is over, as long as nobody else has claimed the
// message; otherwise it changes nothing and returns [ErrNotHeld]. A second Ack returns nil.
//
// It works although ctx is done. It returns once Redis has answered, after 3 s, or at a deadline of ctx that is still ahead (one nearer
// than 100 ms counts as 100 ms). If the outcome is not known by then it returns redlatch.ErrUnknown and goes on in the background; calling it
// again tells.
//
// It costs one round trip, which it shares with concurrent calls.
func (m *Message[T]) Ack(ctx context.Context) error { return m.wrap("ack", m.claim().Ack(ctx)) }

// Nack ends the attempt as failed: the message is due again after the delay, or a dead letter if this was its last attempt. A
// negative delay is redlatch.ErrInvalid. It waits and fails as Ack does; after a first Nack that took effect it returns [ErrNotHeld].
func (m *Message[T]) Nack(ctx context.Context, delay time.Duration) error {
	if err := between("delay", delay, 0, maxDelay); err != nil {
		return m.wrap("nack", err)
	}
	return m.wrap("nack", m.claim().Nack(ctx, delay, ""))
}

// Reject makes the message a dead letter at once, whatever attempts are left. The first 4 KiB of the reason are kept with it. It waits and
// fails as Nack does.
func (m *Message[T]) Reject(ctx context.Context, why string) error {
	return m.wrap("reject", m.claim().Reject(ctx, reason(why)))
}

// Extend sets the visibility anew, to end d from now, which may be sooner than before: 10 ms to 7 days. In a handler the watchdog goes on
// renewing, and ends no claim sooner than this has asked for. It returns [ErrNotHeld] when the message is another consumer's or was finished.
//
// It waits for Redis until ctx is done, the call timeout is over (if ctx has no deadline), or the client closes.
func (m *Message[T]) Extend(ctx context.Context, d time.Duration) error {
	if err := between("visibility", d, 10*time.Millisecond, 7*24*time.Hour); err != nil {
		return m.wrap("extend", err)
	}
	return m.wrap("extend", m.claim().Extend(ctx, d))
}

// claim returns what the message stands for; nil for nothing.
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

// maxReason is how many bytes of a reason are kept.
const maxReason = 4 << 10

func reason(text string) string {
	if text == "" {
		return "rejected"
	}
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}
