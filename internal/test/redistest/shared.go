package redistest

import (
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

// leakLimit bounds the wait for goroutines that are about to end after the tests. A connection pool that was refused
// dials again for a second and a half, and for longer on a busy machine.
const leakLimit = 10 * time.Second

// shared holds the servers that live as long as the test binary.
//
//nolint:gochecknoglobals // One per test binary is what they are for.
var shared struct {
	mu       sync.Mutex // guards the rest
	server   *Server
	cluster  *Cluster
	dirs     []string
	failover []*redis.Client // behind Sentinel, which tests have closed
}

// Shared returns a server that all tests of the binary use, started by the first call. What a test leaves in it stays:
// use names of your own, or FLUSHALL. It must not be stopped, paused or reconfigured.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	Require(tb)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		argv := func(port int) []string { return serverArgs(port, nil) }
		shared.server = launch(tb, sharedDirLocked(tb), "", argv)
	}
	return shared.server.forTest(tb)
}

// SharedCluster returns a cluster of three masters that all tests of the binary use, under the terms of [Shared].
func SharedCluster(tb testing.TB) *Cluster {
	tb.Helper()
	Require(tb)
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.cluster == nil {
		c := &Cluster{}
		for range 3 {
			c.nodes = append(c.nodes, launchNode(tb, sharedDirLocked(tb)))
		}
		c.form(tb)
		shared.cluster = c
	}
	c := &Cluster{}
	for _, node := range shared.cluster.nodes {
		c.nodes = append(c.nodes, node.forTest(tb))
	}
	return c
}

func (s *Server) forTest(tb testing.TB) *Server {
	return &Server{tb: tb, proc: s.proc, port: s.port, password: s.password}
}

// sharedDirLocked makes a directory that outlives the test.
func sharedDirLocked(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "redistest-*") //nolint:usetesting // It outlives tb.
	if err != nil {
		tb.Fatal(err)
	}
	shared.dirs = append(shared.dirs, dir)
	return dir
}

// Run runs the tests of m, 8 at a time unless -parallel says otherwise, stops the shared servers, and then looks for
// goroutines that are left, except those that opts name. It returns the code to exit with:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }
func Run(m *testing.M, opts ...goleak.Option) int {
	if err := setParallel(); err != nil {
		fmt.Fprintln(os.Stderr, "redistest: -parallel:", err)
		return 1
	}
	code := m.Run()
	stopShared()
	printInjected()
	if code != 0 {
		return code
	}
	if err := retry(leakLimit, func() error { return left(opts...) }); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines left after the tests:", err)
		return 1
	}
	return 0
}

// left returns an error that names the goroutines that are left, except those that opts name.
//
// go-redis below v9.23 opens a subscription to Sentinel for a dial that goes on when its client is closed, and then only
// a second Close ends it. A client is closed as often as it takes, since such a dial may end late.
func left(opts ...goleak.Option) error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	for _, rdb := range shared.failover {
		_ = rdb.Close() // it says that it is closed
	}
	return goleak.Find(opts...)
}

func stopShared() {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	servers := []*Server{}
	if shared.server != nil {
		servers = append(servers, shared.server)
	}
	if shared.cluster != nil {
		servers = append(servers, shared.cluster.nodes...)
	}
	for _, s := range servers {
		if err := s.proc.kill(); err != nil {
			fmt.Fprintln(os.Stderr, "redistest: stop shared server:", err)
		}
	}
	for _, dir := range shared.dirs {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(os.Stderr, "redistest: remove", err)
		}
	}
	shared.server, shared.cluster, shared.dirs = nil, nil, nil
}
