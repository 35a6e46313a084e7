package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// confirmedCall is a call that WithReplicas makes wait. undone reports that nothing of it is left.
type confirmedCall struct {
	name   string
	call   func(ctx context.Context, c *redlatch.Client) error
	undone func(ctx context.Context, c *redlatch.Client) (bool, error) // nil for what stays done
}

func confirmedCalls() []confirmedCall {
	type locked = interface {
		IsLocked(ctx context.Context) (bool, error)
	}
	hold := func(_ *rlock.Hold, err error) error { return err }
	free := func(l func(*redlatch.Client) locked) func(ctx context.Context, c *redlatch.Client) (bool, error) {
		return func(ctx context.Context, c *redlatch.Client) (bool, error) {
			locked, err := l(c).IsLocked(ctx)
			return !locked, err
		}
	}
	lock := func(c *redlatch.Client) locked { return c.GetLock("lock") }
	return []confirmedCall{
		{"Lock", func(ctx context.Context, c *redlatch.Client) error { return hold(c.GetLock("lock").Lock(ctx)) }, free(lock)},
		{"TryLock", func(ctx context.Context, c *redlatch.Client) error { return hold(c.GetLock("lock").TryLock(ctx)) }, free(lock)},
		{
			"TryLock that waits", func(ctx context.Context, c *redlatch.Client) error {
				return hold(c.GetLock("lock").TryLock(ctx, rlock.WithWait(time.Minute)))
			}, free(lock),
		},
		{
			"fenced", func(ctx context.Context, c *redlatch.Client) error {
				return hold(c.GetFencedLock("fenced").Lock(ctx))
			},
			free(func(c *redlatch.Client) locked { return c.GetFencedLock("fenced") }),
		},
		{
			"fair", func(ctx context.Context, c *redlatch.Client) error { return hold(c.GetFairLock("fair").Lock(ctx)) },
			free(func(c *redlatch.Client) locked { return c.GetFairLock("fair") }),
		},
		{
			"read", func(ctx context.Context, c *redlatch.Client) error {
				return hold(c.GetReadWriteLock("rw").RLock(ctx))
			},
			free(func(c *redlatch.Client) locked { return c.GetReadWriteLock("rw") }),
		},
		{
			"write", func(ctx context.Context, c *redlatch.Client) error {
				return hold(c.GetReadWriteLock("rw").Lock(ctx))
			},
			free(func(c *redlatch.Client) locked { return c.GetReadWriteLock("rw") }),
		},
		{
			"multi", func(ctx context.Context, c *redlatch.Client) error {
				_, err := c.GetMultiLock(c.GetLock("one"), c.GetLock("two")).TryLock(ctx)
				return err
			}, func(ctx context.Context, c *redlatch.Client) (bool, error) {
				one, err := c.GetLock("one").IsLocked(ctx)
				two, err2 := c.GetLock("two").IsLocked(ctx)
				return !one && !two, errors.Join(err, err2)
			},
		},
		{
			"RedLock", func(ctx context.Context, c *redlatch.Client) error { return hold(red(c, "red").TryLock(ctx)) },
			func(ctx context.Context, c *redlatch.Client) (undone bool, err error) {
				undone = true
				for _, part := range []string{"red", "red-2", "red-3"} {
					locked, partErr := c.GetLock(part).IsLocked(ctx)
					undone, err = undone && !locked, errors.Join(err, partErr)
				}
				return undone, err
			},
		},
		{
			"election", func(ctx context.Context, c *redlatch.Client) error {
				_, err := c.GetElection("election").Campaign(ctx)
				return err
			},
			free(func(c *redlatch.Client) locked { return c.GetFairLock("election") }), // its lock
		},
		{
			"once", func(ctx context.Context, c *redlatch.Client) error {
				_, _, err := onceOf(c, "once").Do(ctx, "k", func(context.Context) (string, error) { return "made", nil })
				return err
			}, func(ctx context.Context, c *redlatch.Client) (bool, error) {
				ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
				defer cancel()
				ran := errors.New("it runs") // and is not kept
				_, _, err := onceOf(c, "once").Do(ctx, "k", func(context.Context) (string, error) { return "", ran })
				if errors.Is(err, ran) {
					return true, nil
				}
				return false, err
			},
		},
		{
			"permits", func(ctx context.Context, c *redlatch.Client) error {
				_, err := c.GetPermitSemaphore("permits").AcquireN(ctx, 2)
				return err
			}, func(ctx context.Context, c *redlatch.Client) (bool, error) {
				n, err := c.GetPermitSemaphore("permits").Available(ctx)
				return n == 3, err
			},
		},
		{
			"semaphore", func(ctx context.Context, c *redlatch.Client) error {
				return c.GetSemaphore("semaphore").Acquire(ctx, 2)
			},
			func(ctx context.Context, c *redlatch.Client) (bool, error) {
				n, err := c.GetSemaphore("semaphore").Available(ctx)
				return n == 3, err
			},
		},
		{"AddPermits", func(ctx context.Context, c *redlatch.Client) error {
			return c.GetSemaphore("other").AddPermits(ctx, 1)
		}, nil},
		{"SetPermits of leased ones", func(ctx context.Context, c *redlatch.Client) error {
			return c.GetPermitSemaphore("set").SetPermits(ctx, 2)
		}, nil},
		{"AddPermits of leased ones", func(ctx context.Context, c *redlatch.Client) error {
			return c.GetPermitSemaphore("added").AddPermits(ctx, 1)
		}, nil},
		{"TrySetCount", func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetCountDownLatch("new").TrySetCount(ctx, 1)
			return err
		}, nil},
		{"CountDown", func(ctx context.Context, c *redlatch.Client) error {
			return c.GetCountDownLatch("latch").CountDown(ctx)
		}, nil},
		{"CountDownOnce", func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetCountDownLatch("by name").CountDownOnce(ctx, "a participant")
			return err
		}, nil},
		{"Delete", func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetCountDownLatch("deleted").Delete(ctx)
			return err
		}, nil},
		{"Next", func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetIDGenerator("ids").Next(ctx)
			return err
		}, func(context.Context, *redlatch.Client) (bool, error) { return true, nil }}, // there is nothing to undo
		{"Offer", func(ctx context.Context, c *redlatch.Client) error {
			_, err := jobs(c).Offer(ctx, "job", time.Hour)
			return err
		}, nil},
		{"OfferBatch", func(ctx context.Context, c *redlatch.Client) error {
			_, err := jobs(c).OfferBatch(ctx, []rdelayedqueue.Item[string]{{Value: "one", Delay: time.Hour}, {Value: "two", Delay: time.Hour}})
			return err
		}, nil},
	}
}

