package rrwlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rrwlock"
)

const killedLease = 2 * time.Second

// holdUntilKilled is for a child process: it acquires the lock, and says who it is. Args: the server's address, the lock's name, and as what.
func holdUntilKilled(args []string) {
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[0]}), redlatch.WithWatchdogTimeout(killedLease))
	if err == nil {
		var h *rlock.Hold
		if h, err = acquireAs(context.Background(), args[2], c.GetReadWriteLock(args[1])); err == nil {
			faulttest.Emit("%s", h.Owner())
			<-h.Context().Done()
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(3)
}

func acquireAs(ctx context.Context, who string, l *rrwlock.Lock) (*rlock.Hold, error) {
	if who == "reader" {
		return l.RLock(ctx)
	}
	w, err := l.Lock(ctx)
	if err != nil || who == "writer" {
		return w, err
	}
	r, err := l.TryRLock(w.Context())
	return r, errors.Join(err, w.Unlock(ctx))
}

// killing is a server with clients in processes that are killed.
type killing struct {
	*redistest.Server
	rdb *redis.Client
	lag *faulttest.Lag
}

// eachKilled has one part of a test for each kind of holder run beside the others, as often as is asked for.
func eachKilled(t *testing.T, parts map[string]func(t *testing.T, k *killing, name string)) {
	t.Helper()
	server := redistest.Start(t)
	faulttest.LeakCheck(t, server.Addr())
	k := &killing{server, server.Client(t), faulttest.MeasureLag(t, server.Addr())}
	rounds := faulttest.Rounds(t, 1, 8)
	t.Run("killed", func(t *testing.T) {
		for who, part := range parts {
			t.Run(who, func(t *testing.T) {
				t.Parallel()
				for round := range rounds {
					part(t, k, fmt.Sprint(who, round))
				}
			})
		}
	})
}

// lock returns the lock of a new client.
func (k *killing) lock(t *testing.T, name string) *rrwlock.Lock {
	t.Helper()
	return clientAt(t, k.Addr(), redlatch.WithWatchdogTimeout(killedLease)).GetReadWriteLock(name)
}

// renewed waits until a key lives longer than it did.
func (k *killing) renewed(t *testing.T, key string) {
	t.Helper()
	last := time.Duration(0)
	redistest.Eventually(t, 10*time.Second, "it is renewed", func() error {
		left, err := k.rdb.PTTL(t.Context(), key).Result()
		if err == nil && (last == 0 || left <= last) {
			err = fmt.Errorf("%v are left, %v were", left, last)
		}
		last = left
		return err
	})
}

// F12
func TestKilledReaderHoldsNobodyUp(t *testing.T) {
	redistest.Long(t)
	eachKilled(t, map[string]func(t *testing.T, k *killing, name string){
		"reader":     func(t *testing.T, k *killing, name string) { killedReader(t, k, name, "reader") },
		"downgraded": func(t *testing.T, k *killing, name string) { killedReader(t, k, name, "downgraded") },
	})
}

// killedReader kills a reader beside one that lives, which alone keeps a writer out.
func killedReader(t *testing.T, k *killing, name, who string) {
	t.Helper()
	rdb, lag := k.rdb, k.lag
	child := faulttest.StartChild(t, "rrwlock-holder", k.Addr(), name, who)
	dead := child.Next()
	alive := locktest.Acquire(t, t.Context(), k.lock(t, name).RLocker())
	level := func(owner string) string { return "{" + name + "}:" + owner + ":rwlock_timeout:1" }
	time.Sleep(2 * killedLease) // both are renewed
	require.EqualValues(t, 2, rdb.Exists(t.Context(), level(dead), level(alive.Owner())).Val())

	child.Kill()
	// It is longer by up to 5 s if a call of a nested level got no answer: such a call may arrive later.
	lease := max(killedLease, rdb.PTTL(t.Context(), level(dead)).Val())
	require.LessOrEqual(t, lease, killedLease+5*time.Second)
	killed := time.Now()
	w := k.lock(t, name)
	writing := locktest.Begin(func() (*rlock.Hold, error) { return w.Lock(t.Context()) })
	redistest.Eventually(t, lease+100*time.Millisecond+lag.Late(), "the lease of the dead one ends", func() error {
		left, err := rdb.PTTL(t.Context(), level(dead)).Result()
		if err == nil && left != -2 { // -2: there is no such key
			err = fmt.Errorf("%v are left", left)
		}
		return err
	})
	time.Sleep(time.Until(killed.Add(lease + killedLease)))
	require.EqualValues(t, 1, rdb.Exists(t.Context(), level(alive.Owner())).Val())
	locktest.Live(t, alive.Context())
	select {
	case <-writing:
		require.Fail(t, "a writer is in with a reader")
	default:
	}

	locktest.Unlock(t, alive)
	left := time.Now()
	h := locktest.Next(t, writing)
	assert.Less(t, time.Since(left), 200*time.Millisecond+lag.Late(), "it is woken")
	locktest.Unlock(t, h)
	require.Zero(t, rdb.Exists(t.Context(), name).Val())
}

// F12
func TestKilledWriterHoldsNobodyUp(t *testing.T) {
	redistest.Long(t)
	eachKilled(t, map[string]func(t *testing.T, k *killing, name string){"holding": killedHolder, "waiting": killedWaiter})
}

// killedHolder kills a writer: the next one has the lock when the lease is over, and then a reader.
func killedHolder(t *testing.T, k *killing, name string) {
	t.Helper()
	child := faulttest.StartChild(t, "rrwlock-holder", k.Addr(), name, "writer")
	child.Next()
	k.renewed(t, name)
	writer, reader := k.lock(t, name), k.lock(t, name)
	writing := locktest.Begin(func() (*rlock.Hold, error) { return writer.Lock(t.Context()) })
	redistest.AwaitSubscribers(t, k.rdb, "redisson_rwlock:{"+name+"}", 1)
	reading := locktest.Begin(func() (*rlock.Hold, error) { return reader.RLock(t.Context()) })
	redistest.AwaitSubscribers(t, k.rdb, "redisson_rwlock:{"+name+"}", 2)
	k.renewed(t, name)

	asked := time.Now()
	left := k.rdb.PTTL(t.Context(), name).Val()
	child.Kill()
	killed := time.Now()
	h := locktest.Next(t, writing)
	assert.GreaterOrEqual(t, time.Since(asked), left-2*time.Millisecond, "the dead one has the lock until its lease ends")
	assert.Less(t, time.Since(killed), killedLease+200*time.Millisecond+k.lag.Late())
	select {
	case <-reading:
		require.Fail(t, "a reader is in with a writer")
	default:
	}
	locktest.Unlock(t, h)
	released := time.Now()
	locktest.Unlock(t, locktest.Next(t, reading))
	assert.Less(t, time.Since(released), 200*time.Millisecond+k.lag.Late(), "it is woken")
	require.Zero(t, k.rdb.Exists(t.Context(), name).Val())
}

// killedWaiter kills a writer that waits: it holds up no writer, and readers only while its mark is good.
func killedWaiter(t *testing.T, k *killing, name string) {
	t.Helper()
	l, marks := k.lock(t, name), "redlatch_rwlock_writers:{"+name+"}"
	alive := locktest.Acquire(t, t.Context(), l.RLocker())
	child := faulttest.StartChild(t, "rrwlock-holder", k.Addr(), name, "writer")
	k.renewed(t, marks)
	child.Kill()
	locktest.Unlock(t, alive)
	locktest.Free(t, l)
	locktest.Refused(t, l.RLocker())

	mark, err := k.rdb.ZRangeWithScores(t.Context(), marks, 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, mark, 1)
	now, err := k.rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	left := time.UnixMilli(int64(mark[0].Score)).Sub(now)
	require.LessOrEqual(t, left, 3*time.Second)
	const rest = 400 * time.Millisecond // of the mark, which is aged
	require.NoError(t, k.rdb.ZAddXX(t.Context(), marks, redis.Z{Score: float64(now.Add(rest).UnixMilli()), Member: mark[0].Member}).Err())
	aged := time.Now()
	h := locktest.Acquire(t, t.Context(), l.RLocker())
	assert.Less(t, time.Since(aged), rest+100*time.Millisecond+k.lag.Late())
	locktest.Unlock(t, h)
	require.Zero(t, k.rdb.Exists(t.Context(), name).Val())
}
