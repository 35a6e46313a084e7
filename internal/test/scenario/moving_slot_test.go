package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rfairlock"
	"github.com/redlatch/redlatch/rlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rrwlock"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rtopic"
)

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
	redistest.Long(t)
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
	redistest.Long(t)
	t.Parallel()
	const lease, timeout = 3 * time.Second, 300 * time.Millisecond
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
			patient := redlatch.WithCallTimeout(time.Minute) // who waits for an election asks for the leader, who is known once the slot has moved
			holder, waiter, hasty := client(), client(patient), client(redlatch.WithCallTimeout(timeout))
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
			calls := singleCalls(t, hasty, nameOf, inSlotOf(t, cluster.Nodes()[0].Client(t), tag, 5))
			for what, one := range calls {
				if one.done != nil {
					require.Error(t, one.done(t.Context()), what)
				}
			}
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
			var called sync.WaitGroup
			for what, one := range calls {
				called.Go(func() {
					start := time.Now()
					one.err = one.call(t.Context())
					assert.Less(t, time.Since(start), timeout+50*time.Millisecond+lag.Late(), what)
				})
			}
			called.Wait()
			unanswered := 0
			for what, one := range calls {
				switch {
				case one.err == nil || goesOn(what, one.err):
				case inFlight(one.err):
					unanswered++
				default: // Redis has refused it each time
					assert.ErrorIs(t, one.err, redlatch.ErrUnavailable, what)
				}
			}
			// A machine that is busy delays the last answers of all calls.
			still := float64(lag.Late()) / float64(timeout)
			assert.Less(t, float64(unanswered), float64(len(calls))*(0.25+still))
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
			for what, one := range calls {
				one.requireDoneOrNot(t, what)
			}
			assert.Empty(t, m.Left(t), "keys that both nodes have")
		})
	}
}

// singleCall does not wait for others. It is sent to an object that is its own, unless it only reads.
type singleCall struct {
	call func(ctx context.Context) error
	done func(ctx context.Context) error // returns nil once the call has done all that it does, and nothing else; nil if nothing tells
	err  error                           // of the call
}

// goesOn reports whether a call's release goes on after its end.
func goesOn(what string, err error) bool {
	return (what == "Resign" || strings.HasPrefix(what, "Release, ")) && errors.Is(err, redlatch.ErrUnknown)
}

// inFlight reports whether a sending of a call was not answered by its end.
func inFlight(err error) bool {
	return errors.Is(err, redlatch.ErrUnknown) || errors.Is(err, script.ErrNoAnswer)
}

// requireDoneOrNot requires of a call that was made while its slot moved that it is done, if it said so, and else that it can be done.
func (c *singleCall) requireDoneOrNot(t *testing.T, what string) {
	t.Helper()
	switch {
	case c.done == nil && c.err != nil:
		assert.NoError(t, c.call(t.Context()), what)
	case c.done == nil || inFlight(c.err) && !goesOn(what, c.err): // nobody knows whether it is done
	case c.err != nil && !goesOn(what, c.err):
		require.Error(t, c.done(t.Context()), "%s is done: %v", what, c.err)
		require.NoError(t, c.call(t.Context()), "%s after %v", what, c.err)
		fallthrough
	default: // a hold notices soon that it is lost, and a release may go on
		redistest.Eventually(t, settledWithin, fmt.Sprintf("%s after %v", what, c.err), func() error { return c.done(t.Context()) })
	}
}

// gives calls what has to give that.
func gives[T any](want T, call func(context.Context) (T, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := call(ctx)
		if err == nil && !reflect.DeepEqual(got, want) {
			err = fmt.Errorf("got %+v, want %+v", got, want)
		}
		return err
	}
}

