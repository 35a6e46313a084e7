package near_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/near"
	"github.com/redlatch/redlatch/internal/pipe"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/gridtest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/internal/wires"
)

// attacked is a node of an attack.
type attacked struct{ *node }

// of gives a node a cache with the attack's bound.
func of(a *gridtest.Attack, n *node) attacked {
	n.Cache = near.New[string](n.core, near.MapTopic(name), near.Options[string]{Entries: 100, MaxStale: a.MaxStale})
	return attacked{n}
}

func (n attacked) Set(t *testing.T, key, text string) error { return n.set(t, key, text) }

func (n attacked) Get(t *testing.T, key string) (string, bool, error) { return n.get(t, key) }

func (n attacked) Look(_ *testing.T, key string) (string, bool) { return n.Cache.Get(key) }

// F30
func TestStalenessIsBoundedUnderFaultsInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		t.Cleanup(server.Close)
		w, r := wires.New(server.Dial), wires.New(server.Dial)
		a := &gridtest.Attack{MaxStale: 2 * time.Second, Length: 10 * time.Second, Pause: 10 * time.Millisecond}
		a.InMemory(w, r)
		a.Run(t, of(a, newNode(t, pipe.Client(w.Dial))), of(a, newNode(t, pipe.Client(r.Dial))))
		require.NotZero(t, a.Hits.Load())
	})
}

// F30
func TestStalenessIsBoundedUnderFaultsOnAServer(t *testing.T) {
	server := redistest.Start(t)
	client := func() (*faulttest.Proxy, *node) {
		p := faulttest.NewProxy(t, server.Addr())
		rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), ReadTimeout: 300 * time.Millisecond, MaxRetries: -1})
		return p, newNode(t, rdb)
	}
	w, writer := client()
	r, reader := client()
	a := &gridtest.Attack{MaxStale: 500 * time.Millisecond, Length: time.Duration(faulttest.Rounds(t, 2, 60)) * time.Second, Pause: 4 * time.Millisecond}
	a.OnServer(w, r)
	a.Run(t, of(a, writer), of(a, reader))
	require.NotZero(t, a.Hits.Load())
}

// F30
func TestStalenessIsBoundedWhileTheSlotMoves(t *testing.T) {
	redistest.Long(t)
	cluster := redistest.StartCluster(t, 3)
	client := func() *node {
		return newNode(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}))
	}
	a := &gridtest.Attack{MaxStale: 500 * time.Millisecond, Length: 10 * time.Second, Pause: 4 * time.Millisecond, Calm: func() {}}
	moves := 0
	a.Harm = func() {
		if rand.N(20) > 0 {
			return
		}
		if to := cluster.Nodes()[rand.N(3)]; to.Addr() != cluster.Owner(t, name).Addr() {
			cluster.Migrate(t, name, to).Finish(t)
			moves++
		}
	}
	a.Run(t, of(a, client()), of(a, client()))
	require.NotZero(t, a.Hits.Load())
	require.NotZero(t, moves)
}

func TestWriteIsSeenOnACluster(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	client := func() *node {
		return newNode(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}))
	}
	writer, reader := client(), client()
	for version := range 20 {
		want := strconv.Itoa(version)
		require.NoError(t, writer.set(t, "k", want))
		for _, n := range []*node{writer, reader} {
			redistest.Eventually(t, 10*time.Second, "the version is near", func() error {
				if got, hit, err := n.get(t, "k"); err != nil || !hit || got != want {
					return errNotYet
				}
				return nil
			})
		}
	}
}

// F30
func TestHitsAreFreshWithoutFaults(t *testing.T) {
	server := redistest.Start(t)
	a := &gridtest.Attack{MaxStale: time.Hour, Length: time.Second, Pause: 4 * time.Millisecond, Harm: func() {}, Calm: func() {}}
	writer, reader := newNode(t, server.Client(t)), newNode(t, server.Client(t))
	a.Run(t, of(a, writer), of(a, reader))
	require.NotZero(t, a.Hits.Load())
	redistest.Eventually(t, 10*time.Second, "the reader has the last versions", func() error {
		for i := range gridtest.Attacked {
			got, _, err := reader.get(t, strconv.Itoa(i))
			if err != nil || got != a.Last(i) {
				return errNotYet
			}
		}
		return nil
	})
}
