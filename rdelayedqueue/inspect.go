package rdelayedqueue

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// State is the state of a message.
type State int

const (
	// Delayed messages are not due.
	Delayed = State(queue.Delayed)
	// Ready messages are due, or their claim has run out: they can be claimed.
	Ready = State(queue.Ready)
	// InFlight messages are claimed by a consumer.
	InFlight = State(queue.InFlight)
	// Dead messages are dead letters: they stay until they are redriven, cancelled or purged.
	Dead = State(queue.Dead)
)

// String returns the name of the state.
func (s State) String() string {
	switch s {
	case Delayed:
		return "delayed"
	case Ready:
		return "ready"
	case InFlight:
		return "in flight"
	case Dead:
		return "dead"
	}
	return fmt.Sprintf("state %d", int(s))
}

func (s State) check() error {
	if s < Delayed || s > Dead {
		return fmt.Errorf("%w: there is no %v", errs.ErrInvalid, s)
	}
	return nil
}

// Entry is a message as stored in Redis.
type Entry[T any] struct {
	ID string
	// Value is the offered value; the zero value if the payload cannot be decoded.
	Value T
	// Raw is the payload.
	Raw []byte
	// Headers are those of the offer, see [Message.Headers]. Of a message that was replaced in flight this and the value are those of the
	// new one, and Attempt is 0.
	Headers map[string]string
	// Priority is that of WithPriority.
	Priority int
	// Group is that of WithGroup; empty for none.
	Group string
	State State
	// Attempt is how often the message was claimed, without claims that were given back before work began or were snoozed.
	Attempt int
	// DueAt is when the message is due. For a claimed message it is when the claim runs out or ran out, for a dead
	// letter when it died.
	DueAt time.Time
	// Error is the text of the last failed attempt, or the reason why the message is dead.
	Error string
	// History has its last five attempts that failed with an error, or whose claims ran out, the newest first. Snoozes are none, nor are
	// claims that were given back, and a Nack has no error.
	History []Attempt
}

// Attempt is an attempt at a message that failed, or whose claim ran out.
type Attempt struct {
	// Started is when it was claimed, by Redis's clock.
	Started time.Time
	// Took is for how long it had the message; negative if that is not known, since its claim ran out.
	Took time.Duration
	// Where is the id of the client.
	Where string
	// Err is the beginning of the text of its error, up to 512 bytes; empty if its claim ran out.
	Err string
}

func (q *Queue[T]) entry(e queue.Entry) Entry[T] {
	entry := Entry[T]{ID: e.ID, Raw: e.Payload, Headers: e.Headers, Priority: e.Priority, Group: e.Group, State: State(e.State), Attempt: e.Attempt, DueAt: e.DueAt, Error: e.Error}
	for _, a := range e.History {
		entry.History = append(entry.History, Attempt(a))
	}
	if codec.Unmarshal(q.settings.codec, e.Payload, &entry.Value) != nil {
		var zero T
		entry.Value = zero
	}
	return entry
}

// Get returns the message with this id, or [ErrNotFound]. It blocks and fails as [Queue] describes, and costs one round
// trip.
func (q *Queue[T]) Get(ctx context.Context, id string) (*Entry[T], error) {
	if err := q.check(id); err != nil {
		return nil, q.wrap("get from", err)
	}
	e, err := q.queue.Get(ctx, id)
	if err != nil {
		return nil, q.wrap("get from", err)
	}
	entry := q.entry(e)
	return &entry, nil
}