// singleCalls are calls on objects that are in use, and on some that are made for them.
func singleCalls(t *testing.T, c *redlatch.Client, nameOf func(kind string) string, latches []string) map[string]*singleCall {
	t.Helper()
	inside := c.GetDoubleBarrier(nameOf("double"), 1)
	require.NoError(t, inside.Enter(t.Context()))
	all := map[string]*singleCall{
		"Jobs":    {call: func(ctx context.Context) error { _, err := c.GetScheduler(nameOf("scheduler")).Jobs(ctx); return err }},
		"Trigger": {call: func(ctx context.Context) error { return c.GetScheduler(nameOf("scheduler")).Trigger(ctx, "job") }},
		"Allow": {call: func(ctx context.Context) error {
			_, err := c.GetRateLimiter("{"+nameOf("limiter")+"}", rratelimiter.Per(1, time.Hour)).Allow(ctx, "hasty", 1)
			return err
		}},
		"Info of a limiter": {call: func(ctx context.Context) error {
			_, err := c.GetRateLimiter("{"+nameOf("limiter")+"}", rratelimiter.Per(1, time.Hour)).Info(ctx, "hasty", 1)
			return err
		}},
		"Info of a barrier":        {call: func(ctx context.Context) error { _, err := c.GetBarrier(nameOf("barrier"), 1).Info(ctx); return err }},
		"Info of a double barrier": {call: func(ctx context.Context) error { _, err := inside.Info(ctx); return err }},
		"Next":                     {call: func(ctx context.Context) error { _, err := c.GetIDGenerator(nameOf("ids")).Next(ctx); return err }},
		"Info of a topic":          {call: gives(rtopic.Info{Name: nameOf("unheard")}, redlatch.GetTopic[string](c, nameOf("unheard")).Info)},
	}
	callsOfLocks(t, c, nameOf, all)
	callsOfCounters(t, c, nameOf, latches, all)
	callsOfQueues(t, c, nameOf, all)
	callsOfElections(t, c, nameOf, all)
	callsOfJobs(t, c, nameOf("jobs"), all)
	once := onceOf(c, nameOf("once"))
	for _, key := range []string{"kept", "forgotten"} {
		_, _, err := once.Do(t.Context(), key, func(context.Context) (string, error) { return "value", nil })
		require.NoError(t, err)
	}
	there := func(key string) func(ctx context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) { _, ok, err := once.Peek(ctx, key); return ok, err }
	}
	all["Peek"] = &singleCall{call: gives(true, there("kept"))}
	all["Forget"] = &singleCall{call: func(ctx context.Context) error { return once.Forget(ctx, "forgotten") }, done: gives(false, there("forgotten"))}
	return all
}

func callsOfLocks(t *testing.T, c *redlatch.Client, nameOf func(kind string) string, all map[string]*singleCall) {
	t.Helper()
	for kind, get := range lockKinds {
		get := func(use string) (rlock.Locker, *rlock.Hold, interface {
			ForceUnlock(ctx context.Context) (bool, error)
			IsLocked(ctx context.Context) (bool, error)
			TTL(ctx context.Context) (time.Duration, error)
		},
		) {
			l := get(c, nameOf(use+kind))
			h := locktest.Acquire(t, t.Context(), l, long)
			switch kind {
			case "plain":
				return l, h, c.GetLock(l.Name())
			case "fenced":
				return l, h, c.GetFencedLock(l.Name())
			case "fair":
				return l, h, c.GetFairLock(l.Name())
			}
			return l, h, c.GetReadWriteLock(l.Name())
		}
		_, forced, free := get("forced-")
		all["ForceUnlock, "+kind] = &singleCall{call: func(ctx context.Context) error {
			ok, err := free.ForceUnlock(ctx)
			if ok != (err == nil) || err != nil && ended(forced.Context()) != nil {
				err = errors.New(fmt.Sprint("released: ", ok, ", the hold: ", ended(forced.Context()), ", and ", err))
			}
			return err
		}, done: gives(false, func(ctx context.Context) (bool, error) {
			locked, err := free.IsLocked(ctx)
			// A hold with a fixed lease asks once whether it is lost. For a reader Redis refuses that while the slot moves.
			told := kind == "reader" || ended(forced.Context()) != nil
			return locked || !told, err
		})}
		_, extended, l := get("kept-")
		all["IsLocked, "+kind] = &singleCall{call: gives(true, l.IsLocked)}
		all["Info, "+kind] = &singleCall{call: gives(extended.Owner(), func(ctx context.Context) (string, error) { return ownerOf(ctx, l) })}
		all["Extend, "+kind] = &singleCall{call: func(ctx context.Context) error { return extended.Extend(ctx, time.Minute) }, done: short(l.TTL)}
	}
}

