package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/pubsub"
)

// onServer returns a router on a real server and a client of the latter. The router's client has go-redis's defaults.
func onServer(tb testing.TB, s *redistest.Server, o redis.Options) (*pubsub.Router, *redis.Client) {
	tb.Helper()
	o.Addr = s.Addr()
	rdb := redis.NewClient(&o)
	r := pubsub.New(rdb, pubsub.Options{})
	tb.Cleanup(func() {
		r.Close()
		assert.NoError(tb, rdb.Close())
	})
	return r, s.Client(tb)
}

func joinAll(r *pubsub.Router, n int) []ear {
	ears := make([]ear, n)
	for i := range ears {
		_, _ = r.Join(fmt.Sprint("channel:", i), &ears[i])
	}
	return ears
}

func requireConfirmations(tb testing.TB, ears []ear, atLeast int) {
	tb.Helper()
	redistest.Eventually(tb, 20*time.Second, "confirmations", func() error {
		for i := range ears {
			if n := ears[i].confirmations(); n < atLeast {
				return fmt.Errorf("listener %d: %d of %d", i, n, atLeast)
			}
		}
		return nil
	})
}

// F10
func TestFiveThousandChannelsShareOneConnection(t *testing.T) {
	r, rdb := onServer(t, redistest.Start(t), redis.Options{})
	ears := joinAll(r, 5000)
	requireConfirmations(t, ears, 1)

	list, err := rdb.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(list, "\n"), list)
	assert.Contains(t, list, " sub=5000 ")
	stats, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	t.Log(line(stats, "cmdstat_subscribe"))
}

// F4
func TestKilledConnectionNotifiesEveryListener(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			r, rdb := onServer(t, redistest.Start(t), redis.Options{Protocol: protocol})
			ears := joinAll(r, 5000)
			requireConfirmations(t, ears, 1)
			for round := 2; round < 5; round++ {
				start := time.Now()
				require.NoError(t, rdb.Do(t.Context(), "client", "kill", "type", "pubsub").Err())
				requireConfirmations(t, ears, round)
				t.Log("all subscribed again after", time.Since(start))
			}
			require.NoError(t, rdb.Publish(t.Context(), "channel:7", "0").Err())
			redistest.Eventually(t, 5*time.Second, "message", func() error {
				if len(ears[7].heard()) == 0 {
					return errors.New("none")
				}
				return nil
			})
		})
	}
}

// F4
func TestRestartedServerIsSubscribedAgain(t *testing.T) {
	s := redistest.Start(t)
	r, rdb := onServer(t, s, redis.Options{})
	ears := joinAll(r, 100)
	requireConfirmations(t, ears, 1)
	s.Restart()
	requireConfirmations(t, ears, 2)
	count, err := rdb.PubSubNumSub(t.Context(), "channel:0").Result()
	require.NoError(t, err)
	assert.EqualValues(t, 1, count["channel:0"])
}

// F4
func TestConnectionToAFrozenServerIsReplaced(t *testing.T) {
	s := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), ReadTimeout: 200 * time.Millisecond})
	r := pubsub.New(rdb, pubsub.Options{HealthCheck: 300 * time.Millisecond})
	t.Cleanup(func() {
		r.Close()
		assert.NoError(t, rdb.Close())
	})
	ears := joinAll(r, 10)
	requireConfirmations(t, ears, 1)
	s.Pause()
	redistest.Eventually(t, 10*time.Second, "the silence is noticed", func() error {
		if rdb.PoolStats().PubSubStats.Active > 0 {
			return errors.New("still open")
		}
		return nil
	})
	redistest.Eventually(t, 5*time.Second, "every listener is notified while the server is silent", func() error {
		for i := range ears {
			if n, gone := ears[i].losses(); n != 1 || !gone {
				return fmt.Errorf("listener %d: %d", i, n)
			}
		}
		return nil
	})
	s.Resume()
	requireConfirmations(t, ears, 2)
	requireLosses(t, ears, 1)
}

// network is the way to some servers: a proxy for each.
type network struct {
	proxies   map[string]*faulttest.Proxy // by the server's address
	sentinels []string                    // among them
	dials     atomic.Int64                // of the others, begun with a context that had not ended
}