// All returns the messages of a state, sorted by DueAt; those that are delayed or ready by priority first, and of each priority those that
// wait for a place in their group apart. Ready messages whose claims ran out come last. Messages that change
// their state meanwhile may be missed or listed twice; the loop may change them itself.
//
// It asks for the next messages when the loop gets there: one round trip for each 100 messages or 1 MiB, which blocks and
// fails as [Queue] describes. An error is the last thing that it yields, with a zero Entry.
func (q *Queue[T]) All(ctx context.Context, s State) iter.Seq2[Entry[T], error] {
	return func(yield func(Entry[T], error) bool) {
		for cursor, more := "", true; more; more = cursor != "" {
			page, next, err := q.list(ctx, s, cursor, pageSize)
			if err != nil {
				yield(Entry[T]{}, q.wrap("list", err))
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
			cursor = next
		}
	}
}

// pageSize is how many messages All asks for at a time.
const pageSize = 100

// Dead returns up to n dead letters, the oldest first: the first n of [Queue.All] of state [Dead].
func (q *Queue[T]) Dead(ctx context.Context, n int) ([]Entry[T], error) {
	if n < 1 {
		return nil, q.wrap("list", fmt.Errorf("%w: n %d is below 1", errs.ErrInvalid, n))
	}
	entries, _, err := q.list(ctx, Dead, "", n)
	return entries, q.wrap("list", err)
}

// list returns up to n messages after a cursor, and the cursor of the next ones, which is empty after the last.
func (q *Queue[T]) list(ctx context.Context, s State, cursor string, n int) (entries []Entry[T], next string, err error) {
	if err := q.bad(); err != nil {
		return nil, "", err
	}
	if err := s.check(); err != nil {
		return nil, "", err
	}
	found, next, err := q.queue.List(ctx, queue.State(s), cursor, n)
	for _, e := range found {
		entries = append(entries, q.entry(e))
	}
	return entries, next, err
}

// Stats are the numbers of messages in each state, whether the queue is paused, and how far it lags.
type Stats struct {
	Delayed  int
	Ready    int
	InFlight int
	Dead     int
	Paused   bool
	// PausedUntil is when the pause ends, by Redis's clock; zero if the queue is not paused, or its pause has no end.
	PausedUntil time.Time
	// Failed is how many of those that are delayed, ready or in flight have had an attempt that ended with an error, or whose claim ran out.
	Failed int
	// Oldest is for how long the message has been due that has been ready for longest, by Redis's clock; 0 if none is ready. A message
	// whose claim ran out has been due since then. One that waits for others of its group counts.
	Oldest time.Duration
	// Groups is of how many groups a message waits for another one, see [WithGroup].
	Groups int
	// Priorities has the numbers of messages with priorities from 1 to 9 that are delayed or ready. The others have priority 0, of which
	// it has none.
	Priorities [10]int
}

// Stats counts the messages of the queue. It blocks and fails as [Queue] describes, and costs one round trip for any
// number of messages.
func (q *Queue[T]) Stats(ctx context.Context) (Stats, error) {
	if err := q.bad(); err != nil {
		return Stats{}, q.wrap("stats of", err)
	}
	s, err := q.queue.Stats(ctx)
	return Stats(s), q.wrap("stats of", err)
}

// Minute is what happened in a queue in one minute of Redis's clock.
type Minute struct {
	Start time.Time
	// Offered is how many messages were added or replaced, successors included.
	Offered int
	// Done is how many messages were acknowledged. One that another message had replaced in flight counts neither here nor as failed.
	Done int
	// Failed is how many attempts ended with an error, or were rejected. An attempt that ended with its visibility is none.
	Failed int
	// Dead is how many messages became dead letters.
	Dead int
	// Lateness is how long after it was due a message was claimed, the greatest of all claims; 0 without a claim.
	Lateness time.Duration
}

// Series returns what happened in each minute of the last hour: 60 of them, the oldest first, and the current one last. Those in which
// nothing happened are there too. It blocks and fails as [Queue] describes, and costs one round trip.
//
// The counts are a hash of at most 300 numbers, which is gone two hours after the last of them.
func (q *Queue[T]) Series(ctx context.Context) ([]Minute, error) {
	if err := q.bad(); err != nil {
		return nil, q.wrap("series of", err)
	}
	found, err := q.queue.Series(ctx)
	if err != nil {
		return nil, q.wrap("series of", err)
	}
	all := make([]Minute, len(found))
	for i, m := range found {
		all[i] = Minute(m)
	}
	return all, nil
}
