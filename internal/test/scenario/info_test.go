package scenario_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rfairlock"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rrwlock"
)

func TestInfoOfALockTellsWhoHoldsItAndHowManyWait(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	onEachTopology(t, func(t *testing.T, w *watched) {
		for kind, get := range map[string]func(c *redlatch.Client, name string) *rlock.Lock{
			"lock":   (*redlatch.Client).GetLock,
			"fenced": (*redlatch.Client).GetFencedLock,
		} {
			name := fresh(t) + kind
			lock := get(w.viewer, name)
			info, err := lock.Info(t.Context())
			require.NoError(t, err)
			assert.Equal(t, rlock.Info{Name: name}, info)

			hold, err := get(w.holder, name).Lock(t.Context())
			require.NoError(t, err)
			nested, err := get(w.holder, name).Lock(hold.Context())
			require.NoError(t, err)
			entered := make(chan error, 1)
			go func() {
				entered <- get(w.waiter, name).Do(context.WithoutCancel(t.Context()), func(context.Context) error { return nil })
			}()
			await(t, 1, func() (int, error) { info, err = lock.Info(t.Context()); return info.Waiting, err })
			assert.InDelta(t, 25, info.Left.Seconds(), 5)
			info.Left = 0
			assert.Equal(t, rlock.Info{Name: name, Locked: true, Owner: hold.Owner(), Client: w.holder.ID(), Levels: 2, Waiting: 1, Token: hold.Token()}, info)
			require.NoError(t, nested.Unlock(t.Context()))
			require.NoError(t, hold.Unlock(t.Context()))
			require.NoError(t, <-entered)
			info, err = lock.Info(t.Context())
			require.NoError(t, err)
			assert.Equal(t, kind == "fenced", info.Token > hold.Token(), "the last token stays")
			await(t, 0, func() (int, error) { info, err = lock.Info(t.Context()); return info.Waiting, err })
		}
	})
}

func TestInfoOfAFairLockTellsTheOrder(t *testing.T) {
	onEachTopology(t, func(t *testing.T, w *watched) {
		name := fresh(t)
		lock := w.viewer.GetFairLock(name)
		hold, err := w.holder.GetFairLock(name).Lock(t.Context())
		require.NoError(t, err)
		entered := make(chan error, 2)
		var info rfairlock.Info
		for i, c := range []*redlatch.Client{w.waiter, w.holder} {
			go func() {
				entered <- c.GetFairLock(name).Do(context.WithoutCancel(t.Context()), func(context.Context) error { return nil })
			}()
			await(t, i+1, func() (int, error) { info, err = lock.Info(t.Context()); return info.Waiting, err })
		}
		require.Len(t, info.Queue, 2)
		for i, c := range []*redlatch.Client{w.waiter, w.holder} {
			got := info.Queue[i]
			assert.Equal(t, c.ID(), got.Client)
			assert.True(t, strings.HasPrefix(got.Owner, c.ID()+":"))
			assert.InDelta(t, 5, got.Left.Seconds(), 3)
		}
		assert.Equal(t, hold.Owner(), info.Owner)
		assert.Equal(t, w.holder.ID(), info.Client)
		require.NoError(t, hold.Unlock(t.Context()))
		require.NoError(t, <-entered)
		require.NoError(t, <-entered)
		info, err = lock.Info(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rfairlock.Info{Info: rlock.Info{Name: name}}, info)
	})
}

func TestInfoOfAReadWriteLockTellsReadersAndWriters(t *testing.T) {
	onEachTopology(t, func(t *testing.T, w *watched) {
		name := fresh(t)
		lock := w.viewer.GetReadWriteLock(name)
		info, err := lock.Info(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rrwlock.Info{Name: name}, info)
		reader, err := w.holder.GetReadWriteLock(name).RLock(t.Context())
		require.NoError(t, err)
		entered := make(chan *rlock.Hold, 1)
		go func() {
			hold, err := w.waiter.GetReadWriteLock(name).Lock(context.WithoutCancel(t.Context()))
			assert.NoError(t, err)
			entered <- hold
		}()
		await(t, 2, func() (int, error) {
			info, err = lock.Info(t.Context())
			return info.Waiting + info.WritersWaiting, err
		})
		require.Len(t, info.Readers, 1)
		assert.InDelta(t, 25, info.Left.Seconds(), 5)
		assert.Equal(t, info.Left, info.Readers[0].Left)
		info.Left, info.Readers[0].Left = 0, 0
		assert.Equal(t, rrwlock.Info{
			Name: name, Locked: true, Mode: rrwlock.Reading, Waiting: 1, WritersWaiting: 1,
			Readers: []rrwlock.Holder{{Owner: reader.Owner(), Client: w.holder.ID(), Levels: 1}},
		}, info)
		require.NoError(t, reader.Unlock(t.Context()))
		writer := <-entered
		reader, err = w.waiter.GetReadWriteLock(name).RLock(writer.Context())
		require.NoError(t, err)
		info, err = lock.Info(t.Context())
		require.NoError(t, err)
		assert.Equal(t, rrwlock.Writing, info.Mode)
		require.NotNil(t, info.Writer)
		assert.Equal(t, writer.Owner(), info.Writer.Owner)
		assert.Equal(t, w.waiter.ID(), info.Writer.Client)
		require.Len(t, info.Readers, 1, "a writer that reads too")
		assert.Equal(t, writer.Owner(), info.Readers[0].Owner)
		assert.Zero(t, info.WritersWaiting)
		require.NoError(t, reader.Unlock(t.Context()))
		require.NoError(t, writer.Unlock(t.Context()))
	})
}

