package scenario_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rscheduler"
)

// knowsWaitaof returns whether a server can be asked to confirm by its disk.
func knowsWaitaof(t *testing.T, server *redistest.Server) bool {
	t.Helper()
	known, err := server.Client(t).Do(t.Context(), "command", "info", "waitaof").Slice()
	return err == nil && known[0] != nil
}

// Each call is the last thing that its server does.
//
// F9
func TestConfirmedCallsOutliveACrashOfAServerWithAFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	if !knowsWaitaof(t, server) {
		redistest.Skip(t, "the server does not know WAITAOF")
	}
	plain, err := redlatch.New(server.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, plain.Close()) })
	furnishConfirmed(t, plain)
	for _, tc := range confirmedCalls() {
		c, err := redlatch.New(server.Client(t), redlatch.WithDurability(2*time.Second), redlatch.WithCloseGrace(0))
		require.NoError(t, err)
		require.NoError(t, tc.call(t.Context(), c), tc.name)
		server.Restart()
		if tc.undone != nil && tc.name != "Next" { // of which nobody can tell
			undone, err := tc.undone(t.Context(), plain)
			require.NoError(t, err, tc.name)
			require.False(t, undone, "%s is lost", tc.name)
		}
		require.NoError(t, c.Close()) // so that the next call has it
	}
	requireCounted(t, plain, 1)
}

// namedCall is a call and its name.
type namedCall struct {
	name string
	call func(ctx context.Context) error
}

// unconfirmedCalls are calls that no option makes wait, on what the client holds. They are to be made in their order.
func unconfirmedCalls(t *testing.T, c *redlatch.Client) (all []namedCall) {
	t.Helper()
	for kind, get := range allKinds() {
		var inner *rlock.Hold
		h := locktest.Acquire(t, t.Context(), get(c, "held-"+kind))
		all = append(all,
			namedCall{kind + ", nested", func(context.Context) (err error) {
				inner, err = get(c, "held-"+kind).Lock(h.Context())
				return err
			}},
			namedCall{kind + ", Extend", func(ctx context.Context) error { return h.Extend(ctx, time.Minute) }},
			namedCall{kind + ", inner Unlock", func(ctx context.Context) error { return inner.Unlock(ctx) }},
			namedCall{kind + ", Unlock", h.Unlock})
	}
	p, err := c.GetPermitSemaphore("permits").Acquire(t.Context())
	require.NoError(t, err)
	q := redlatch.GetDelayedQueue[string](c, "taken")
	_, err = q.OfferBatch(t.Context(), []rdelayedqueue.Item[string]{{Value: "one"}, {Value: "two"}})
	require.NoError(t, err)
	var m [2]*rdelayedqueue.Message[string]
	for i := range m {
		all = append(all, namedCall{"Take", func(ctx context.Context) (err error) { m[i], err = q.Take(ctx); return err }})
	}
	double := c.GetDoubleBarrier("double", 1)
	all = append(all,
		namedCall{"Extend", func(ctx context.Context) error { return m[0].Extend(ctx, time.Minute) }},
		namedCall{"Ack", func(ctx context.Context) error { return m[0].Ack(ctx) }},
		namedCall{"Reject", func(ctx context.Context) error { return m[1].Reject(ctx, "") }},
		namedCall{"Redrive", func(ctx context.Context) error { _, err := q.RedriveAll(ctx); return err }},
		namedCall{"Pause", q.Pause},
		namedCall{"Resume", q.Resume},
		namedCall{"Purge", func(ctx context.Context) error { _, err := q.Purge(ctx); return err }},
		namedCall{"Extend of a permit", func(ctx context.Context) error { return p.Extend(ctx, time.Minute) }},
		namedCall{"Release of a permit", p.Release},
		namedCall{"Release", func(ctx context.Context) error { return c.GetSemaphore("semaphore").Release(ctx, 1) }},
		namedCall{"Enter", double.Enter},
		namedCall{"Leave", double.Leave},
		namedCall{"Await", c.GetBarrier("barrier", 1).Await},
		namedCall{"Publish", func(ctx context.Context) error {
			_, err := redlatch.GetTopic[string](c, "topic").Publish(ctx, "value")
			return err
		}})
	single := singleCalls(t, c, func(kind string) string { return "single-" + kind }, []string{"a", "b", "c", "d", "e"})
	for _, name := range []string{"Resign", "Proclaim", "Forget", "Cancel of a queue", "Nack of a queue", "Allow"} {
		all = append(all, namedCall{name, single[name].call})
	}
	return all
}

