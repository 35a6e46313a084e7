package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rratelimiter"
)

// lockKinds are the kinds of lock, and the two sides of the read-write lock.
var lockKinds = map[string]func(c *redlatch.Client, name string) rlock.Locker{
	"plain":  func(c *redlatch.Client, name string) rlock.Locker { return c.GetLock(name) },
	"fenced": func(c *redlatch.Client, name string) rlock.Locker { return c.GetFencedLock(name) },
	"fair":   func(c *redlatch.Client, name string) rlock.Locker { return c.GetFairLock(name) },
	"writer": func(c *redlatch.Client, name string) rlock.Locker { return c.GetReadWriteLock(name) },
	"reader": func(c *redlatch.Client, name string) rlock.Locker { return c.GetReadWriteLock(name).RLocker() },
}

// movingKinds are those, and locks with parts in the slot that moves and elsewhere.
func movingKinds() map[string]func(c *redlatch.Client, name string) rlock.Locker {
	kinds := maps.Clone(lockKinds)
	kinds["multi"] = func(c *redlatch.Client, name string) rlock.Locker {
		return c.GetMultiLock(c.GetFairLock(name), c.GetLock("second:"+name), c.GetLock(elsewhere(name)))
	}
	kinds["red"] = func(c *redlatch.Client, name string) rlock.Locker {
		// Of these, two can be attempted all the time.
		return c.GetRedLock(c.GetLock(name), c.GetFairLock("second:"+name), c.GetLock(elsewhere(name)))
	}
	return kinds
}

// elsewhere returns a name without the tag that keeps others in their slot.
func elsewhere(name string) string { return strings.Trim(strings.ReplaceAll(name, "}", ""), "{") }

// rival returns the lock as one who has to wait for its holder sees it.
func rival(kind string, c *redlatch.Client, name string) rlock.Locker {
	if kind == "reader" {
		kind = "writer"
	}
	return movingKinds()[kind](c, name)
}

const (
	movedWithin   = 1500 * time.Millisecond // what waits has the lock, once the slot has moved
	settledWithin = 2 * time.Second         // nothing is left of what was released while it moved
)

// moving is a slot of a cluster on its way, with locks in it.
type moving struct {
	*redistest.Cluster
	rdb     *redis.ClusterClient
	tag     string
	lease   time.Duration
	log     *logbook // of the holder
	holder  *redlatch.Client
	waiter  *redlatch.Client
	holds   map[string]*rlock.Hold // by the name of the lock
	waiting map[string]<-chan locktest.Outcome
}

func newMoving(t *testing.T, c *redistest.Cluster, tag string) *moving {
	t.Helper()
	m := &moving{Cluster: c, rdb: c.Client(t), tag: tag, lease: 3 * time.Second, log: &logbook{}, holds: map[string]*rlock.Hold{}, waiting: map[string]<-chan locktest.Outcome{}}
	client := func(opts ...redlatch.Option) *redlatch.Client {
		c, err := redlatch.New(m.Client(t), append(opts, redlatch.WithWatchdogTimeout(m.lease), redlatch.WithCloseGrace(0))...)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	m.holder, m.waiter = client(m.log.option()), client()
	for kind, get := range movingKinds() {
		for _, use := range []string{"kept", "freed", "moved apart"} {
			name := fmt.Sprintf("{%s}:%s:%s", tag, kind, use)
			m.holds[name] = locktest.Acquire(t, t.Context(), get(m.holder, name))
			if use == "kept" {
				m.waiting[name] = locktest.Begin(func() (*rlock.Hold, error) { return rival(kind, m.waiter, name).Lock(t.Context()) })
			}
		}
	}
	return m
}

// keys returns the keys of the slot, wherever they are, in order.
func (m *moving) keys(t *testing.T) (all []string) {
	t.Helper()
	var mu sync.Mutex // guards all
	require.NoError(t, m.rdb.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		keys, err := node.Keys(ctx, "*{"+m.tag+"}*").Result()
		mu.Lock()
		defer mu.Unlock()
		all = append(all, keys...)
		return err
	}))
	slices.Sort(all)
	return all
}

