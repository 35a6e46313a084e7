package redlatchgocron_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/redlatchgocron"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/relection"
)

// campaign has an elector run until the test, or what it returns, ends it.
func campaign(t *testing.T, e *redlatchgocron.Elector) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			assert.ErrorIs(t, err, redlatch.ErrClosed, "a client that was killed is closed")
		}
	})
	return cancel
}

// F1
func TestJobsRunWhereTheLeaderIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redlatchtest.Start(t)
		var clients []*redlatch.Client
		var electors []*redlatchgocron.Elector
		runs := make([]runs, 3)
		var stops []func()
		for i := range runs {
			clients = append(clients, server.Client(quiet, redlatch.WithWatchdogTimeout(3*time.Second)))
			electors = append(electors, redlatchgocron.NewElector(clients[i].GetElection("cron"), relection.WithValue("here")))
			require.ErrorIs(t, electors[i].IsLeader(t.Context()), redlatchgocron.ErrNotLeader)
			stops = append(stops, campaign(t, electors[i]))
			synctest.Wait() // they campaign in order
			scheduled(t, clock(0), everySecond, &runs[i], time.Millisecond, gocron.WithDistributedElector(electors[i]))
		}
		ran := func() (n [3]int) {
			for i := range runs {
				n[i] = runs[i].total()
			}
			return n
		}
		server.Advance(5*time.Second + 500*time.Millisecond)
		assert.Equal(t, [3]int{5, 0, 0}, ran())
		terms := []int64{electors[0].Term()}
		assert.Zero(t, electors[1].Term())
		leader, err := clients[1].GetElection("cron").Leader(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "here", leader.Value)

		stops[0]()
		server.Advance(5 * time.Second)
		assert.Equal(t, [3]int{5, 5, 0}, ran(), "the next one leads at once")
		terms = append(terms, electors[1].Term())

		server.Kill(clients[1])
		server.Advance(10 * time.Second)
		after := ran()
		assert.LessOrEqual(t, after[1]+after[2]-5, 10, "no two led at a time, though the dead one did not notice at once")
		assert.InDelta(t, 7, after[2], 1, "of 10 ticks the lease of the dead leader cost 3")
		terms = append(terms, electors[2].Term())
		assert.IsIncreasing(t, terms)
		assert.Zero(t, electors[0].Term())
		assert.Zero(t, electors[1].Term(), "it leads no more, and knows")
	})
}
