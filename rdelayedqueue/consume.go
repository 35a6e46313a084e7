package rdelayedqueue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// Consume claims messages when they are due and passes them to handle, in up to [WithConcurrency] goroutines. If handle
// returns nil, the message is acknowledged. If it returns an error, panics or exceeds [WithTimeout], the attempt
// has failed: the message is due again after the pause of [WithBackoff], or becomes a dead letter after its last
// attempt. The text of the error is kept with the message, of a panic the first line and the place; the client's log has
// a line for each message, and the stack once for each place. If handle calls Ack, Nack, Reject or Snooze itself, its
// return value is ignored.
//
// While a handler runs, the visibility of its message is renewed, so a handler may take any time. Its context has the
// values of ctx but not its cancellation. It ends when the message is lost, when the client closes, or when the stop
// grace is over.
//
// Consume blocks until ctx is done, and then returns nil: it stops claiming, gives back what no handler has begun,
// waits for running handlers, ends their contexts after [WithStopGrace], and sends the last acknowledgements. It waits
// for a handler that ignores its context. It returns redlatch.ErrClosed when the client closes, redlatch.ErrInvalid for
// bad options or a nil handler, redlatch.ErrWrongType for data of another type, and [ErrLayout]. It logs any other
// error, such as an outage of Redis, and goes on.
//
// If it returns an error of [Reject], the message becomes a dead letter although attempts are left; one of [Snooze] puts the message off. An
// error after its context has ended with [ErrStopped] is no attempt: the message is due again at once.
// [Use] wraps handle.
//
// It claims only as many messages as it has free handlers, apart from [WithPrefetch].
func (q *Queue[T]) Consume(ctx context.Context, handle func(ctx context.Context, m *Message[T]) error, opts ...ConsumeOption) error {
	return q.wrap("consume", q.consume(ctx, handle, opts))
}

// Handler handles a message, see [Queue.Consume].
type Handler[T any] = func(ctx context.Context, m *Message[T]) error

// Use wraps the handler of a consumer in middleware, the first one outermost: what is to be done around every message, such as a log
// line, a transaction or a check. A middleware is called once, when Consume begins; the handler that it returns is called for each
// message, and may return without calling next. Where Use is given twice, the middleware of the first one is further outside. Middleware for
// messages of another type, a nil one, and one that returns nil make Consume return redlatch.ErrInvalid.
func Use[T any](middleware ...func(next Handler[T]) Handler[T]) ConsumeOption {
	return consumeOption(func(s *settings) {
		for _, m := range middleware {
			s.use = append(s.use, m)
		}
	})
}

// wrapped returns a handler in the middleware of a consumer.
func wrapped[T any](handle Handler[T], use []any) (Handler[T], error) {
	for _, m := range slices.Backward(use) {
		middleware, ok := m.(func(Handler[T]) Handler[T])
		switch {
		case !ok:
			return nil, fmt.Errorf("%w: a middleware is %T, and not for messages of this queue", errs.ErrInvalid, m)
		case middleware == nil:
			return nil, fmt.Errorf("%w: a middleware is nil", errs.ErrInvalid)
		}
		if handle = middleware(handle); handle == nil {
			return nil, fmt.Errorf("%w: a middleware returned no handler", errs.ErrInvalid)
		}
	}
	return handle, nil
}

// Reject returns an error for handlers that give up: the message becomes a dead letter at once, also if attempts are left, with the
// text of err as its reason. The handler may wrap it, whose text it is then. A nil err counts as one with the text "rejected".
func Reject(err error) error { return queue.Rejection(err) }

// Snooze returns an error for handlers that cannot work on their message now: it is due again after d, and the attempt does not count, see
// [Message.Snooze]. The handler may wrap it; its text is not kept. An error of [Reject] beside it goes first. With a d that is negative or
// above 100 years the error is redlatch.ErrInvalid and fails the attempt, as any other: of a time, give max(0, time.Until(t)).
func Snooze(d time.Duration) error { return queue.Postponement(d) }

func (q *Queue[T]) consume(ctx context.Context, handle Handler[T], opts []ConsumeOption) error {
	if err := q.bad(); err != nil {
		return err
	}
	s, err := q.settings.consumer(opts)
	if err != nil {
		return err
	}
	if handle == nil {
		return fmt.Errorf("%w: the handler is nil", errs.ErrInvalid)
	}
	if handle, err = wrapped(handle, s.use); err != nil {
		return err
	}
	return q.queue.Consume(ctx, queue.Work{
		Terms: s.terms(), Concurrency: s.concurrency, Prefetch: or(s.prefetch, -1), StopGrace: s.stopGrace,
		Backoff: func(c *queue.Message) time.Duration { return s.backoff(c.Attempt) },
		Timeout: func(*queue.Message) time.Duration { return or(s.timeout, 0) },
		Handle: func(ctx context.Context, c *queue.Message) error {
			m, err := q.message(c)
			if err != nil {
				return c.Reject(ctx, queue.Reason(err.Error()))
			}
			return c.Heed(ctx, handle(ctx, m))
		},
	})
}