// ownerOf returns the owner id that Info of a lock has: of a read-write lock that of the writer or else of the first reader.
func ownerOf(ctx context.Context, l any) (string, error) {
	switch l := l.(type) {
	case *rlock.Lock:
		info, err := l.Info(ctx)
		return info.Owner, err
	case *rfairlock.Lock:
		info, err := l.Info(ctx)
		return info.Owner, err
	case *rrwlock.Lock:
		info, err := l.Info(ctx)
		if info.Writer != nil {
			return info.Writer.Owner, err
		}
		if len(info.Readers) > 0 {
			return info.Readers[0].Owner, err
		}
		return "", err
	}
	return "", errors.New("no lock with Info")
}

// short requires that less than an hour is left, of a minute to which something was set.
func short(left func(context.Context) (time.Duration, error)) func(context.Context) error {
	return gives(true, func(ctx context.Context) (bool, error) { d, err := left(ctx); return d > 0 && d <= time.Minute, err })
}

func callsOfCounters(t *testing.T, c *redlatch.Client, nameOf func(kind string) string, latches []string, all map[string]*singleCall) {
	t.Helper()
	counted := func(what string, left int, call func(ctx context.Context, s *rsemaphore.Semaphore) error) {
		s := c.GetSemaphore(nameOf("counted-" + what))
		require.NoError(t, s.AddPermits(t.Context(), 3))
		all[what+", counted"] = &singleCall{call: func(ctx context.Context) error { return call(ctx, s) }, done: gives(left, s.Available)}
	}
	counted("AddPermits", 5, func(ctx context.Context, s *rsemaphore.Semaphore) error { return s.AddPermits(ctx, 2) })
	counted("Release", 5, func(ctx context.Context, s *rsemaphore.Semaphore) error { return s.Release(ctx, 2) })
	counted("TryAcquire", 1, func(ctx context.Context, s *rsemaphore.Semaphore) error {
		return gives(true, func(ctx context.Context) (bool, error) { return s.TryAcquire(ctx, 2) })(ctx)
	})
	counted("Drain", 0, func(ctx context.Context, s *rsemaphore.Semaphore) error { return gives(3, s.Drain)(ctx) })
	set := c.GetSemaphore(nameOf("set-counted"))
	all["TrySetPermits, counted"] = &singleCall{
		call: gives(true, func(ctx context.Context) (bool, error) { return set.TrySetPermits(ctx, 2) }), done: gives(2, set.Available),
	}
	leased := func(what string, left int, call func(ctx context.Context, s *rsemaphore.PermitSemaphore, p *rsemaphore.Permit) error) {
		s := c.GetPermitSemaphore(nameOf("leased-" + what))
		require.NoError(t, s.SetPermits(t.Context(), 3))
		p, err := s.Acquire(t.Context(), rsemaphore.WithFixedLease(time.Hour))
		require.NoError(t, err)
		done := gives(left, s.Available)
		if left == 2 { // as before
			done = short(func(ctx context.Context) (time.Duration, error) {
				info, err := s.Info(ctx)
				if err == nil && len(info.Holders) != 1 {
					err = fmt.Errorf("it is held by %v", info.Holders)
				}
				if err != nil {
					return 0, err
				}
				return info.Holders[0].Left, nil
			})
		}
		all[what+", leased"] = &singleCall{call: func(ctx context.Context) error { return call(ctx, s, p) }, done: done}
	}
	type (
		permits = rsemaphore.PermitSemaphore
		permit  = rsemaphore.Permit
	)
	leased("SetPermits", 4, func(ctx context.Context, s *permits, _ *permit) error { return s.SetPermits(ctx, 5) })
	leased("AddPermits", 4, func(ctx context.Context, s *permits, _ *permit) error { return s.AddPermits(ctx, 2) })
	leased("TryAcquire", 1, func(ctx context.Context, s *permits, _ *permit) error { _, err := s.TryAcquire(ctx); return err })
	leased("ReleaseID", 3, func(ctx context.Context, s *permits, p *permit) error { return s.ReleaseID(ctx, p.ID()) })
	leased("Release", 3, func(ctx context.Context, _ *permits, p *permit) error { return p.Release(ctx) })
	leased("ExtendID", 2, func(ctx context.Context, s *permits, p *permit) error { return s.ExtendID(ctx, p.ID(), time.Minute) })
	leased("Extend", 2, func(ctx context.Context, _ *permits, p *permit) error { return p.Extend(ctx, time.Minute) })
	all["Available, counted"] = &singleCall{call: func(ctx context.Context) error {
		_, err := c.GetSemaphore(nameOf("semaphore")).Available(ctx)
		return err
	}}
	all["Available, leased"] = &singleCall{call: func(ctx context.Context) error {
		_, err := c.GetPermitSemaphore(nameOf("permit")).Available(ctx)
		return err
	}}
	fresh := c.GetPermitSemaphore(nameOf("set-leased"))
	all["TrySetPermits, leased"] = &singleCall{
		call: gives(true, func(ctx context.Context) (bool, error) { return fresh.TrySetPermits(ctx, 2) }), done: gives(2, fresh.Available),
	}
	latch := func(what string, left int, call func(ctx context.Context, l *rlatch.Latch) (bool, error)) {
		l := c.GetCountDownLatch(latches[0])
		latches = latches[1:]
		if what != "TrySetCount" {
			_, err := l.TrySetCount(t.Context(), 5)
			require.NoError(t, err)
		}
		all[what] = &singleCall{call: gives(true, func(ctx context.Context) (bool, error) { return call(ctx, l) }), done: gives(left, l.Count)}
	}
	latch("TrySetCount", 3, func(ctx context.Context, l *rlatch.Latch) (bool, error) { return l.TrySetCount(ctx, 3) })
	latch("CountDown", 4, func(ctx context.Context, l *rlatch.Latch) (bool, error) { return true, l.CountDown(ctx) })
	latch("CountDownBy", 2, func(ctx context.Context, l *rlatch.Latch) (bool, error) { return true, l.CountDownBy(ctx, 3) })
	latch("CountDownOnce", 4, func(ctx context.Context, l *rlatch.Latch) (bool, error) { return l.CountDownOnce(ctx, "one") })
	latch("Delete", 0, func(ctx context.Context, l *rlatch.Latch) (bool, error) { return l.Delete(ctx) })
}

