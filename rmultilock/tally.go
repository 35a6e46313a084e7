package rmultilock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// tally counts what the parts answered to one question.
type tally struct {
	need   int
	enough chan struct{} // closed when so many said yes, or all have answered
	full   chan struct{} // closed when all have answered

	mu      sync.Mutex // guards the rest
	pending int
	yes     int
	failed  int  // neither yes nor a certain no
	settled bool // enough is closed
	seen    []bool
	err     error // of the last one that failed
}

func newTally(need, n int) *tally {
	t := &tally{need: need, pending: n, seen: make([]bool, n), enough: make(chan struct{}), full: make(chan struct{})}
	if n == 0 {
		close(t.enough)
		close(t.full)
	}
	return t
}

// answer takes the answer of a part. One that answers again is not heard.
func (t *tally) answer(i int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[i] {
		return
	}
	t.seen[i] = true
	t.pending--
	switch {
	case err == nil:
		t.yes++
	case errors.Is(err, errs.ErrNotHeld), errors.Is(err, errs.ErrLost):
	default:
		t.failed++
		t.err = err
	}
	if !t.settled && (t.yes >= t.need || t.pending == 0) {
		t.settled = true
		close(t.enough)
	}
	if t.pending == 0 {
		close(t.full)
	}
}

// wait returns nil once enough parts said yes, and what is known when all have answered or the limit is over.
func (t *tally) wait(limit time.Duration) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-t.enough:
	case <-timer.C:
	}
	return t.result()
}

// all waits for all parts until ctx is done, and for no longer than grace once enough said yes.
func (t *tally) all(ctx context.Context, grace time.Duration) error {
	select {
	case <-t.enough:
	case <-ctx.Done():
		if err := t.result(); err != nil {
			return ctx.Err()
		}
		return nil
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-t.full:
	case <-timer.C:
	case <-ctx.Done():
	}
	return t.result()
}

func (t *tally) result() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.yes >= t.need:
		return nil
	case t.yes+t.failed+t.pending < t.need:
		return errs.ErrNotHeld
	case t.err != nil && t.pending == 0:
		return t.err
	case t.err != nil:
		return fmt.Errorf("%w: %w", errs.ErrUnknown, t.err)
	}
	return fmt.Errorf("%w: no answer from %d", errs.ErrUnknown, t.pending)
}