func newNetwork(t *testing.T, addrs ...string) *network {
	t.Helper()
	n := &network{proxies: map[string]*faulttest.Proxy{}}
	for _, addr := range addrs {
		n.proxies[addr] = faulttest.NewProxy(t, addr)
	}
	return n
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if ctx.Err() == nil && !slices.Contains(n.sentinels, addr) {
		n.dials.Add(1)
	}
	return new(net.Dialer).DialContext(ctx, network, n.proxies[addr].Addr())
}

// black loses everything while it is on. New connections are accepted; those from before are cut.
func (n *network) black(on bool) {
	for _, p := range n.proxies {
		p.Blackhole(on)
		if on {
			p.Cut()
		}
	}
}

// anyRouter is a [pubsub.Router] or a [pubsub.Shards].
type anyRouter interface {
	Join(channel string, l pubsub.Listener) (*pubsub.Membership, bool)
	Stats() pubsub.Stats
	Close()
}

// behindNetwork are routers of each kind of client, on servers of their own.
var behindNetwork = map[string]func(t *testing.T, o pubsub.Options) (anyRouter, *network){
	"standalone": func(t *testing.T, o pubsub.Options) (anyRouter, *network) {
		t.Helper()
		s := redistest.Start(t)
		n := newNetwork(t, s.Addr())
		rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: n.dial})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		return pubsub.New(rdb, o), n
	},
	"Sentinel": func(t *testing.T, o pubsub.Options) (anyRouter, *network) {
		t.Helper()
		master := redistest.Start(t)
		sentinels := redistest.StartSentinel(t, master, "main", 1, 1)
		n := newNetwork(t, append(sentinels.Addrs(), master.Addr())...)
		n.sentinels = sentinels.Addrs()
		rdb := redistest.FailoverClient(t, &redis.FailoverOptions{MasterName: "main", SentinelAddrs: sentinels.Addrs(), Dialer: n.dial})
		return pubsub.New(rdb, o), n
	},
	"cluster": func(t *testing.T, o pubsub.Options) (anyRouter, *network) {
		t.Helper()
		n, rdb := clusterBehindNetwork(t)
		return pubsub.New(rdb, o), n
	},
	"shards": func(t *testing.T, o pubsub.Options) (anyRouter, *network) {
		t.Helper()
		n, rdb := clusterBehindNetwork(t)
		return pubsub.NewSharded(rdb, o), n
	},
}

func clusterBehindNetwork(t *testing.T) (*network, *redis.ClusterClient) {
	t.Helper()
	cluster := redistest.StartCluster(t, 3)
	n := newNetwork(t, cluster.Addrs()...)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Dialer: n.dial})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	return n, rdb
}

// The Redis client would dial again before it reports the error, and nothing answers then.
//
// F4, F16
func TestLostConnectionIsNoticedWhileDialsHang(t *testing.T) {
	redistest.Long(t)
	for name, start := range behindNetwork {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lag := faulttest.MeasureLag(t, "")
			var r anyRouter
			var n *network
			failures := make(chan int64, 100) // dials by then
			r, n = start(t, pubsub.Options{OnFailure: func() { failures <- n.dials.Load() }})
			t.Cleanup(func() {
				r.Close()
				n.black(false) // a failover client waits with a mutex held, too
			})
			ears := make([]ear, 1)
			_, _ = r.Join("channel:0", &ears[0])
			requireConfirmations(t, ears, 1)

			cut := func() {
				dials, begin := n.dials.Load(), time.Now()
				n.black(true)
				assert.Equal(t, dials, <-failures, "dials until the error is known")
				assert.Less(t, time.Since(begin), time.Second+lag.Late())
			}
			cut()
			begin := time.Now()
			m, _ := r.Join("channel:1", new(ear))
			m.Leave()
			assert.Less(t, time.Since(begin), 100*time.Millisecond+lag.Late())
			n.black(false)
			requireConfirmations(t, ears, 2)
			assert.EqualValues(t, 1, r.Stats().Reconnects)

			for len(failures) > 0 {
				<-failures
			}
			cut()
			begin = time.Now()
			r.Close()
			assert.Less(t, time.Since(begin), 2*time.Second+lag.Late())
		})
	}
}

