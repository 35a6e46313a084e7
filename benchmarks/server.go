package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// server is a private redis-server on a free loopback port. It dies with this process.
type server struct {
	addr  string
	admin *redis.Client // for FLUSHALL, SLOWLOG and the like; its commands are counted nowhere
	cmd   *exec.Cmd
	dir   string
}

func startServer(ctx context.Context, binary string) (*server, error) {
	dir, err := os.MkdirTemp("", "redlatch-bench-")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &server{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir}
	s.cmd = exec.Command(binary, "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
		"--save", "", "--appendonly", "no", "--maxclients", "4000", "--slowlog-log-slower-than", "-1")
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", binary, err), os.RemoveAll(dir))
	}
	s.admin = redis.NewClient(&redis.Options{Addr: s.addr, ReadTimeout: time.Minute})
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

func (s *server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := s.admin.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis-server at %s does not answer: %w", s.addr, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// version is the server's own name for itself, for the heading of the report.
func (s *server) version(ctx context.Context) string {
	info, err := s.admin.Info(ctx, "server").Result()
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(info) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "redis_version:"); ok {
			return version
		}
	}
	return "unknown"
}

// empty removes every key and keeps the scripts.
func (s *server) empty(ctx context.Context) error { return s.admin.FlushAll(ctx).Err() }

// stop ends the server and removes its directory.
func (s *server) stop() error {
	err := errors.Join(s.admin.Close(), s.cmd.Process.Kill())
	_ = s.cmd.Wait() // it was killed, and says so
	return errors.Join(err, os.RemoveAll(s.dir))
}

// within waits until look says so, asking every step.
func within(ctx context.Context, limit, step time.Duration, what string, look func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		done, err := look(ctx)
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		case <-time.After(step):
		}
	}
}
