package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// cancellation is a message that is to be removed.
type cancellation struct {
	id   string
	task string        // that it has to be; empty for any
	keep time.Duration // for how long it is remembered that a task was; 0 for a message that is none
}

// Cancel removes a message.
func (q *Queue) Cancel(ctx context.Context, id string) (bool, error) {
	n, err := edit(ctx, q, func(c *client) *batcher[cancellation] { return &c.cancels }, cancellation{id: id})
	return n == 1, err
}

// CancelTask removes a message of a task, or of any if that is empty, and remembers it for a time.
func (q *Queue) CancelTask(ctx context.Context, id, task string, keep time.Duration) (bool, error) {
	n, err := edit(ctx, q, func(c *client) *batcher[cancellation] { return &c.cancels }, cancellation{id, task, keep})
	if n == isOther && err == nil {
		err = fmt.Errorf("%w: another task has the id %q", errs.ErrInvalid, id)
	}
	return n == 1, err
}

// isOther is what cancel.lua says of another task.
const isOther = 2

// move is a message that is to be due at another time.
type move struct {
	id    string
	delay time.Duration
}

// Reschedule sets anew when a message that waits is due.
func (q *Queue) Reschedule(ctx context.Context, id string, delay time.Duration) (bool, error) {
	n, err := edit(ctx, q, func(c *client) *batcher[move] { return &c.moves }, move{id, delay})
	return n == 1, err
}

// edit has one of the client's batchers carry out an operation on a message, and returns what the script says of it.
func edit[T any](ctx context.Context, q *Queue, of func(*client) *batcher[T], value T) (int64, error) {
	if err := q.ready(ctx); err != nil {
		return 0, err
	}
	c := q.manager.use(q)
	defer c.leave()
	b := of(c)
	r := b.addAll(value)
	return r.entries[0].outcome(b.wait(ctx, r))
}

// Redrive makes one dead letter due again.
func (q *Queue) Redrive(ctx context.Context, id string) (bool, error) {
	n, _, err := q.redrive(ctx, id, 0)
	return n == 1, err
}

// RedriveAll makes all that are dead letters now due again, and returns their number.
func (q *Queue) RedriveAll(ctx context.Context) (total int, err error) {
	until := int64(0)
	for {
		n, limit, err := q.redrive(ctx, "", until)
		total += int(n)
		if err != nil || n < maxBatch {
			return total, err
		}
		until = limit
	}
}

func (q *Queue) redrive(ctx context.Context, id string, until int64) (n, limit int64, err error) {
	r, err := q.operate(ctx, func(k *keys, client string, n callNumber) *script.Call { return k.redrive(client, n, id, until) })
	if err != nil {
		return 0, 0, err
	}
	if n, err = r.int(0); err != nil {
		return 0, 0, err
	}
	limit, err = r.int(1)
	return n, limit, err
}

// Purge removes all messages of a state, and returns their number.
func (q *Queue) Purge(ctx context.Context, s State) (total int, err error) {
	for _, p := range q.names().setsOf(s) {
		for more := true; more; {
			r, err := q.operate(ctx, func(k *keys, client string, n callNumber) *script.Call { return k.purge(client, n, p) })
			if err != nil {
				return total, err
			}
			n, err := r.int(0)
			if err != nil {
				return total, err
			}
			total += int(n)
			more = n == maxBatch
		}
	}
	return total, nil
}

// Pause has all claims find nothing for a time, or until Resume if it is [NoEnd].
func (q *Queue) Pause(ctx context.Context, d time.Duration) error {
	_, err := q.operate(ctx, func(k *keys, client string, n callNumber) *script.Call { return k.pause(client, n, d) })
	return err
}

// NoEnd is the length of a pause that lasts until Resume.
const NoEnd time.Duration = -1

// Resume ends a pause.
func (q *Queue) Resume(ctx context.Context) error { return q.Pause(ctx, 0) }
