package rlatch_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// F24
func TestCountsAreExactInASlotOnTheMove(t *testing.T) {
	redistest.Long(t)
	const lease, timeout = 1500 * time.Millisecond, time.Second
	cluster := redistest.StartCluster(t, 3)
	for what, moved := range map[string]func(keys []string, name string) []string{
		"no key moved": func([]string, string) []string { return nil },
		"the count":    func(_ []string, name string) []string { return []string{name} },
		"all keys":     func(keys []string, _ string) []string { return keys },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			rdb := cluster.Client(t)
			client := func(opts ...redlatch.Option) *redlatch.Client {
				c, err := redlatch.New(cluster.Client(t), opts...)
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, c.Close()) })
				return c
			}
			name := strings.ReplaceAll(what, " ", "-")
			l := client().GetCountDownLatch(name)
			hasty := client(redlatch.WithWatchdogTimeout(lease), redlatch.WithCallTimeout(timeout)).GetCountDownLatch(name)
			set(t, l, 4)
			once(t, l, "a", true)
			waiter := begin(t.Context(), l)
			redistest.AwaitSubscribers(t, rdb, "redisson_countdownlatch__channel__{"+name+"}", 1)
			lag := faulttest.MeasureLag(t, "")

			m := cluster.Migrate(t, name, cluster.Other(t, name))
			m.Move(t, moved(m.Left(t), name)...)
			counted := make(chan error, 2)
			go func() { counted <- l.CountDown(t.Context()) }()
			go func() {
				_, err := l.CountDownOnce(t.Context(), "a") // it has counted down
				counted <- err
			}()
			late := begin(t.Context(), hasty)
			inTime := func(call func(ctx context.Context) error) error {
				start := time.Now()
				err := call(t.Context())
				assert.Less(t, time.Since(start), timeout+50*time.Millisecond+lag.Late())
				if err != nil {
					require.ErrorIs(t, err, redlatch.ErrUnavailable)
				}
				return err
			}
			_ = inTime(func(ctx context.Context) error {
				n, err := hasty.Count(ctx)
				if err == nil {
					assert.Contains(t, []int{2, 3}, n)
				}
				return err
			})
			err := inTime(hasty.CountDown)
			require.NotErrorIs(t, err, redlatch.ErrUnknown, "Redis has refused it each time")
			<-time.After(3 * lease) // the wait is what is tested
			waits(t, waiter)
			waits(t, late)
			m.Finish(t)
			finished := time.Now()
			require.NoError(t, ended(t, counted))
			require.NoError(t, ended(t, counted))
			left := 2
			if err == nil {
				left--
			}
			requireCount(t, l, left)
			waits(t, waiter)
			waits(t, late)
			for range left {
				down(t, l)
			}
			require.NoError(t, ended(t, waiter))
			require.NoError(t, ended(t, late))
			require.Less(t, time.Since(finished), 2*time.Second+lag.Late())
			assert.Empty(t, m.Left(t))
		})
	}
}
