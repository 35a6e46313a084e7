package faulttest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// silence is how long a test listens before it says that nothing came.
const silence = 40 * time.Millisecond

// rig is a proxy in front of the shared server, and a client straight to that.
type rig struct {
	proxy *faulttest.Proxy
	real  *redis.Client
}

func setup(t *testing.T) *rig {
	t.Helper()
	server := redistest.Shared(t)
	r := &rig{proxy: faulttest.NewProxy(t, server.Addr()), real: server.Client(t)}
	require.NoError(t, r.real.FlushAll(t.Context()).Err())
	return r
}

// client connects through the proxy, with one connection and no retries.
func (r *rig) client(t *testing.T, protocol int) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{
		Addr: r.proxy.Addr(), Protocol: protocol, PoolSize: 1, MaxRetries: -1, DialerRetries: 1,
		ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	return rdb
}

// wire is a connection on which a test writes and reads bytes.
type wire struct {
	t *testing.T
	net.Conn
}

func (r *rig) dial(t *testing.T) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", r.proxy.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // The test may have closed it.
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	return &wire{t: t, Conn: conn}
}

func (w *wire) send(text string) {
	w.t.Helper()
	_, err := io.WriteString(w, text)
	require.NoError(w.t, err)
}

func (w *wire) expect(text string) {
	w.t.Helper()
	got := make([]byte, len(text))
	n, err := io.ReadFull(w, got)
	require.NoError(w.t, err, "after %q", got[:n])
	require.Equal(w.t, text, string(got))
}

func (w *wire) expectSilence() {
	w.t.Helper()
	require.NoError(w.t, w.SetReadDeadline(time.Now().Add(silence)))
	n, err := w.Read(make([]byte, 1))
	var timeout net.Error
	require.ErrorAs(w.t, err, &timeout, "read %d", n)
	require.True(w.t, timeout.Timeout(), "%v", err)
	require.NoError(w.t, w.SetReadDeadline(time.Now().Add(10*time.Second)))
}

// expectEnd reads to the end and returns what came before it.
func (w *wire) expectEnd() string {
	w.t.Helper()
	rest, err := io.ReadAll(w)
	require.NoError(w.t, err)
	return string(rest)
}

func (w *wire) expectReset() {
	w.t.Helper()
	_, err := io.ReadAll(w)
	require.ErrorIs(w.t, err, syscall.ECONNRESET)
}

func TestBothProtocolsPass(t *testing.T) {
	r := setup(t)
	for _, protocol := range []int{2, 3} {
		rdb := r.client(t, protocol)
		require.NoError(t, rdb.HSet(t.Context(), "h", "a", "1", "b", "2").Err())
		assert.Equal(t, map[string]string{"a": "1", "b": "2"}, rdb.HGetAll(t.Context(), "h").Val())
		require.ErrorIs(t, rdb.Get(t.Context(), "none").Err(), redis.Nil)
		large := string(make([]byte, 200<<10))
		require.NoError(t, rdb.Set(t.Context(), "large", large, 0).Err())
		assert.Equal(t, large, rdb.Get(t.Context(), "large").Val())
	}
}

func TestCommandsAreCounted(t *testing.T) {
	r := setup(t)
	w := r.dial(t)
	w.send("PING\r\nping\r\n*2\r\n$4\r\nincr\r\n$1\r\nn\r\n\r\n")
	w.expect("+PONG\r\n+PONG\r\n:1\r\n")
	assert.Equal(t, map[string]int{"PING": 2, "INCR": 1}, r.proxy.Commands())
	assert.Equal(t, 3, r.proxy.Total())
}

func TestServerThatClosesEndsTheConnectionInOrder(t *testing.T) {
	w := setup(t).dial(t)
	w.send("PING\r\nQUIT\r\n")
	assert.Equal(t, "+PONG\r\n+OK\r\n", w.expectEnd())
}

func TestClosedClientStillHasItsRequestsExecuted(t *testing.T) {
	r := setup(t)
	w := r.dial(t)
	w.send("INCR n\r\n")
	require.NoError(t, w.Close())
	redistest.Eventually(t, 5*time.Second, "executed", func() error { return r.real.Get(t.Context(), "n").Err() })
}