// live fails the test if a hold ends within a time, but for those of a use.
func (m *moving) live(t *testing.T, d time.Duration, but string) {
	t.Helper()
	over := time.After(d)
	for name, hold := range m.holds {
		if strings.HasSuffix(name, ":"+but) {
			continue
		}
		select {
		case <-hold.Context().Done():
			require.Fail(t, "lost", "%s: %v", name, context.Cause(hold.Context()))
		case <-over:
			over = time.After(0)
		}
	}
	for name, hold := range m.holds {
		if !strings.HasSuffix(name, ":"+but) {
			require.NoError(t, context.Cause(hold.Context()), name)
		}
	}
}

// release releases the locks of a use. While their slot moves the outcome may stay unknown, but not for longer than an Unlock takes.
func (m *moving) release(t *testing.T, use string) {
	t.Helper()
	var all sync.WaitGroup
	for name, hold := range m.holds {
		if strings.HasSuffix(name, ":"+use) {
			all.Go(func() {
				if err := hold.Unlock(t.Context()); !errors.Is(err, redlatch.ErrUnknown) {
					assert.NoError(t, err, name)
				}
			})
		}
	}
	all.Wait()
}

// free returns nil if nobody holds the locks of a use.
func (m *moving) free(ctx context.Context, use string) error {
	for kind, get := range movingKinds() {
		name := fmt.Sprintf("{%s}:%s:%s", m.tag, kind, use)
		hold, err := get(m.waiter, name).TryLock(ctx)
		if err == nil {
			err = hold.Unlock(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// gone returns nil if Redis has none of the locks of a use.
func (m *moving) gone(ctx context.Context, use string) error {
	for kind := range movingKinds() {
		name := fmt.Sprintf("{%s}:%s:%s", m.tag, kind, use)
		for _, key := range []string{name, "second:" + name, elsewhere(name)} {
			if n, err := m.rdb.Exists(ctx, key).Result(); err != nil || n > 0 {
				return fmt.Errorf("%d of %s: %w", n, key, err)
			}
		}
	}
	return nil
}

// excludes tries what is held: a reader whose level cannot be seen is not taken for dead.
func (m *moving) excludes(t *testing.T) {
	t.Helper()
	for kind := range movingKinds() {
		for _, use := range []string{"kept", "moved apart"} {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			_, err := rival(kind, m.waiter, fmt.Sprintf("{%s}:%s:%s", m.tag, kind, use)).TryLock(ctx)
			require.Error(t, err, kind)
			cancel()
		}
	}
}

// endsInTime tries a lock whose keys are all missing: Redis refuses that while the slot moves, unless it is one key.
func (m *moving) endsInTime(t *testing.T) {
	t.Helper()
	for kind, get := range movingKinds() {
		single := kind == "plain" || kind == "writer" || kind == "red"
		limit := 300 * time.Millisecond
		if single {
			limit = 2 * time.Second
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		start := time.Now()
		hold, err := get(m.waiter, fmt.Sprintf("{%s}:%s:new", m.tag, kind)).TryLock(ctx)
		assert.Less(t, time.Since(start), limit+time.Second, kind)
		cancel()
		if single {
			require.NoError(t, err, kind)
			locktest.Unlock(t, hold)
			continue
		}
		require.NotErrorIs(t, err, rlock.ErrNotAcquired, kind)
		if !errors.Is(err, context.DeadlineExceeded) {
			require.ErrorIs(t, err, redlatch.ErrUnavailable, kind)
		}
	}
}

// F24
func TestLocksOutliveASlotOnTheMove(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	for state, moves := range map[string]func(key string) bool{
		"none moved": func(string) bool { return false },
		"all moved":  func(string) bool { return true },
		// Of one reader the lock has moved, of the other its level.
		"some moved": func(key string) bool {
			return strings.HasSuffix(key, ":kept") || strings.Contains(key, "moved apart:")
		},
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			m := newMoving(t, cluster, strings.ReplaceAll(state, " ", "-"))
			redistest.Eventually(t, 10*time.Second, "the fair lock's waiter has queued", func() error {
				if !slices.ContainsFunc(m.keys(t), func(key string) bool { return strings.HasPrefix(key, "redisson_lock_queue:") }) {
					return errors.New("no queue")
				}
				return nil
			})
			owner := m.Owner(t, "{"+m.tag+"}")
			to := cluster.Nodes()[0]
			if to == owner {
				to = cluster.Nodes()[1]
			}
			move := m.Migrate(t, "{"+m.tag+"}", to)
			move.Move(t, slices.DeleteFunc(m.keys(t), func(key string) bool { return !moves(key) })...)
			m.live(t, 3*m.lease, "")
			m.release(t, "freed")
			next := map[string]<-chan locktest.Outcome{} // begun while the slot moves
			for kind := range movingKinds() {
				name := fmt.Sprintf("{%s}:%s:freed", m.tag, kind)
				next[name] = locktest.Begin(func() (*rlock.Hold, error) { return rival(kind, m.waiter, name).Lock(t.Context()) })
			}
			lag := faulttest.MeasureLag(t, "")
			m.endsInTime(t)
			m.excludes(t)
			m.live(t, 3*m.lease, "freed")

			move.Finish(t)
			moved := time.Now()
			var got []*rlock.Hold
			for name, done := range next {
				got = append(got, locktest.Next(t, done))
				assert.Less(t, time.Since(moved), movedWithin+lag.Late(), name)
			}
			for _, hold := range got {
				locktest.Unlock(t, hold)
			}
			redistest.Eventually(t, time.Until(moved.Add(settledWithin+lag.Late())), "what was released is gone", func() error {
				return m.gone(t.Context(), "freed")
			})
			m.live(t, m.lease, "freed")
			for name, done := range m.waiting {
				locktest.Unlock(t, m.holds[name])
				start := time.Now()
				locktest.Unlock(t, locktest.Next(t, done))
				assert.Less(t, time.Since(start), movedWithin+lag.Late(), name)
			}
			for _, line := range m.log.take() {
				assert.NotEqual(t, "redlatch: renewals fail", line["msg"], "a slot on the move is no outage: %v", line)
			}
			m.release(t, "moved apart")
			require.NoError(t, m.free(t.Context(), "moved apart"))
			assert.Empty(t, move.Left(t), "keys that both nodes have")
		})
	}
}

// F24: whatever is held outlives a slot that stands half-moved, and is handed over once it has moved, also to those who began to wait
// meanwhile. Rates, ids and topics, which need one key, go on all the time; a call that does not wait ends in time, and is done or not
// done.
func TestEveryKindOutlivesASlotOnTheMove(t *testing.T) {
	t.Parallel()
	const lease, timeout = 1500 * time.Millisecond, 300 * time.Millisecond
	cluster := redistest.StartCluster(t, 3)
	for state, moves := range map[string]func(n int) bool{
		"none moved": func(int) bool { return false },
		"all moved":  func(int) bool { return true },
		"even moved": func(n int) bool { return n%2 == 0 },
		"odd moved":  func(n int) bool { return n%2 == 1 },
	} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			tag := strings.ReplaceAll(state, " ", "-") + "-kinds"
			nameOf := func(kind string) string {
				switch kind {
				case "latch", "once", "limiter": // keys of those have the whole name as their tag
					return tag
				}
				return "{" + tag + "}" + kind
			}
			client := func(opts ...redlatch.Option) *redlatch.Client {
				c, err := redlatch.New(cluster.Client(t), append(opts, redlatch.WithWatchdogTimeout(lease), redlatch.WithCloseGrace(0))...)
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, c.Close()) })
				return c
			}
			holder, waiter, hasty := client(), client(), client(redlatch.WithCallTimeout(timeout))
			held := enterAll(t, holder, waiter, guests(lease), func(g guest) string { return nameOf(g.name) })
			late := enterAll(t, holder, nil, slices.DeleteFunc(guests(lease), func(g guest) bool { return nameOf(g.name) == tag }),
				func(g guest) string { return nameOf(g.name) + "-late" })
			l := &loops{ended: make(chan struct{})}
			shared, check := sharedUses(t, []*redlatch.Client{holder, waiter}, 0, nameOf)
			for _, u := range shared {
				l.run(t, u.kind, func(ctx context.Context) error {
					<-time.After(5 * time.Millisecond)
					return u.once(ctx)
				})
			}
			calls := singleCalls(t, hasty, nameOf)
			lag := faulttest.MeasureLag(t, "")

			m := cluster.Migrate(t, tag, cluster.Other(t, tag))
			keys, n := m.Left(t), -1
			slices.Sort(keys)
			m.Move(t, slices.DeleteFunc(keys, func(string) bool { n++; return !moves(n) })...)
			for i, h := range late {
				late[i].waited = h.begin(t, waiter, nameOf(h.name)+"-late")
			}
			free := map[string]<-chan error{} // what nobody holds
			for _, h := range held {
				switch h.name {
				case "latch", "once": // of which the slot has one; its release is that of both waits
					late = append(late, heldGuest{h.guest, h.alive, func(context.Context) error { return nil }, h.begin(t, waiter, tag)})
				case "permit", "semaphore", "queue": // of which there is nothing to have
				default:
					free[h.name] = h.begin(t, waiter, nameOf(h.name)+"-free")
				}
			}
			held = append(held, late...)
			for what, call := range calls {
				start := time.Now()
				err := call(t.Context())
				assert.Less(t, time.Since(start), timeout+50*time.Millisecond+lag.Late(), what)
				goesOn := what == "Resign" && errors.Is(err, redlatch.ErrUnknown)
				if err != nil && !goesOn && !errors.Is(err, script.ErrNoAnswer) { // else one sending was in flight at the end
					assert.ErrorIs(t, err, redlatch.ErrUnavailable, what)
					assert.NotErrorIs(t, err, redlatch.ErrUnknown, "%s: Redis has refused it each time", what)
				}
			}
			stayHeld(t, held, 3*lease)
			m.Finish(t)
			moved := time.Now()
			for kind, waited := range free {
				heldGuest{guest: guest{name: kind + ", free"}, waited: waited}.gotten(t)
				assert.Less(t, time.Since(moved), movedWithin+lag.Late(), kind)
			}
			for _, h := range held {
				assert.Less(t, h.handOver(t), movedWithin+lag.Late(), h.name)
			}
			close(l.ended)
			l.all.Wait()
			check(0)
			assert.Empty(t, m.Left(t), "keys that both nodes have")
		})
	}
}

