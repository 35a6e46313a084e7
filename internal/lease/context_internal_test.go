package lease

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/keepalive"
)

// A hold has ended for a moment before its context is cancelled, since that calls the user's functions.
func TestCauseIsThereBeforeTheContextIsCancelled(t *testing.T) {
	m := managerOf(t, &alone{}, core.Config{Lease: 30 * time.Second})
	l := m.New("orders", "a")
	l.state = holding
	l.member.RenewAt(keepalive.Never)
	l.mu.Lock()
	h := l.newHoldLocked(t.Context(), Term{}, Write, 0)
	l.mu.Unlock()
	ctx := h.Context()
	_ = ctx.Done() // it is watched
	l.mu.Lock()
	cancel := h.endContextLocked(errs.ErrClosed)
	l.mu.Unlock()
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.ErrorIs(t, context.Cause(ctx), errs.ErrClosed)
	cancel()
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), errs.ErrClosed)
	l.mu.Lock()
	l.unlinkLocked(h)
	l.mu.Unlock()
}

// The answer of a renewal may come between a look at the clock and the end of a level that has run out.
func TestErrOfARenewedHoldIsNil(t *testing.T) {
	m := managerOf(t, &alone{}, core.Config{Lease: 30 * time.Second})
	l := m.New("orders", "a")
	l.state = holding
	l.member.RenewAt(keepalive.Never)
	l.newHoldLocked(t.Context(), Term{}, Write, 0).fixed = keepalive.Never // a level that lasts
	over := make(chan struct{})                                            // closed below
	var renewals sync.WaitGroup
	renewals.Go(func() { // ends with over
		for {
			select {
			case <-over:
				return
			default:
			}
			l.mu.Lock()
			l.member.SetEnd(l.now() + m.core.Lease)
			l.mu.Unlock()
		}
	})
	defer renewals.Wait()
	defer close(over)
	for range 20_000 {
		l.mu.Lock()
		h := l.newHoldLocked(t.Context(), Term{}, Write, 0)
		l.member.SetEnd(l.now())
		l.mu.Unlock()
		err := h.Context().Err()
		l.mu.Lock()
		ended := h.over
		l.unlinkLocked(h)
		l.mu.Unlock()
		require.True(t, err == nil || ended, "%v of a live hold", err)
	}
}
