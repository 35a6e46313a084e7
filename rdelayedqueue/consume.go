package rdelayedqueue

import (
	"context"
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// Consume hands messages to handle as they are due, to as many at a time as [WithConcurrency] says, until ctx is done; it then returns nil. A
// handler that returns nil has its message acknowledged; an error, a panic (its stack is kept with the message) or [WithHandlerTimeout] ends
// the attempt as failed, and the message is due again after the pause of [WithBackoff], or a dead letter after its last attempt. A handler may
// also call Ack, Nack or Reject itself; what it returns then counts no more.
//
// While a handler runs its message's visibility is renewed, so that it may take as long as it likes. Its context ends early only when
// the message is lost, the client closes, or the consumer has stopped and its grace is over; it keeps the values of ctx but not its end.
//
// Consume outlives outages of Redis: it logs, waits and goes on. When ctx ends it claims no more, gives back what no handler has begun, waits for
// the running handlers, for [WithStopGrace] before it ends their contexts, and sends the last acknowledgements. It waits for a handler
// that does not heed its context. When the client closes it returns redlatch.ErrClosed. It returns redlatch.ErrInvalid for bad options and a
// nil handler, redlatch.ErrWrongType for foreign data, and [ErrLayout].
//
// It claims no more messages than it has free handlers for, but see [WithPrefetch].
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
		HandlerTimeout: or(s.handlerTimeout, 0), StopGrace: s.stopGrace,
		Handle: func(ctx context.Context, c *queue.Message) error {
			m, err := q.message(c)
			if err != nil {
				return c.Reject(ctx, reason(err.Error()))
			}
			return handle(ctx, m)
		},
	})
}