// singleCalls are calls that do not wait for others, on objects that are in use. It makes what they need.
func singleCalls(t *testing.T, c *redlatch.Client, nameOf func(kind string) string) map[string]func(ctx context.Context) error {
	t.Helper()
	once, permits := onceOf(c, nameOf("once")), c.GetPermitSemaphore(nameOf("permits"))
	_, _, err := once.Do(t.Context(), "done", func(context.Context) (string, error) { return "", nil })
	require.NoError(t, err)
	require.NoError(t, permits.SetPermits(t.Context(), 1))
	var leads [2]*relection.Leadership
	for i := range leads {
		leads[i], err = c.GetElection(fmt.Sprint(nameOf("leads"), i)).Campaign(t.Context())
		require.NoError(t, err)
	}
	q := redlatch.GetDelayedQueue[string](c, nameOf("calls"))
	_, err = q.Offer(t.Context(), "taken", 0)
	require.NoError(t, err)
	m, err := q.Take(t.Context())
	require.NoError(t, err)
	_, err = q.Offer(t.Context(), "later", time.Hour, rdelayedqueue.WithID("later"))
	require.NoError(t, err)
	return map[string]func(ctx context.Context) error{
		"Leader":   func(ctx context.Context) error { _, err := c.GetElection(nameOf("election")).Leader(ctx); return err },
		"Resign":   leads[0].Resign,
		"Proclaim": func(ctx context.Context) error { return leads[1].Proclaim(ctx, "me") },
		"Peek":     func(ctx context.Context) error { _, _, err := once.Peek(ctx, "k"); return err },
		"Forget":   func(ctx context.Context) error { return once.Forget(ctx, "done") },
		"Offer": func(ctx context.Context) error {
			_, err := redlatch.GetDelayedQueue[string](c, nameOf("queue")).Offer(ctx, "later", time.Hour)
			return err
		},
		"Cancel":  func(ctx context.Context) error { _, err := q.Cancel(ctx, "later"); return err },
		"Nack":    func(ctx context.Context) error { return m.Nack(ctx, time.Hour) },
		"Jobs":    func(ctx context.Context) error { _, err := c.GetScheduler(nameOf("scheduler")).Jobs(ctx); return err },
		"Trigger": func(ctx context.Context) error { return c.GetScheduler(nameOf("scheduler")).Trigger(ctx, "job") },
		"Available": func(ctx context.Context) error {
			_, err := c.GetPermitSemaphore(nameOf("permit")).Available(ctx)
			return err
		},
		"SetPermits": func(ctx context.Context) error { return permits.SetPermits(ctx, 2) },
		"Allow": func(ctx context.Context) error {
			_, err := c.GetRateLimiter("{"+nameOf("limiter")+"}", rratelimiter.Per(1, time.Hour)).Allow(ctx, "hasty", 1)
			return err
		},
		"Next": func(ctx context.Context) error { _, err := c.GetIDGenerator(nameOf("ids")).Next(ctx); return err },
	}
}