func callsOfQueues(t *testing.T, c *redlatch.Client, nameOf func(kind string) string, all map[string]*singleCall) {
	t.Helper()
	type (
		queue   = rdelayedqueue.Queue[string]
		message = rdelayedqueue.Message[string]
		stats   = rdelayedqueue.Stats
	)
	add := func(what string, after stats, call func(ctx context.Context, q *queue, m *message) error) *queue {
		q := redlatch.GetDelayedQueue[string](c, nameOf("calls-"+what))
		offer := func(id string, delay time.Duration) {
			_, err := q.Offer(t.Context(), id, delay, rdelayedqueue.WithID(id))
			require.NoError(t, err)
		}
		take := func() *message {
			m, err := q.Take(t.Context())
			require.NoError(t, err)
			return m
		}
		offer("dead", 0)
		require.NoError(t, take().Reject(t.Context(), "why"))
		offer("held", 0)
		held := take()
		offer("later", time.Hour)
		counts := func(ctx context.Context) (stats, error) {
			s, err := q.Stats(ctx)
			s.Oldest = 0 // it changes with the time
			return s, err
		}
		all[what+" of a queue"] = &singleCall{call: func(ctx context.Context) error { return call(ctx, q, held) }, done: gives(after, counts)}
		return q
	}
	is := func(ok bool, err error) error {
		if err == nil && !ok {
			err = errors.New("it says that it is not done")
		}
		return err
	}
	add("Offer", stats{Delayed: 2, InFlight: 1, Dead: 1}, func(ctx context.Context, q *queue, _ *message) error {
		_, err := q.Offer(ctx, "v", time.Hour)
		return err
	})
	add("OfferNew", stats{Delayed: 2, InFlight: 1, Dead: 1}, func(ctx context.Context, q *queue, _ *message) error {
		_, outcome, err := q.OfferNew(ctx, "v", time.Hour)
		return is(outcome == rdelayedqueue.Added, err)
	})
	add("Replace", stats{Ready: 1, InFlight: 1, Dead: 1}, func(ctx context.Context, q *queue, _ *message) error {
		_, outcome, err := q.OfferNew(ctx, "v", 0, rdelayedqueue.WithID("later"), rdelayedqueue.WithReplace())
		return is(outcome == rdelayedqueue.Replaced, err)
	})
	running := add("Replace in flight", stats{}, func(ctx context.Context, q *queue, _ *message) error {
		_, outcome, err := q.OfferNew(ctx, "v", 0, rdelayedqueue.WithID("held"), rdelayedqueue.WithReplace())
		return is(outcome == rdelayedqueue.Replaced, err)
	})
	all["Replace in flight of a queue"].done = gives("v", func(ctx context.Context) (string, error) {
		e, err := running.Get(ctx, "held")
		if err != nil {
			return "", err
		}
		return e.Value, nil
	})
	add("OfferBatch", stats{Delayed: 3, InFlight: 1, Dead: 1}, func(ctx context.Context, q *queue, _ *message) error {
		_, err := q.OfferBatch(ctx, []rdelayedqueue.Item[string]{{Value: "v", Delay: time.Hour}, {Value: "w", Delay: time.Hour}})
		return err
	})
	add("Cancel", stats{InFlight: 1, Dead: 1}, func(ctx context.Context, q *queue, _ *message) error { return is(q.Cancel(ctx, "later")) })
	add("Reschedule", stats{Ready: 1, InFlight: 1, Dead: 1}, func(ctx context.Context, q *queue, _ *message) error { return is(q.Reschedule(ctx, "later", 0)) })
	add("Redrive", stats{Delayed: 1, Ready: 1, InFlight: 1}, func(ctx context.Context, q *queue, _ *message) error { return is(q.Redrive(ctx, "dead")) })
	add("RedriveAll", stats{Delayed: 1, Ready: 1, InFlight: 1}, func(ctx context.Context, q *queue, _ *message) error { return gives(1, q.RedriveAll)(ctx) })
	add("Purge", stats{InFlight: 1}, func(ctx context.Context, q *queue, _ *message) error {
		return gives(2, func(ctx context.Context) (int, error) { return q.Purge(ctx, rdelayedqueue.Delayed, rdelayedqueue.Dead) })(ctx)
	})
	add("Pause", stats{Delayed: 1, InFlight: 1, Dead: 1, Paused: true}, func(ctx context.Context, q *queue, _ *message) error { return q.Pause(ctx) })
	paused := add("Resume", stats{Delayed: 1, InFlight: 1, Dead: 1}, func(ctx context.Context, q *queue, _ *message) error { return q.Resume(ctx) })
	require.NoError(t, paused.Pause(t.Context()))
	add("Ack", stats{Delayed: 1, Dead: 1}, func(ctx context.Context, _ *queue, m *message) error { return m.Ack(ctx) })
	add("Nack", stats{Delayed: 2, Dead: 1}, func(ctx context.Context, _ *queue, m *message) error { return m.Nack(ctx, time.Hour) })
	add("Snooze", stats{Delayed: 2, Dead: 1}, func(ctx context.Context, _ *queue, m *message) error { return m.Snooze(ctx, time.Hour) })
	add("Reject", stats{Delayed: 1, Dead: 2}, func(ctx context.Context, _ *queue, m *message) error { return m.Reject(ctx, "why") })
	reads := func(what string, call func(ctx context.Context, q *queue, m *message) error) {
		add(what, stats{}, call)
		all[what+" of a queue"].done = nil
	}
	reads("Extend", func(ctx context.Context, _ *queue, m *message) error { return m.Extend(ctx, time.Minute) })
	reads("Stats", func(ctx context.Context, q *queue, _ *message) error {
		return gives(stats{Delayed: 1, InFlight: 1, Dead: 1}, q.Stats)(ctx)
	})
	reads("Get", func(ctx context.Context, q *queue, _ *message) error {
		e, err := q.Get(ctx, "later")
		return is(e != nil, err)
	})
	reads("Dead", func(ctx context.Context, q *queue, _ *message) error {
		dead, err := q.Dead(ctx, 9)
		return is(len(dead) == 1, err)
	})
	reads("All", func(ctx context.Context, q *queue, _ *message) error {
		n := 0
		for _, err := range q.All(ctx, rdelayedqueue.Delayed) {
			if err != nil {
				return err
			}
			n++
		}
		return is(n == 1, nil)
	})
}

