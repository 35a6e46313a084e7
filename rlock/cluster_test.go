package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// group is a cluster of three masters, of which the one that serves its locks has a replica. The locks share a slot.
type group struct {
	*redistest.Cluster
	redis   *redis.ClusterClient
	master  *redistest.Server
	replica *redistest.Server
	other   *redistest.Server // another master
	lag     *faulttest.Lag
}

func newGroup(t *testing.T) *group {
	t.Helper()
	c := redistest.StartCluster(t, 3)
	g := &group{Cluster: c, redis: c.Client(t), master: c.Owner(t, g0(0))}
	g.replica = c.AddReplica(t, g.master)
	for _, node := range c.Nodes() {
		if node != g.master {
			g.other = node
		}
	}
	g.lag = faulttest.MeasureLag(t, g.other.Addr())
	return g
}

// groupSlack is for a busy machine, and far from the lease after which a waiter would look again in any case.
const groupSlack = time.Second

// g0 is the name of a lock in the slot of a group.
func g0(i int) string { return fmt.Sprintf("{group}:%d", i) }

// client returns a client of the library on the cluster.
func (g *group) client(t *testing.T, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	return clientOf(t, g.Client(t), opts...)
}

// failover makes the replica master and the master replica, and returns how long there was no master.
func (g *group) failover(t *testing.T) (outage time.Duration) {
	t.Helper()
	outage = g.Failover(t, g.replica)
	g.master, g.replica = g.replica, g.master
	return outage
}

// waiting has waiters of one client for n locks that another one holds.
func (g *group) waiting(t *testing.T, n int) (holds []*rlock.Hold, waiters []<-chan locktest.Outcome) {
	t.Helper()
	holder, c := g.client(t, redlatch.WithWatchdogTimeout(lease)), g.client(t, redlatch.WithWatchdogTimeout(lease))
	for i := range n {
		holds = append(holds, locktest.Acquire(t, t.Context(), holder.GetLock(g0(i))))
		waiters = append(waiters, wait(t.Context(), c.GetLock(g0(i))))
	}
	redistest.Eventually(t, patience, "the waiters have subscribed", func() error { return g.listening(t.Context(), n) })
	return holds, waiters
}

// listening returns nil if n channels of the cluster have subscribers.
func (g *group) listening(ctx context.Context, n int) error {
	var mu sync.Mutex // guards all
	all := 0
	err := g.redis.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		channels, err := node.PubSubChannels(ctx, "*").Result()
		if sharded, err := node.PubSubShardChannels(ctx, "*").Result(); err == nil { // Redis 6.2 does not know it
			channels = append(channels, sharded...)
		}
		mu.Lock()
		defer mu.Unlock()
		all += len(channels)
		return err
	})
	if err == nil && all < n {
		err = fmt.Errorf("%d of %d channels", all, n)
	}
	return err
}

// F4
func TestReshapedClusterLosesNoRelease(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	g := newGroup(t)
	t.Run("failover", func(t *testing.T) { releasedInFailover(t, g) })
	t.Run("slot on its way", func(t *testing.T) { releasedOnTheWay(t, g) })
}

func releasedInFailover(t *testing.T, g *group) {
	for range faulttest.Rounds(t, 1, 4) {
		holds, waiters := g.waiting(t, 20)
		var releases sync.WaitGroup
		for i, hold := range holds {
			releases.Go(func() {
				if i%2 == 0 { // as if the master had been lost with the message
					assert.NoError(t, g.redis.Del(t.Context(), g0(i)).Err())
					return
				}
				if err := hold.Unlock(t.Context()); !errors.Is(err, redlatch.ErrUnknown) { // a failover may take longer
					assert.NoError(t, err)
				}
			})
		}
		began := time.Now()
		g.failover(t)
		releases.Wait()
		outage := time.Since(began)
		took := acquireAll(t, waiters)
		t.Logf("failover %v", outage)
		require.Less(t, took.quantile(1), outage+recheck+groupSlack+g.lag.Late())
	}
}

func releasedOnTheWay(t *testing.T, g *group) {
	from, to := g.master, g.other
	for range faulttest.Rounds(t, 2, 4) {
		holds, waiters := g.waiting(t, 20)
		m := g.Migrate(t, g0(0), to)
		for i := range 10 {
			m.Move(t, g0(i))
		}
		for i, hold := range holds {
			if i%2 == 0 {
				require.NoError(t, g.redis.Del(t.Context(), g0(i)).Err())
				continue
			}
			require.NoError(t, hold.Unlock(t.Context()))
		}
		took := acquireAll(t, waiters) // while the slot is still on its way
		m.Finish(t)
		require.Less(t, took.quantile(1), recheck+groupSlack+g.lag.Late())
		from, to = to, from
	}
}

// lowestOf samples the TTLs of locks until done is closed, and returns the least; negative if one of them was gone.
func (g *group) lowestOf(ctx context.Context, names []string, done <-chan struct{}) (time.Duration, error) {
	least := time.Duration(math.MaxInt64)
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		pipe := g.redis.Pipeline()
		for _, name := range names {
			pipe.PTTL(ctx, name)
		}
		replies, err := pipe.Exec(ctx)
		if err != nil {
			return 0, err
		}
		for _, reply := range replies {
			least = min(least, reply.(*redis.DurationCmd).Val())
		}
		if least < 0 {
			return least, nil
		}
		select {
		case <-done:
			return least, nil
		case <-tick.C:
		}
	}
}