func TestUnreachableTargetClosesConnections(t *testing.T) {
	server := redistest.Start(t)
	r := &rig{proxy: faulttest.NewProxy(t, server.Addr())}
	server.Kill()
	conn, err := net.Dial("tcp", r.proxy.Addr())
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestBlackholeSwallowsBothDirections(t *testing.T) {
	r := setup(t)
	old, idle := r.dial(t), r.dial(t)
	for _, w := range []*wire{old, idle} {
		w.send("PING\r\n")
		w.expect("+PONG\r\n")
	}
	before := r.proxy.Total()

	arrived := make(chan struct{}, 2) // room for both requests
	r.proxy.OnCommand(func([]string) { arrived <- struct{}{} })
	r.proxy.Blackhole(true)
	fresh := r.dial(t)
	old.send("INCR n\r\n")
	fresh.send("INCR n\r\n")
	<-arrived
	<-arrived
	r.proxy.OnCommand(nil)
	old.expectSilence()
	fresh.expectSilence()
	assert.Equal(t, before, r.proxy.Total())
	require.ErrorIs(t, r.real.Get(t.Context(), "n").Err(), redis.Nil)

	r.proxy.Blackhole(false)
	old.expectReset()
	fresh.expectReset()
	idle.send("PING\r\n")
	idle.expect("+PONG\r\n")
}

func TestBlackholeHidesTheEndOfTheServer(t *testing.T) {
	r := setup(t)
	w := r.dial(t)
	w.send("CLIENT ID\r\n")
	w.expect(":")
	id := ""
	for b := make([]byte, 1); ; id += string(b) {
		_, err := w.Read(b)
		require.NoError(t, err)
		if b[0] == '\r' {
			break
		}
	}
	w.expect("\n")
	r.proxy.Blackhole(true)
	require.NoError(t, r.real.Do(t.Context(), "CLIENT", "KILL", "ID", id).Err())
	w.expectSilence()
	r.proxy.Blackhole(false)
	assert.Empty(t, w.expectEnd())
}

func TestCutResetsAndNewConnectionsWork(t *testing.T) {
	r := setup(t)
	a, b := r.dial(t), r.dial(t)
	for _, w := range []*wire{a, b} {
		w.send("PING\r\n")
		w.expect("+PONG\r\n")
	}
	r.proxy.Cut()
	a.expectReset()
	b.expectReset()

	c := r.dial(t)
	c.send("PING\r\n")
	c.expect("+PONG\r\n")
}

func TestRefuseTurnsOnlyNewConnectionsAway(t *testing.T) {
	r := setup(t)
	old := r.dial(t)
	old.send("PING\r\n")
	old.expect("+PONG\r\n")
	r.proxy.Refuse(true)
	require.Error(t, r.client(t, 3).Ping(t.Context()).Err())
	old.send("PING\r\n")
	old.expect("+PONG\r\n")
	r.proxy.Refuse(false)
	require.NoError(t, r.client(t, 3).Ping(t.Context()).Err())
}

func TestDelayAddsLatencyAndKeepsThroughput(t *testing.T) {
	const delay, requests = 25 * time.Millisecond, 40
	r := setup(t)
	lag := faulttest.MeasureLag(t, "")
	w := r.dial(t)
	r.proxy.Delay(delay)
	start := time.Now()
	want := ""
	for i := range requests {
		w.send("ECHO " + string(rune('a'+i%26)) + "\r\n")
		want += "$1\r\n" + string(rune('a'+i%26)) + "\r\n"
	}
	w.expect(want)
	took := time.Since(start)
	assert.GreaterOrEqual(t, took, 2*delay)
	assert.Less(t, took, requests*delay+lag.Late(), "requests wait for each other")

	r.proxy.Delay(0)
	w.send("PING\r\n")
	w.expect("+PONG\r\n")
}

func TestHalfOpenSilencesTheServerOnExistingConnections(t *testing.T) {
	r := setup(t)
	old := r.dial(t)
	old.send("PING\r\n")
	old.expect("+PONG\r\n")
	r.proxy.HalfOpen()
	old.send("INCR n\r\n")
	redistest.Eventually(t, 5*time.Second, "the request arrives", func() error { return r.real.Get(t.Context(), "n").Err() })
	old.expectSilence()
	assert.Equal(t, "1", r.real.Get(t.Context(), "n").Val())

	w := r.dial(t)
	w.send("INCR n\r\n")
	w.expect(":2\r\n")
}

func TestOnCommandRunsBetweenTwoSteps(t *testing.T) {
	r := setup(t)
	w := r.dial(t)
	var seen []string
	r.proxy.OnCommand(func(cmd []string) {
		seen = append(seen, cmd[0])
		if cmd[0] == "GET" {
			assert.NoError(t, r.real.Incr(context.WithoutCancel(t.Context()), "n").Err())
		}
	})
	w.send("SET n 1\r\n")
	w.expect("+OK\r\n")
	w.send("GET n\r\n")
	w.expect("$1\r\n2\r\n")
	r.proxy.OnCommand(nil)
	w.send("PING\r\n")
	w.expect("+PONG\r\n")
	assert.Equal(t, []string{"SET", "GET"}, seen)
}

func TestWhatAHookBreaksMeetsItsRequest(t *testing.T) {
	for name, verb := range map[string]func(*faulttest.Proxy){
		"cut":       func(p *faulttest.Proxy) { p.Cut() },
		"blackhole": func(p *faulttest.Proxy) { p.Blackhole(true) },
	} {
		t.Run(name, func(t *testing.T) {
			r := setup(t)
			var once sync.Once
			called := make(chan struct{})
			r.proxy.OnCommand(func([]string) {
				once.Do(func() {
					verb(r.proxy)
					close(called)
				})
			})
			r.dial(t).send("INCR n\r\n")
			<-called
			r.proxy.Blackhole(false)
			r.proxy.OnCommand(nil)
			w := r.dial(t)
			w.send("GET n\r\n")
			w.expect("$-1\r\n")
		})
	}
}

func TestContextEndsWaitInBlackhole(t *testing.T) {
	r := setup(t)
	rdb := r.client(t, 3)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	r.proxy.Blackhole(true)
	ctx, cancel := context.WithTimeout(t.Context(), silence)
	defer cancel()
	err := rdb.Incr(ctx, "n").Err()
	var timeout net.Error
	require.True(t, errors.As(err, &timeout) && timeout.Timeout(), "%v", err)
}
