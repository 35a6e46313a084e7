package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
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
)

const (
	crashClients = 10
	crashLanes   = 4 // rounds at a time
	crashLimit   = 2 * redistest.ElectionLimit
)

// F9: the master of a Sentinel group or of a cluster is killed with SIGKILL just after clients were granted a lock or
// permit of every kind, of which the replica has not heard. Those may be granted twice, and the fence tells. What the
// replica has confirmed stays with its holder, and in its queue or latch. Nothing stays for ever: soon after the failover
// each of ten clients has had everything, one at a time.
func TestCrashOfAMasterLeavesEveryLockToOneOfTenClients(t *testing.T) {
	redistest.Long(t)
	redistest.Require(t)
	t.Parallel()
	for name, start := range map[string]func(*testing.T) *crash{
		"Sentinel": crashBehindSentinel,
		"cluster":  crashOfACluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rounds := make(chan int, faulttest.Rounds(t, 1, 100))
			for i := range cap(rounds) {
				rounds <- i
			}
			close(rounds)
			var sum crashTally
			var lanes sync.WaitGroup
			for range crashLanes {
				lanes.Go(func() {
					for i := range rounds {
						t.Run(strconv.Itoa(i), func(t *testing.T) { start(t).round(t, &sum) })
					}
				})
			}
			lanes.Wait()
			t.Logf("%d crashes, failovers of up to %v; all clients had gone on up to %v after the crash",
				sum.crashes, sum.slowest, sum.longest)
			t.Logf("not confirmed: %d double grants, %d writes with an old token refused, %d messages lost",
				sum.double, sum.refused, sum.dropped)
			t.Logf("confirmed: %d holds outlived the master", sum.kept)
			assert.Positive(t, sum.double, "without a replica's word nothing is kept")
		})
	}
}

// crash is a master that is going to be killed, its replica, and ten clients of whichever is the master.
type crash struct {
	locktest.Group
	connect   func() redis.UniversalClient
	serves    func()             // waits until the replica is the master
	concerned func(string) bool  // whether a name is on this master
	plain     []*redlatch.Client // one for each of the ten
	confirmed []*redlatch.Client // the same, with WithReplicas
}

func crashBehindSentinel(t *testing.T) *crash {
	t.Helper()
	g := locktest.StartGroup(t)
	return &crash{
		Group:     *g,
		connect:   func() redis.UniversalClient { return g.Sentinel.Client(t) },
		serves:    func() { g.Sentinel.AwaitMaster(g.Master.Addr()) },
		concerned: func(string) bool { return true },
	}
}

func crashOfACluster(t *testing.T) *crash {
	t.Helper()
	c := redistest.StartCluster(t, 3)
	master := c.Nodes()[0]
	replica := c.AddReplica(t, master)
	return &crash{
		Group:     locktest.Group{Master: master, Replica: replica},
		connect:   func() redis.UniversalClient { return c.Client(t) },
		serves:    func() { awaitPromotion(t, replica) },
		concerned: servedBy(t, c, master),
	}
}

// open opens the clients.
func (c *crash) open(t *testing.T) {
	t.Helper()
	for range crashClients {
		rdb := c.connect()
		client := func(opts ...redlatch.Option) *redlatch.Client {
			opts = append(opts, redlatch.WithWatchdogTimeout(failoverLease), redlatch.WithCloseGrace(0),
				redlatch.WithLogger(slog.New(slog.DiscardHandler)))
			one, err := redlatch.New(rdb, opts...)
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, one.Close()) })
			return one
		}
		c.plain = append(c.plain, client())
		c.confirmed = append(c.confirmed, client(redlatch.WithReplicas(1, time.Second)))
	}
}

