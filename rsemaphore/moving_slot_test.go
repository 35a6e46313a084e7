package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

const (
	movingLease   = 1500 * time.Millisecond // a slot is half moved for three of these
	movingTimeout = time.Second             // of calls that do not wait
	settledWithin = 2 * time.Second         // all that began before the end of the move has succeeded then
)

// movingClients returns two clients of a cluster.
func movingClients(t *testing.T, cluster *redistest.Cluster) (c, other *redlatch.Client) {
	t.Helper()
	client := func() *redlatch.Client {
		return quietClient(t, cluster.Client(t), redlatch.WithWatchdogTimeout(movingLease), redlatch.WithCallTimeout(movingTimeout))
	}
	return client(), client()
}

// inTime requires that a call that does not wait ends by its timeout. It returns the call's error.
func inTime(t *testing.T, lag *faulttest.Lag, call func(ctx context.Context) error) error {
	t.Helper()
	start := time.Now()
	err := call(t.Context())
	assert.Less(t, time.Since(start), movingTimeout+50*time.Millisecond+lag.Late())
	return err
}

// F24
func TestNothingHeldIsLostInASlotOnTheMove(t *testing.T) {
	redistest.Long(t)
	cluster := redistest.StartCluster(t, 3)
	for what, moved := range map[string]func(name string) []string{
		"no key moved":           func(string) []string { return nil },
		"the counter moved":      func(name string) []string { return []string{name} },
		"the held permits moved": func(name string) []string { return []string{"{" + name + "}:timeout"} },
		"both moved":             func(name string) []string { return []string{name, "{" + name + "}:timeout"} },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c, other := movingClients(t, cluster)
			name := strings.ReplaceAll(what, " ", "-")
			s, theirs := c.GetPermitSemaphore(name), other.GetPermitSemaphore(name)
			givePermits(t, s, 3)
			held := takePermits(t, s, 3)
			waiter := beginPermits(t.Context(), s, 1)
			lag := faulttest.MeasureLag(t, "")

			m := cluster.Migrate(t, name, cluster.Other(t, name))
			m.Move(t, moved(name)...)
			err := inTime(t, lag, func(ctx context.Context) error {
				_, err := theirs.TryAcquire(ctx)
				return err
			})
			require.Error(t, err, "all are held")
			if !errors.Is(err, redlatch.ErrUnavailable) && !errors.Is(err, redlatch.ErrUnknown) {
				require.ErrorIs(t, err, rsemaphore.ErrNotAcquired)
			}
			if err := inTime(t, lag, held[1].Release); !errors.Is(err, redlatch.ErrUnknown) {
				require.NoError(t, err)
			}
			late := beginPermits(t.Context(), theirs, 1)
			for _, p := range []*rsemaphore.Permit{held[0], held[2]} {
				select {
				case <-p.Context().Done():
					require.NoError(t, context.Cause(p.Context()))
				case <-time.After(3 * movingLease / 2): // the wait is what is tested
				}
			}
			require.NoError(t, held[0].Context().Err())
			require.NoError(t, held[2].Extend(t.Context(), time.Minute))
			m.Finish(t)
			finished := time.Now()
			releasePermits(t, held[0])
			for _, done := range []<-chan permitOutcome{waiter, late} { // one of them gets what was released while the slot moved
				releasePermits(t, nextPermits(t, done)...)
			}
			assert.Less(t, time.Since(finished), settledWithin+lag.Late())
			releasePermits(t, held[2])
			redistest.Eventually(t, settledWithin+lag.Late(), "all permits are back", func() error {
				n, err := s.Available(t.Context())
				if err == nil && n != 3 {
					err = fmt.Errorf("%d are available", n)
				}
				return err
			})
			assert.Empty(t, m.Left(t))
		})
	}
}

// F24
func TestCountsAreExactInASlotOnTheMove(t *testing.T) {
	redistest.Long(t)
	cluster := redistest.StartCluster(t, 3)
	for what, moved := range map[string]func(keys []string, name string) []string{
		"no key moved":      func([]string, string) []string { return nil },
		"the counter moved": func(_ []string, name string) []string { return []string{name} }, // a client's record is not
		"all keys moved":    func(keys []string, _ string) []string { return keys },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c, other := movingClients(t, cluster)
			name := strings.ReplaceAll(what, " ", "-") + "-count"
			s, theirs := c.GetSemaphore(name), other.GetSemaphore(name)
			give(t, s, 3)
			take(t, s, 2)
			waiter := beginTake(t.Context(), s, 2)
			lag := faulttest.MeasureLag(t, "")

			m := cluster.Migrate(t, name, cluster.Other(t, name))
			m.Move(t, moved(m.Left(t), name)...)
			err := inTime(t, lag, func(ctx context.Context) error {
				ok, err := theirs.TryAcquire(ctx, 1)
				assert.True(t, ok || err != nil, "one is available")
				return err
			})
			tried := err == nil
			if !tried {
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
				require.NotErrorIs(t, err, redlatch.ErrUnknown, "Redis has refused it each time")
			}
			released := inTime(t, lag, func(ctx context.Context) error { return s.Release(ctx, 1) })
			late := beginTake(t.Context(), theirs, 1)
			<-time.After(3 * movingLease) // the wait is what is tested
			m.Finish(t)
			finished := time.Now()
			if released != nil && !errors.Is(released, redlatch.ErrUnknown) { // not done
				require.ErrorIs(t, released, redlatch.ErrUnavailable)
				release(t, s, 1)
			}
			if tried {
				release(t, theirs, 1)
			}
			release(t, s, 1)
			require.NoError(t, ended(t, waiter))
			require.NoError(t, ended(t, late))
			require.Less(t, time.Since(finished), settledWithin+lag.Late())
			requireThere(t, s, 0)
			release(t, s, 3)
			requireThere(t, s, 3)
			assert.Empty(t, m.Left(t))
		})
	}
}
