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
	"github.com/redlatch/redlatch/internal/script"
)

// heldLease returns a lease without levels, of 30 s, which is not renewed.
func heldLease(t *testing.T) *Lease {
	t.Helper()
	l := managerOf(t, &alone{}, core.Config{Lease: 30 * time.Second}).New("orders", "a")
	l.state = holding
	l.member.RenewAt(keepalive.Never)
	return l
}

// A hold has ended for a moment before its context is cancelled, since that calls the user's functions.
func TestCauseIsThereBeforeTheContextIsCancelled(t *testing.T) {
	l := heldLease(t)
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
	l := heldLease(t)
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
			l.member.SetEnd(l.now() + l.manager.core.Lease)
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

// F1: who asks Redis to let others in before the holder is told gives away the margin that the holder has.
func TestHolderIsToldBeforeAnExpiredLeaseIsReleased(t *testing.T) {
	l := heldLease(t)
	l.mu.Lock()
	h := l.newHoldLocked(t.Context(), Term{}, Write, 0)
	h.fixed = 1 // it has run out
	l.mu.Unlock()
	done := h.Context().Done()
	asked := false
	l.manager.kind.Release = func(key, owner any) *script.Call {
		if !asked {
			asked = true
			select {
			case <-done:
			default:
				t.Error("the holder is not told yet")
			}
		}
		return script.New("test", "return 1").Call(1, key, owner)
	}
	l.expire(l.now() + time.Second)
	require.True(t, asked)
}
