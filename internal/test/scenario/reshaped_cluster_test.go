package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlatch"
)

// reshaped is a cluster of which one master has the objects of two clients.
type reshaped struct {
	*redistest.Cluster
	rdb    *redis.ClusterClient // of this step
	master *redistest.Server    // that has the objects of this step
	names  []string             // of the objects of this step
	lease  time.Duration
	log    *logbook // of both
	holder *redlatch.Client
	waiter *redlatch.Client
}

func newReshaped(t *testing.T) *reshaped {
	t.Helper()
	r := &reshaped{Cluster: redistest.StartCluster(t, 3), lease: 4 * time.Second, log: &logbook{}}
	client := func() *redlatch.Client {
		c, err := redlatch.New(r.Client(t), r.log.option(), redlatch.WithWatchdogTimeout(r.lease), redlatch.WithCloseGrace(0))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	r.holder, r.waiter = client(), client()
	return r
}

// onMaster returns a name that begins like this, of an object on the master.
func (r *reshaped) onMaster(t *testing.T, prefix string) string {
	t.Helper()
	name := nameFor(prefix, func(name string) bool {
		node, err := r.rdb.MasterForKey(t.Context(), name)
		require.NoError(t, err)
		return node.Options().Addr == r.master.Addr()
	})
	r.names = append(r.names, name)
	return name
}

// traffic has both clients take and release objects of the master all the time, until stop is called.
func (r *reshaped) traffic(t *testing.T, prefix string) (stop func()) {
	t.Helper()
	l := &loops{ended: make(chan struct{})}
	kinds := take(0)
	delete(kinds, "message")
	kinds["semaphore"] = func(ctx context.Context, c *redlatch.Client, name string) (holding, error) {
		s := c.GetSemaphore(name)
		return holding{ctx, func(ctx context.Context) error { return s.Release(ctx, 1) }}, s.Acquire(ctx, 1)
	}
	var newest atomic.Int64
	kinds["election"] = func(ctx context.Context, c *redlatch.Client, name string) (holding, error) {
		lead, err := campaignInTurn(ctx, c, name, &newest)
		return holding{lead.Context(), lead.Resign}, err
	}
	for kind := range kinds {
		name := "{" + r.onMaster(t, prefix+kind) + "}" // for all parts of a multi-lock
		switch kind {
		case "permit":
			require.NoError(t, r.holder.GetPermitSemaphore(name).SetPermits(t.Context(), 1))
		case "semaphore":
			_, err := r.holder.GetSemaphore(name).TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
		}
		var inside atomic.Int32
		for c, kind := range map[*redlatch.Client]string{r.holder: kind, r.waiter: rivalOf(kind)} {
			l.run(t, kind, func(ctx context.Context) error { return visit(ctx, &inside, c, kinds[kind], name) })
		}
	}
	name := r.onMaster(t, prefix+"queue")
	clients := []*redlatch.Client{r.holder, r.waiter}
	for i, c := range clients {
		q := redlatch.GetDelayedQueue[string](c, name)
		l.run(t, "queue", func(ctx context.Context) error { return passOn(ctx, q) })
		latch := r.onMaster(t, prefix+fmt.Sprint("latch", i))
		mine, theirs := c.GetCountDownLatch(latch), clients[1-i].GetCountDownLatch(latch)
		l.run(t, "latch", func(ctx context.Context) error { return openLatch(ctx, mine, theirs) })
	}
	nameOf := func(kind string) string { return r.onMaster(t, prefix+kind) }
	shared, check := sharedUses(t, clients, 0, nameOf)
	turns, stopTurns := turnUses(t, clients, nameOf, func(string) {})
	for _, u := range append(shared, turns...) {
		l.run(t, u.kind, u.once)
	}
	return func() {
		close(l.ended)
		stopTurns()
		l.all.Wait()
		check(0)
		s, err := redlatch.GetDelayedQueue[string](r.holder, name).Stats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, s, "messages that were delivered again, or not at all")
	}
}

