package rsemaphore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// F24
func TestNothingHeldIsLostInASlotOnTheMove(t *testing.T) {
	const lease = 1500 * time.Millisecond
	for what, moved := range map[string]func(name string) []string{
		"no key moved":           func(string) []string { return nil },
		"the counter moved":      func(name string) []string { return []string{name} },
		"the held permits moved": func(name string) []string { return []string{"{" + name + "}:timeout"} },
		"both moved":             func(name string) []string { return []string{name, "{" + name + "}:timeout"} },
	} {
		t.Run(what, func(t *testing.T) {
			cluster := redistest.StartCluster(t, 3)
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
			t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
			c := quietClient(t, rdb, redlatch.WithWatchdogTimeout(lease))
			const name = "slots"
			s := c.GetPermitSemaphore(name)
			givePermits(t, s, 3)
			held := takePermits(t, s, 3)
			waiter := beginPermits(t.Context(), s, 1)

			from := cluster.Owner(t, name)
			to := cluster.Nodes()[0]
			if to == from {
				to = cluster.Nodes()[1]
			}
			m := cluster.Migrate(t, name, to)
			m.Move(t, moved(name)...)
			select {
			case <-held[0].Context().Done():
				require.NoError(t, context.Cause(held[0].Context()))
			case <-time.After(3 * lease): // the wait is what is tested
			}
			require.NoError(t, held[2].Extend(t.Context(), time.Minute))
			m.Finish(t)
			finished := time.Now()
			releasePermits(t, held[0])
			nextPermits(t, waiter)
			require.Less(t, time.Since(finished), 2*time.Second)
			for _, p := range held[1:] {
				require.NoError(t, p.Context().Err())
				releasePermits(t, p)
			}
		})
	}
}

// F24
func TestSemaphoreGoesOnAfterItsSlotHasMoved(t *testing.T) {
	cluster := redistest.StartCluster(t, 3)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	c := quietClient(t, rdb, redlatch.WithCallTimeout(time.Second))
	const name = "slots"
	s := c.GetSemaphore(name)
	give(t, s, 2)
	to := cluster.Nodes()[0]
	if to == cluster.Owner(t, name) {
		to = cluster.Nodes()[1]
	}
	m := cluster.Migrate(t, name, to)
	take(t, s, 1) // both keys are there still

	m.Move(t, name) // the client's record is not
	_, err := s.TryAcquire(t.Context(), 1)
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	require.NotErrorIs(t, err, redlatch.ErrUnknown, "Redis has refused it each time")
	waiter := beginTake(t.Context(), s, 1)
	m.Finish(t)
	finished := time.Now()
	require.NoError(t, ended(t, waiter))
	require.Less(t, time.Since(finished), 1500*time.Millisecond)
	require.Equal(t, 0, counter(t, rdb, name))
}