func jobs(c *redlatch.Client) *rdelayedqueue.Queue[string] {
	return redlatch.GetDelayedQueue[string](c, "jobs")
}

// furnishConfirmed makes what confirmedCalls need.
func furnishConfirmed(t *testing.T, c *redlatch.Client) {
	t.Helper()
	_, err := c.GetPermitSemaphore("permits").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	_, err = c.GetSemaphore("semaphore").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	for _, latch := range []string{"latch", "by name", "deleted"} {
		_, err = c.GetCountDownLatch(latch).TrySetCount(t.Context(), 10)
		require.NoError(t, err)
	}
}

// F9
func TestReplicasConfirmWhatWasAcquired(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	plain, err := redlatch.New(master.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plain.Close()) })
	furnishConfirmed(t, plain)
	for _, tc := range confirmedCalls() {
		t.Run(tc.name, func(t *testing.T) {
			c, err := redlatch.New(master.Client(t), redlatch.WithReplicas(1, 200*time.Millisecond), redlatch.WithCloseGrace(0))
			require.NoError(t, err)
			defer c.Close()
			replica.Pause()
			start := time.Now()
			err = tc.call(t.Context(), c)
			took := time.Since(start)
			require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
			assert.GreaterOrEqual(t, took, 200*time.Millisecond)
			assert.Less(t, took, 2*time.Second)
			if tc.name != "RedLock" { // which joins it with that it is unavailable
				require.NotErrorIs(t, err, rlock.ErrNotAcquired)
			}
			tc.requireUndone(t, plain, err)
			replica.Resume()
			redistest.AwaitSync(t, master, replica)
			patient, err := redlatch.New(master.Client(t), redlatch.WithReplicas(1, time.Second), redlatch.WithCloseGrace(0))
			require.NoError(t, err)
			defer patient.Close()
			require.NoError(t, tc.call(t.Context(), patient))
		})
	}
	requireCounted(t, plain, 2) // also what was not confirmed
}

