package redistest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// readyLimit bounds the wait for a server, or a group of servers, to be of use.
const readyLimit = 20 * time.Second

// startTries bounds how often a port that another process took in the meantime is replaced.
const startTries = 10

// Server is a running server. Its methods may be called from any goroutine, except Client and Restart, which may end
// the test.
type Server struct {
	tb       testing.TB
	proc     *process
	elected  time.Time // by Failover
	port     int
	password string
}

// Require skips the test when no server is installed: neither redis-server nor valkey-server is on PATH. With
// REDLATCH_REQUIRE_REDIS=1 the test fails instead.
func Require(tb testing.TB) {
	tb.Helper()
	if _, err := binary(); err == nil {
		return
	}
	if os.Getenv("REDLATCH_REQUIRE_REDIS") == "1" {
		tb.Fatal("redis-server or valkey-server must be on PATH: REDLATCH_REQUIRE_REDIS=1")
	}
	Skip(tb, "neither redis-server nor valkey-server is on PATH")
}

func binary() (string, error) {
	path, err := exec.LookPath("redis-server")
	if err == nil {
		return path, nil
	}
	return exec.LookPath("valkey-server")
}

// Start starts a server on a free port of 127.0.0.1 with no persistence, and returns once it answers. The args are
// appended to its command line; a `--requirepass` among them is used by Client and URL too. It is killed when the test
// ends.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	Require(tb)
	return startWith(tb, nil, args)
}

func startWith(tb testing.TB, env, args []string) *Server {
	tb.Helper()
	s := launchWith(tb, env, tb.TempDir(), password(args), func(port int) []string { return serverArgs(port, args) })
	tb.Cleanup(s.end)
	return s
}

func serverArgs(port int, extra []string) []string {
	return append([]string{
		"--port", strconv.Itoa(port),
		"--bind", "127.0.0.1",
		"--save", "",
		"--appendonly", "no",
		// A replica joins at once instead of waiting for others to join with it.
		"--repl-diskless-sync", "yes",
		"--repl-diskless-sync-delay", "0",
	}, extra...)
}

func password(args []string) string {
	i := slices.Index(args, "--requirepass")
	if i < 0 || i+1 == len(args) {
		return ""
	}
	return args[i+1]
}

// launch starts a server in dir with the arguments that argv gives for a port.
func launch(tb testing.TB, dir, password string, argv func(port int) []string) *Server {
	tb.Helper()
	return launchWith(tb, nil, dir, password, argv)
}

// launchWith is launch with more environment, in the form KEY=value.
func launchWith(tb testing.TB, env []string, dir, password string, argv func(port int) []string) *Server {
	tb.Helper()
	path, err := binary()
	if err != nil {
		tb.Fatal(err)
	}
	for range startTries {
		port := freePort(tb)
		s := &Server{tb: tb, port: port, password: password}
		s.proc = &process{path: path, args: argv(port), env: env, dir: dir}
		err = s.begin()
		if err == nil {
			return s
		}
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	tb.Fatalf("redistest: start: %v", err)
	return nil
}

var errPortTaken = errors.New("port taken")

// begin starts the process and waits until it answers; after an error nothing runs.
func (s *Server) begin() error {
	if err := s.proc.start(); err != nil {
		return err
	}
	err := s.ready()
	if err == nil {
		return nil
	}
	out := s.proc.output()
	err = fmt.Errorf("%w\n%s", err, out)
	if strings.Contains(out, "already in use") {
		err = errors.Join(errPortTaken, err)
	}
	return errors.Join(err, s.proc.kill())
}

// ready waits until the server answers, and it is this process that does: another one may have been faster to take
// the port.
func (s *Server) ready() error {
	rdb := redis.NewClient(s.options())
	defer rdb.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.tb.Context()), readyLimit)
	defer cancel()
	own := fmt.Sprintf("process_id:%d\r\n", s.proc.pid())
	ended := false
	err := retry(readyLimit, func() error {
		if ended = s.proc.ended(time.Millisecond); ended {
			return nil
		}
		// go-redis would log every refused connection.
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			return err
		}
		if err := errors.Join(conn.Close(), rdb.Ping(ctx).Err()); err != nil {
			return err
		}
		info, err := rdb.Info(ctx, "server").Result()
		if err == nil && !strings.Contains(info, own) {
			err = errors.New("another server answers")
		}
		return err
	})
	if ended {
		return errors.New("server ended at once")
	}
	return err
}

