package rdelayedqueue

import (
	"context"

	"github.com/redlatch/redlatch/internal/queue"
)

// Redrive makes the dead letter of this id due now, as if it had never been tried. It returns false if there is none. It waits and
// fails as [Queue] says, and costs one round trip.
func (q *Queue[T]) Redrive(ctx context.Context, id string) (bool, error) {
	if err := q.check(id); err != nil {
		return false, q.wrap("redrive in", err)
	}
	ok, err := q.queue.Redrive(ctx, id)
	return ok, q.wrap("redrive in", err)
}

// RedriveAll makes all that are dead letters now due, as if they had never been tried, and returns their number. It waits and fails as
// [Queue] says, and costs a round trip for each 100. After an error the number is what is known to be done.
func (q *Queue[T]) RedriveAll(ctx context.Context) (int, error) {
	if err := q.bad(); err != nil {
		return 0, q.wrap("redrive in", err)
	}
	n, err := q.queue.RedriveAll(ctx)
	return n, q.wrap("redrive in", err)
}

// Purge removes the dead letters for good, or all messages of the given states, and returns their number. A message that is removed in
// flight is lost for its consumer: its Ack returns [ErrNotHeld]. It waits and fails as [Queue] says, and costs a round trip for
// each 100. After an error the number is what is known to be done.
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

// Pause has no consumer get a message any more, in any client, until [Queue.Resume]. Messages that are in flight, and prefetched ones, are
// not touched; offers go on. It waits and fails as [Queue] says, and costs one round trip.
func (q *Queue[T]) Pause(ctx context.Context) error {
	err := q.bad()
	if err == nil {
		err = q.queue.Pause(ctx)
	}
	return q.wrap("pause", err)
}

// Resume ends a pause. It waits and fails as [Queue] says, costs one round trip, and wakes a consumer.
func (q *Queue[T]) Resume(ctx context.Context) error {
	err := q.bad()
	if err == nil {
		err = q.queue.Resume(ctx)
	}
	return q.wrap("resume", err)
}