// requireUndone requires that nothing is left of a call that was not confirmed, or that its error says that it is done.
func (tc confirmedCall) requireUndone(t *testing.T, plain *redlatch.Client, err error) {
	t.Helper()
	if tc.undone == nil {
		require.NotErrorIs(t, err, redlatch.ErrUnavailable, "it is done")
		return
	}
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	redistest.Eventually(t, 2*time.Second, "released", func() error {
		undone, err := tc.undone(t.Context(), plain)
		if err == nil && !undone {
			err = errors.New("it is held")
		}
		return err
	})
}

// F9
func TestOneOfTwoReplicasIsNotTwo(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	master := redistest.Start(t)
	redistest.StartReplica(t, master)
	other := redistest.StartReplica(t, master)
	plain, err := redlatch.New(master.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plain.Close()) })
	furnishConfirmed(t, plain)
	several := slices.DeleteFunc(confirmedCalls(), func(tc confirmedCall) bool {
		return !slices.Contains([]string{"Lock", "fair", "permits", "CountDown", "Offer"}, tc.name)
	})
	call := func(tc confirmedCall, n int, timeout time.Duration) error {
		c, err := redlatch.New(master.Client(t), redlatch.WithReplicas(n, timeout), redlatch.WithCloseGrace(0))
		require.NoError(t, err)
		defer c.Close() // which releases what the call has acquired
		return tc.call(t.Context(), c)
	}
	for _, tc := range several {
		require.NoError(t, call(tc, 2, time.Second), tc.name)
	}
	other.Pause()
	for _, tc := range several {
		err := call(tc, 2, 500*time.Millisecond)
		require.ErrorIs(t, err, redlatch.ErrNotConfirmed, tc.name)
		require.ErrorContains(t, err, "by 1 of 2 replicas within 500ms", tc.name)
		tc.requireUndone(t, plain, err)
		require.NoError(t, call(tc, 1, time.Second), tc.name)
	}
	left, err := plain.GetCountDownLatch("latch").Count(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 10-3, left, "what was not confirmed is counted too")
	stats, err := jobs(plain).Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3, stats.Delayed)
}

// requireCounted requires that what confirmedCalls counts was called so often, and each call counted.
func requireCounted(t *testing.T, c *redlatch.Client, times int) {
	t.Helper()
	for what, n := range map[string]struct {
		get  func(ctx context.Context) (int, error)
		want int
	}{
		"CountDown":                 {c.GetCountDownLatch("latch").Count, 10 - times},
		"CountDownOnce":             {c.GetCountDownLatch("by name").Count, 9},
		"TrySetCount":               {c.GetCountDownLatch("new").Count, 1},
		"Delete":                    {c.GetCountDownLatch("deleted").Count, 0},
		"AddPermits":                {c.GetSemaphore("other").Available, times},
		"SetPermits of leased ones": {c.GetPermitSemaphore("set").Available, 2},
		"AddPermits of leased ones": {c.GetPermitSemaphore("added").Available, times},
	} {
		got, err := n.get(t.Context())
		require.NoError(t, err, what)
		assert.Equal(t, n.want, got, what)
	}
	stats, err := jobs(c).Stats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 3*times, stats.Delayed)
}

// F9: the double grant after a failover, and what holds it off.
func TestFailoverGrantsNoConfirmedLockTwice(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	rounds := faulttest.Rounds(t, 2, 20)
	for _, tc := range []struct {
		name   string
		opts   []redlatch.Option
		double int
	}{
		{"without replicas", nil, rounds},
		{"with a replica", []redlatch.Option{redlatch.WithReplicas(1, 50*time.Millisecond)}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			double, refused := 0, 0
			for range rounds {
				master := redistest.Start(t)
				replica := redistest.StartReplica(t, master)
				before, err := redlatch.New(master.Client(t), append(tc.opts, redlatch.WithCloseGrace(0))...)
				require.NoError(t, err)
				rdb := replica.Client(t)
				// What is acquired from now on is lost with the master. A replica that is only stopped would read it from its socket.
				require.NoError(t, rdb.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err())
				first, err := before.GetFencedLock("orders").Lock(t.Context())
				if err != nil {
					require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
				}
				master.Kill()
				require.NoError(t, rdb.Do(t.Context(), "replicaof", "no", "one").Err())
				after, err := redlatch.New(rdb)
				require.NoError(t, err)
				second, err := after.GetFencedLock("orders").Lock(t.Context())
				require.NoError(t, err)
				if first != nil && context.Cause(first.Context()) == nil {
					double++
					store := int64(0)
					write := func(token int64) bool {
						if token < store {
							return false
						}
						store = token
						return true
					}
					require.True(t, write(second.Token()))
					if !write(first.Token()) {
						refused++
					}
				}
				require.NoError(t, second.Unlock(t.Context()))
				require.NoError(t, after.Close())
				_ = before.Close() // its master is gone
			}
			assert.Equal(t, tc.double, double, "two held the lock")
			assert.Equal(t, double, refused, "the fence refused the old holder's write")
		})
	}
}

