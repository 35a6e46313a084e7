package rmultilock_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// F9
func TestEveryClientLocksAgainAfterAFailoverToAStaleReplica(t *testing.T) {
	redistest.Long(t)
	locktest.Failover(t, envs["MultiLockOfThree"])
}

// F9: the part on a new master that has it is renewed there, and one that it has not heard of is acquired again.
func TestRedLockOutlivesAFailoverOfOneMaster(t *testing.T) {
	redistest.Long(t)
	rounds := faulttest.Rounds(t, 1, 20)
	for name, tc := range map[string]struct {
		lease time.Duration
		stale bool
	}{
		"to a replica that has its part": {lease: 5 * time.Second},
		"to a stale replica":             {lease: 3 * time.Second, stale: true},
	} {
		for i := range rounds {
			t.Run(fmt.Sprint(name, " ", i), func(t *testing.T) {
				t.Parallel()
				group := locktest.StartGroup(t)
				others := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
				process := func() (all []*redlatch.Client, red rlock.Locker) {
					all = append(all, group.Client(t, redlatch.WithWatchdogTimeout(tc.lease)))
					parts := []rlock.Locker{all[0].GetLock("a")}
					for _, s := range others {
						c, err := redlatch.New(s.Client(t), redlatch.WithWatchdogTimeout(tc.lease), redlatch.WithCloseGrace(0),
							redlatch.WithLogger(slog.New(slog.DiscardHandler)))
						require.NoError(t, err)
						t.Cleanup(func() { _ = c.Close() }) // one of the servers is killed
						all, parts = append(all, c), append(parts, c.GetLock("a"))
					}
					return all, all[0].GetRedLock(parts...)
				}
				clients, mine := process()
				_, theirs := process()
				if tc.stale {
					group.StopReplication(t)
				}
				h := locktest.Acquire(t, t.Context(), mine)
				waiting := locktest.Begin(func() (*rlock.Hold, error) { return theirs.Lock(t.Context()) })
				partOn := func(s *redistest.Server, c *redlatch.Client) (owner string) {
					rdb := s.Client(t)
					redistest.Eventually(t, redistest.ElectionLimit, "its part", func() error {
						locktest.Live(t, h.Context())
						locktest.Refused(t, theirs)
						require.Empty(t, waiting, "two hold it, or the wait has failed")
						owners, err := rdb.HKeys(t.Context(), "a").Result()
						if owner = strings.Join(owners, " "); err == nil && !strings.HasPrefix(owner, c.ID()) {
							err = fmt.Errorf("%q holds it", owner)
						}
						return err
					})
					return owner
				}
				owner := partOn(group.Master, clients[0])
				partOn(others[0], clients[1])
				partOn(others[1], clients[2])
				if tc.stale {
					group.Master.Kill()
				} else {
					redistest.AwaitSync(t, group.Master, group.Replica)
					group.Sentinel.Failover()
				}
				renewed := partOn(group.Replica, clients[0])
				assert.Equal(t, tc.stale, renewed != owner, "another owner is another acquisition")
				group.Sentinel.AwaitMaster(group.Master.Addr())
				require.Equal(t, group.Replica.Addr(), group.Sentinel.Master())

				others[0].Kill() // so that the part on the new master is needed
				killed := time.Now()
				redistest.Eventually(t, 10*time.Second, "two parts are renewed", func() error {
					locktest.Live(t, h.Context())
					require.Empty(t, waiting, "two hold it, or the wait has failed")
					if end := h.ExpiresAt(); !end.After(killed.Add(tc.lease)) {
						return fmt.Errorf("it is promised until %v", end)
					}
					return nil
				})
				locktest.Refused(t, theirs)
				lag := faulttest.MeasureLag(t, group.Replica.Addr())
				released := time.Now()
				locktest.Unlock(t, h)
				next := locktest.Next(t, waiting)
				assert.Less(t, time.Since(released), time.Second+lag.Late(), "it asks again every 200 ms")
				locktest.Unlock(t, next)
				for _, s := range []*redistest.Server{group.Replica, others[1]} {
					rdb := s.Client(t)
					redistest.Eventually(t, 2*time.Second+lag.Late(), "no key is left", func() error {
						keys, err := rdb.Keys(t.Context(), "*").Result()
						if err == nil && len(keys) > 0 {
							err = fmt.Errorf("%v", keys)
						}
						return err
					})
				}
			})
		}
	}
}