// kept is the lease of what is held meanwhile: a failover in order takes less than a second, as a rule.
const kept = 3 * time.Second

// groupLocks are so many that most renewals are of several of them.
const groupLocks = 100

// keeps holds locks, several of which one call renews, while something is done to the cluster, and returns the least
// TTL that was seen, and why one of them was lost.
func (g *group) keeps(t *testing.T, c *redlatch.Client, upheaval func(names []string)) (least time.Duration, loss error) {
	t.Helper()
	var names []string
	var holds []*rlock.Hold
	for i := range groupLocks {
		l := c.GetLock(g0(i))
		if i%10 == 0 {
			l = c.GetFencedLock(g0(i))
		}
		names, holds = append(names, l.Name()), append(holds, locktest.Acquire(t, t.Context(), l))
	}
	done := make(chan struct{})
	var err error
	var sampler sync.WaitGroup
	sampler.Go(func() { least, err = g.lowestOf(t.Context(), names, done) })
	upheaval(names)
	close(done)
	sampler.Wait()
	require.NoError(t, err)
	for _, hold := range holds {
		loss = errors.Join(loss, context.Cause(hold.Context()))
	}
	for _, hold := range holds {
		if err := hold.Unlock(t.Context()); loss == nil {
			require.NoError(t, err)
		}
	}
	return least, loss
}

// F6
func TestReshapedClusterLosesNoHold(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	g := newGroup(t)
	t.Run("failover", func(t *testing.T) { heldInFailover(t, g) })
	t.Run("slot on its way", func(t *testing.T) { heldOnTheWay(t, g) })
}

func heldInFailover(t *testing.T, g *group) {
	for range faulttest.Rounds(t, 1, 2) {
		lease := kept
		for g.heldFor(t, lease) > lease/3 { // the masters did not vote at once; what cannot be reached cannot be renewed
			lease *= 4
			require.LessOrEqual(t, lease, 16*kept, "each failover took more than a third of the lease")
		}
	}
}

// heldFor holds locks through a failover, and returns how long it took. If that is at most a third of the lease, no lock
// may have come near its end.
func (g *group) heldFor(t *testing.T, lease time.Duration) (outage time.Duration) {
	t.Helper()
	faulttest.Steady(t, g.other.Addr(), lease, stillParts, func(lease time.Duration) error {
		least, loss := g.keeps(t, g.client(t, redlatch.WithWatchdogTimeout(lease)), func([]string) {
			began := time.Now()
			outage = g.failover(t)
			elapse(began.Add(lease))
		})
		t.Logf("failover %v, least TTL %v", outage, least)
		if outage > lease/3 {
			return nil
		}
		// A sixth of the lease may pass from when a renewal is due to when one succeeds, the outage apart.
		return errors.Join(loss, above("TTL", least, min(lease/3, lease/2-outage)))
	})
	return outage
}

func heldOnTheWay(t *testing.T, g *group) {
	from, to := g.master, g.other
	for range faulttest.Rounds(t, 1, 4) {
		faulttest.Steady(t, to.Addr(), kept, stillParts, func(lease time.Duration) error {
			least, loss := g.keeps(t, g.client(t, redlatch.WithWatchdogTimeout(lease)), func(names []string) {
				m := g.Migrate(t, names[0], to)
				m.Move(t, names[:groupLocks/2]...)
				elapse(time.Now().Add(lease * 5 / 4)) // some are here, the others are there
				m.Move(t, names[groupLocks/2:]...)
				elapse(time.Now().Add(lease / 2)) // all have moved, and nobody has been told
				m.Finish(t)
				elapse(time.Now().Add(lease / 2))
			})
			from, to = to, from
			t.Logf("least TTL %v", least)
			return errors.Join(loss, above("TTL", least, lease/3))
		})
	}
}

// A cluster of one node, or one behind a proxy, serves a plain client, which does not know that it is a cluster.
//
// F6
func TestPlainClientKeepsItsHoldsOnAClusterOfOneNode(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t, "--cluster-enabled", "yes")
	rdb := server.Client(t)
	require.NoError(t, rdb.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	redistest.Eventually(t, longWait, "the cluster serves", func() error {
		info, err := rdb.ClusterInfo(t.Context()).Result()
		if err == nil && !strings.Contains(info, "cluster_state:ok") {
			err = errNotYet
		}
		return err
	})
	const many = 50
	left := atomic.Int64{}
	left.Store(3 * many)
	renewed := make(chan struct{})
	c := clientAt(t, server.Addr(), redlatch.WithWatchdogTimeout(3*time.Second), redlatch.WithObserver(redlatch.Observer{
		Renewed: func(n, _ int, _ error) {
			if before := left.Add(int64(-n)) + int64(n); n > 0 && before > 0 && before <= int64(n) {
				close(renewed)
			}
		},
	}))
	holds := make([]*rlock.Hold, many)
	for i := range holds {
		holds[i] = locktest.Acquire(t, t.Context(), c.GetLock(fmt.Sprint("orders-", i)))
	}
	select {
	case <-renewed:
	case <-time.After(longWait):
		require.Fail(t, "the holds are not renewed")
	}
	for _, h := range holds {
		locktest.Unlock(t, h)
	}
}
