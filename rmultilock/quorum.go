package rmultilock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// quorum counts the parts' answers to one request.
type quorum struct {
	need   int
	enough chan struct{} // closed when that many succeeded, or all have answered
	full   chan struct{} // closed when all have answered

	mu      sync.Mutex // guards the rest
	pending int
	yes     int
	failed  int   // neither succeeded nor certainly refused
	err     error // of the last of those
}

func newQuorum(need, n int) *quorum {
	q := &quorum{need: need, pending: n, enough: make(chan struct{}), full: make(chan struct{})}
	if n == 0 {
		close(q.enough)
		close(q.full)
	}
	return q
}

// answer counts the answer of a part.
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

// wait returns the result once enough parts succeeded, all have answered, the limit is over, or stop is closed.
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

// waitAll waits for all parts until ctx is done, but no longer than grace once enough succeeded.
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
	return fmt.Errorf("%w: no answer from %d locks", errs.ErrUnknown, q.pending)
}
