package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// ElectionLimit bounds a failover by Sentinels. On a busy machine votes split, and are repeated after some seconds.
const ElectionLimit = time.Minute

// Sentinel is a group of Sentinel processes that watch one master.
type Sentinel struct {
	tb       testing.TB
	name     string
	password string
	nodes    []*Server
}

// StartSentinel starts n Sentinel processes that watch master under a name, with the quorum given. It returns once they
// know the master, its replicas and each other. They take the master for dead after 500 ms without an answer. Start the
// replicas before them.
func StartSentinel(tb testing.TB, master *Server, name string, quorum, n int) *Sentinel {
	tb.Helper()
	g := &Sentinel{tb: tb, name: name, password: master.password}
	for range n {
		node := launchSentinel(tb, master, name, quorum)
		tb.Cleanup(node.end)
		g.nodes = append(g.nodes, node)
	}
	client := redis.NewClient(master.options())
	defer closeClient(tb, client)
	fields, err := replication(tb.Context(), client)
	if err != nil {
		tb.Fatalf("redistest: sentinel: %v", err)
	}
	g.tune(100*time.Millisecond, 100*time.Millisecond)
	for _, node := range g.nodes {
		Eventually(tb, readyLimit, "sentinel", func() error {
			return g.knows(tb.Context(), node, fields["connected_slaves"])
		})
	}
	g.tune(500*time.Millisecond, 500*time.Millisecond)
	return g
}

// tune has the nodes talk about the master every publish and ping every ping, more often than they do by default; from
// Redis 7 on they can be told. The shortest times suit discovery only, for two reasons. A new master that another node
// has not heard of for four times publish is made a replica again. A replica is not promoted if its INFO, which is asked
// for each second, is older than five times ping.
func (g *Sentinel) tune(publish, ping time.Duration) {
	g.tb.Helper()
	ctx := g.tb.Context()
	periods := []any{"SENTINEL", "DEBUG", "PUBLISH-PERIOD", publish.Milliseconds(), "PING-PERIOD", ping.Milliseconds()}
	for _, node := range g.nodes {
		rdb := redis.NewClient(node.options())
		err := rdb.Do(ctx, periods...).Err()
		closeClient(g.tb, rdb)
		var answer redis.Error
		if err != nil && !errors.As(err, &answer) {
			g.tb.Fatalf("redistest: sentinel: %v", err)
		}
	}
}

func launchSentinel(tb testing.TB, master *Server, name string, quorum int) *Server {
	tb.Helper()
	dir := tb.TempDir()
	return launch(tb, dir, "", func(port int) []string {
		conf := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\n", port, dir) +
			fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d %d\n", name, master.port, quorum) +
			fmt.Sprintf("sentinel down-after-milliseconds %s 500\n", name) +
			fmt.Sprintf("sentinel failover-timeout %s 3000\n", name)
		if master.password != "" {
			conf += fmt.Sprintf("sentinel auth-pass %s %s\n", name, master.password)
		}
		file := filepath.Join(dir, "sentinel.conf")
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			tb.Fatal(err)
		}
		return []string{file, "--sentinel"}
	})
}

// knows returns nil once the node sees a healthy master, so many replicas of it, and all other nodes.
func (g *Sentinel) knows(ctx context.Context, node *Server, replicas string) error {
	rdb := redis.NewSentinelClient(node.options())
	defer closeClient(g.tb, rdb)
	state, err := rdb.Master(ctx, g.name).Result()
	if err != nil {
		return err
	}
	others := strconv.Itoa(len(g.nodes) - 1)
	if state["flags"] != "master" || state["num-slaves"] != replicas || state["num-other-sentinels"] != others {
		return fmt.Errorf("%s sees %v, not %s replicas and %s others", node.Addr(), state, replicas, others)
	}
	return nil
}

// Nodes are the Sentinel processes.
func (g *Sentinel) Nodes() []*Server { return g.nodes }

// Addrs are the addresses of the Sentinel processes.
func (g *Sentinel) Addrs() []string { return addrs(g.nodes) }

