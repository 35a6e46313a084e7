package rdelayedqueue

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// Redrive makes the dead letter with this id due now, with its attempts counted anew. It returns false if there is
// none. It blocks and fails as [Queue] describes, and costs one round trip.
func (q *Queue[T]) Redrive(ctx context.Context, id string) (bool, error) {
	if err := q.check(id); err != nil {
		return false, q.wrap("redrive in", err)
	}
	ok, err := q.queue.Redrive(ctx, id)
	return ok, q.wrap("redrive in", err)
}

// RedriveAll makes all present dead letters due now, with their attempts counted anew, and returns their number. After
// an error it returns how many are known to be redriven. It blocks and fails as [Queue] describes, and costs one round
// trip for each 100.
func (q *Queue[T]) RedriveAll(ctx context.Context) (int, error) {
	if err := q.bad(); err != nil {
		return 0, q.wrap("redrive in", err)
	}
	n, err := q.queue.RedriveAll(ctx)
	return n, q.wrap("redrive in", err)
}

// Purge deletes all messages of the given states, by default the dead letters, and returns their number. After an error
// it returns how many are known to be deleted. The consumer of a message deleted in flight gets [ErrNotHeld] from Ack,
// and the context of its handler ends with the cause [ErrCancelled] when it would be renewed.
// It blocks and fails as [Queue] describes, and costs one round trip for each 100.
func (q *Queue[T]) Purge(ctx context.Context, states ...State) (int, error) {
	n, err := q.purge(ctx, states)
	return n, q.wrap("purge", err)
}

func (q *Queue[T]) purge(ctx context.Context, states []State) (total int, err error) {
	if err := q.bad(); err != nil {
		return 0, err
	}
	if len(states) == 0 {
		states = []State{Dead}
	}
	for _, s := range states {
		if err := s.check(); err != nil {
			return 0, err
		}
	}
	for _, s := range states {
		n, err := q.queue.Purge(ctx, queue.State(s))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// Pause stops the delivery of messages in all clients until [Queue.Resume]. It does not affect messages that are in
// flight or prefetched, nor offers. It replaces an earlier pause; a repeated call changes nothing. It blocks and fails as
// [Queue] describes, and costs one round trip.
func (q *Queue[T]) Pause(ctx context.Context) error {
	err := q.bad()
	if err == nil {
		err = q.queue.Pause(ctx, queue.NoEnd)
	}
	return q.wrap("pause", err)
}

// PauseFor is [Queue.Pause] for d, by Redis's clock, from 1 ms to 100 years: the queue then delivers again by itself, also if
// the caller is gone, and [Queue.Resume] ends the pause before. It replaces an earlier pause, so that a repeated call
// counts d from its own time. Another d is redlatch.ErrInvalid. It blocks and fails as [Queue] describes,
// and costs one round trip. A consumer that sleeps looks in when the pause ends.
func (q *Queue[T]) PauseFor(ctx context.Context, d time.Duration) error {
	err := q.bad()
	if err == nil {
		err = errs.Between("pause", d, time.Millisecond, maxDelay)
	}
	if err == nil {
		err = q.queue.Pause(ctx, d)
	}
	return q.wrap("pause", err)
}

// Resume ends a pause of either kind, and wakes a consumer if a message is due. It blocks and fails as [Queue] describes, and
// costs one round trip.
func (q *Queue[T]) Resume(ctx context.Context) error {
	err := q.bad()
	if err == nil {
		err = q.queue.Resume(ctx)
	}
	return q.wrap("resume", err)
}
