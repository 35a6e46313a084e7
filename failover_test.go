package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
)

// failover is a topology, and a change of its master.
type failover struct {
	name string
	// start returns a maker of clients of Redis, whether the object of a name is on the master that changes, and the change, which returns
	// when the new master serves.
	start func(t *testing.T) (client func() redis.UniversalClient, concerned func(name string) bool, change func())
}

func failovers() []failover {
	cluster := func(change func(t *testing.T, c *redistest.Cluster, master, replica *redistest.Server)) func(t *testing.T) (func() redis.UniversalClient, func(string) bool, func()) {
		return func(t *testing.T) (func() redis.UniversalClient, func(string) bool, func()) {
			t.Helper()
			c := redistest.StartCluster(t, 3)
			master := c.Nodes()[0]
			replica := c.AddReplica(t, master)
			return func() redis.UniversalClient { return c.Client(t) }, servedBy(t, c, master), func() {
				redistest.AwaitSync(t, master, replica)
				change(t, c, master, replica)
			}
		}
	}
	sentinel := func(change func(g *locktest.Group)) func(t *testing.T) (func() redis.UniversalClient, func(string) bool, func()) {
		return func(t *testing.T) (func() redis.UniversalClient, func(string) bool, func()) {
			t.Helper()
			g := locktest.StartGroup(t)
			return func() redis.UniversalClient { return g.Sentinel.Client(t) }, func(string) bool { return true }, func() {
				redistest.AwaitSync(t, g.Master, g.Replica)
				change(g)
			}
		}
	}
	return []failover{
		{"a master of a cluster is killed", cluster(func(t *testing.T, _ *redistest.Cluster, master, replica *redistest.Server) {
			t.Helper()
			master.Kill()
			awaitPromotion(t, replica)
		})},
		{"a master of a cluster hands over", cluster(func(t *testing.T, c *redistest.Cluster, _, replica *redistest.Server) {
			t.Helper()
			c.Failover(t, replica)
		})},
		{"a master behind Sentinel is killed", sentinel(func(g *locktest.Group) {
			g.Master.Kill()
			g.Sentinel.AwaitMaster(g.Master.Addr())
		})},
		{"a master behind Sentinel is replaced", sentinel(func(g *locktest.Group) { g.Sentinel.Failover() })},
	}
}

// servedBy returns whether the object of a name is on a master of a cluster.
func servedBy(t *testing.T, c *redistest.Cluster, master *redistest.Server) func(name string) bool {
	t.Helper()
	rdb := c.Client(t)
	return func(name string) bool {
		node, err := rdb.MasterForKey(t.Context(), name)
		require.NoError(t, err)
		return node.Options().Addr == master.Addr()
	}
}

// awaitPromotion waits until the replica of a master that was killed takes its place.
func awaitPromotion(t *testing.T, replica *redistest.Server) {
	t.Helper()
	rdb := replica.Client(t)
	redistest.Eventually(t, redistest.ElectionLimit, "the replica takes over", func() error {
		role, err := rdb.Do(t.Context(), "role").Slice()
		if err == nil && role[0] != "master" {
			err = errors.New("it is a replica")
		}
		return err
	})
}

// guest is an object that is held by one client and waited for by another one.
type guest struct {
	name  string
	polls bool // who waits for it listens to no channel
	// enter has a client hold the object. alive returns why that has ended, release ends it.
	enter func(t *testing.T, c *redlatch.Client, name string) (alive func() error, release func(ctx context.Context) error)
	// wait waits until the object is released, and leaves it as it was.
	wait func(ctx context.Context, c *redlatch.Client, name string) error
}

// lockGuest is a lock as its holder and the one who waits for it see it.
func lockGuest(kind string, mine, theirs func(c *redlatch.Client, name string) rlock.Locker) guest {
	return guest{
		name: kind,
		enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
			t.Helper()
			h, err := mine(c, name).Lock(t.Context())
			require.NoError(t, err)
			return func() error { return ended(h.Context()) }, h.Unlock
		},
		wait: func(ctx context.Context, c *redlatch.Client, name string) error {
			h, err := theirs(c, name).Lock(ctx)
			if err == nil {
				err = h.Unlock(ctx)
			}
			return err
		},
	}
}