// F9
func TestBothOptionsConfirmTheSameCalls(t *testing.T) {
	for command, option := range map[string]redlatch.Option{
		"WAIT": redlatch.WithReplicas(1, time.Second), "WAITAOF": redlatch.WithDurability(time.Second),
	} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
			if command == "WAITAOF" && !knowsWaitaof(t, server) {
				redistest.Skip(t, "the server does not know WAITAOF")
			}
			redistest.StartReplica(t, server)
			proxy := faulttest.NewProxy(t, server.Addr())
			waits := func() int { return proxy.Commands()[command] }
			renewed := make(chan error, 1000)
			client := func(opts ...redlatch.Option) *redlatch.Client {
				rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
				t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
				c, err := redlatch.New(rdb, append(opts, redlatch.WithCloseGrace(0), redlatch.WithWatchdogTimeout(3*time.Second),
					redlatch.WithObserver(redlatch.Observer{Renewed: func(_, _ int, err error) { renewed <- err }}))...)
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, c.Close()) })
				return c
			}
			furnishConfirmed(t, client())
			for _, tc := range confirmedCalls() {
				c, before := client(option), waits()
				require.NoError(t, tc.call(t.Context(), c), tc.name)
				assert.Greater(t, waits(), before, tc.name)
				require.NoError(t, c.Close())
			}
			c := client(option)
			calls := unconfirmedCalls(t, c)
			before := waits()
			for len(renewed) > 0 { // those of the clients before
				require.NoError(t, <-renewed)
			}
			require.NoError(t, <-renewed)
			assert.Equal(t, before, waits(), "renewals")
			for _, one := range calls {
				require.NoError(t, one.call(t.Context()), one.name)
				assert.Equal(t, before, waits(), one.name)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			require.NoError(t, runRepeated(ctx, c, "ticks", time.Minute, func(context.Context, rscheduler.Run) error {
				assert.Greater(t, waits(), before, "the offer of the tick")
				stop()
				return nil
			}))
		})
	}
}

// A node refuses a call on a key that it does not have while the slot moves to another one.
//
// F24
func TestConfirmedCallsInASlotOnTheMove(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	for _, master := range cluster.Nodes() {
		cluster.AddReplica(t, master)
	}
	c, err := redlatch.New(cluster.Client(t), redlatch.WithReplicas(1, time.Second), redlatch.WithCallTimeout(200*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	calls := map[string]func(ctx context.Context) error{
		"AddPermits": func(ctx context.Context) error { return c.GetSemaphore("{slot}semaphore").AddPermits(ctx, 1) },
		"leased":     func(ctx context.Context) error { return c.GetPermitSemaphore("{slot}permits").AddPermits(ctx, 1) },
		"latch": func(ctx context.Context) error {
			_, err := c.GetCountDownLatch("slot").TrySetCount(ctx, 1)
			return err
		},
		"Offer": func(ctx context.Context) error {
			_, err := redlatch.GetDelayedQueue[string](c, "{slot}queue").Offer(ctx, "job", 0)
			return err
		},
	}
	waiting := map[string]<-chan locktest.Outcome{}
	move, refused := cluster.Migrate(t, "slot", cluster.Other(t, "slot")), 0
	for kind, get := range lockKinds {
		calls[kind] = func(ctx context.Context) error {
			_, err := get(c, "{slot}tried-"+kind).TryLock(ctx)
			return err
		}
		waiting[kind] = locktest.Begin(func() (*rlock.Hold, error) { return get(c, "{slot}"+kind).Lock(t.Context()) })
	}
	for what, call := range calls {
		err := call(t.Context())
		require.NotErrorIs(t, err, redlatch.ErrNotConfirmed, what)
		require.NotErrorIs(t, err, rlock.ErrNotAcquired, what)
		if !errors.Is(err, redlatch.ErrUnknown) { // else it was being sent at the end
			require.ErrorIs(t, err, redlatch.ErrUnavailable, what)
			refused++
		}
	}
	require.Positive(t, refused)
	for kind, done := range waiting {
		require.Empty(t, done, "%s has ended while the slot moves", kind)
	}
	move.Finish(t)
	for _, done := range waiting {
		locktest.Unlock(t, locktest.Next(t, done))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // its deadline replaces the short limit of the client
	defer cancel()
	for what, call := range calls {
		require.NoError(t, call(ctx), what)
	}
}