// round kills the master while every object is held, and requires that all clients go on.
func (c *crash) round(t *testing.T, sum *crashTally) {
	t.Helper()
	c.open(t)
	ctx, cancel := context.WithTimeout(t.Context(), crashLimit)
	defer cancel()
	plain, confirmed := c.contests("plain"), c.contests("confirmed")
	all := slices.Concat(plain, confirmed)
	furnishContests(t, c.plain[0], all)
	inParallel(all, func(k *contest) {
		inParallelClients(func(i int) { k.visit(ctx, t, c.plain, i) })
	})
	left := c.beginCounts(ctx, t)
	defer func() { // so that nothing goes on after a test that has failed
		cancel()
		inParallel(all, (*contest).wait)
		left.opened.Wait()
	}()
	// What is confirmed here comes after all of the above, which the replica has thus too.
	inParallel(confirmed, func(k *contest) { k.begin(ctx, t, c.confirmed[k.holder], c.plain) })
	unconfirmed := c.contests("late")
	furnishContests(t, c.plain[0], unconfirmed)

	c.StopReplication(t)
	defer c.attemptUnconfirmed(ctx, t, unconfirmed)()
	left.offerLate(t)
	inParallel(plain, func(k *contest) { k.begin(ctx, t, c.plain[k.holder], c.plain) })
	lag := faulttest.MeasureLag(t, "")
	c.Master.Kill()
	killed := time.Now()
	c.serves()
	took := time.Since(killed)

	inParallel(plain, func(k *contest) {
		k.rivals.Wait()
		k.finish(ctx, t, c.plain)
	})
	went := time.Since(killed)
	assert.Less(t, went-took, outageMargin+lag.Late(), "until everybody has had everything that was lost")
	inParallel(confirmed, func(k *contest) { k.attempt(ctx, c.plain[(k.holder+1)%crashClients]) })
	freed := time.Now()
	inParallel(confirmed, func(k *contest) { k.finish(ctx, t, c.plain) })
	left.finish(ctx, t)
	assert.Less(t, time.Since(freed), outageMargin+lag.Late(), "until everybody has had everything that was kept")
	sum.add(t, plain, confirmed, took, went, left.dropped(t))
}

// attemptUnconfirmed begins to acquire objects of which no replica will hear, and requires that every call fails. The
// function that it returns ends those that go on.
func (c *crash) attemptUnconfirmed(ctx context.Context, t *testing.T, all []*contest) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx) // while no server answers a call goes on for a lease
	var attempts sync.WaitGroup
	for _, k := range all {
		attempts.Go(func() {
			_, err := k.acquire(ctx, c.confirmed[k.holder], k.names, false)
			assert.Error(t, err, "%s was granted, and no replica has it", k.names[0])
		})
	}
	return func() {
		cancel()
		attempts.Wait()
	}
}

// grant is what a client was told that it holds.
type grant struct {
	ctx     context.Context
	token   int64
	release func(context.Context) error
	number  int // of its entry
}

// acquisition acquires an object; a rival, as one who has to wait for its holder.
type acquisition func(ctx context.Context, c *redlatch.Client, names [3]string, rival bool) (*grant, error)

// contest is an object that one client holds while the master is killed, and that the nine others wait for.
type contest struct {
	kind    string
	names   [3]string // a RedLock has three
	holder  int       // the index of the one
	acquire acquisition
	held    chan struct{}  // closed once it is held
	end     chan struct{}  // closed when the holder gives up at the latest
	holding sync.WaitGroup // the holder
	rivals  sync.WaitGroup // the nine others

	mu       sync.Mutex // guards what follows
	inside   map[*grant]bool
	entries  int
	old      *grant // of the holder while the master is killed
	lost     bool   // its hold has ended before it gave up
	double   int    // entries while the old holder was told that it holds
	overlaps int    // other entries while somebody was inside
	token    int64  // the newest that the protected store has seen
	writer   int    // the newest grant whose write the store took
	stale    int    // writes that it took after one of a newer grant
	refused  int    // writes of the old holder that it refused
	shut     int    // writes of a newer grant that it refused
}

