package rmultilock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const (
	oneWay = 20 * time.Millisecond // from a client to a server, or back

	// promised is how long after a call returned something of it may still be on a server: a try that was on its way, the way
	// back of its answer, the release that follows, and a tenth of a second for everything else.
	promised = 3*oneWay + 100*time.Millisecond
)

// far are clients of three servers that are far away.
type far struct {
	lag     *faulttest.Lag
	servers []*redis.Client
	clients []*redlatch.Client
}

func newFar(t *testing.T) *far {
	t.Helper()
	f := &far{}
	for range 3 {
		s := redistest.Start(t)
		proxy := faulttest.NewProxy(t, s.Addr())
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(10*time.Second))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		f.servers, f.clients = append(f.servers, s.Client(t)), append(f.clients, c)
		proxy.Delay(oneWay)
		if f.lag == nil {
			f.lag = faulttest.MeasureLag(t, s.Addr())
		}
	}
	return f
}

func (f *far) locks(name string) []rlock.Locker {
	var all []rlock.Locker
	for _, c := range f.clients {
		all = append(all, c.GetLock(name))
	}
	return all
}

// none requires that no server has the key for longer than the limit.
func (f *far) none(t *testing.T, name string, limit time.Duration) {
	t.Helper()
	start := time.Now()
	redistest.Eventually(t, time.Minute, "nothing is left", func() error {
		for i, s := range f.servers {
			if n, err := s.Exists(t.Context(), name).Result(); err != nil || n > 0 {
				return fmt.Errorf("server %d has %s (%w)", i, name, err)
			}
		}
		return nil
	})
	assert.Less(t, time.Since(start), limit+f.lag.Late(), name)
}

// F3
func TestCancelledAcquisitionLeavesNothing(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	for kind, l := range both(f.clients[0], f.locks("warm")...) {
		h, err := l.Lock(t.Context())
		require.NoError(t, err, kind)
		require.NoError(t, h.Unlock(t.Context())) // connections are open and the scripts are known
	}
	n, lanes := faulttest.Rounds(t, 60, 300), 6
	var wg sync.WaitGroup
	for lane := range lanes {
		wg.Go(func() {
			for run := lane; run < n; run += lanes {
				for kind, l := range both(f.clients[0], f.locks(fmt.Sprint("a", run))...) {
					span := map[string]time.Duration{"MultiLock": 9 * oneWay, "RedLock": 4 * oneWay}[kind]
					ctx, cancel := context.WithCancel(t.Context())
					timer := time.AfterFunc(span*time.Duration(run)/time.Duration(n), cancel)
					h, err := l.Lock(ctx)
					if err == nil {
						<-ctx.Done()
						err = h.Unlock(ctx)
						assert.NoError(t, err, "%s: a deferred unlock", kind)
					} else if !errors.Is(err, context.Canceled) {
						assert.NoError(t, err, kind)
					}
					timer.Stop()
					cancel()
					f.none(t, fmt.Sprint("a", run), 2*promised)
				}
			}
		})
	}
	wg.Wait()
}
