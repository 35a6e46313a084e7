package rdelayedqueue

import (
	"context"
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// Consume claims messages when they are due and passes them to handle, in up to [WithConcurrency] goroutines. If handle
// returns nil, the message is acknowledged. If it returns an error, panics or exceeds [WithTimeout], the attempt
// has failed: the message is due again after the pause of [WithBackoff], or becomes a dead letter after its last
// attempt. The text of the error is kept with the message, of a panic the first line and the place; the client's log has
// a line for each message, and the stack once for each place. If handle calls Ack, Nack or Reject itself, its return value
// is ignored.
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
// It claims only as many messages as it has free handlers, apart from [WithPrefetch].
func (q *Queue[T]) Consume(ctx context.Context, handle func(ctx context.Context, m *Message[T]) error, opts ...ConsumeOption) error {
	return q.wrap("consume", q.consume(ctx, handle, opts))
}

func (q *Queue[T]) consume(ctx context.Context, handle func(context.Context, *Message[T]) error, opts []ConsumeOption) error {
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
	return q.queue.Consume(ctx, queue.Work{
		Terms: s.terms(), Concurrency: s.concurrency, Prefetch: or(s.prefetch, -1), Backoff: s.backoff,
		Timeout: or(s.timeout, 0), StopGrace: s.stopGrace,
		Handle: func(ctx context.Context, c *queue.Message) error {
			m, err := q.message(c)
			if err != nil {
				return c.Reject(ctx, reason(err.Error()))
			}
			return handle(ctx, m)
		},
	})
}
