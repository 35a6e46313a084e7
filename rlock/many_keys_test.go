package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const (
	shortLease = 600 * time.Millisecond // a lease that a test can wait for
	longWait   = 20 * time.Second       // bounds every wait for what has to come
)

var errNotYet = errors.New("not yet")

// clientOver returns a silent client with go-redis options of the test's choice. It is closed when the test ends.
func clientOver(t *testing.T, o *redis.Options, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	c, err := redlatch.New(rdb, append([]redlatch.Option{quiet}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// clientAt returns a client of the server at addr as a user would make it.
func clientAt(t *testing.T, addr string, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	return clientOver(t, &redis.Options{Addr: addr}, opts...)
}

// complaints counts what a client logs.
type complaints struct {
	slog.Handler
	mu    sync.Mutex // guards texts
	texts []string
}

func newComplaints(t *testing.T) (*complaints, redlatch.Option) {
	c := &complaints{Handler: slog.NewTextHandler(t.Output(), nil)}
	return c, redlatch.WithLogger(slog.New(c))
}

func (c *complaints) Handle(_ context.Context, r slog.Record) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.String()
		return true
	})
	c.texts = append(c.texts, text)
	return nil
}

func (c *complaints) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.texts...)
}

// F10
func TestManyContendedKeysShareOneSubscriptionConnection(t *testing.T) {
	server := serve(t)
	log, logger := newComplaints(t)
	f := &crowdedKeys{
		holder: clientAt(t, server.Addr(), redlatch.WithoutPresence()), // its channel is not counted
		waiter: clientAt(t, server.Addr(), logger, redlatch.WithoutPresence()),
		rdb:    server.Client(t),
	}
	keys := faulttest.Rounds(t, 600, 50_000)
	work := make(chan int) // closed below, when every key was handed out
	var workers sync.WaitGroup
	for range faulttest.Rounds(t, 50, 500) {
		workers.Go(func() {
			for i := range work {
				f.contend(t, fmt.Sprintf("f10:%d", i))
			}
		})
	}
	for i := range keys {
		work <- i
	}
	close(work)
	workers.Wait()

	assert.EqualValues(t, 1, f.subscribers.Load(), "most pub/sub connections seen")
	assert.Positive(t, f.channels.Load(), "most channels seen: nobody waited for Redis")
	assert.EqualValues(t, keys, f.acquired.Load(), "waiters that did not give up")
	assert.Empty(t, log.all())
	redistest.Eventually(t, 5*time.Second, "channels go back to none", func() error {
		names, err := f.rdb.PubSubChannels(t.Context(), "*").Result()
		if err == nil && len(names) > 0 {
			err = fmt.Errorf("%d channels", len(names))
		}
		return err
	})
}

// crowdedKeys are keys that one client holds while several goroutines of another wait for them.
type crowdedKeys struct {
	holder, waiter                  *redlatch.Client
	rdb                             *redis.Client
	subscribers, channels, acquired atomic.Int64
}

// contend has three goroutines wait for a key, two of which give up at a random moment.
func (f *crowdedKeys) contend(t *testing.T, key string) {
	hold, err := f.holder.GetLock(key).Lock(t.Context())
	if !assert.NoError(t, err) {
		return
	}
	var quitters, stayer sync.WaitGroup
	for range 2 {
		quitters.Go(func() { f.giveUp(t, key) })
	}
	stayer.Go(func() {
		hold, err := f.waiter.GetLock(key).Lock(t.Context())
		if assert.NoError(t, err) {
			f.acquired.Add(1)
			assert.NoError(t, hold.Unlock(t.Context()))
		}
	})
	if rand.N(2) == 0 {
		quitters.Wait()
	}
	f.look(t)
	assert.NoError(t, hold.Unlock(t.Context()))
	stayer.Wait()
	quitters.Wait()
}