func TestClusterDeliversFromEveryNode(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	r := pubsub.New(rdb, pubsub.Options{})
	t.Cleanup(func() {
		r.Close()
		assert.NoError(t, rdb.Close())
	})
	ears := joinAll(r, 100)
	for round := range len(cluster.Nodes()) {
		requireConfirmations(t, ears, round+1)
		for i, node := range cluster.Nodes() {
			payload := fmt.Sprint(round, i)
			require.NoError(t, node.Client(t).Publish(t.Context(), "channel:1", payload).Err())
			redistest.Eventually(t, 5*time.Second, "message", func() error {
				if !slices.Contains(ears[1].heard(), payload) {
					return errors.New("none")
				}
				return nil
			})
		}
		require.Equal(t, 1, killOne(t, cluster), "connections killed")
	}
}

// killOne kills the subscription connections of the first node that has any, and returns how many.
func killOne(t *testing.T, cluster *redistest.Cluster) int {
	t.Helper()
	for _, node := range cluster.Nodes() {
		n, err := node.Client(t).Do(t.Context(), "client", "kill", "type", "pubsub").Int()
		require.NoError(t, err)
		if n > 0 {
			return n
		}
	}
	return 0
}

// F20
func TestRefusedChannelsDoNotDisturbOthers(t *testing.T) {
	s := redistest.Start(t)
	admin := s.Client(t)
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "u", "on", ">p", "~*", "+@all",
		"resetchannels", "&channel:*").Err())
	r, rdb := onServer(t, s, redis.Options{Username: "u", Password: "p"})
	var bad ear
	ears := make([]ear, 1000)
	for i := range ears {
		_, _ = r.Join(fmt.Sprint("channel:", i), &ears[i])
		if i%300 == 150 {
			_, _ = r.Join(fmt.Sprint("forbidden:", i), &bad)
		}
	}
	requireConfirmations(t, ears, 1)
	redistest.Eventually(t, 5*time.Second, "refused four by one", func() error {
		return rejectedAtLeast(t, rdb, 4)
	})
	stats, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	t.Log(line(stats, "cmdstat_subscribe"))
	assert.Zero(t, r.Stats().Reconnects)
	assert.Zero(t, bad.confirmations())

	// Another listener of a refused channel asks nothing: the channel waits for its next try.
	for range 1000 {
		m, confirmed := r.Join("forbidden:150", &bad)
		require.False(t, confirmed)
		m.Leave()
	}
	after, err := rdb.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	assert.Less(t, rejected(after), rejected(stats)+20)
}

func rejectedAtLeast(tb testing.TB, rdb *redis.Client, n int) error {
	stats, err := rdb.Info(tb.Context(), "commandstats").Result()
	if err == nil && rejected(stats) < n {
		return fmt.Errorf("%d", rejected(stats))
	}
	return err
}

func rejected(stats string) int {
	_, after, _ := strings.Cut(line(stats, "cmdstat_subscribe"), "rejected_calls=")
	n := 0
	_, _ = fmt.Sscanf(after, "%d", &n)
	return n
}

func line(text, prefix string) string {
	for l := range strings.Lines(text) {
		if strings.HasPrefix(l, prefix) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}

// counter is a listener that only counts.
type counter struct {
	confirmed chan struct{}
	n         atomic.Int64
	want      int64
	done      chan struct{}
}

func (c *counter) Subscribed() { close(c.confirmed) }

func (c *counter) Message(string) {
	if c.n.Add(1) == c.want {
		close(c.done)
	}
}

func BenchmarkMessage(b *testing.B) {
	r, rdb := onServer(b, redistest.Start(b), redis.Options{})
	c := &counter{confirmed: make(chan struct{}), done: make(chan struct{}), want: int64(b.N)}
	_, _ = r.Join("bench", c)
	<-c.confirmed
	const chunk = "for i = 1, ARGV[1] do redis.call('publish', 'bench', '0') end return 1"
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= 10_000 {
		require.NoError(b, rdb.Eval(b.Context(), chunk, nil, min(left, 10_000)).Err())
	}
	<-c.done
}