// Addr is the server's host and port.
func (s *Server) Addr() string { return address(s.port) }

// URL is the server's address in the form that redis.ParseURL takes.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr(), Path: "/0"}
	if s.password != "" {
		u.User = url.UserPassword("", s.password)
	}
	return u.String()
}

// Client returns a client of this server that retries nothing and sends nothing by itself. It is closed when the test
// ends.
func (s *Server) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	rdb := redis.NewClient(s.options())
	tb.Cleanup(func() { closeClient(tb, rdb) })
	return rdb
}

func (s *Server) options() *redis.Options {
	return &redis.Options{
		Addr:            s.Addr(),
		Password:        s.password,
		MaxRetries:      -1,
		DialerRetries:   1,
		DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{
			Mode: maintnotifications.ModeDisabled,
		},
	}
}

func closeClient(tb testing.TB, rdb io.Closer) {
	tb.Helper()
	if err := rdb.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		tb.Errorf("redistest: close client: %v", err)
	}
}

// Major returns the major version of the protocol that the server speaks: 6 or 7 and later, of which Valkey says 7.
func (s *Server) Major(tb testing.TB) int {
	tb.Helper()
	rdb := redis.NewClient(s.options())
	defer closeClient(tb, rdb)
	info, err := rdb.Info(tb.Context(), "server").Result()
	_, version, _ := strings.Cut(info, "redis_version:")
	version, _, _ = strings.Cut(version, ".")
	major, bad := strconv.Atoi(version)
	if err := errors.Join(err, bad); err != nil {
		tb.Fatalf("redistest: version: %v", err)
	}
	return major
}

// Stop asks the server to shut down, and kills it after 5 s. A paused server is resumed first. It does nothing once the
// server has ended.
func (s *Server) Stop() { s.report("stop", s.proc.terminate()) }

// Kill ends the server with SIGKILL. It does nothing once the server has ended.
func (s *Server) Kill() {
	if s.proc.pid() != 0 {
		Injected("server killed")
	}
	s.end()
}

// end kills the server. What a server wrote that has ended by itself, such as a crash report, goes to the test's log.
func (s *Server) end() {
	s.tb.Helper()
	if s.proc.pid() != 0 && (s.proc.ended(time.Millisecond) || strings.Contains(s.proc.output(), "BUG REPORT")) {
		s.tb.Logf("redistest: %s has ended by itself, or is about to:\n%s", s.Addr(), s.proc.output())
	}
	s.report("kill", s.proc.kill())
}

// Restart kills the server if it runs, starts it on the same port, and returns once it answers. Its data is gone, unless
// it was started with an append-only file; a cluster node keeps its place in the cluster.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	err := retry(readyLimit, func() error {
		if free(s.port) {
			return nil
		}
		return errPortTaken
	})
	if err == nil {
		err = s.begin()
	}
	if err != nil {
		s.tb.Fatalf("redistest: restart %s: %v", s.Addr(), err)
	}
}

// Pause stops the server with SIGSTOP: connections stay open, and new ones are accepted by the system, but nothing is
// answered until Resume.
func (s *Server) Pause() {
	Injected("server stopped by SIGSTOP")
	s.report("pause", s.proc.signal(Freeze))
}

// Resume lets a paused server go on.
func (s *Server) Resume() { s.report("resume", s.proc.signal(Thaw)) }

func (s *Server) report(verb string, err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Errorf("redistest: %s %s: %v", verb, s.Addr(), err)
	}
}
