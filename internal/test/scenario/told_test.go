package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// F1
func TestWhoIsCutOffIsToldBeforeOthersHaveIt(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	const atATime = 8
	server, rounds := redistest.Start(t), faulttest.Rounds(t, atATime, 104)
	var lanes sync.WaitGroup
	for lane := range atATime {
		lanes.Go(func() {
			t.Run(strconv.Itoa(lane), func(t *testing.T) {
				proxy := faulttest.NewProxy(t, server.Addr())
				faulttest.Steady(t, server.Addr(), toldLease, 10, func(lease time.Duration) error {
					opt := redlatch.WithWatchdogTimeout(lease)
					cut, other := startToldClient(t, proxy.Addr(), opt), startToldClient(t, server.Addr(), opt)
					for round := lane; round < rounds; round += atATime {
						if err := cutOff(t, proxy, cut, other, func(kind string) string { return fmt.Sprint(kind, round, lease) }); err != nil {
							return err
						}
					}
					return nil
				})
			})
		})
	}
	lanes.Wait()
}

// cutOff cuts one client off, which has one of each kind, and requires that it is told before another one has it. It returns what
// went wrong in calls of the other one.
func cutOff(t *testing.T, proxy *faulttest.Proxy, cut, other *redlatch.Client, name func(kind string) string) error {
	t.Helper()
	kinds := takeAll(0)
	furnish(t, other, name)
	held := map[string]holding{}
	for kind, take := range kinds {
		h, err := take(t.Context(), cut, name(kind))
		require.NoError(t, err, kind)
		held[kind] = h
	}
	<-time.After(rand.N(toldLease / 2)) // the leases are at different points
	proxy.Blackhole(true)
	entered := make(chan error, len(kinds))
	for kind := range kinds {
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
			defer cancel()
			next, err := kinds[rivalOf(kind)](ctx, other, name(kind))
			assert.True(t, err != nil || held[kind].ctx.Err() != nil, "two have %s", kind)
			if err == nil {
				err = next.ctx.Err()
			}
			if err == nil {
				err = next.release(ctx)
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", kind, err)
			}
			entered <- err
		}()
	}
	var err error
	for range kinds {
		err = errors.Join(err, <-entered)
	}
	proxy.Blackhole(false)
	return err
}

// F1, F5
func TestStoppedProcessLearnsThatOthersHaveIt(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	const lease = time.Minute // which nobody renews: what is written while they last is not theirs
	other := startToldClient(t, server.Addr(), redlatch.WithWatchdogTimeout(lease))
	kinds := takeAll(lease)
	for round := range faulttest.Rounds(t, 2, 5) {
		name := func(kind string) string { return fmt.Sprint(kind, round) }
		furnish(t, other, name)
		child := faulttest.StartChild(t, "sleeper", server.Addr(), fmt.Sprint(round))
		child.WaitFor("holds")
		child.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		held := map[string]holding{}
		for kind := range kinds {
			h, err := kinds[rivalOf(kind)](ctx, other, name(kind))
			require.NoError(t, err, kind)
			held[kind] = h
		}
		keys, err := server.Client(t).Keys(ctx, "*").Result()
		require.NoError(t, err)
		keys = slices.DeleteFunc(keys, func(key string) bool { // all processes write those
			return strings.HasPrefix(key, "redlatch_sched:") || strings.HasSuffix(key, ":waiters") || strings.HasSuffix(key, ":series") || strings.Contains(key, ":asked:")
		})
		monitor := faulttest.MonitorWrites(t, server.Addr(), keys...)
		child.Send("go on")
		child.Cont()
		var said, want []string
		for kind := range kinds {
			said = append(said, strings.TrimSpace(child.Next()))
			want = append(want, kind+": told true, released false")
		}
		slices.Sort(said)
		slices.Sort(want)
		assert.Equal(t, want, said)
		<-time.After(3 * toldLease) // what is written by mistake is seen
		// A release deletes what its own hold has written, if that is there.
		for _, cmd := range monitor.Since(time.Time{}, "PEXPIRE", "PERSIST", "SET", "DEL", "HSET", "HINCRBY", "ZADD", "ZREM", "RPUSH", "LREM") {
			assert.Fail(t, "written to what others have", "%q", cmd.Args)
		}
		child.Send("end")
		require.NoError(t, child.Wait())
		for kind, h := range held {
			if kind == "message" {
				continue // it is not renewed
			}
			assert.NoError(t, h.ctx.Err(), kind)
			assert.NoError(t, h.release(ctx), kind)
		}
	}
}