func callsOfElections(t *testing.T, c *redlatch.Client, nameOf func(kind string) string, all map[string]*singleCall) {
	t.Helper()
	leads := func(what string, then string, call func(ctx context.Context, lead *relection.Leadership) error) {
		e := c.GetElection(nameOf("leads-" + what))
		lead, err := e.Campaign(t.Context(), relection.WithValue("at first"))
		require.NoError(t, err)
		all[what] = &singleCall{call: func(ctx context.Context) error { return call(ctx, lead) }, done: gives(then, func(ctx context.Context) (string, error) {
			leader, err := e.Leader(ctx)
			if errors.Is(err, relection.ErrNoLeader) {
				err = nil
			}
			return leader.Value, err
		})}
	}
	leads("Resign", "", func(ctx context.Context, lead *relection.Leadership) error { return lead.Resign(ctx) })
	leads("Proclaim", "me", func(ctx context.Context, lead *relection.Leadership) error { return lead.Proclaim(ctx, "me") })
	all["Leader"] = &singleCall{call: func(ctx context.Context) error {
		_, err := c.GetElection(nameOf("leads-Proclaim")).Leader(ctx)
		return err
	}}
	all["Candidates"] = &singleCall{call: func(ctx context.Context) error {
		_, err := c.GetElection(nameOf("election")).Candidates(ctx)
		return err
	}}
}

