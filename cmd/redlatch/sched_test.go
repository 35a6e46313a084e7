package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rscheduler"
)

func TestJobsAreLookedAtAndOperated(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		code, _, text := r.run(t.Context(), "sched", "ls", "billing")
		assert.Equal(t, exitFailed, code)
		assert.Contains(t, text, "there is no scheduler")

		s := r.c.GetScheduler("billing")
		ran := make(chan rscheduler.Run, 10)
		require.NoError(t, s.Register("close", rscheduler.MustCron("@yearly"), func(_ context.Context, run rscheduler.Run) error {
			ran <- run
			return errors.New("the bank\nis down")
		}))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		require.Eventually(t, func() bool {
			code, _, _ := r.run(t.Context(), "sched", "trigger", "billing", "close")
			return code == 0
		}, 10*time.Second, 10*time.Millisecond)
		assert.True(t, (<-ran).Manual)
		require.Eventually(t, func() bool {
			code, out, _ := r.run(t.Context(), "sched", "runs", "billing", "close")
			return code == 0 && strings.Contains(out, "the bank\n")
		}, 10*time.Second, 10*time.Millisecond)
		assert.NotContains(t, r.must(t, "sched", "runs", "billing", "close"), "is down", "one line each")
		assert.Contains(t, r.must(t, "--json", "sched", "runs", "billing", "close"), `"err":"the bank\nis down"`)
		r.must(t, "sched", "pause", "billing", "close", "--why", "audit")
		assert.Regexp(t, `close +@yearly +\d{4}-01-01T00:00:00Z +failed \S+ +paused: audit`, r.must(t, "sched", "ls", "billing"))
		assert.Regexp(t, `scheduler +billing +jobs: 1, running 0, paused 1, failed at last 1`, r.must(t, "ls"))
		r.must(t, "sched", "resume", "billing", "close")
		assert.NotContains(t, r.must(t, "sched", "ls", "billing"), "paused")
		stop()
		require.NoError(t, <-ended)

		code, _, _ = r.run(t.Context(), "sched", "remove", "billing", "close")
		assert.Equal(t, exitUsage, code, "without a yes")
		r.must(t, "sched", "remove", "billing", "close", "--yes")
		for _, args := range [][]string{
			{"trigger", "billing", "close"},
			{"pause", "billing", "close"},
			{"resume", "billing", "close"},
			{"runs", "billing", "close"},
			{"remove", "billing", "close", "--yes"},
		} {
			code, _, text := r.run(t.Context(), append([]string{"sched"}, args...)...)
			assert.Equal(t, exitFailed, code, "%v", args)
			assert.Contains(t, text, "no", "%v", args)
		}
	})
}

func TestElectionIsLookedAt(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		r.hasNothing(t, `led by +nobody\ncandidates +0\n`, "elect", "info", "workers")
		l, err := r.c.GetElection("workers").Campaign(t.Context(), relection.WithValue("10.0.0.1"))
		require.NoError(t, err)
		assert.Regexp(t, `(?s)led by +`+l.ID()+`.*value +10.0.0.1.*term +\d+`, r.must(t, "elect", "info", "workers"))
		assert.Contains(t, r.must(t, "--json", "elect", "info", "workers"), `"value":"10.0.0.1"`)

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() { code, _, _ := r.run(ctx, "elect", "watch", "workers"); ended <- code }()
		says := func(what string) {
			t.Helper()
			require.Eventually(t, func() bool { return strings.Contains(r.out.String(), what) }, 10*time.Second, time.Millisecond)
		}
		says(", led by " + l.ID() + " 10.0.0.1")
		require.NoError(t, l.Resign(t.Context()))
		says("nobody leads")
		stop()
		assert.Zero(t, <-ended)
	})
}

func TestElectionThatIsWatchedSaysNothingOfCandidates(t *testing.T) {
	r := embeddedRig(t)
	leader, err := r.c.GetElection("workers").Campaign(t.Context())
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() { code, _, _ := r.run(ctx, "elect", "watch", "workers", "--json"); ended <- code }()
	require.Eventually(t, func() bool { return strings.HasSuffix(r.out.String(), "\n") }, 10*time.Second, 10*time.Millisecond)
	end()
	assert.Zero(t, <-ended)
	assert.Contains(t, r.out.String(), leader.ID())
	assert.NotContains(t, r.out.String(), "candidates", "it does not ask for them")
	require.NoError(t, leader.Resign(t.Context()))
}

func TestProgramRunsAsTheLeader(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		code, out, text := r.run(t.Context(), "elect", "run", "workers", "--", "sh", "-c", "echo term $REDLATCH_TERM; exit 3")
		assert.Equal(t, 3, code, text)
		assert.Regexp(t, `^term [1-9]\d*\n$`, out)
		_, err := r.c.GetElection("workers").Leader(t.Context())
		require.ErrorIs(t, err, relection.ErrNoLeader, "it has resigned")
		code, _, _ = r.run(t.Context(), "elect", "run", "workers", "true")
		assert.Equal(t, exitUsage, code)
		code, _, _ = r.run(t.Context(), "elect", "run", "workers", "--", "no such program")
		assert.Equal(t, 127, code)
	})
}
