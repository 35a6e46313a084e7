package relection_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/relection"
)

func TestRunLeadsAgainWhateverTheFunctionReturned(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log bytes.Buffer
		e := election(b.Peer(t, redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))))
		ctx, cancel := context.WithCancel(t.Context())
		var terms []int64
		err := e.Run(ctx, func(ctx context.Context, term int64) error {
			locktest.Live(t, ctx)
			leader, err := e.Leader(ctx)
			assert.NoError(t, err)
			assert.Equal(t, []any{term, "v"}, []any{leader.Term, leader.Value})
			terms = append(terms, term)
			switch len(terms) {
			case 1:
				return nil
			case 2:
				return errors.New("broken")
			case 3:
				time.Sleep(time.Hour)
				locktest.Live(t, ctx)
				return nil
			}
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}, relection.WithValue("v"))
		require.NoError(t, err, "the end of its context is none")
		require.Len(t, terms, 4)
		synctest.Wait()
		assert.IsIncreasing(t, terms)
		assert.Equal(t, 4, strings.Count(log.String(), "a leader has returned"))
		assert.Contains(t, log.String(), fmt.Sprintf("kind=election name=e term=%d cause=broken", terms[1]))
		nobodyLeads(t, e)
		require.NoError(t, e.Run(ctx, func(context.Context, int64) error { return nil }), "also one that had ended before")
	})
}

func TestRunPausesWhenTheFunctionReturnsAtOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := 0
		require.NoError(t, election(b.Peer(t)).Run(ctx, func(context.Context, int64) error {
			n++
			return nil
		}))
		assert.InDelta(t, 70, n, 30)
	})
}

func TestRunnersTakeTurns(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
		defer cancel()
		leading, turns := 0, make([]int, 3)
		ended := make(chan error, 3) // the results
		for i := range turns {
			e := election(b.Peer(t))
			go func() {
				ended <- e.Run(ctx, func(ctx context.Context, _ int64) error {
					leading++ // with no mutex: only one leads
					assert.Equal(t, 1, leading)
					turns[i]++
					time.Sleep(time.Minute)
					leading--
					return nil
				})
			}()
		}
		for range turns {
			require.NoError(t, <-ended)
		}
		for _, n := range turns {
			assert.InDelta(t, 5, n, 1)
		}
	})
}

// F1
func TestRunLeadsAgainAfterALossAndAnOutage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, operator := b.Peer(t), b.Peer(t)
		ctx, cancel := context.WithCancel(t.Context())
		begun, causes := make(chan int64, 1), make(chan error, 1)
		ended := make(chan error, 1)
		go func() {
			ended <- election(p).Run(ctx, func(ctx context.Context, term int64) error {
				begun <- term
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return ctx.Err()
			})
		}()
		first := <-begun
		_, err := operator.GetFairLock(name).ForceUnlock(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, <-causes, relection.ErrLost)
		second := <-begun
		p.Down(true)
		require.ErrorIs(t, <-causes, relection.ErrLost)
		time.Sleep(10 * time.Minute)
		nobodyLeads(t, election(operator))
		p.Down(false)
		third := <-begun
		assert.IsIncreasing(t, []int64{first, second, third})
		cancel()
		require.ErrorIs(t, <-causes, context.Canceled)
		require.NoError(t, <-ended)
		nobodyLeads(t, election(operator))
	})
}

func TestRunResignsWhenTheFunctionPanics(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		e := election(b.Peer(t))
		assert.PanicsWithValue(t, "bug", func() {
			_ = e.Run(t.Context(), func(context.Context, int64) error { panic("bug") })
		})
		synctest.Wait()
		nobodyLeads(t, e)
		assert.Empty(t, b.Hash(t, name))
	})
}