// enter records that a client goes in with a grant, and writes to the store.
func (k *contest) enter(g *grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.entries++
	g.number = k.entries
	for other := range k.inside {
		switch {
		case ended(other.ctx) != nil || ended(g.ctx) != nil: // somebody knows that it has lost
		case other == k.old:
			k.double++
		default:
			k.overlaps++
		}
	}
	k.inside[g] = true
	k.writeLocked(g)
}

// writeLocked writes to the protected store, which refuses a token older than one that it has seen.
func (k *contest) writeLocked(g *grant) {
	switch {
	case g.token < k.token && g == k.old:
		k.refused++
	case g.token < k.token:
		k.shut++
	case g.token > 0 && g.number < k.writer:
		k.stale++
	default:
		k.token, k.writer = g.token, g.number
	}
}

// leave records that a client goes out. It writes once more before, as one that was stopped since it looked at its hold.
func (k *contest) leave(g *grant) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writeLocked(g)
	delete(k.inside, g)
}

// visit goes in and out again.
func (k *contest) visit(ctx context.Context, t *testing.T, all []*redlatch.Client, i int) {
	t.Helper()
	locktest.Persist(ctx, t, func() error {
		g, err := k.acquire(ctx, all[i], k.names, i != k.holder)
		if err != nil {
			return err
		}
		k.enter(g)
		k.leave(g)
		return g.release(ctx)
	})
}

// hold has the holder go in, and out when it learns that it has lost the object, or at the end.
func (k *contest) hold(ctx context.Context, t *testing.T, holder *redlatch.Client) {
	t.Helper()
	var g *grant
	locktest.Persist(ctx, t, func() (err error) {
		g, err = k.acquire(ctx, holder, k.names, false)
		return err
	})
	if g == nil {
		return // the test has failed
	}
	k.enter(g)
	k.mu.Lock()
	k.old = g
	k.mu.Unlock()
	close(k.held)
	select {
	case <-k.end:
	case <-g.ctx.Done():
	}
	k.mu.Lock()
	k.lost = ended(g.ctx) != nil
	forgotten := k.double > 0
	k.mu.Unlock()
	k.leave(g)
	if k.kind == "semaphore" && forgotten {
		return // it counts without names: what the new master has never given out would be added
	}
	if err := g.release(ctx); !errors.Is(err, rlock.ErrNotHeld) {
		assert.NoError(t, err, k.names[0])
	}
}

// contests are contests of every kind. Their names begin with a mode, and belong to the master that is killed.
func (c *crash) contests(mode string) (all []*contest) {
	for kind, acquire := range crashKinds() {
		var names [3]string
		for i := range names {
			names[i] = nameFor(fmt.Sprintf("%s-%s-%d", mode, kind, i), c.concerned)
		}
		all = append(all, &contest{
			kind: kind, names: names, holder: len(all), acquire: acquire,
			held: make(chan struct{}), end: make(chan struct{}), inside: map[*grant]bool{},
		})
	}
	return all
}

// crashKinds are all that a client can hold.
func crashKinds() map[string]acquisition {
	kinds := map[string]acquisition{
		"permit": func(ctx context.Context, c *redlatch.Client, names [3]string, _ bool) (*grant, error) {
			p, err := c.GetPermitSemaphore(names[0]).Acquire(ctx)
			if err != nil {
				return nil, err
			}
			return &grant{ctx: p.Context(), release: p.Release}, nil
		},
		"semaphore": func(ctx context.Context, c *redlatch.Client, names [3]string, _ bool) (*grant, error) {
			s := c.GetSemaphore(names[0])
			return &grant{ctx: ctx, release: func(ctx context.Context) error { return s.Release(ctx, 1) }}, s.Acquire(ctx, 1)
		},
		"multi": lockGrant(func(c *redlatch.Client, names [3]string, _ bool) rlock.Locker {
			return c.GetMultiLock(c.GetLock(names[0]), c.GetFairLock(names[0]+"-elsewhere"))
		}),
		"red": lockGrant(func(c *redlatch.Client, names [3]string, _ bool) rlock.Locker {
			return c.GetRedLock(c.GetLock(names[0]), c.GetLock(names[1]), c.GetLock(names[2]))
		}),
	}
	for kind, get := range lockKinds {
		kinds[kind] = lockGrant(func(c *redlatch.Client, names [3]string, isRival bool) rlock.Locker {
			if isRival {
				return rival(kind, c, names[0])
			}
			return get(c, names[0])
		})
	}
	return kinds
}