func red(c *redlatch.Client, name string) rlock.Locker {
	return c.GetRedLock(c.GetLock(name), c.GetLock(name+"-2"), c.GetLock(name+"-3"))
}

func guests(lease time.Duration) []guest {
	var all []guest
	for kind, get := range lockKinds {
		all = append(all, lockGuest(kind, get, func(c *redlatch.Client, name string) rlock.Locker { return rival(kind, c, name) }))
	}
	multi := func(c *redlatch.Client, name string) rlock.Locker {
		return c.GetMultiLock(c.GetLock(name), c.GetFairLock(name+"-elsewhere"))
	}
	redLock := lockGuest("RedLock", red, red)
	redLock.polls = true
	return append(all, lockGuest("multi", multi, multi), redLock, guest{
		name: "permit",
		enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
			t.Helper()
			_, err := c.GetPermitSemaphore(name).TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			p, err := c.GetPermitSemaphore(name).Acquire(t.Context())
			require.NoError(t, err)
			return func() error { return ended(p.Context()) }, p.Release
		},
		wait: func(ctx context.Context, c *redlatch.Client, name string) error {
			p, err := c.GetPermitSemaphore(name).Acquire(ctx)
			if err == nil {
				err = p.Release(ctx)
			}
			return err
		},
	}, guest{
		name: "semaphore",
		enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
			t.Helper()
			s := c.GetSemaphore(name)
			_, err := s.TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			require.NoError(t, s.Acquire(t.Context(), 1))
			return func() error { return nil }, func(ctx context.Context) error { return s.Release(ctx, 1) }
		},
		wait: func(ctx context.Context, c *redlatch.Client, name string) error {
			err := c.GetSemaphore(name).Acquire(ctx, 1)
			if err == nil {
				err = c.GetSemaphore(name).Release(ctx, 1)
			}
			return err
		},
	}, guest{
		name: "latch",
		enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
			t.Helper()
			_, err := c.GetCountDownLatch(name).TrySetCount(t.Context(), 1)
			require.NoError(t, err)
			return func() error { return nil }, c.GetCountDownLatch(name).CountDown
		},
		wait: func(ctx context.Context, c *redlatch.Client, name string) error {
			return c.GetCountDownLatch(name).Await(ctx)
		},
	}, guest{name: "queue", enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
		t.Helper()
		return enterQueue(t, c, name, lease)
	}, wait: func(ctx context.Context, c *redlatch.Client, name string) error {
		m, err := redlatch.GetDelayedQueue[string](c, name).Take(ctx)
		if err == nil {
			err = m.Ack(ctx)
		}
		return err
	}})
}

// enterQueue has a handler hold a message, with a visibility that is renewed, until the release. That offers a second one first, for
// whoever waits.
func enterQueue(t *testing.T, c *redlatch.Client, name string, visibility time.Duration) (alive func() error, release func(ctx context.Context) error) {
	t.Helper()
	q := redlatch.GetDelayedQueue[string](c, name, rdelayedqueue.WithVisibility(visibility))
	_, err := q.Offer(t.Context(), "first", 0)
	require.NoError(t, err)
	handled, finish, stopped := make(chan context.Context, 9), make(chan struct{}), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	var deliveries atomic.Int32
	go func() {
		stopped <- q.Consume(ctx, func(ctx context.Context, _ *rdelayedqueue.Message[string]) error {
			deliveries.Add(1)
			handled <- ctx
			select {
			case <-finish:
			case <-ctx.Done():
			}
			return nil
		}, rdelayedqueue.WithConcurrency(1), rdelayedqueue.WithPrefetch(0))
	}()
	handling := <-handled
	return func() error { return ended(handling) }, func(ctx context.Context) error {
		defer stop()
		if _, err := q.Offer(ctx, "second", 0); err != nil {
			return err
		}
		stop() // first: the second message is not for this consumer
		close(finish)
		err := <-stopped
		if n := deliveries.Load(); n != 1 {
			err = errors.Join(err, fmt.Errorf("%d deliveries to the holder", n))
		}
		return err
	}
}

