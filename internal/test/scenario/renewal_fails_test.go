package scenario_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// twoOfThree matches two of three calls of each script.
func twoOfThree() func(cmd []string) bool {
	var mu sync.Mutex // guards sent
	sent := map[string]int{}
	return func(cmd []string) bool {
		if !faulttest.Script(cmd) {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		sent[cmd[1]]++
		return sent[cmd[1]]%3 != 0
	}
}

// F6
func TestTwoOfThreeRenewalsMayFailOfEachKind(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	faulttest.Steady(t, server.Addr(), 1500*time.Millisecond, 10, func(lease time.Duration) (err error) {
		var failing atomic.Bool
		failing.Store(true)
		var ends []func() error
		for _, g := range guests(lease) {
			if g.name == "semaphore" || g.name == "latch" {
				continue // nothing of them is renewed
			}
			proxy := faulttest.NewProxy(t, server.Addr())
			rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
			t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
			c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(lease), redlatch.WithCloseGrace(0))
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			alive, release := g.enter(t, c, fmt.Sprint(g.name, lease))
			match := twoOfThree()
			proxy.DropReplies(func(cmd []string) bool { return failing.Load() && match(cmd) }, 1<<30)
			ends = append(ends, func() error {
				var few error
				if n := proxy.Dropped(); n < 4 {
					few = fmt.Errorf("%d renewals failed", n)
				}
				err := errors.Join(few, alive(), release(t.Context()))
				if err != nil {
					err = fmt.Errorf("%s: %w", g.name, err)
				}
				return err
			})
		}
		<-time.After(time.Duration(faulttest.Rounds(t, 3, 40)) * lease)
		failing.Store(false)
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		return err
	})
}
