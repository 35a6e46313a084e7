package redlatch_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestOpen(t *testing.T) {
	s, err := embedded.Start()
	require.NoError(t, err)
	defer s.Close()
	c, err := redlatch.Open(t.Context(), s.URL())
	require.NoError(t, err)
	locktest.Free(t, c.GetLock("orders"))
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	_, err = c.GetLock("orders").Lock(t.Context())
	require.ErrorIs(t, err, redlatch.ErrClosed)
}

func TestOpenTakesEveryFormOfURL(t *testing.T) {
	server, cluster := redistest.Shared(t), redistest.SharedCluster(t)
	socket := filepath.Join(t.TempDir(), "redis.sock")
	redistest.Start(t, "--unixsocket", socket)
	for form, url := range map[string]string{
		"single":  server.URL(),
		"cluster": cluster.URL(),
		"socket":  "unix://" + socket,
		"TLS":     "rediss://" + encrypted(t, server.Addr()) + "?skip_verify=true",
	} {
		t.Run(form, func(t *testing.T) { opens(t, url) })
	}
	t.Run("Sentinel", func(t *testing.T) {
		opens(t, "redis://"+locktest.StartGroup(t).Sentinel.Addrs()[0]+"?master_name=redlatch")
	})
}

// opens uses a client that Open makes of a URL.
func opens(t *testing.T, url string) {
	t.Helper()
	c, err := redlatch.Open(t.Context(), url)
	require.NoError(t, err)
	locktest.Free(t, c.GetLock("open:orders"))
	locktest.Free(t, c.GetFencedLock("open:{shop}:orders"))
	require.NoError(t, c.Close())
}

// encrypted returns the address of a listener that takes the TLS off what it passes on to addr.
func encrypted(t *testing.T, addr string) string {
	t.Helper()
	https := httptest.NewTLSServer(nil)
	https.Close()                                                                                        // it is there for its certificate
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: https.TLS.Certificates}) //nolint:gosec // a test's
	require.NoError(t, err)
	var running sync.WaitGroup
	t.Cleanup(func() { assert.NoError(t, listener.Close()); running.Wait() })
	running.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if !assert.NoError(t, err) {
				return
			}
			running.Go(func() { _, _ = io.Copy(far, near); _ = far.Close() })
			running.Go(func() { _, _ = io.Copy(near, far); _ = near.Close() })
		}
	})
	return listener.Addr().String()
}

func TestOpenWarnsOfAServerThatEvicts(t *testing.T) {
	for args, warns := range map[string]bool{
		"--maxmemory-policy noeviction --maxmemory 1gb":  false,
		"--maxmemory-policy allkeys-lru --maxmemory 0":   false,
		"--maxmemory-policy allkeys-lru --maxmemory 1gb": true,
	} {
		var log bytes.Buffer
		server := redistest.Start(t, strings.Fields(args)...)
		c, err := redlatch.Open(t.Context(), server.URL(), redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		require.NoError(t, err)
		require.NoError(t, c.Close())
		assert.Equal(t, warns, strings.Contains(log.String(), "maxmemory_policy=allkeys-lru"), "%s: %q", args, log.String())
	}
}

func TestOpenRefusesBadURLs(t *testing.T) {
	for _, url := range []string{
		"", "orders", "http://u:hunter2@localhost", "redis://u:hunter2@localhost:port", "redis://u:hunter2@localhost/first",
		"redis://u:hunter2@localhost:6379/0/1", "redis://u:hunter2@local host", "://u:hunter2@x", "redis://u:hunter2@[::1",
		"redis://u:hunter2@localhost?db=hunter2x&db=y", "redis://u:hunter2@localhost?nonsense=1",
		"redis://u:hunter2@localhost?dial_timeout=never", "unix://u:hunter2@",
		"redis://u:hunter2@localhost:6379?addr=localhost:6380&max_redirects=many",
		"http://u:hunter2@localhost:6379?addr=localhost:6380",
		"redis://u:hunter2@localhost:26379?master_name=m&db=first",
		"redis://u:x@localhost:26379?master_name=m&sentinel_password=hunter2&nonsense=1",
		"redis://u:hunter%32@localhost/first", "redis://u:hunter2%zz@localhost",
	} {
		c, err := redlatch.Open(t.Context(), url)
		if !assert.ErrorIs(t, err, redlatch.ErrInvalid, url) {
			continue
		}
		assert.Nil(t, c)
		assert.NotContains(t, err.Error(), "hunter", "the password shows for %s", url)
	}
}

func TestOpenTellsOfAnUnreachableServer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := redlatch.Open(ctx, "redis://u:hunter2@127.0.0.1:1?max_retries=-1")
	require.Error(t, err)
	require.NotErrorIs(t, err, redlatch.ErrInvalid)
	require.NotContains(t, err.Error(), "hunter2")
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = redlatch.Open(done, "redis://127.0.0.1:1")
	require.ErrorIs(t, err, context.Canceled)
}