func (f *crowdedKeys) giveUp(t *testing.T, key string) {
	ctx, cancel := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
	defer cancel()
	hold, err := f.waiter.GetLock(key).Lock(ctx)
	if err == nil {
		err = hold.Unlock(t.Context())
		assert.NoError(t, err)
		return
	}
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

// look samples what the server knows of subscriptions.
func (f *crowdedKeys) look(t *testing.T) {
	list, err := f.rdb.Do(t.Context(), "CLIENT", "LIST", "TYPE", "pubsub").Text()
	assert.NoError(t, err)
	names, err := f.rdb.PubSubChannels(t.Context(), "*").Result()
	assert.NoError(t, err)
	highest(&f.subscribers, int64(strings.Count(list, "\n")))
	highest(&f.channels, int64(len(names)))
}

func highest(v *atomic.Int64, n int64) {
	for old := v.Load(); n > old && !v.CompareAndSwap(old, n); old = v.Load() {
	}
}

// However many locks a client waits for, it asks for all of them together no more than 500 times a second.
//
// F10
func TestRechecksOfAClientHaveABudget(t *testing.T) {
	redistest.Long(t)
	for lines, rate := range map[int]int{200: 200, 1000: 500} {
		t.Run(strconv.Itoa(lines), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				ctx, giveUp := context.WithCancel(t.Context())
				var waiters sync.WaitGroup
				for i := range lines {
					key := fmt.Sprintf("f10:theirs:%d", i)
					b.Foreign(t, key, 0)
					waiters.Go(func() {
						_, err := p.GetLock(key).Lock(ctx)
						assert.ErrorIs(t, err, context.Canceled)
					})
				}
				time.Sleep(5 * time.Second) // the first tries, and the first re-checks
				sent := p.Scripts()
				time.Sleep(8 * time.Second)
				assert.InEpsilon(t, rate, float64(p.Scripts()-sent)/8, 0.1, "tries a second")
				giveUp()
				waiters.Wait()
			})
		})
	}
}

// F10
func TestWaitersDoNotStarveRenewal(t *testing.T) {
	redistest.Long(t)
	server := serve(t)
	var failed atomic.Int64
	observer := redlatch.Observer{Renewed: func(_, lost int, err error) {
		if lost > 0 || err != nil {
			failed.Add(1)
		}
	}}
	owner := clientAt(t, server.Addr())
	crowd := clientOver(t, &redis.Options{Addr: server.Addr(), PoolSize: 2}, redlatch.WithWatchdogTimeout(2*patchyLease), redlatch.WithObserver(observer))

	var holds []*rlock.Hold
	for i := range 20 {
		hold, err := crowd.GetLock(fmt.Sprintf("f10:mine:%d", i)).Lock(t.Context())
		require.NoError(t, err)
		holds = append(holds, hold)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	var theirs []*rlock.Hold
	for i := range 500 {
		key := fmt.Sprintf("f10:theirs:%d", i)
		hold, err := owner.GetLock(key).Lock(t.Context())
		require.NoError(t, err)
		theirs = append(theirs, hold)
		waiters.Go(func() {
			_, err := crowd.GetLock(key).Lock(ctx)
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	end := time.Now().Add(time.Duration(faulttest.Rounds(t, 2, 6)) * 2 * patchyLease)
	for _, hold := range holds {
		redistest.Eventually(t, time.Until(end)+time.Minute, "renewals go on", func() error {
			if hold.ExpiresAt().Before(end) && hold.Context().Err() == nil {
				return errNotYet
			}
			return nil
		})
	}
	giveUp()
	waiters.Wait()
	for _, hold := range holds {
		assert.NoError(t, context.Cause(hold.Context()))
		assert.NoError(t, hold.Unlock(t.Context()))
	}
	assert.Zero(t, failed.Load(), "renewals that failed")
	for _, hold := range theirs {
		assert.NoError(t, hold.Unlock(t.Context()))
	}
}

// freshName returns a name that nobody used before, for tests on a shared server.
func freshName(class string) string { return class + ":" + uuid.NewString() }