// lockGrant is the acquisition of a lock.
func lockGrant(get func(c *redlatch.Client, names [3]string, rival bool) rlock.Locker) acquisition {
	return func(ctx context.Context, c *redlatch.Client, names [3]string, rival bool) (*grant, error) {
		h, err := get(c, names, rival).Lock(ctx)
		if err != nil {
			return nil, err
		}
		return &grant{ctx: h.Context(), token: h.Token(), release: h.Unlock}, nil
	}
}

// furnishContests gives the semaphores of contests one permit.
func furnishContests(t *testing.T, c *redlatch.Client, all []*contest) {
	t.Helper()
	for _, k := range all {
		var err error
		switch k.kind {
		case "permit":
			_, err = c.GetPermitSemaphore(k.names[0]).TrySetPermits(t.Context(), 1)
		case "semaphore":
			_, err = c.GetSemaphore(k.names[0]).TrySetPermits(t.Context(), 1)
		}
		require.NoError(t, err)
	}
}

// begin has the holder go in, and all others wait for the object.
func (k *contest) begin(ctx context.Context, t *testing.T, holder *redlatch.Client, all []*redlatch.Client) {
	t.Helper()
	k.holding.Go(func() { k.hold(ctx, t, holder) })
	select {
	case <-k.held:
	case <-ctx.Done():
	}
	for i := range all {
		if i != k.holder {
			k.rivals.Go(func() { k.visit(ctx, t, all, i) })
		}
	}
}

// finish has the holder give up, and waits until it and all others have gone in once more.
func (k *contest) finish(ctx context.Context, t *testing.T, all []*redlatch.Client) {
	t.Helper()
	close(k.end)
	k.holding.Wait()
	k.visit(ctx, t, all, k.holder)
	k.rivals.Wait()
}

// wait waits for the holder and all others.
func (k *contest) wait() {
	k.holding.Wait()
	k.rivals.Wait()
}

// attempt goes in for a moment, if it can while somebody else holds the object.
func (k *contest) attempt(ctx context.Context, c *redlatch.Client) {
	ctx, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	g, err := k.acquire(ctx, c, k.names, true)
	if err == nil {
		k.enter(g)
		k.leave(g)
		_ = g.release(ctx) // the test has failed already
	}
}

// inParallel calls fn for all contests at once.
func inParallel(all []*contest, fn func(*contest)) {
	var running sync.WaitGroup
	for _, k := range all {
		running.Go(func() { fn(k) })
	}
	running.Wait()
}

// counts are a latch and a queue, whose changes before the crash were confirmed, and a queue where nothing was.
type counts struct {
	*crash
	latch, kept, late string
	opened            sync.WaitGroup
}

// beginCounts sets the latch to two, counts it down by one, and offers a message of each client. All wait for the latch.
func (c *crash) beginCounts(ctx context.Context, t *testing.T) *counts {
	t.Helper()
	n := &counts{
		crash: c, latch: nameFor("latch", c.concerned), kept: nameFor("kept", c.concerned), late: nameFor("late", c.concerned),
	}
	latch := c.confirmed[0].GetCountDownLatch(n.latch)
	locktest.Persist(ctx, t, func() error {
		_, err := latch.TrySetCount(ctx, 2)
		return err
	})
	locktest.Persist(ctx, t, func() error {
		_, err := latch.CountDownOnce(ctx, "before")
		return err
	})
	for i, one := range c.plain {
		id := strconv.Itoa(i)
		locktest.Persist(ctx, t, func() error {
			_, err := redlatch.GetDelayedQueue[string](c.confirmed[i], n.kept).Offer(ctx, id, 0, rdelayedqueue.WithID(id))
			return err
		})
		n.opened.Go(func() {
			locktest.Persist(ctx, t, func() error { return one.GetCountDownLatch(n.latch).Await(ctx) })
		})
	}
	return n
}

