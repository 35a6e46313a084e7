package relection_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/relection"
)

func TestElectionOnServer(t *testing.T) { elect(t, locktest.OnServer) }

func TestElectionOnCluster(t *testing.T) {
	redistest.Long(t)
	elect(t, locktest.OnCluster)
}

// elect has three candidates lead in turn, one of which dies.
func elect(t *testing.T, where locktest.Place) {
	t.Helper()
	for _, name := range []string{"leader", "app:{leader}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			where(t, func(t *testing.T, s *locktest.Server) {
				short := redlatch.WithWatchdogTimeout(2 * time.Second)
				one, two, third := s.Client(t, short), s.Client(t, short), s.Client(t)
				get := func(c *redlatch.Client) *relection.Election { return c.GetElection(name) }
				states := make(chan string, 100) // more than there are
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					defer close(states)
					for leader, err := range third.GetElection(name).Observe(ctx) {
						if errors.Is(err, relection.ErrNoLeader) {
							states <- "nobody"
						} else if assert.NoError(t, err) {
							states <- leader.Value
						}
					}
				}()
				await := func(want string) {
					t.Helper()
					for {
						select {
						case got := <-states:
							if got == want {
								return
							}
						case <-time.After(20 * time.Second):
							require.Fail(t, "not observed", want)
						}
					}
				}
				await("nobody")
				l := lead(t, get(one), "a")
				await("a")
				queue := func(e *relection.Election, value string, n int) <-chan result {
					done := make(chan result, 1)
					go func() {
						l, err := e.Campaign(t.Context(), relection.WithValue(value))
						done <- result{l, err}
					}()
					redistest.Eventually(t, 20*time.Second, "it queues", func() error {
						if got := values(t, get(third)); len(got) != n || got[n-1] != value {
							return fmt.Errorf("%q wait", got)
						}
						return nil
					})
					return done
				}
				second, last := queue(get(two), "b\x00\n", 1), queue(get(one), "c", 2)
				assert.Equal(t, []string{"b\x00\n", "c"}, values(t, get(third)))
				require.NoError(t, l.Proclaim(t.Context(), "A"))
				await("A")
				resign(t, l)
				next := elected(t, second)
				leads(t, get(third), next, "b\x00\n")
				await("b\x00\n")
				assert.Greater(t, next.Term(), l.Term())
				_, err := third.GetFairLock(name).ForceUnlock(t.Context())
				require.NoError(t, err)
				l = elected(t, last)
				locktest.Ended(t, next.Context(), relection.ErrLost)
				require.ErrorIs(t, next.Proclaim(t.Context(), "late"), relection.ErrNotHeld)
				leads(t, get(third), l, "c")
				await("c")
				assert.Greater(t, l.Term(), next.Term())
				leader, err := get(third).Leader(t.Context())
				require.NoError(t, err)
				now, err := s.Redis.Time(t.Context()).Result()
				require.NoError(t, err)
				assert.WithinDuration(t, now, leader.Since, 20*time.Second)
				resign(t, l)
				await("nobody")
				cancel()
				for range states { // until the loop has ended
				}
			})
		})
	}
}
