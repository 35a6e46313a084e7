package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// classes are all that a caller may tell apart.
var classes = map[string]error{
	"ErrInvalid": redlatch.ErrInvalid, "ErrClosed": redlatch.ErrClosed,
	"ErrUnknown": redlatch.ErrUnknown, "ErrWrongType": redlatch.ErrWrongType,
	"ErrNotAcquired": rlock.ErrNotAcquired, "ErrNotHeld": rlock.ErrNotHeld,
	"ErrLost": rlock.ErrLost, "ErrHeld": rlock.ErrHeld, "ErrUnlocked": rlock.ErrUnlocked,
	"Canceled": context.Canceled, "DeadlineExceeded": context.DeadlineExceeded,
	"ErrPoolTimeout": redis.ErrPoolTimeout,
	"ECONNREFUSED":   syscall.ECONNREFUSED, "OOM": replyPrefix("OOM"), "NOAUTH": replyPrefix("NOAUTH"), "NOPERM": replyPrefix("NOPERM"),
}

// replyPrefix is the class of errors that Redis itself answers with.
type replyPrefix string

func (p replyPrefix) Error() string { return string(p) }

// classesOf names all classes that an error belongs to.
func classesOf(err error) []string {
	var found []string
	for name, class := range classes {
		prefix, reply := class.(replyPrefix) //nolint:errorlint // the table's own value
		if reply && redis.HasErrorPrefix(err, string(prefix)) || !reply && errors.Is(err, class) {
			found = append(found, name)
		}
	}
	return found
}

// bench is what one cause gets: a server, a proxy before it, a client through the proxy and another one beside it.
type bench struct {
	server *redistest.Server
	proxy  *faulttest.Proxy
	rdb    *redis.Client
	client *redlatch.Client
	other  *redlatch.Client
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{server: serve(t)}
	b.proxy = faulttest.NewProxy(t, b.server.Addr())
	b.rdb = b.server.Client(t)
	b.client = clientAt(t, b.proxy.Addr(), redlatch.WithWatchdogTimeout(shortLease), redlatch.WithCloseGrace(0))
	b.other = clientAt(t, b.server.Addr(), redlatch.WithWatchdogTimeout(shortLease), redlatch.WithCloseGrace(0))
	t.Cleanup(func() { b.proxy.Blackhole(false) })
	// Redis knows all scripts: what is lost below is the answer of one that ran.
	warm := clientAt(t, b.server.Addr()).GetLock("warm")
	require.NoError(t, wholeLife(t.Context(), warm))
	_, err := warm.ForceUnlock(t.Context())
	require.NoError(t, err)
	return b
}

// hold takes a lock with a client of the bench.
func (b *bench) hold(t *testing.T, c *redlatch.Client, opts ...rlock.Option) *rlock.Hold {
	t.Helper()
	hold, err := c.GetLock("f23").Lock(t.Context(), opts...)
	require.NoError(t, err)
	return hold
}

// lossOf waits for the end of a hold's context.
func lossOf(h *rlock.Hold) error {
	<-h.Context().Done()
	return context.Cause(h.Context())
}

func tryLock(ctx context.Context, c *redlatch.Client) error {
	_, err := c.GetLock("f23").TryLock(ctx)
	return err
}

func lock(ctx context.Context, c *redlatch.Client, opts ...rlock.Option) error {
	_, err := c.GetLock("f23").Lock(ctx, opts...)
	return err
}

