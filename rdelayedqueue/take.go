package rdelayedqueue

import (
	"context"
	"fmt"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// Take claims the next message that is due. It blocks until there is one, ctx is done, the client closes (redlatch.ErrClosed), or an error
// that cannot pass, such as a missing permission; on the first try a refused connection too. What Redis cannot do just now (it loads, or
// fails over) and transport errors are retried for one lease of the client, then redlatch.ErrUnavailable, which is joined with ctx's error
// too when ctx ends without an answer. After an error nothing is claimed: what was left unknown is given
// back without counting the attempt.
//
// The claim lasts for the visibility, 30 s by default, and is not renewed: Ack or Extend in time. The message's context descends from ctx.
// A payload that cannot be decoded makes its message a dead letter, and Take goes on.
//
// It costs one round trip when a message is due, which it shares with concurrent calls, and none while it waits but a look every 10
// to 15 s.
func (q *Queue[T]) Take(ctx context.Context) (*Message[T], error) {
	messages, err := q.take(ctx, 1)
	if err != nil {
		return nil, q.wrap("take from", err)
	}
	return messages[0], nil
}

// TakeBatch claims up to n messages that are due, in their order. It waits for the first one, and fails, as Take does. An n above 100
// counts as 100, one below 1 is redlatch.ErrInvalid.
func (q *Queue[T]) TakeBatch(ctx context.Context, n int) ([]*Message[T], error) {
	if n < 1 {
		return nil, q.wrap("take from", fmt.Errorf("%w: a batch of %d is below 1", errs.ErrInvalid, n))
	}
	messages, err := q.take(ctx, n)
	return messages, q.wrap("take from", err)
}

// take waits until at least one message that can be decoded is claimed.
func (q *Queue[T]) take(ctx context.Context, n int) ([]*Message[T], error) {
	if err := q.bad(); err != nil {
		return nil, err
	}
	for {
		claimed, err := q.queue.Take(ctx, n, q.settings.terms())
		if err != nil {
			return nil, err
		}
		messages, err := q.decode(ctx, claimed)
		switch {
		case len(messages) > 0:
			return messages, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, err
		}
	}
}

// decode returns the messages that can be decoded, and makes dead letters of the others.
func (q *Queue[T]) decode(ctx context.Context, claimed []*queue.Message) ([]*Message[T], error) {
	messages := make([]*Message[T], 0, len(claimed))
	var bad []*queue.Message
	var reasons []string
	for _, c := range claimed {
		m, err := q.message(c)
		if err != nil {
			bad, reasons = append(bad, c), append(reasons, reason(err.Error()))
			continue
		}
		messages = append(messages, m)
	}
	if len(bad) == 0 {
		return messages, nil
	}
	return messages, queue.RejectAll(ctx, bad, reasons)
}

func (s *settings) terms() queue.Terms {
	return queue.Terms{Visibility: s.visibility, Attempts: s.attempts, Dedupe: s.dedupe}
}

func (q *Queue[T]) message(c *queue.Message) (*Message[T], error) {
	m := &Message[T]{ID: c.ID, Attempt: c.Attempt, DueAt: c.DueAt, message: c, name: q.Name()}
	return m, codec.Unmarshal(q.settings.codec, c.Payload, &m.Value)
}