func callsOfJobs(t *testing.T, c *redlatch.Client, name string, all map[string]*singleCall) {
	t.Helper()
	s := c.GetScheduler(name)
	ctx, stop := context.WithCancel(t.Context())
	for _, job := range []string{"paused", "resumed", "removed"} {
		require.NoError(t, s.Register(job, rscheduler.MustCron("@yearly"), func(context.Context, rscheduler.Run) error { return nil }))
	}
	ran := make(chan error, 1)
	go func() { ran <- s.Run(ctx) }()
	state := func(ctx context.Context, job string) (string, error) {
		jobs, err := s.Jobs(ctx)
		for _, j := range jobs {
			if j.Name == job {
				return "there " + j.Why, err
			}
		}
		return "", err
	}
	of := func(job string) func(ctx context.Context) (string, error) {
		return func(ctx context.Context) (string, error) { return state(ctx, job) }
	}
	for _, job := range []string{"paused", "resumed", "removed"} {
		redistest.Eventually(t, 10*time.Second, "the job is written", func() error { return gives("there ", of(job))(t.Context()) })
	}
	stop()
	require.NoError(t, <-ran)
	require.NoError(t, s.Pause(t.Context(), "resumed", "why"))
	all["Pause of a job"] = &singleCall{call: func(ctx context.Context) error { return s.Pause(ctx, "paused", "why") }, done: gives("there why", of("paused"))}
	all["Resume of a job"] = &singleCall{call: func(ctx context.Context) error { return s.Resume(ctx, "resumed") }, done: gives("there ", of("resumed"))}
	all["Remove of a job"] = &singleCall{
		call: gives(true, func(ctx context.Context) (bool, error) { return s.Remove(ctx, "removed") }), done: gives("", of("removed")),
	}
	all["Runs of a job"] = &singleCall{call: func(ctx context.Context) error { _, err := s.Runs(ctx, "paused", 1); return err }}
}

// F24
func TestObjectsDoesNotWaitForASlotOnTheMove(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	c := clusterClient(t, cluster)
	inside := c.GetDoubleBarrier("moving", 1)
	require.NoError(t, inside.Enter(t.Context()))
	h := locktest.Acquire(t, t.Context(), c.GetLock("still"), long)
	list := func() (names []string) {
		for o, err := range c.Objects(t.Context(), "") {
			require.NoError(t, err)
			names = append(names, o.Kind+" "+o.Name)
		}
		slices.Sort(names)
		return names
	}
	assert.Equal(t, []string{"barrier moving", "lock still"}, list())
	lag := faulttest.MeasureLag(t, "")
	m := cluster.Migrate(t, "moving", cluster.Other(t, "moving")) // a double barrier never has all its keys
	start := time.Now()
	assert.Equal(t, []string{"lock still"}, list())
	assert.Less(t, time.Since(start), 2*time.Second+lag.Late())
	m.Move(t, m.Left(t)...)
	m.Finish(t)
	assert.Equal(t, []string{"barrier moving", "lock still"}, list())
	require.NoError(t, inside.Leave(t.Context()))
	locktest.Unlock(t, h)
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