// clusterClient returns a client that does not wait for its holds when it closes, at the end of the test.
func clusterClient(t *testing.T, cluster *redistest.Cluster) *redlatch.Client {
	t.Helper()
	c, err := redlatch.New(cluster.Client(t), redlatch.WithCloseGrace(0))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// F24
func TestWaiterThatBeginsInASlotOnTheMoveHearsOfTheRelease(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	holder, waiter := clusterClient(t, cluster), clusterClient(t, cluster)
	lag := faulttest.MeasureLag(t, "")
	var took []time.Duration
	for i := range 5 {
		name := fmt.Sprint("moving", i)
		hold := locktest.Acquire(t, t.Context(), holder.GetLock(name))
		owner, to := cluster.Owner(t, name), cluster.Nodes()[0]
		if to == owner {
			to = cluster.Nodes()[1]
		}
		move := cluster.Migrate(t, name, to)
		before := subscribed(t, owner)
		done := locktest.Begin(func() (*rlock.Hold, error) { return waiter.GetLock(name).Lock(t.Context()) })
		redistest.Eventually(t, 10*time.Second, "a subscription is asked for", func() error {
			if slices.Equal(subscribed(t, owner), before) {
				return errors.New("none yet")
			}
			return nil
		})
		move.Finish(t)
		redistest.AwaitSubscribers(t, cluster.Client(t), "redisson_lock__channel:{"+name+"}", 1)
		locktest.Unlock(t, hold)
		released := time.Now()
		locktest.Unlock(t, locktest.Next(t, done))
		took = append(took, time.Since(released))
	}
	requireWoken(t, lag, took)
}

// subscribed returns what a server says of the subscriptions that it was asked for, refused ones included.
func subscribed(t *testing.T, s *redistest.Server) []string {
	t.Helper()
	info, err := s.Client(t).Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	return slices.DeleteFunc(strings.Fields(info), func(line string) bool { return !strings.Contains(line, "subscribe:") })
}