// Go-redis logs in and selects the database on its own, before the first command.
func TestOpenTellsOfAConnectionThatRedisRefuses(t *testing.T) {
	addr := redistest.Start(t, "--requirepass", "secret", "--databases", "4").Addr()
	for url, want := range map[string]string{
		"redis://" + addr:                                      "NOAUTH",
		"redis://:wrong@" + addr:                               "WRONGPASS",
		"redis://orders:secret@" + addr:                        "WRONGPASS",
		"redis://:secret@" + addr + "/4":                       "DB index is out of range",
		"redis://:wrong@" + addr + "?addr=" + addr:             "WRONGPASS",
		"redis://:wrong@" + addr + "?protocol=2&client_name=x": "WRONGPASS",
	} {
		_, err := redlatch.Open(t.Context(), url)
		assert.ErrorContains(t, err, want, url)
		assert.NotErrorIs(t, err, redlatch.ErrInvalid, url)
	}
	c, err := redlatch.Open(t.Context(), "redis://:secret@"+addr+"/3")
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// F27
func TestOpenOfASilentServerEndsWithTheCallTimeout(t *testing.T) {
	server := redistest.Start(t)
	server.Pause()
	defer server.Resume()
	began := time.Now()
	_, err := redlatch.Open(t.Context(), server.URL(), redlatch.WithCallTimeout(300*time.Millisecond))
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), 2*time.Second)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = redlatch.Open(ctx, server.URL())
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// F28
func TestOpenNamesTheMissingRight(t *testing.T) {
	server := redistest.Start(t)
	tells := server.Major(t) >= 7 // which rights a user has
	admin := server.Client(t)
	for want, rules := range map[string]string{
		"":                              "+@all -@dangerous ~app:* ~{app:* &redisson_*{app:* &redlatch_*{app:*",
		"no permission for: pexpire":    "+@all -pexpire ~* &*",
		"no permission for: zadd, zrem": "+@all -zadd -zrem ~* &*",
		"no permission for: publish redisson_lock__channel:{app:probe}, subscribe redisson_lock__channel:{app:probe}": "+@all ~*",
		"'evalsha' command": "+@all -evalsha ~* &*",
		"'eval' command":    "+@all -eval ~* &*",
	} {
		words := append([]any{"acl", "setuser", "app", "reset", "resetchannels", "on", ">secret"}, anys(strings.Fields(rules))...)
		require.NoError(t, admin.Do(t.Context(), words...).Err())
		require.NoError(t, admin.ScriptFlush(t.Context()).Err())
		c, err := redlatch.Open(t.Context(), "redis://app:secret@"+server.Addr(), redlatch.WithNamePrefix("app:"))
		if want == "" || !tells && strings.HasPrefix(want, "no permission") {
			require.NoError(t, err)
			require.NoError(t, c.Close())
			continue
		}
		assert.ErrorContains(t, err, want, rules)
		assert.Nil(t, c)
	}
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "app", "reset", "resetchannels", "on", ">secret", "+@all", "~orders", "&*orders*").Err())
	c, err := redlatch.Open(t.Context(), "redis://app:secret@"+server.Addr())
	require.NoError(t, err, "a user of some names only")
	locktest.Free(t, c.GetLock("orders"))
	require.NoError(t, c.Close())
}

func anys(words []string) []any {
	list := make([]any, len(words))
	for i, word := range words {
		list[i] = word
	}
	return list
}
