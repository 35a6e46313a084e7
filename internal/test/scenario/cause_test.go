package scenario_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// The cause is there for whoever the observer tells of the loss.
//
// F1
func TestContextOfALostHoldHasItsCauseAtOnce(t *testing.T) {
	kinds := take(0)
	delete(kinds, "message") // no hold
	for kind, take := range kinds {
		for _, watched := range []bool{false, true} {
			t.Run(fmt.Sprint(kind, " watched ", watched), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					var held holding
					causes := make(chan error, 10)
					p := b.Peer(t, redlatch.WithObserver(redlatch.Observer{HoldEnd: func(context.Context, redlatch.HoldEndEvent) {
						if held.ctx.Err() == nil {
							return // of a multi-lock that is not lost yet, or not at all
						}
						causes <- context.Cause(held.ctx)
						assert.ErrorIs(t, held.release(t.Context()), rlock.ErrNotHeld)
						causes <- context.Cause(held.ctx)
					}}))
					if kind == "permit" {
						require.NoError(t, p.Client.GetPermitSemaphore("n").SetPermits(t.Context(), 1))
					}
					var err error
					held, err = take(t.Context(), p.Client, "n")
					require.NoError(t, err)
					if watched {
						_ = held.ctx.Done()
					}
					p.Blackhole(true)
					time.Sleep(lease)
					require.NotEmpty(t, causes)
					for len(causes) > 0 {
						assert.ErrorIs(t, <-causes, rlock.ErrLost)
					}
					require.ErrorIs(t, held.release(t.Context()), rlock.ErrNotHeld)
					p.Blackhole(false)
				})
			})
		}
	}
}