func TestInfoOfSemaphoresAndLatchesTellsWhoHasWhat(t *testing.T) {
	onEachTopology(t, func(t *testing.T, w *watched) {
		name := fresh(t)
		leased := w.viewer.GetPermitSemaphore(name + "leased")
		require.NoError(t, leased.SetPermits(t.Context(), 2))
		permits, err := w.holder.GetPermitSemaphore(name+"leased").AcquireN(t.Context(), 2)
		require.NoError(t, err)
		counted := w.viewer.GetSemaphore(name + "counted")
		_, err = counted.TrySetPermits(t.Context(), 3)
		require.NoError(t, err)
		latch := w.viewer.GetCountDownLatch(name + "latch")
		_, err = latch.TrySetCount(t.Context(), 4)
		require.NoError(t, err)
		ended := make(chan error, 3)
		ctx := context.WithoutCancel(t.Context())
		go func() {
			p, err := w.waiter.GetPermitSemaphore(name + "leased").Acquire(ctx)
			if err == nil {
				err = p.Release(ctx)
			}
			ended <- err
		}()
		go func() { ended <- w.waiter.GetSemaphore(name+"counted").Acquire(ctx, 4) }()
		go func() { ended <- w.waiter.GetCountDownLatch(name + "latch").Await(ctx) }()

		of, err := leased.Info(t.Context())
		require.NoError(t, err)
		await(t, 1, func() (int, error) { of, err = leased.Info(t.Context()); return of.Waiting, err })
		assert.Equal(t, 2, of.Permits)
		assert.Zero(t, of.Available)
		ids := map[string]bool{permits[0].ID(): true, permits[1].ID(): true}
		for _, h := range of.Holders {
			assert.True(t, ids[h.ID])
			assert.True(t, strings.HasSuffix(w.holder.ID(), "."+h.Client))
			assert.InDelta(t, 25, h.Left.Seconds(), 5)
			delete(ids, h.ID)
		}
		assert.Empty(t, ids)
		await(t, 1, func() (int, error) {
			i, err := counted.Info(t.Context())
			assert.Equal(t, 3, i.Available)
			return i.Waiting, err
		})
		await(t, 1, func() (int, error) {
			i, err := latch.Info(t.Context())
			assert.Equal(t, 4, i.Count)
			return i.Waiting, err
		})
		require.NoError(t, counted.Release(t.Context(), 1))
		require.NoError(t, latch.CountDownBy(t.Context(), 4))
		for _, p := range permits {
			require.NoError(t, p.Release(t.Context()))
		}
		for range 3 {
			require.NoError(t, <-ended)
		}
	})
}

func TestInfoWithoutTheRightToPubsubDoesNotKnowWhoWaits(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t, server.Client(t).Do(t.Context(), "acl", "setuser", "few", "on", "nopass", "~*", "&*", "+@all", "-pubsub").Err())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "few", Password: "x"})
	defer func() { require.NoError(t, rdb.Close()) }()
	c, err := redlatch.New(rdb)
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	require.NoError(t, c.GetLock("orders").Do(t.Context(), func(context.Context) error {
		info, err := c.GetLock("orders").Info(t.Context())
		require.NoError(t, err)
		assert.Equal(t, -1, info.Waiting)
		assert.Equal(t, c.ID(), info.Client)
		return nil
	}))
}

// The first round trip takes most of the time, and the second one gets no answer.
func TestInfoEndsWithOneCallTimeout(t *testing.T) {
	const limit = time.Second
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := b.Peer(t, redlatch.WithCallTimeout(limit))
		lock, fenced, rw := c.GetLock("l"), c.GetFencedLock("f"), c.GetReadWriteLock("rw")
		permits, slots, latch := c.GetPermitSemaphore("p"), c.GetSemaphore("s"), c.GetCountDownLatch("d")
		locktest.Free(t, lock) // the server runs
		b.Mini.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
			switch cmd {
			case "EVALSHA":
				time.Sleep(limit * 9 / 10)
			case "PUBSUB":
				time.Sleep(limit)
			}
			return false
		})
		for what, look := range map[string]func(ctx context.Context) (waiting int, err error){
			"lock":      func(ctx context.Context) (int, error) { i, err := lock.Info(ctx); return i.Waiting, err },
			"fenced":    func(ctx context.Context) (int, error) { i, err := fenced.Info(ctx); return i.Waiting, err },
			"rw":        func(ctx context.Context) (int, error) { i, err := rw.Info(ctx); return i.Waiting, err },
			"permits":   func(ctx context.Context) (int, error) { i, err := permits.Info(ctx); return i.Waiting, err },
			"semaphore": func(ctx context.Context) (int, error) { i, err := slots.Info(ctx); return i.Waiting, err },
			"latch":     func(ctx context.Context) (int, error) { i, err := latch.Info(ctx); return i.Waiting, err },
		} {
			_, _ = look(t.Context()) // the server learns the script
			start := time.Now()
			waiting, err := look(t.Context())
			require.NoError(t, err, what)
			assert.Equal(t, -1, waiting, what)
			assert.LessOrEqual(t, time.Since(start), limit+10*time.Millisecond, what)
			time.Sleep(3 * limit)
			var none context.Context // the very mistake
			_, err = look(none)
			require.ErrorIs(t, err, redlatch.ErrInvalid, what)
		}
		b.Mini.Server().SetPreHook(nil)
	})
}
