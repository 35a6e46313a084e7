package rmultilock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// quorum counts what the parts of a hold answered to one question.
type quorum struct {
	need   int
	enough chan struct{} // closed when so many said yes, or all have answered
	full   chan struct{} // closed when all have answered

	mu      sync.Mutex // guards the rest
	pending int
	yes     int
	failed  int   // neither yes nor a certain no
	err     error // of the last one that failed
}

func newQuorum(need, n int) *quorum {
	q := &quorum{need: need, pending: n, enough: make(chan struct{}), full: make(chan struct{})}
	if n == 0 {
		close(q.enough)
		close(q.full)
	}
	return q
}

// answer takes the answer of a part.
func (q *quorum) answer(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.decided()
	q.pending--
	switch {
	case err == nil:
		q.yes++
	case errors.Is(err, errs.ErrNotHeld), errors.Is(err, errs.ErrLost):
	default:
		q.failed++
		q.err = err
	}
	if !before && q.decided() {
		close(q.enough)
	}
	if q.pending == 0 {
		close(q.full)
	}
}

func (q *quorum) decided() bool { return q.yes >= q.need || q.pending == 0 }

// wait returns what is known once enough parts said yes, all have answered, the limit is over, or stop is closed.
func (q *quorum) wait(limit time.Duration, stop <-chan struct{}) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-q.enough:
	case <-timer.C:
	case <-stop:
	}
	return q.result()
}

// waitAll waits for all parts until ctx is done, and for no longer than grace once enough said yes.
func (q *quorum) waitAll(ctx context.Context, grace time.Duration) error {
	select {
	case <-q.enough:
	case <-ctx.Done():
		if q.result() != nil {
			return ctx.Err()
		}
		return nil
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-q.full:
	case <-timer.C:
	case <-ctx.Done():
	}
	return q.result()
}

func (q *quorum) result() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.yes >= q.need:
		return nil
	case q.yes+q.failed+q.pending < q.need:
		return errs.ErrNotHeld
	case q.err != nil && q.pending == 0:
		return q.err
	case q.err != nil:
		return fmt.Errorf("%w: %w", errs.ErrUnknown, q.err)
	}
	return fmt.Errorf("%w: no answer from %d", errs.ErrUnknown, q.pending)
}