// F9
func TestConfirmedLockOutlivesItsMaster(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	for range 3 {
		master := redistest.Start(t)
		replica := redistest.StartReplica(t, master)
		c, err := redlatch.New(master.Client(t), redlatch.WithReplicas(1, time.Second), redlatch.WithCloseGrace(0))
		require.NoError(t, err)
		_, err = c.GetLock("orders").Lock(t.Context())
		require.NoError(t, err)
		master.Kill()
		require.EqualValues(t, 1, replica.Client(t).Exists(t.Context(), "orders").Val(), "the replica has it")
		_ = c.Close() // its master is gone
	}
}

func TestReplicasConfirmOnACluster(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	c := redistest.StartCluster(t, 3)
	names := []string{"a", "b", "c", "d"} // of all three masters
	for _, master := range c.Nodes() {
		c.AddReplica(t, master)
	}
	client, err := redlatch.New(c.Client(t), redlatch.WithReplicas(1, time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	for _, name := range names { // a new replica acknowledges nothing for a second
		redistest.Eventually(t, 10*time.Second, "the replicas acknowledge", func() error {
			h, err := client.GetLock(name).Lock(t.Context())
			if err == nil {
				err = h.Unlock(t.Context())
			}
			return err
		})
	}
	for range 3 {
		for _, name := range names {
			h, err := client.GetLock(name).Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, h.Unlock(t.Context()))
		}
	}
	// A slot that has moved while the client did not look: MOVED, and again by the new layout.
	from := c.Owner(t, "a")
	to := c.Nodes()[0]
	if to == from {
		to = c.Nodes()[1]
	}
	m := c.Migrate(t, "a", to)
	m.Finish(t)
	h, err := client.GetLock("a").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Unlock(t.Context()))
}

func TestDurabilityNeedsTheDisk(t *testing.T) {
	t.Parallel()
	never := redistest.Start(t, "--appendonly", "no")
	if !knowsWaitaof(t, never) {
		err := redlatch.Check(t.Context(), never.Client(t), redlatch.WithDurability(time.Second))
		require.ErrorContains(t, err, "does not know WAITAOF; the oldest that do are Redis 7.2 and Valkey 7.2")
		c, err := redlatch.New(never.Client(t), redlatch.WithDurability(time.Second))
		require.NoError(t, err)
		_, err = c.GetLock("orders").Lock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
		require.NoError(t, c.Close())
		return
	}
	always := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	for server, ok := range map[*redistest.Server]bool{always: true, never: false} {
		c, err := redlatch.Open(t.Context(), server.URL(), redlatch.WithDurability(time.Second))
		require.NoError(t, err)
		h, err := c.GetLock("orders").Lock(t.Context())
		if ok {
			require.NoError(t, err)
			require.NoError(t, h.Unlock(t.Context()))
		} else {
			require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
			require.ErrorContains(t, err, "appendonly")
			redistest.Eventually(t, 2*time.Second, "released", func() error {
				if n := server.Client(t).Exists(t.Context(), "orders").Val(); n > 0 {
					return errors.New("it is held")
				}
				return nil
			})
		}
		require.NoError(t, c.Close())
	}
}

