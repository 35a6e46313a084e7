package rmultilock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

// tally counts the parts' answers to one request.
type tally struct {
	need   int
	enough chan struct{} // closed when that many succeeded, or all have answered
	full   chan struct{} // closed when all have answered

	mu      sync.Mutex // guards the rest
	pending int
	yes     int
	notHeld error // ErrNotHeld of a part, which may say more
	failed  int   // neither succeeded nor certainly refused
	err     error // of the last of those
}

func newTally(need, n int) *tally {
	t := &tally{need: need, pending: n, enough: make(chan struct{}), full: make(chan struct{})}
	if n == 0 {
		close(t.enough)
		close(t.full)
	}
	return t
}

// answer counts the answer of a part.
func (t *tally) answer(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.decided()
	t.pending--
	switch {
	case err == nil:
		t.yes++
	case errors.Is(err, errs.ErrNotHeld):
		t.notHeld = err
	case errors.Is(err, errs.ErrLost):
	default:
		t.failed++
		t.err = err
	}
	if !before && t.decided() {
		close(t.enough)
	}
	if t.pending == 0 {
		close(t.full)
	}
}

func (t *tally) decided() bool { return t.yes >= t.need || t.pending == 0 }

// wait returns the result once enough parts succeeded, all have answered, the limit is over, or stop is closed.
func (t *tally) wait(limit time.Duration, stop <-chan struct{}) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-t.enough:
	case <-timer.C:
	case <-stop:
	}
	return t.result()
}

// waitAll waits for all parts until ctx is done, but no longer than grace once enough succeeded.
func (t *tally) waitAll(ctx context.Context, grace time.Duration) error {
	select {
	case <-t.enough:
	case <-ctx.Done():
		if t.result() != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), errs.ErrUnknown)
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
		return cmp.Or(t.notHeld, errs.ErrNotHeld)
	case t.err != nil && t.pending == 0:
		return t.err
	case t.err != nil:
		return fmt.Errorf("%w: %w", errs.ErrUnknown, t.err)
	}
	return fmt.Errorf("%w: no answer from %d locks", errs.ErrUnknown, t.pending)
}
