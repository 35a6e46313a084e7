package relection

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// Observe returns the leader and then each change: another leader, another value of it, and [ErrNoLeader] as the error while
// nobody leads. It begins with the present state. A loop that is slower than the changes skips states, but never misses the newest one. If
// Redis does not answer it gets redlatch.ErrUnavailable once, and goes on: after that the state comes again, changed or not.
//
//	for leader, err := range election.Observe(ctx) {
//		switch {
//		case errors.Is(err, relection.ErrNoLeader):
//			pause()
//		case err != nil:
//			return err
//		default:
//			follow(leader.Value)
//		}
//	}
//
// The loop ends without an error when ctx is done, and after an error that will not pass: redlatch.ErrClosed when the client
// closes, redlatch.ErrInvalid, redlatch.ErrWrongType, a missing permission. A change that was announced comes at once.
// What is not announced, as the death of a leader, comes within about a second.
//
// It costs a round trip for each change and each second; what many observers of a client ask for takes longer than a second
// beyond 500. It subscribes to one channel, on the client's connection for that.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := e.check(ctx); err != nil {
			yield(Leader{}, e.wrap("observe", err))
			return
		}
		changes := make(changes, 1)
		member, _ := e.core.Router.Join(e.keys.channel, changes)
		defer member.Leave()
		e.core.Waiting.Add(1)
		defer e.core.Waiting.Add(-1)
		e.observe(ctx, changes, yield)
	}
}

func (e *Election) observe(ctx context.Context, changes changes, yield func(Leader, error) bool) {
	asking := undated{ctx} // it notices within the call timeout that Redis does not answer
	var last Leader
	wasDown := false
	for first := true; ; first = false {
		leader, err := e.leader(asking)
		if ctx.Err() != nil {
			return
		}
		down := errors.Is(err, errs.ErrUnavailable)
		final := err != nil && !down && !errors.Is(err, ErrNoLeader)
		same := leader == last && down == wasDown // with an error the leader is the zero one
		last, wasDown = leader, down
		if (first || final || !same) && !yield(leader, e.wrap("observe", err)) || final {
			return
		}
		if !e.awaitChange(ctx, changes) {
			return
		}
	}
}

// undated is a context without its deadline, by which it ends all the same.
type undated struct{ context.Context } //nolint:containedctx // a context made of another

// Deadline returns none.
func (undated) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// awaitChange waits until the state may have changed, and reports whether ctx goes on.
func (e *Election) awaitChange(ctx context.Context, changes changes) bool {
	timer := time.NewTimer(waitqueue.Pause(waitqueue.Recheck, e.core.Waiting.Load()))
	defer timer.Stop()
	select {
	case <-changes:
	case <-timer.C:
	case <-e.core.Closing(): // the next question says so
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// changes has an element if the state may have changed since it was asked for last.
type changes chan struct{}

// Subscribed notes that messages may have been missed before.
func (c changes) Subscribed() { c.Message("") }

// Message notes a change.
func (c changes) Message(string) {
	select {
	case c <- struct{}{}:
	default: // noted already
	}
}
