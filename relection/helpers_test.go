package relection_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/relection"
)

const (
	name       = "e"
	record     = "redlatch_election:{e}"
	candidates = "redlatch_election_candidates:{e}"
	channel    = "redlatch_election_channel:{e}"

	lease    = 30 * time.Second        // of a client without options
	moment   = 100 * time.Millisecond  // more than what is announced takes
	recheck  = 1250 * time.Millisecond // how late what is not announced is noticed
	deadTime = 5 * time.Second         // until a dead candidate is passed over
)

func election(p *locktest.Peer) *relection.Election { return p.GetElection(name) }

// lead requires that a campaign succeeds.
func lead(t *testing.T, e *relection.Election, value string) *relection.Leadership {
	t.Helper()
	l, err := e.Campaign(t.Context(), relection.WithValue(value))
	require.NoError(t, err)
	return l
}

func resign(t *testing.T, l *relection.Leadership) {
	t.Helper()
	require.NoError(t, l.Resign(t.Context()))
}

// result is what a campaign returned.
type result struct {
	lead *relection.Leadership
	err  error
}

// campaign begins a campaign, and returns once it queues with its value.
func campaign(ctx context.Context, e *relection.Election, value string) <-chan result {
	done := make(chan result, 1) // the result, fetched or not
	go func() {
		l, err := e.Campaign(ctx, relection.WithValue(value))
		done <- result{l, err}
	}()
	time.Sleep(20 * time.Millisecond)
	synctest.Wait()
	return done
}

// elected waits until a campaign has succeeded.
func elected(t *testing.T, done <-chan result) *relection.Leadership {
	t.Helper()
	select {
	case r := <-done:
		require.NoError(t, r.err)
		return r.lead
	case <-time.After(time.Minute):
		require.Fail(t, "nobody is elected")
		return nil
	}
}

// leads requires that this one leads, as others see it.
func leads(t *testing.T, e *relection.Election, l *relection.Leadership, value string) {
	t.Helper()
	got, err := e.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, []any{l.ID(), value, l.Term()}, []any{got.ID, got.Value, got.Term})
}

func nobodyLeads(t *testing.T, e *relection.Election) {
	t.Helper()
	_, err := e.Leader(t.Context())
	require.ErrorIs(t, err, relection.ErrNoLeader)
}

// values returns what the candidates campaign with, in order.
func values(t *testing.T, e *relection.Election) (all []string) {
	t.Helper()
	waiting, err := e.Candidates(t.Context())
	require.NoError(t, err)
	for _, c := range waiting {
		all = append(all, c.Value)
	}
	return all
}

// observer is a loop over what an election's Observe yields.
type observer struct {
	ended chan struct{}

	mu  sync.Mutex // guards got
	got []any      // values of leaders, and errors
}

// observe begins to observe, until ctx ends.
func observe(ctx context.Context, e *relection.Election) *observer {
	o := &observer{ended: make(chan struct{})}
	go func() {
		defer close(o.ended)
		for leader, err := range e.Observe(ctx) {
			o.mu.Lock()
			if err != nil {
				o.got = append(o.got, err)
			} else {
				o.got = append(o.got, leader.Value)
			}
			o.mu.Unlock()
		}
	}()
	synctest.Wait()
	return o
}

// saw requires what was observed since the last time: values, and errors.
func (o *observer) saw(t *testing.T, want ...any) {
	t.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	require.Len(t, o.got, len(want), "%v", o.got)
	for i, one := range want {
		if err, ok := one.(error); ok {
			got, isErr := o.got[i].(error)
			require.True(t, isErr, "%v", o.got)
			require.ErrorIs(t, got, err)
			continue
		}
		require.Equal(t, one, o.got[i])
	}
	o.got = nil
}