func TestEmbeddedServerHasNoReplicas(t *testing.T) {
	c, err := embedded.Open(redlatch.WithReplicas(1, 10*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	_, err = c.GetLock("orders").Lock(t.Context())
	require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
	ok, err := c.GetSemaphore("permits").TrySetPermits(t.Context(), 1)
	require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
	assert.True(t, ok, "it is done")
	ok, err = c.GetSemaphore("permits").TryAcquire(t.Context(), 1, rsemaphore.WithWait(time.Second))
	require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
	assert.False(t, ok)
}

// F28
func TestCheckFindsTheRightToWait(t *testing.T) {
	server := redistest.Start(t)
	if server.Major(t) < 7 {
		redistest.Skip(t, "the server cannot tell")
	}
	admin := server.Client(t)
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "few", "on", "nopass", "~*", "&*", "+@all", "-wait").Err())
	few := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "few", Password: "x", DisableIdentity: true})
	t.Cleanup(func() { assert.NoError(t, few.Close()) })
	require.NoError(t, redlatch.Check(t.Context(), few))
	require.ErrorContains(t, redlatch.Check(t.Context(), few, redlatch.WithReplicas(1, time.Second)), "no permission for: wait")
}

// whileUnconfirmed returns a client whose replica confirms nothing, and a plain one of the same server, on which a semaphore has three
// permits.
func whileUnconfirmed(t *testing.T) (server *redistest.Server, plain *redlatch.Client) {
	t.Helper()
	server = redistest.Start(t)
	replica := redistest.StartReplica(t, server)
	replica.Pause()
	t.Cleanup(replica.Resume)
	plain, err := redlatch.New(server.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plain.Close()) })
	_, err = plain.GetSemaphore("permits").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	return server, plain
}

func availableSoon(t *testing.T, c *redlatch.Client, want int) {
	t.Helper()
	redistest.Eventually(t, 2*time.Second, "permits", func() error {
		n, err := c.GetSemaphore("permits").Available(t.Context())
		if err == nil && n != want {
			err = fmt.Errorf("%d permits, not %d", n, want)
		}
		return err
	})
}

func TestUnconfirmedPermitsComeBackAlthoughTheClientCloses(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server, plain := whileUnconfirmed(t)
	for range 20 {
		c, err := redlatch.New(server.Client(t), redlatch.WithReplicas(1, 10*time.Millisecond), redlatch.WithCloseGrace(0))
		require.NoError(t, err)
		require.ErrorIs(t, c.GetSemaphore("permits").Acquire(t.Context(), 2), redlatch.ErrNotConfirmed)
		require.NoError(t, c.Close())
		availableSoon(t, plain, 3)
	}
	for range 3 {
		c, err := redlatch.New(server.Client(t), redlatch.WithReplicas(1, time.Second), redlatch.WithCloseGrace(0))
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- c.GetSemaphore("permits").Acquire(t.Context(), 2) }()
		redistest.Eventually(t, 2*time.Second, "the call is in flight", func() error {
			n, err := plain.GetSemaphore("permits").Available(t.Context())
			if err == nil && n == 3 {
				err = errors.New("it is not")
			}
			return err
		})
		require.NoError(t, c.Close())
		require.Error(t, <-ended)
		availableSoon(t, plain, 3)
	}
}

func TestReleaseAndDrainWithoutConfirmation(t *testing.T) {
	t.Parallel()
	server, plain := whileUnconfirmed(t)
	c, err := redlatch.New(server.Client(t), redlatch.WithReplicas(1, time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	n, err := c.GetSemaphore("permits").Drain(t.Context())
	require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	assert.Zero(t, n)
	availableSoon(t, plain, 3)
	start := time.Now()
	require.NoError(t, c.GetSemaphore("permits").Release(t.Context(), 1))
	assert.Less(t, time.Since(start), 900*time.Millisecond, "it waits for no replica")
	availableSoon(t, plain, 4)
}

func TestTakeOverWithoutConfirmationFreesTheLock(t *testing.T) {
	t.Parallel()
	server, plain := whileUnconfirmed(t)
	c, err := redlatch.New(server.Client(t), redlatch.WithReplicas(1, 20*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	earlier, err := plain.GetLock("orders").Lock(t.Context())
	require.NoError(t, err)
	_, err = c.GetLock("orders").TryLock(t.Context(), rlock.WithTakeOver(earlier.Owner()))
	require.ErrorIs(t, err, redlatch.ErrNotConfirmed)
	next, err := plain.GetLock("orders").Lock(t.Context()) // which finds out that its earlier hold is gone
	require.NoError(t, err)
	require.ErrorIs(t, earlier.Unlock(t.Context()), rlock.ErrNotHeld)
	require.NoError(t, next.Unlock(t.Context()))
}
