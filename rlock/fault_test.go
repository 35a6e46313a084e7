package rlock_test

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1.
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
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

const (
	faultLease = 600 * time.Millisecond // of the clients of a rig, which renew it every 200 ms
	patience   = 20 * time.Second       // bounds a wait that has no promised end of its own
)

// registerChildren names what the tests of this package run in other processes.
func registerChildren() {
	faulttest.RegisterChild("fenced writer", fencedWriter)
	faulttest.RegisterChild("starved holder", starvedHolder)
}

// rig is a server of a test's own with a proxy before it.
type rig struct {
	server *redistest.Server
	proxy  *faulttest.Proxy
	redis  *redis.Client // goes past the proxy
	lag    *faulttest.Lag
}

// serve starts a server of a test's own. What is left on it fails the test.
func serve(t *testing.T, args ...string) *redistest.Server {
	t.Helper()
	s := redistest.Start(t, args...)
	faulttest.LeakCheck(t, s.Addr(), "redisson_lock_token:*")
	return s
}

func newRig(t *testing.T) *rig {
	t.Helper()
	s := serve(t)
	return &rig{server: s, proxy: faulttest.NewProxy(t, s.Addr()), redis: s.Client(t), lag: faulttest.MeasureLag(t, s.Addr())}
}

// client returns a client that reaches the server through the proxy, with short leases unless opts say otherwise.
func (r *rig) client(t *testing.T, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	return connect(t, &redis.Options{Addr: r.proxy.Addr()}, opts...)
}

// direct returns a client that goes past the proxy.
func (r *rig) direct(t *testing.T, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	return connect(t, &redis.Options{Addr: r.server.Addr()}, opts...)
}

// connect returns a client of a test. Connections are closed after it.
func connect(t *testing.T, o *redis.Options, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(o)
	t.Cleanup(func() {
		if err := rdb.Close(); !errors.Is(err, redis.ErrClosed) {
			assert.NoError(t, err)
		}
	})
	return clientOf(t, rdb, opts...)
}

// clientOf returns a client on connections of the test's making. It is closed when the test ends.
func clientOf(t *testing.T, rdb redis.UniversalClient, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	opts = append([]redlatch.Option{
		redlatch.WithWatchdogTimeout(faultLease),
		redlatch.WithCloseGrace(100 * time.Millisecond),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)),
	}, opts...)
	c, err := redlatch.New(rdb, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// state returns what the server has under a lock's name: owner -> levels.
func (r *rig) state(t *testing.T, name string) map[string]string {
	t.Helper()
	state, err := r.redis.HGetAll(t.Context(), name).Result()
	require.NoError(t, err)
	return state
}

// holds reports an error unless the owner alone has the lock, with so many levels; nobody if there are none.
func (r *rig) holds(t *testing.T, name, owner string, levels int) error {
	t.Helper()
	want := map[string]string{owner: fmt.Sprint(levels)}
	if levels == 0 {
		want = map[string]string{}
	}
	if got := r.state(t, name); !assert.ObjectsAreEqual(want, got) {
		return fmt.Errorf("%q has %v, not %v", name, got, want)
	}
	return nil
}

// empty waits until the server has no keys but those of the rig itself.
func (r *rig) empty(t *testing.T, limit time.Duration) {
	t.Helper()
	redistest.Eventually(t, limit+r.lag.Late(), "every key is gone", func() error { return r.noKeys(t, "*") })
}

func (r *rig) noKeys(t *testing.T, pattern string) error {
	t.Helper()
	keys, err := r.redis.Keys(t.Context(), pattern).Result()
	for _, key := range keys {
		if len(key) < 10 || key[:10] != "faulttest:" {
			err = errors.Join(err, fmt.Errorf("%q is left, with %v ms", key, r.redis.PTTL(t.Context(), key).Val().Milliseconds()))
		}
	}
	return err
}

// foreign has a stranger hold a lock, one that is no client of this library, for half a minute.
func (r *rig) foreign(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, r.redis.HSet(t.Context(), name, "stranger", 1).Err())
	require.NoError(t, r.redis.PExpire(t.Context(), name, lease).Err())
}