// offerLate offers a message of each client that no replica has.
func (n *counts) offerLate(t *testing.T) {
	t.Helper()
	for _, one := range n.plain {
		_, err := redlatch.GetDelayedQueue[string](one, n.late).Offer(t.Context(), "late", 0)
		require.NoError(t, err)
	}
}

// finish requires that nothing that was confirmed is lost: one more countdown opens the latch, and each client takes a
// message.
func (n *counts) finish(ctx context.Context, t *testing.T) {
	t.Helper()
	count, err := n.plain[0].GetCountDownLatch(n.latch).Count(ctx)
	require.NoError(t, err)
	assert.Equal(t, 1, count, "a confirmed countdown counts")
	require.NoError(t, n.plain[0].GetCountDownLatch(n.latch).CountDownBy(ctx, count))
	n.opened.Wait()
	var taken [crashClients]string
	inParallelClients(func(i int) {
		m, err := redlatch.GetDelayedQueue[string](n.plain[i], n.kept).Take(ctx)
		if !assert.NoError(t, err, "a confirmed message is lost") {
			return
		}
		taken[i] = m.Value
		assert.NoError(t, m.Ack(ctx))
	})
	slices.Sort(taken[:])
	assert.Len(t, slices.Compact(taken[:]), crashClients, "messages that were taken")
}

// dropped returns how many of the late messages are lost.
func (n *counts) dropped(t *testing.T) int {
	t.Helper()
	stats, err := redlatch.GetDelayedQueue[string](n.plain[0], n.late).Stats(t.Context())
	require.NoError(t, err)
	return crashClients - stats.Ready
}

// inParallelClients calls fn for the index of each client at once.
func inParallelClients(fn func(i int)) {
	var running sync.WaitGroup
	for i := range crashClients {
		running.Go(func() { fn(i) })
	}
	running.Wait()
}

// crashTally is what was seen in all rounds.
type crashTally struct {
	mu                                      sync.Mutex // guards what follows
	crashes, double, refused, kept, dropped int
	slowest, longest                        time.Duration // of failovers, and of waits from the kill on
}

// add adds a round, and requires of it what must never happen.
func (s *crashTally) add(t *testing.T, plain, confirmed []*contest, took, went time.Duration, dropped int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.crashes++
	s.dropped += dropped
	s.slowest, s.longest = max(s.slowest, took), max(s.longest, went)
	for _, k := range slices.Concat(plain, confirmed) {
		assert.Zero(t, k.overlaps, "two hold %s, of whom neither held it before", k.names[0])
		assert.Zero(t, k.stale, "writes to %s with an old token, after a newer one", k.names[0])
		assert.Zero(t, k.shut, "refused writes to %s with the newest token", k.names[0])
		if k.kind == "fenced" {
			s.refused += k.refused
			assert.False(t, k.double > 0 && k.refused == 0, "%s: the store took the last write of who held it before", k.names[0])
		}
	}
	for _, k := range plain {
		s.double += k.double
	}
	for _, k := range confirmed {
		assert.Zero(t, k.double, "%s was confirmed, and granted to another one", k.names[0])
		if !k.lost {
			s.kept++
		} else {
			assert.Greater(t, took, failoverLease/3, // the rest may have gone before the kill, or until the client knows the new master
				"%s was confirmed, and lost", k.names[0])
		}
	}
}