var causes = []struct {
	cause string
	want  string
	err   func(t *testing.T, b *bench) error
}{
	{"the name is empty", "ErrInvalid", func(t *testing.T, b *bench) error {
		_, err := b.client.GetLock("").TryLock(t.Context())
		return err
	}},
	{"the lease is too short", "ErrInvalid", func(t *testing.T, b *bench) error {
		return lock(t.Context(), b.client, rlock.WithFixedLease(time.Millisecond))
	}},
	{"fn is nil", "ErrInvalid", func(t *testing.T, b *bench) error {
		return b.client.GetLock("f23").Do(t.Context(), nil)
	}},
	{"taken by another client", "ErrNotAcquired", func(t *testing.T, b *bench) error {
		b.hold(t, b.other)
		return tryLock(t.Context(), b.client)
	}},
	{"taken by this client", "ErrNotAcquired", func(t *testing.T, b *bench) error {
		b.hold(t, b.client)
		return tryLock(t.Context(), b.client)
	}},
	{"taken until the wait is over", "ErrNotAcquired", func(t *testing.T, b *bench) error {
		b.hold(t, b.other)
		return lock(t.Context(), b.client, rlock.WithWait(20*time.Millisecond))
	}},
	{"taken until the deadline", "DeadlineExceeded", func(t *testing.T, b *bench) error {
		b.hold(t, b.other)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return lock(ctx, b.client)
	}},
	{"cancelled before", "Canceled", func(t *testing.T, b *bench) error {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return lock(ctx, b.client)
	}},
	{"cancelled while waiting", "Canceled", func(t *testing.T, b *bench) error {
		b.hold(t, b.other)
		ctx, cancel := context.WithCancel(t.Context())
		b.proxy.OnCommand(func(cmd []string) {
			if faulttest.Named("SUBSCRIBE")(cmd) {
				cancel()
			}
		})
		return lock(ctx, b.client)
	}},
	{"no answer until the deadline", "DeadlineExceeded", func(t *testing.T, b *bench) error {
		b.proxy.Blackhole(true)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return tryLock(ctx, b.client)
	}},
	{"a query without an answer until the deadline", "DeadlineExceeded", func(t *testing.T, b *bench) error {
		b.proxy.Blackhole(true)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := b.client.GetLock("f23").IsLocked(ctx)
		return err
	}},
	{"connections break until the deadline", "DeadlineExceeded", func(t *testing.T, b *bench) error {
		b.proxy.DropReplies(faulttest.Script, 1000)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
		defer cancel()
		_, err := b.client.GetLock("f23").IsLocked(ctx)
		return err
	}},
	{"the answer to a try was lost", "ErrUnknown", func(t *testing.T, b *bench) error {
		b.proxy.DropReply(faulttest.Script, 1)
		return tryLock(t.Context(), b.client)
	}},
	{"the answer to an extension was lost", "ErrUnknown", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client)
		b.proxy.Blackhole(true)
		return hold.Extend(t.Context(), time.Minute)
	}},
	{"the answer to a release was lost", "ErrUnknown", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client, rlock.WithFixedLease(time.Minute)) // no renewal takes the connection
		b.proxy.Blackhole(true)
		return hold.Unlock(t.Context())
	}},
	{"the answer to an inner release was lost", "ErrUnknown", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client)
		inner, err := b.client.GetLock("f23").Lock(hold.Context())
		require.NoError(t, err)
		b.proxy.Blackhole(true)
		return inner.Unlock(t.Context())
	}},
	{"answers to a forced release are lost", "ErrUnknown", func(t *testing.T, b *bench) error {
		b.hold(t, b.other)
		b.proxy.DropReplies(faulttest.Script, 100)
		_, err := b.client.GetLock("f23").ForceUnlock(t.Context())
		return err
	}},
	{"unlocked twice", "ErrNotHeld", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client)
		require.NoError(t, hold.Unlock(t.Context()))
		return hold.Unlock(t.Context())
	}},
	{"extended after the unlock", "ErrNotHeld", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client)
		require.NoError(t, hold.Unlock(t.Context()))
		return hold.Extend(t.Context(), time.Minute)
	}},
	{"unlocked after it was taken away", "ErrNotHeld", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client)
		require.NoError(t, b.rdb.Del(t.Context(), "f23").Err())
		return hold.Unlock(t.Context())
	}},
	{"unlocked after its lease", "ErrNotHeld", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client, rlock.WithFixedLease(200*time.Millisecond))
		<-hold.Context().Done()
		return hold.Unlock(t.Context())
	}},
	{"extended after it was taken away", "ErrLost", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client)
		require.NoError(t, b.rdb.Del(t.Context(), "f23").Err())
		return hold.Extend(t.Context(), time.Minute)
	}},
	{"extended after its lease", "ErrLost", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client, rlock.WithFixedLease(200*time.Millisecond))
		<-hold.Context().Done()
		return hold.Extend(t.Context(), time.Minute)
	}},
	{"nested after it was taken away", "ErrLost", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client, rlock.WithFixedLease(time.Minute)) // no renewal tells before the call does
		require.NoError(t, b.rdb.Del(t.Context(), "f23").Err())
		return lock(hold.Context(), b.client)
	}},
	{"cause: taken away", "ErrLost", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client)
		_, err := b.other.GetLock("f23").ForceUnlock(t.Context())
		require.NoError(t, err)
		return lossOf(hold)
	}},
	{"cause: out of reach", "ErrLost", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client)
		b.proxy.Blackhole(true)
		return lossOf(hold)
	}},
	{"cause: the lease is over", "ErrLost", func(t *testing.T, b *bench) error {
		return lossOf(b.hold(t, b.client, rlock.WithFixedLease(200*time.Millisecond)))
	}},
	{"lost within Do", "ErrLost", func(t *testing.T, b *bench) error {
		return b.client.GetLock("f23").Do(t.Context(), func(ctx context.Context) error {
			assert.NoError(t, b.rdb.Del(t.Context(), "f23").Err())
			<-ctx.Done()
			return nil
		})
	}},
	{"closed within Do", "ErrClosed", func(t *testing.T, b *bench) error {
		return b.client.GetLock("f23").Do(t.Context(), func(context.Context) error { return b.client.Close() })
	}},
	{"lost within Do while the client closes", "ErrLost", func(t *testing.T, b *bench) error {
		c := clientAt(t, b.proxy.Addr(), redlatch.WithCloseGrace(time.Minute)) // no renewal notices the loss before the release does
		closed := make(chan error, 1)                                          // the result of Close
		err := c.GetLock("f23").Do(t.Context(), func(ctx context.Context) error {
			go func() { closed <- c.Close() }()
			<-ctx.Done()
			return b.rdb.Del(t.Context(), "f23").Err()
		})
		assert.NoError(t, <-closed)
		return err
	}},
	{"cause: unlocked", "ErrUnlocked", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client)
		ctx := hold.Context()
		require.NoError(t, hold.Unlock(t.Context()))
		return context.Cause(ctx)
	}},
	{"nested although it must not", "ErrHeld", func(t *testing.T, b *bench) error {
		return lock(b.hold(t, b.client).Context(), b.client, rlock.WithoutReentry())
	}},
	{"the client is closed", "ErrClosed", func(t *testing.T, b *bench) error {
		require.NoError(t, b.client.Close())
		return tryLock(t.Context(), b.client)
	}},
	{"a query of a closed client", "ErrClosed", func(t *testing.T, b *bench) error {
		require.NoError(t, b.client.Close())
		_, err := b.client.GetLock("f23").IsLocked(t.Context())
		return err
	}},
	{"closed during a query", "ErrClosed", func(t *testing.T, b *bench) error {
		asked := make(chan error, 1) // the result of IsLocked
		sent := make(chan struct{})
		b.proxy.OnCommand(func(cmd []string) {
			if faulttest.Script(cmd) {
				b.proxy.Blackhole(true)
				close(sent)
			}
		})
		go func() {
			_, err := b.client.GetLock("f23").IsLocked(t.Context())
			asked <- err
		}()
		<-sent
		require.NoError(t, b.client.Close())
		return <-asked
	}},
	{"closed while waiting", "ErrClosed", func(t *testing.T, b *bench) error {
		b.hold(t, b.other)
		closed := make(chan error, 1) // the result of Close
		b.proxy.OnCommand(func(cmd []string) {
			if faulttest.Named("SUBSCRIBE")(cmd) {
				go func() { closed <- b.client.Close() }()
			}
		})
		err := lock(t.Context(), b.client)
		assert.NoError(t, <-closed)
		return err
	}},
	{"cause: the client is closed", "ErrClosed", func(t *testing.T, b *bench) error {
		hold := b.hold(t, b.client)
		require.NoError(t, b.client.Close())
		return context.Cause(hold.Context())
	}},
	{"a string has the name", "ErrWrongType", func(t *testing.T, b *bench) error {
		require.NoError(t, b.rdb.Set(t.Context(), "f23", "x", time.Minute).Err())
		return tryLock(t.Context(), b.client)
	}},
	{"a list has the name of a waiter", "ErrWrongType", func(t *testing.T, b *bench) error {
		require.NoError(t, b.rdb.RPush(t.Context(), "f23", "x").Err())
		require.NoError(t, b.rdb.Expire(t.Context(), "f23", time.Minute).Err())
		return lock(t.Context(), b.client)
	}},
	{"a query of a string", "ErrWrongType", func(t *testing.T, b *bench) error {
		require.NoError(t, b.rdb.Set(t.Context(), "f23", "x", time.Minute).Err())
		_, err := b.client.GetLock("f23").TTL(t.Context())
		return err
	}},
	{"a read-write lock is forced", "ErrWrongType", func(t *testing.T, b *bench) error {
		require.NoError(t, b.rdb.HSet(t.Context(), "f23", "mode", "read").Err())
		require.NoError(t, b.rdb.Expire(t.Context(), "f23", time.Minute).Err())
		_, err := b.client.GetLock("f23").ForceUnlock(t.Context())
		return err
	}},
	{"there is no Redis", "ECONNREFUSED", func(t *testing.T, _ *bench) error {
		return tryLock(t.Context(), clientAt(t, nobody))
	}},
	{"there is no Redis to wait for", "ECONNREFUSED", func(t *testing.T, _ *bench) error {
		return lock(t.Context(), clientAt(t, nobody))
	}},
	{"no connection is free", "ErrPoolTimeout", func(t *testing.T, b *bench) error {
		rdb := redis.NewClient(&redis.Options{Addr: b.server.Addr(), PoolSize: 1})
		var other sync.WaitGroup
		other.Go(func() { _ = rdb.BLPop(t.Context(), time.Minute, "nothing") }) // It ends with the client.
		t.Cleanup(func() { assert.NoError(t, rdb.Close()); other.Wait() })
		redistest.Eventually(t, patience, "the connection is taken", func() error {
			list, err := b.rdb.ClientList(t.Context()).Result()
			if err == nil && !strings.Contains(list, "cmd=blpop") {
				err = errors.New(list)
			}
			return err
		})
		return tryLock(context.Background(), clientOf(t, rdb, redlatch.WithWatchdogTimeout(shortLease), redlatch.WithCloseGrace(0)))
	}},
	{"memory is full", "OOM", func(t *testing.T, b *bench) error {
		require.NoError(t, b.rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		return lock(t.Context(), b.client)
	}},
	{"no password", "NOAUTH", func(t *testing.T, b *bench) error {
		server := redistest.Start(t, "--requirepass", "secret")
		return lock(t.Context(), clientAt(t, server.Addr()))
	}},
	{"no permission", "NOPERM", func(t *testing.T, b *bench) error {
		require.NoError(t, b.rdb.Do(t.Context(), "ACL", "SETUSER", "app", "on", "nopass", "+@all", "~other").Err())
		return lock(t.Context(), clientOver(t, &redis.Options{Addr: b.server.Addr(), Username: "app", Password: "any"}))
	}},
}

// nobody is an address that no server of another test can have.
const nobody = "127.0.0.1:1"

// F23
func TestEachCauseIsOfOneClass(t *testing.T) {
	redistest.Long(t)
	for _, tc := range causes {
		t.Run(tc.cause, func(t *testing.T) {
			t.Parallel()
			err := tc.err(t, newBench(t))
			assert.Equal(t, []string{tc.want}, classesOf(err), fmt.Sprint(err))
		})
	}
}

// F23
func TestForcedReleaseWithALostAnswerIsNotDenied(t *testing.T) {
	b := newBench(t)
	b.hold(t, b.other)
	b.proxy.DropReply(faulttest.Script, 1)
	_, err := b.client.GetLock("f23").ForceUnlock(t.Context())
	require.ErrorIs(t, err, redlatch.ErrUnknown)
}
