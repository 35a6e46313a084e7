package core_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

var one = script.New("test", "return 1")

func call() *script.Call { return one.Call(1, "key") }

// over returns a core whose connections are made by dial.
func over(t *testing.T, dial func(context.Context, string, string) (net.Conn, error)) *core.Core {
	rdb := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", Dialer: dial, MaxRetries: -1, DialerRetries: 1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
	})
	e := core.New(rdb, core.Config{Lease: 30 * time.Second, CallTimeout: 7 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		e.Close()
		_ = rdb.Close()
	})
	return e
}

// mute returns a dialer whose connections answer the client's greeting with errors, so that it goes on, and everything else
// with silence. They are closed when the test ends.
func mute(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	var mu sync.Mutex
	var open []net.Conn
	t.Cleanup(func() { // go-redis below v9.23 may leave one open
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			_ = c.Close()
		}
	})
	return func(context.Context, string, string) (net.Conn, error) {
		server, client := net.Pipe()
		mu.Lock()
		open = append(open, client)
		mu.Unlock()
		go func() {
			buf := make([]byte, 4096)
			n, _ := server.Read(buf) // HELLO
			if n > 0 {
				_, _ = server.Write([]byte("-ERR unknown command\r\n"))
			}
			_, _ = io.Copy(io.Discard, server)
		}()
		return client, nil
	}
}

func refuse(context.Context, string, string) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
}

// calls are the ways to send a script, by name, and the error of each when Redis may have run it.
func calls(e *core.Core) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"read":  func(ctx context.Context) error { _, err := e.Read(ctx, call); return err },
		"query": func(ctx context.Context) error { _, _, err := e.Query(ctx, call); return err },
		"once":  func(ctx context.Context) error { _, err := e.Once(ctx, call); return err },
	}
}

// F27
func TestCallsWithoutADeadlineEndWithTheCallTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := over(t, mute(t))
		for name, run := range calls(e) {
			began := time.Now()
			err := run(t.Context())
			assert.LessOrEqual(t, time.Since(began), 7*time.Second, name)
			assert.GreaterOrEqual(t, time.Since(began), 2500*time.Millisecond, name)
			assert.NotErrorIs(t, err, context.DeadlineExceeded, "%s: the caller's context has not ended", name)
			if name == "read" {
				assert.ErrorIs(t, err, errs.ErrUnavailable, name)
				assert.NotErrorIs(t, err, errs.ErrUnknown, name)
				continue
			}
			assert.ErrorIs(t, err, errs.ErrUnknown, name)
			assert.NotErrorIs(t, err, errs.ErrUnavailable, name)
		}
	})
}

// F27
func TestCallsWithADeadlineEndWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := over(t, mute(t))
		for name, run := range calls(e) {
			for _, limit := range []time.Duration{300 * time.Millisecond, 20 * time.Second} {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				began := time.Now()
				err := run(ctx)
				cancel()
				assert.LessOrEqual(t, time.Since(began), limit, name)
				if name == "once" && limit > 3*time.Second { // it ends with its connection's silence
					assert.ErrorIs(t, err, errs.ErrUnknown)
					continue
				}
				assert.ErrorIs(t, err, context.DeadlineExceeded, name)
				want := errs.ErrUnknown
				if name == "read" {
					want = errs.ErrUnavailable
				}
				assert.ErrorIs(t, err, want, name)
			}
		}
	})
}

// F27
func TestARefusedConnectionIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := over(t, refuse)
		for name, run := range calls(e) {
			began := time.Now()
			err := run(t.Context())
			assert.Less(t, time.Since(began), time.Second, name)
			assert.ErrorIs(t, err, errs.ErrUnavailable, name)
			assert.NotErrorIs(t, err, errs.ErrUnknown, name)
			var op *net.OpError
			assert.ErrorAs(t, err, &op, "%s: Redis's own error stays reachable", name)
			assert.Equal(t, 1, strings.Count(err.Error(), errs.ErrUnavailable.Error()), "%v", err)
		}
	})
}

func TestABoundContextEndsWithTheCallTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := over(t, refuse)
		ctx, cancel := e.Bound(t.Context())
		defer cancel()
		deadline, _ := ctx.Deadline()
		assert.Equal(t, 7*time.Second, time.Until(deadline))
		<-ctx.Done()
		err := core.Conclude(ctx, script.NotDone, script.ErrNoAnswer)
		assert.EqualError(t, err, "redis unavailable: no answer in time")
		assert.NotErrorIs(t, err, context.DeadlineExceeded)

		own, cancelOwn := context.WithTimeout(t.Context(), time.Minute)
		defer cancelOwn()
		same, _ := e.Bound(own)
		assert.Equal(t, own, same, "a deadline of the caller's is the only one")
	})
}

// lateContext ends 100 ms after its deadline, as one whose timer is late on a busy machine.
type lateContext struct{ context.Context }

func (c lateContext) Deadline() (time.Time, bool) {
	deadline, ok := c.Context.Deadline()
	return deadline.Add(-100 * time.Millisecond), ok
}

// dialTimeout is what net says of a dial whose deadline is over; unlike os.ErrDeadlineExceeded it is that of no context.
type dialTimeout struct{}

func (dialTimeout) Error() string { return "i/o timeout" }

func (dialTimeout) Timeout() bool { return true }

// F16, F23: a connection has the deadline of the context, and its timer may fire first.
func TestATimeoutAtTheDeadlineIsTheEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, timeout := range []error{os.ErrDeadlineExceeded, &net.OpError{Op: "dial", Err: dialTimeout{}}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			time.Sleep(time.Second - 100*time.Millisecond)
			err := core.Conclude(lateContext{ctx}, script.NotDone, timeout)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorIs(t, err, errs.ErrUnavailable)

			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err = core.Conclude(ctx, script.NotDone, timeout)
			assert.ErrorIs(t, err, errs.ErrUnavailable)
			assert.NotErrorIs(t, err, context.DeadlineExceeded, "a shorter timeout of the connection is none of the context")
		}
	})
}

// noPerm is a reply that is certain.
type noPerm struct{}

func (noPerm) Error() string { return "NOPERM this user has no permissions" }

func (noPerm) RedisError() {}

// F25
func TestACertainNoToARepetitionSaysNothingOfTheFirst(t *testing.T) {
	err := core.Conclude(t.Context(), script.Unknown, noPerm{})
	assert.ErrorIs(t, err, errs.ErrUnknown)
	assert.ErrorIs(t, err, noPerm{})
	assert.Equal(t, script.Unknown, script.Judge(err), "judged again it stays unknown")
	err = core.Conclude(t.Context(), script.NotDone, noPerm{})
	require.ErrorIs(t, err, noPerm{})
	assert.NotErrorIs(t, err, errs.ErrUnknown)
}

func TestWhatRedisDidNotAnswerIsUnknown(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{io.EOF, true},
		{script.ErrNoAnswer, true},
		{fmt.Errorf("%w: %w", script.ErrNotSent, script.ErrNoAnswer), true}, // its queue stood still: no other class has it
		{fmt.Errorf("%w: %w", script.ErrNotSent, context.Canceled), false},
		{fmt.Errorf("%w: %w", script.ErrNotSent, errs.ErrClosed), false},
		{nil, false},
	} {
		err := core.Judged(c.err)
		assert.ErrorIs(t, err, c.err)
		if c.want {
			assert.ErrorIs(t, err, errs.ErrUnknown, "%v", c.err)
		} else {
			assert.NotErrorIs(t, err, errs.ErrUnknown, "%v", c.err)
		}
	}
}