// loops do something again and again, until ended is closed.
type loops struct {
	all   sync.WaitGroup
	ended chan struct{}
}

// run does something again and again, which must not fail.
func (l *loops) run(t *testing.T, what string, once func(ctx context.Context) error) {
	l.all.Go(func() {
		var longest time.Duration
		for n := 0; ; n++ {
			select {
			case <-l.ended:
				t.Logf("%s: %d times, within %v", what, n, longest)
				return
			case <-time.After(20 * time.Millisecond): // faster would load the machine only
			}
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			start := time.Now()
			err := once(ctx)
			longest = max(longest, time.Since(start))
			cancel()
			if !assert.NoError(t, err, what) {
				return
			}
		}
	})
}

// visit takes and releases an object, in which nobody else may be.
func visit(ctx context.Context, inside *atomic.Int32, c *redlatch.Client, take func(context.Context, *redlatch.Client, string) (holding, error), name string) error {
	h, err := take(ctx, c, name)
	if err != nil {
		return err
	}
	if inside.Add(1) != 1 {
		err = errors.New("two hold it")
	}
	<-time.After(5 * time.Millisecond) // the work
	inside.Add(-1)
	return errors.Join(err, ended(h.ctx), h.release(ctx))
}

// passOn offers a message, and takes one.
func passOn(ctx context.Context, q *rdelayedqueue.Queue[string]) error {
	if _, err := q.Offer(ctx, "work", 0); err != nil {
		return err
	}
	m, err := q.Take(ctx)
	if err != nil {
		return err
	}
	return m.Ack(ctx)
}

// openLatch opens a latch, for which another client waits.
func openLatch(ctx context.Context, mine, theirs *rlatch.Latch) error {
	if ok, err := mine.TrySetCount(ctx, 2); err != nil || !ok {
		return fmt.Errorf("set: %t, %w", ok, err)
	}
	waited := make(chan error, 1)
	go func() { waited <- theirs.Await(ctx) }()
	if err := mine.CountDown(ctx); err != nil {
		return err
	}
	if n, err := theirs.Count(ctx); err != nil || n != 1 {
		return fmt.Errorf("count: %d, %w", n, err)
	}
	return errors.Join(mine.CountDown(ctx), <-waited)
}

// F24, F29: whatever is held while a master joins a cluster, or leaves it, stays held and excludes others; what is called meanwhile
// succeeds, and waiters hear of a release.
func TestMastersJoinAndLeaveAClusterInUse(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	r := newReshaped(t)
	for round := range faulttest.Rounds(t, 1, 2) {
		old := r.Nodes()[0]
		var added *redistest.Server
		r.reshape(t, fmt.Sprint("joins", round), old, func() { added = r.AddMaster(t, r.names...) })
		r.reshape(t, fmt.Sprint("leaves", round), added, func() { r.Remove(t, added, old) }, added.Stop)
	}
}

// reshape requires that objects of a master outlive changes of the cluster.
func (r *reshaped) reshape(t *testing.T, step string, master *redistest.Server, changes ...func()) {
	t.Helper()
	r.rdb, r.master, r.names = r.Client(t), master, nil
	held := enterAll(t, r.holder, r.waiter, guests(r.lease), func(g guest) string { return r.onMaster(t, step+g.name) })
	stop := r.traffic(t, step+"traffic")
	redistest.AwaitChannels(t, r.rdb, channels(held))
	for _, change := range changes {
		start := time.Now()
		change()
		t.Logf("%s: it took %v", step, time.Since(start))
		stayHeld(t, held, r.lease+r.lease/2) // longer than anything could be held without a renewal
	}
	stop()
	for _, h := range held {
		h.handOver(t)
	}
	for _, line := range r.log.take() {
		assert.NotEqual(t, "redlatch: renewals fail", line["msg"], "%v", line)
	}
}