// listening waits until so many channels have a subscriber.
func (r *rig) listening(t *testing.T, n int) {
	t.Helper()
	redistest.Eventually(t, patience, "the waiters have subscribed", func() error {
		channels, err := r.redis.PubSubChannels(t.Context(), "*").Result()
		if err == nil && len(channels) < n {
			err = fmt.Errorf("%d of %d channels", len(channels), n)
		}
		return err
	})
}

// asks counts the calls by which the clients behind the proxy ask for each lock.
type asks struct {
	rig    *rig
	before int // calls that the server had executed
	mu     sync.Mutex
	seen   map[string]int // guarded by mu
}

// watchAcquiring begins to count. It takes the proxy's hook.
func (r *rig) watchAcquiring(t *testing.T) *asks {
	t.Helper()
	r.load(t, "acquire")
	a := &asks{rig: r, before: r.scriptCalls(t), seen: map[string]int{}}
	r.proxy.OnCommand(func(cmd []string) {
		if faulttest.Named("EVALSHA")(cmd) && len(cmd) > 3 {
			a.mu.Lock()
			a.seen[cmd[3]]++
			a.mu.Unlock()
		}
	})
	return a
}

// answered returns nil once each lock was asked for so often, and the server has executed all those calls.
func (a *asks) answered(t *testing.T, names []string, times int) error {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	sent := 0
	for _, name := range names {
		if a.seen[name] < times {
			return fmt.Errorf("%s was asked for %d times", name, a.seen[name])
		}
		sent += a.seen[name]
	}
	if executed := a.rig.scriptCalls(t) - a.before; executed < sent {
		return fmt.Errorf("%d calls, %d executed", sent, executed)
	}
	return nil
}

// scriptCalls returns how many EVALSHA calls the server has executed.
func (r *rig) scriptCalls(t *testing.T) int {
	t.Helper()
	stats, err := r.redis.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	_, after, found := strings.Cut(stats, "cmdstat_evalsha:calls=")
	if !found { // none yet
		return 0
	}
	calls := 0
	_, err = fmt.Sscanf(after, "%d", &calls)
	require.NoError(t, err)
	return calls
}

// share makes n runs on so many lanes at a time, a goroutine each, and reports the errors. It starts no run after one.
func share(t *testing.T, lanes, n int, run func(lane, run int) error) {
	t.Helper()
	if err := shared(lanes, n, run); err != nil {
		t.Error(err)
	}
}

// shared is share for a test that judges the errors itself.
func shared(lanes, n int, run func(lane, run int) error) error {
	var next, failed atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, lanes)
	for lane := range lanes {
		wg.Go(func() {
			for failed.Load() == 0 {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if err := run(lane, i); err != nil {
					failed.Add(1)
					errs[lane] = fmt.Errorf("run %d: %w", i, err)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// calls matches the calls of one of this package's scripts, named as its file.
func calls(t *testing.T, file string) func(cmd []string) bool {
	t.Helper()
	source := sourceOf(t, file)
	sum := sha1.Sum(source) //nolint:gosec // as above
	digest := hex.EncodeToString(sum[:])
	return func(cmd []string) bool {
		return faulttest.Script(cmd) && len(cmd) > 1 && (cmd[1] == digest || cmd[1] == string(source))
	}
}

func sourceOf(t *testing.T, file string) []byte {
	t.Helper()
	source, err := os.ReadFile("../internal/reentrant/" + file + ".lua")
	require.NoError(t, err)
	return source
}

// load has the server know scripts, so that no call is seen twice, first by its digest and then by its text.
func (r *rig) load(t *testing.T, files ...string) {
	t.Helper()
	for _, file := range files {
		require.NoError(t, r.redis.ScriptLoad(t.Context(), string(sourceOf(t, file))).Err())
	}
}

// elapse waits until a time has come. It is for spans that are themselves what is tested: random instants of a fault,
// a process that stands still for so long.
func elapse(t time.Time) { <-time.After(time.Until(t)) }

// expect returns an error unless err is want; nil for none.
func expect(what string, err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("%s: got %w, want %w", what, orNone(err), orNone(want))
}

var errNone = errors.New("no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}
