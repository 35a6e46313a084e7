package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/embedded"
)

// nodes are servers that know nothing of each other.
type nodes struct {
	kind  string
	addrs []string
	stops []func() // of those that still run
	pools []*redis.Client
}

func (n *nodes) String() string { return n.kind }

// startNodes starts real servers if there are any, and otherwise some inside this process.
func startNodes(ctx context.Context, count int) (*nodes, error) {
	n := &nodes{kind: "in this process"}
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		binary, err = exec.LookPath("valkey-server")
	}
	start := n.startEmbedded
	if err == nil {
		n.kind = binary
		start = func() error { return n.startServer(ctx, binary) }
	}
	for range count {
		if err := start(); err != nil {
			n.stop()
			return nil, err
		}
	}
	return n, nil
}

func (n *nodes) startEmbedded() error {
	server, err := embedded.Start()
	if err != nil {
		return err
	}
	n.addrs, n.stops = append(n.addrs, server.Addr()), append(n.stops, server.Close)
	return nil
}

// startServer starts a server on a free port, and returns once it answers. It ends with ctx at the latest.
func (n *nodes) startServer(ctx context.Context, binary string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := listener.Addr().String()
	_, port, err := net.SplitHostPort(addr)
	if err := errors.Join(err, listener.Close()); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, binary, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", os.TempDir())
	if err := cmd.Start(); err != nil {
		return err
	}
	n.addrs = append(n.addrs, addr)
	n.stops = append(n.stops, func() {
		_ = cmd.Process.Kill() // it may have ended already
		_ = cmd.Wait()         // it was killed, and says so
	})
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	for rdb.Ping(ctx).Err() != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", addr, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// connect returns a connection to each server.
func (n *nodes) connect() []*redis.Client {
	var pools []*redis.Client
	for _, addr := range n.addrs {
		pools = append(pools, redis.NewClient(&redis.Options{Addr: addr, DialTimeout: time.Second}))
	}
	n.pools = append(n.pools, pools...)
	return pools
}

// stopOne ends one of the servers that still run, without a word to anybody.
func (n *nodes) stopOne() {
	n.stops[0]()
	n.stops = n.stops[1:]
}

func (n *nodes) stop() {
	for _, rdb := range n.pools {
		_ = rdb.Close() // nothing is lost with it
	}
	for len(n.stops) > 0 {
		n.stopOne()
	}
}