// Master is the address that the first running node gives for the master.
func (g *Sentinel) Master() string {
	g.tb.Helper()
	var err error
	for _, node := range g.nodes {
		var addr string
		if addr, err = g.masterOf(node); err == nil {
			return addr
		}
	}
	g.tb.Fatalf("redistest: sentinel: master of %s: %v", g.name, err)
	return ""
}

func (g *Sentinel) masterOf(node *Server) (string, error) {
	rdb := redis.NewSentinelClient(node.options())
	defer closeClient(g.tb, rdb)
	pair, err := rdb.GetMasterAddrByName(context.WithoutCancel(g.tb.Context()), g.name).Result()
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(pair[0], pair[1]), nil
}

// Failover makes a replica the master, and returns once all running nodes name the same new one and it says so itself.
// The old master, if it runs, learns of it within some seconds.
func (g *Sentinel) Failover() {
	g.tb.Helper()
	ctx := context.WithoutCancel(g.tb.Context())
	old := g.Master()
	Injected("failover ordered")
	rdb := redis.NewSentinelClient(g.nodes[0].options())
	defer closeClient(g.tb, rdb)
	Eventually(g.tb, ElectionLimit, "failover accepted", func() error { return rdb.Failover(ctx, g.name).Err() })
	Eventually(g.tb, ElectionLimit, "new master", func() error { return g.moved(old) })
}

// AwaitMaster waits until all running nodes name one master that is not old, and it says so itself.
func (g *Sentinel) AwaitMaster(old string) {
	g.tb.Helper()
	Eventually(g.tb, ElectionLimit, "new master", func() error { return g.moved(old) })
}

func (g *Sentinel) moved(old string) error {
	current := ""
	for _, node := range g.nodes {
		if node.proc.pid() == 0 {
			continue
		}
		addr, err := g.masterOf(node)
		if err != nil {
			return err
		}
		if addr == old || current != "" && addr != current {
			return fmt.Errorf("%s names %s, others %s", node.Addr(), addr, current)
		}
		current = addr
	}
	rdb := redis.NewClient(&redis.Options{Addr: current, Password: g.password, MaxRetries: -1, DialerRetries: 1})
	defer closeClient(g.tb, rdb)
	fields, err := replication(context.WithoutCancel(g.tb.Context()), rdb)
	if err == nil && fields["role"] != "master" {
		err = fmt.Errorf("%s is a %s", current, fields["role"])
	}
	return err
}

// URL is for redlatch.Open, whose client is one of whichever server is the master. It does not name the group's password.
func (g *Sentinel) URL() string { return clientURL(g.Addrs()) + "&master_name=" + g.name }

// Client returns a client of whichever server is the master. It is closed when the test ends.
func (g *Sentinel) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	return FailoverClient(tb, &redis.FailoverOptions{
		MasterName:      g.name,
		SentinelAddrs:   g.Addrs(),
		Password:        g.password,
		MaxRetries:      -1,
		DisableIdentity: true,
	})
}

// FailoverClient returns a client of whichever server is the master. It is closed when the test ends, and again by [Run].
func FailoverClient(tb testing.TB, o *redis.FailoverOptions) *redis.Client {
	tb.Helper()
	rdb := redis.NewFailoverClient(o)
	tb.Cleanup(func() {
		closeClient(tb, rdb)
		shared.mu.Lock()
		defer shared.mu.Unlock()
		shared.failover = append(shared.failover, rdb)
	})
	return rdb
}

// HoldDials holds back the dials of a client from now on. begun is closed when the first one begins, and goOn lets all go on.
func HoldDials(rdb interface{ AddHook(hook redis.Hook) }) (begun <-chan struct{}, goOn func()) {
	first, all := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(first) })
	rdb.AddHook(holdDials(func() { begin(); <-all }))
	return first, func() { close(all) }
}

// holdDials is a hook that calls a function before each dial.
type holdDials func()

func (hold holdDials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		hold()
		return next(ctx, network, addr)
	}
}

func (holdDials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (holdDials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
