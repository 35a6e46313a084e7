package rmultilock_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/historytest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const historyLease = 300 * time.Millisecond

// historyLock is a lock of a history and the keys that it consists of.
type historyLock struct {
	rlock.Locker
	keys []string
}

// historyKind is a kind of lock whose history is checked.
type historyKind struct {
	servers int
	locks   func(clients []*redlatch.Client) []historyLock // clients are one process's, one for each server
}

var historyKinds = map[string]historyKind{
	"multi-lock": {1, func(c []*redlatch.Client) (all []historyLock) {
		for _, keys := range [][]string{{"a", "b"}, {"c", "b"}, {"c", "a"}, {"a", "b", "c"}} {
			all = append(all, historyLock{c[0].GetMultiLock(locks(c[0], keys)...), keys})
		}
		return append(all, historyLock{c[0].GetLock("a"), []string{"a"}}, historyLock{c[0].GetFencedLock("b"), []string{"b"}})
	}},
	"RedLock": {3, func(c []*redlatch.Client) (all []historyLock) {
		for _, name := range []string{"a", "b", "c"} {
			var members []rlock.Locker
			for _, one := range c {
				members = append(members, one.GetLock(name))
			}
			all = append(all, historyLock{c[0].GetRedLock(members...), []string{name}})
		}
		return all
	}},
}

// historyUser uses locks of one process at random, so often.
func historyUser(ctx context.Context, h *locktest.History, locks []historyLock, steps int) {
	for range steps {
		l := locks[rand.N(len(locks))]
		h.Use(ctx, l.Locker, l.keys...)
	}
}

// historyChild uses locks until it is killed. Args: its name, when the history began, the addresses.
func historyChild(kind historyKind, args []string) {
	h, err := locktest.NewHistoryIn(args[0], args[1], historyLease, faulttest.Emit)
	if err != nil {
		panic(err)
	}
	var clients []*redlatch.Client
	for _, addr := range args[2:] {
		opts := append(historyOptions(h), redlatch.WithHandoffBudget(0)) // it is not told whether there are steps
		c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: addr}), opts...)
		if err != nil {
			panic(err)
		}
		clients = append(clients, c)
	}
	all := kind.locks(clients)
	for range 2 {
		go historyUser(context.Background(), h, all, 1<<30) // until the process is killed
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // nobody writes
}

func historyOptions(h *locktest.History) []redlatch.Option {
	return append(h.Options(), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
}

// historyRig is where a history comes from.
type historyRig struct {
	*locktest.History

	kind    historyKind
	servers []*redistest.Server
	harm    func(*faulttest.Proxy)
}

func newHistoryRig(t *testing.T, kind historyKind, steps time.Duration, harm func(*faulttest.Proxy)) *historyRig {
	t.Helper()
	r := &historyRig{History: locktest.NewHistory(false, historyLease), kind: kind, harm: harm}
	r.Steps = steps
	for range kind.servers {
		r.servers = append(r.servers, r.Serve(t))
	}
	return r
}

// addrs returns where a process reaches the servers: each through a proxy of its own.
func (r *historyRig) addrs(t *testing.T) (addrs []string) {
	t.Helper()
	for _, s := range r.servers {
		p := faulttest.NewProxy(t, s.Addr())
		if r.harm != nil {
			r.harm(p)
		}
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

// process has goroutines of one process use the locks.
func (r *historyRig) process(t *testing.T, users *sync.WaitGroup, steps int) {
	t.Helper()
	var clients []*redlatch.Client
	for _, addr := range r.addrs(t) {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		c, err := redlatch.New(rdb, historyOptions(r.History)...)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		clients = append(clients, c)
	}
	all := r.kind.locks(clients)
	for range 2 {
		users.Go(func() { historyUser(t.Context(), r.History, all, steps) })
	}
}

// victims starts processes one after the other, stops each for a while, and kills it.
func (r *historyRig) victims(t *testing.T, name string, n int) {
	t.Helper()
	for i := range n {
		args := append([]string{fmt.Sprintf("killed%d:", i), r.Begun()}, r.addrs(t)...)
		r.Sacrifice(t, faulttest.StartChild(t, name, args...), 2*historyLease/3, historyLease/2*time.Duration(1+rand.N(3)))
	}
}

// pause is for what other processes do meanwhile.
func pause(d time.Duration) { <-time.After(d) }

// F1, F14
func TestMultiLockHistoryUnderFaultsIsLinearizable(t *testing.T) {
	playHistories(t, "multi-lock", 0, faulttest.Rounds(t, 1, 8))
}

// F1, F14
func TestRedLockHistoryUnderFaultsIsLinearizable(t *testing.T) {
	redistest.Long(t)
	playHistories(t, "RedLock", 0, faulttest.Rounds(t, 1, 8))
}

// A step ahead of a server's clock may end each lease that it meets, as docs/guarantees.md says: from then on such a hold may be
// gone, before its holder knows. That apart the model is as ever.
//
// F18
func TestMultiLockHistoryWhileTheClockStepsIsLinearizable(t *testing.T) {
	playHistories(t, "multi-lock", historytest.WideSteps, faulttest.Rounds(t, 1, 4))
}

// The clock of each server steps by itself. What holds of one server holds of a step of any of them: two may end a lease that
// others keep.
//
// F14, F18
func TestRedLockHistoryWhileTheClocksStepIsLinearizable(t *testing.T) {
	playHistories(t, "RedLock", historytest.WideSteps, faulttest.Rounds(t, 1, 4))
}

func playHistories(t *testing.T, name string, steps time.Duration, rounds int) {
	t.Helper()
	kind := historyKinds[name]
	for range rounds {
		r := newHistoryRig(t, kind, steps, (*faulttest.Proxy).Disturb)
		var users sync.WaitGroup
		for range 3 {
			r.process(t, &users, 50)
		}
		users.Go(func() { r.victims(t, name, 2) })
		if kind.servers > 2 {
			users.Go(func() { r.freeze(3) })
		}
		users.Wait()
		r.Calm()
		r.Check(t)
	}
}

// freeze stops a minority of the servers at a time for a while.
func (r *historyRig) freeze(times int) {
	for range times {
		pause(historyLease / 2)
		s := r.servers[rand.N(len(r.servers))]
		s.Pause()
		pause(historyLease / 3)
		s.Resume()
	}
}

func TestHistoryOfALockThatIsTakenAwayIsRefuted(t *testing.T) {
	redistest.Long(t)
	for name, kind := range historyKinds {
		for what, keys := range map[string][]string{"all keys": {"a", "b", "c"}, "one key": {"b"}} {
			for how, harm := range historytest.Harms() {
				t.Run(name+", "+what+how, func(t *testing.T) {
					historytest.RefutedSoon(t, func() bool {
						r := newHistoryRig(t, kind, 0, harm)
						var users sync.WaitGroup
						for range 3 {
							r.process(t, &users, 60)
						}
						var majority []*redis.Client
						for _, s := range r.servers[:len(r.servers)/2+1] {
							majority = append(majority, s.Client(t))
						}
						historytest.Meanwhile(&users, func() {
							for _, rdb := range majority {
								assert.NoError(t, rdb.Del(t.Context(), keys...).Err())
							}
						})
						return r.Refuted(t)
					})
				})
			}
		}
	}
}