// ended returns why a context has ended; nil if it has not. Err looks at the clock, which Cause does not.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

const failoverLease = 12 * time.Second

// heldGuest is a guest that one client holds, and another one waits for.
type heldGuest struct {
	guest
	alive   func() error
	release func(context.Context) error
	waited  chan error
}

// enterAll has one client hold each of the guests, by the name that nameOf gives it, and another one wait for it.
func enterAll(t *testing.T, holder, waiter *redlatch.Client, all []guest, nameOf func(guest) string) (held []heldGuest) {
	t.Helper()
	for _, g := range all {
		h := heldGuest{guest: g, waited: make(chan error, 1)}
		name := nameOf(g)
		h.alive, h.release = g.enter(t, holder, name)
		go func() { h.waited <- g.wait(t.Context(), waiter, name) }()
		held = append(held, h)
	}
	return held
}

// channels returns on how many channels those listen who wait.
func channels(all []heldGuest) (n int) {
	for _, h := range all {
		if !h.polls {
			n++
		}
	}
	return n
}

// handOver releases the guest, and requires that the one who waits gets it soon.
func (h heldGuest) handOver(t *testing.T) {
	t.Helper()
	released := time.Now()
	require.NoError(t, h.release(t.Context()), h.name)
	h.gotten(t)
	t.Logf("%s: the waiter went on %v after the release", h.name, time.Since(released))
	assert.Less(t, time.Since(released), 3*time.Second, h.name)
}

// gotten requires that the one who waits gets it.
func (h heldGuest) gotten(t *testing.T) {
	t.Helper()
	select {
	case err := <-h.waited:
		require.NoError(t, err, h.name)
	case <-time.After(15 * time.Second):
		require.Fail(t, "it waits on", h.name)
	}
}

// F9, F24, F29: whatever is held outlives a failover to a replica that has it, excludes others all the time, and is given on by its
// release; waiters go on waiting.
func TestFailoverLosesNothingThatTheReplicaHas(t *testing.T) {
	for _, tc := range failovers() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rdb, concerned, change := tc.start(t)
			client := func(o redlatch.Observer) *redlatch.Client {
				c, err := redlatch.New(rdb(), redlatch.WithWatchdogTimeout(failoverLease), redlatch.WithCloseGrace(0), redlatch.WithObserver(o))
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, c.Close()) })
				return c
			}
			renewed, failedOver := make(chan struct{}, 1000), make(chan string, 10)
			holder, waiter := client(redlatch.Observer{
				Renewed:    func(int, int, error) { renewed <- struct{}{} },
				FailedOver: func(node string) { failedOver <- node },
			}), client(redlatch.Observer{})
			all := enterAll(t, holder, waiter, guests(failoverLease), func(g guest) string {
				return nameFor(g.name, concerned)
			})
			redistest.AwaitChannels(t, rdb(), channels(all))
			next(t, renewed)
			next(t, renewed) // so the server has answered what was asked beside the first one

			change()
			changed := time.Now()
			for time.Since(changed) < failoverLease { // longer than anything could be held without a renewal
				for _, h := range all {
					require.NoError(t, h.alive(), "%s is held no longer, %v after the change", h.name, time.Since(changed))
					select {
					case err := <-h.waited:
						require.Fail(t, "two hold it", "%s: %v", h.name, err)
					default:
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
			for _, h := range all {
				h.handOver(t)
			}
			assert.Len(t, failedOver, 1)
		})
	}
}

// nameFor returns a name that begins like this, of an object on the master that changes.
func nameFor(name string, concerned func(name string) bool) string {
	all := name
	for i := 0; !concerned(all); i++ {
		all = fmt.Sprintf("%s-%d", name, i)
	}
	return all
}
