package rdelayedqueue

import (
	"context"
	"fmt"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// Take claims the next message that is due.
//
// It blocks until a message is due, ctx is done, the client closes (redlatch.ErrClosed), or an error occurs that will
// not pass, such as a missing permission; on the first attempt also a refused connection. It retries other connection
// errors, and what Redis cannot do at the moment (it is loading or failing over), for one lease of the client in a row,
// and then returns redlatch.ErrUnavailable. While a cluster moves the queue to another node it waits on. If Redis did not
// answer when ctx ended, the error of ctx is joined with redlatch.ErrUnavailable. After an error nothing is claimed; what
// an attempt may have claimed is given back in the background without counting as an attempt.
//
// The claim lasts for the visibility, 30 s by default (see [WithVisibility]), and is not renewed: call Ack or Extend in
// time. The message's context descends from ctx. A client that closes does not wait for the message: its attempt ends as
// failed, and Ack returns redlatch.ErrClosed then. A message whose payload cannot be decoded becomes a dead letter, and
// Take goes on.
//
// It costs one round trip if a message is due, which concurrent calls share. While it waits it costs only a check every
// 10 to 15 s.
func (q *Queue[T]) Take(ctx context.Context) (*Message[T], error) {
	messages, err := q.take(ctx, 1)
	if err != nil {
		return nil, q.wrap("take from", err)
	}
	return messages[0], nil
}

// TakeBatch claims up to n messages that are due, in their order. It waits for the first one, and fails, as Take does.
// An n above 100 counts as 100; an n below 1 is redlatch.ErrInvalid.
func (q *Queue[T]) TakeBatch(ctx context.Context, n int) ([]*Message[T], error) {
	if n < 1 {
		return nil, q.wrap("take from", fmt.Errorf("%w: batch size %d is below 1", errs.ErrInvalid, n))
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

// decode returns the messages that can be decoded, and makes the others dead letters.
func (q *Queue[T]) decode(ctx context.Context, claimed []*queue.Message) ([]*Message[T], error) {
	messages := make([]*Message[T], 0, len(claimed))
	var bad []*queue.Message
	var reasons []string
	for _, c := range claimed {
		m, err := q.message(c)
		if err != nil {
			bad, reasons = append(bad, c), append(reasons, queue.Reason(err.Error()))
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
	t := queue.Terms{Visibility: s.visibility, Attempts: s.attempts, Dedupe: s.dedupe}
	if s.rate != nil {
		t.Rate.Count, t.Rate.Period, _ = s.rate.Tokens() // which was validated
	}
	return t
}

func (q *Queue[T]) message(c *queue.Message) (*Message[T], error) {
	m := &Message[T]{ID: c.ID, Attempt: c.Attempt, DueAt: c.DueAt, Headers: c.Headers, message: c, queue: q, name: q.Name()}
	return m, codec.Unmarshal(q.settings.codec, c.Payload, &m.Value)
}
