package interop_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// place is where a test runs: a version of Redisson, and the servers that both sides use.
type place struct {
	version string
	cluster bool
	addrs   []string
	rdbs    []redis.UniversalClient // of the test itself: a client for each server, or one for the cluster
	java    *java                   // shared by the tests
}

// everywhere runs the test with each version of Redisson, on one server and on a cluster.
func everywhere(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	requireJava(t)
	redistest.Require(t)
	for _, version := range versions() {
		t.Run("Redisson "+version+" on one server", func(t *testing.T) {
			addrs := []string{redistest.Shared(t).Addr()}
			test(t, newPlace(t, version, false, addrs))
		})
		t.Run("Redisson "+version+" on a cluster", func(t *testing.T) {
			addrs := redistest.SharedCluster(t).Addrs()
			test(t, newPlace(t, version, true, addrs))
		})
	}
}

// onThreeServers runs the test with each version of Redisson on three independent servers.
func onThreeServers(t *testing.T, test func(t *testing.T, p *place)) {
	t.Helper()
	requireJava(t)
	redistest.Require(t)
	addrs := []string{redistest.Shared(t).Addr(), redistest.Start(t).Addr(), redistest.Start(t).Addr()}
	for _, version := range versions() {
		t.Run("Redisson "+version+" on three servers", func(t *testing.T) {
			test(t, newPlace(t, version, false, addrs))
		})
	}
}

// atOnce has a test that mostly waits run beside those of the other places.
func atOnce(test func(t *testing.T, p *place)) func(t *testing.T, p *place) {
	return func(t *testing.T, p *place) {
		t.Parallel()
		test(t, p)
	}
}

func newPlace(t *testing.T, version string, cluster bool, addrs []string) *place {
	t.Helper()
	p := &place{version: version, cluster: cluster, addrs: addrs}
	p.rdbs = connect(cluster, addrs)
	t.Cleanup(func() {
		for _, rdb := range p.rdbs {
			require.NoError(t, rdb.Close())
		}
	})
	p.java = sharedJava(t, 1, version, cluster, addrs)
	return p
}

// connect returns one client of a cluster, or one of each server.
func connect(cluster bool, addrs []string) []redis.UniversalClient {
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if cluster {
		return []redis.UniversalClient{redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: addrs, MaintNotificationsConfig: quiet,
		})}
	}
	list := make([]redis.UniversalClient, len(addrs))
	for i, addr := range addrs {
		list[i] = redis.NewClient(&redis.Options{Addr: addr, MaintNotificationsConfig: quiet})
	}
	return list
}

// goSide returns a client of this library for each server, or one for the cluster, with the settings of Java.
func (p *place) goSide(t *testing.T) *goSide {
	t.Helper()
	return p.goSideWith(t, likeJava()...)
}

func (p *place) goSideWith(t *testing.T, opts ...redlatch.Option) *goSide {
	t.Helper()
	g, err := openGo(p.cluster, p.addrs, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.close()) })
	return g
}

func (p *place) javaSide() *javaSide { return &javaSide{j: p.java} }

// rdb has the objects of one server, counters and lists.
func (p *place) rdb() redis.UniversalClient { return p.rdbs[0] }

// adders are two processes of each side.
func (p *place) adders(t *testing.T) []adder {
	t.Helper()
	return []adder{p.goSide(t), &goProcess{t, p}, p.javaSide(), &javaSide{j: sharedJava(t, 2, p.version, p.cluster, p.addrs)}}
}

// another returns a Java process of the test's own, which it may kill.
func (p *place) another(t *testing.T) *java {
	t.Helper()
	j := startJava(t, p.version, p.cluster, p.addrs)
	t.Cleanup(func() { _ = j.kill() }) // The test may have killed it.
	return j
}

// names counts the names that tests have used.
var names atomic.Int64

// unused returns a name that nothing else uses on these servers.
func unused(kind string) string { return fmt.Sprintf("%s-%d", kind, names.Add(1)) }

// awaitSubscribers waits until so many clients listen to the channels.
func (p *place) awaitSubscribers(t *testing.T, n int, channels ...string) {
	t.Helper()
	redistest.Eventually(t, limit, fmt.Sprintf("%d subscribers of %v", n, channels), func() error {
		total, err := p.subscribers(t.Context(), channels)
		if err == nil && total < int64(n) {
			err = fmt.Errorf("there are %d", total)
		}
		return err
	})
}

func (p *place) subscribers(ctx context.Context, channels []string) (int64, error) {
	var total atomic.Int64 // the masters are asked at the same time
	count := func(ctx context.Context, node *redis.Client) error {
		plain, err := node.PubSubNumSub(ctx, channels...).Result()
		sharded, _ := node.PubSubShardNumSub(ctx, channels...).Result() // Redis 6.2 does not know it
		for _, channel := range channels {
			total.Add(plain[channel] + sharded[channel])
		}
		return err
	}
	var errs []error
	for _, rdb := range p.rdbs {
		switch rdb := rdb.(type) {
		case *redis.ClusterClient:
			errs = append(errs, rdb.ForEachMaster(ctx, count))
		case *redis.Client:
			errs = append(errs, count(ctx, rdb))
		}
	}
	return total.Load(), errors.Join(errs...)
}

// awaitQueue waits until so many wait in a fair lock's queue.
func (p *place) awaitQueue(t *testing.T, name string, n int) {
	t.Helper()
	redistest.Eventually(t, limit, "queue of "+name, func() error {
		length, err := p.rdb().LLen(t.Context(), "redisson_lock_queue:{"+name+"}").Result()
		if err == nil && length < int64(n) {
			err = fmt.Errorf("%d wait, not %d", length, n)
		}
		return err
	})
}
