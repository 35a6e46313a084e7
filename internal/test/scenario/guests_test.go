// Guests are holds and waits of every kind, which tests keep through a fault.

package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rid"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/ronce"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rtopic"
)

// silence bounds the time until a subscription to a silent server is found dead.
const silence = 20 * time.Second

// use is what one goroutine does again and again with an object that nobody holds.
type use struct {
	kind string
	once func(ctx context.Context) error
}

// sharedUses returns how two clients use a rate limiter, an id generator and topics. The server may forget the limiter so many times. check
// looks at what all uses have got together, once they have ended; an old master served beside the new one for twoMasters at most.
func sharedUses(t *testing.T, clients []*redlatch.Client, losses int, nameOf func(kind string) string) (all []use, check func(twoMasters time.Duration)) {
	t.Helper()
	const burst, rate = 10, 200
	var passed atomic.Int64
	began := time.Now()
	var given sync.Map // the ids
	for i, c := range clients {
		limiter := c.GetRateLimiter("{"+nameOf("limiter")+"}", rratelimiter.Per(rate, time.Second), rratelimiter.WithBurst(burst))
		ids := c.GetIDGenerator(nameOf("ids"), rid.WithBlock(1))
		var newest int64
		all = append(all, use{"limiter", func(ctx context.Context) error {
			err := limiter.Wait(ctx, "k", 1)
			if err == nil {
				passed.Add(1)
			}
			return err
		}}, use{"ids", func(ctx context.Context) error {
			id, err := ids.Next(ctx)
			if err != nil {
				return err
			}
			if _, twice := given.LoadOrStore(id, true); twice || id <= newest {
				return fmt.Errorf("id %d after %d, given twice: %t", id, newest, twice)
			}
			newest = id
			return nil
		}}, exchange(t, clients[1-i], c, nameOf(fmt.Sprint("topic", i))))
	}
	return all, func(twoMasters time.Duration) {
		waiting := len(clients) // calls that have their token already
		most := float64(burst+losses*(burst+waiting)) + rate*(time.Since(began)+twoMasters).Seconds()
		assert.LessOrEqual(t, float64(passed.Load()), most, "calls that the limiter let pass")
	}
}

// exchange has one client publish a value, and another one receive it. A gap may come in its place.
func exchange(t *testing.T, publisher, subscriber *redlatch.Client, name string) use {
	t.Helper()
	sub, err := redlatch.GetTopic[int](subscriber, name).Subscribe(t.Context())
	require.NoError(t, err)
	topic := redlatch.GetTopic[int](publisher, name)
	var next, newest int
	return use{"topic", func(ctx context.Context) error {
		next++
		if _, err := topic.Publish(ctx, next); err != nil {
			return err
		}
		timer := time.AfterFunc(silence+5*time.Second, sub.Close)
		defer timer.Stop()
		for value, err := range sub.All() {
			var gap *rtopic.Gap
			switch {
			case errors.As(err, &gap):
				newest = 0 // a node of a cluster may pass on what the one that died has published
				return nil
			case err != nil:
				return err
			case value <= newest || value > next:
				return fmt.Errorf("%d after %d, when %d was published", value, newest, next)
			}
			if newest = value; value == next {
				return nil
			}
		}
		return fmt.Errorf("%d is missing without a gap", next)
	}}
}

// guest is an object that is held by one client and waited for by another one.
type guest struct {
	name  string
	polls bool // who waits for it listens to no channel
	// enter has a client hold the object. alive returns why that has ended, release ends it.
	enter func(t *testing.T, c *redlatch.Client, name string) (alive func() error, release func(ctx context.Context) error)
	// wait waits until the object is released, and leaves it as it was.
	wait func(ctx context.Context, c *redlatch.Client, name string) error
}

// lockGuest is a lock as its holder and the one who waits for it see it.
func lockGuest(kind string, mine, theirs func(c *redlatch.Client, name string) rlock.Locker) guest {
	return guest{
		name: kind,
		enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
			t.Helper()
			h, err := mine(c, name).Lock(t.Context())
			require.NoError(t, err)
			return func() error { return ended(h.Context()) }, h.Unlock
		},
		wait: func(ctx context.Context, c *redlatch.Client, name string) error {
			h, err := theirs(c, name).Lock(ctx)
			if err == nil {
				err = h.Unlock(ctx)
			}
			return err
		},
	}
}

func red(c *redlatch.Client, name string) rlock.Locker {
	return c.GetRedLock(c.GetLock(name), c.GetLock(name+"-2"), c.GetLock(name+"-3"))
}

// allKinds are the kinds of locks with those that have parts: the name, and the name with -2 and -3.
func allKinds() map[string]func(c *redlatch.Client, name string) rlock.Locker {
	kinds := maps.Clone(lockKinds)
	kinds["multi"] = func(c *redlatch.Client, name string) rlock.Locker {
		return c.GetMultiLock(c.GetLock(name), c.GetFairLock(name+"-2"), c.GetReadWriteLock(name+"-3"))
	}
	kinds["RedLock"] = red
	return kinds
}

func guests(lease time.Duration) []guest {
	var all []guest
	for kind, get := range lockKinds {
		all = append(all, lockGuest(kind, get, func(c *redlatch.Client, name string) rlock.Locker { return rival(kind, c, name) }))
	}
	multi := func(c *redlatch.Client, name string) rlock.Locker {
		return c.GetMultiLock(c.GetLock(name), c.GetFairLock(name+"-elsewhere"))
	}
	redLock := lockGuest("RedLock", red, red)
	redLock.polls = true
	return append(all, lockGuest("multi", multi, multi), redLock, guest{
		name: "permit",
		enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
			t.Helper()
			_, err := c.GetPermitSemaphore(name).TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			p, err := c.GetPermitSemaphore(name).Acquire(t.Context())
			require.NoError(t, err)
			return func() error { return ended(p.Context()) }, p.Release
		},
		wait: func(ctx context.Context, c *redlatch.Client, name string) error {
			p, err := c.GetPermitSemaphore(name).Acquire(ctx)
			if err == nil {
				err = p.Release(ctx)
			}
			return err
		},
	}, guest{
		name: "semaphore",
		enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
			t.Helper()
			s := c.GetSemaphore(name)
			_, err := s.TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			require.NoError(t, s.Acquire(t.Context(), 1))
			return func() error { return nil }, func(ctx context.Context) error { return s.Release(ctx, 1) }
		},
		wait: func(ctx context.Context, c *redlatch.Client, name string) error {
			err := c.GetSemaphore(name).Acquire(ctx, 1)
			if err == nil {
				err = c.GetSemaphore(name).Release(ctx, 1)
			}
			return err
		},
	}, guest{
		name: "latch",
		enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
			t.Helper()
			_, err := c.GetCountDownLatch(name).TrySetCount(t.Context(), 1)
			require.NoError(t, err)
			return func() error { return nil }, c.GetCountDownLatch(name).CountDown
		},
		wait: func(ctx context.Context, c *redlatch.Client, name string) error {
			return c.GetCountDownLatch(name).Await(ctx)
		},
	}, guest{
		name: "election",
		enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
			t.Helper()
			l, err := c.GetElection(name).Campaign(t.Context())
			require.NoError(t, err)
			return func() error { return ended(l.Context()) }, l.Resign
		},
		wait: func(ctx context.Context, c *redlatch.Client, name string) error {
			before, err := c.GetElection(name).Leader(ctx)
			if err != nil && !errors.Is(err, relection.ErrNoLeader) {
				return err
			}
			l, err := c.GetElection(name).Campaign(ctx)
			if err == nil {
				err = l.Resign(ctx)
			}
			if l.Term() <= before.Term {
				err = errors.Join(err, fmt.Errorf("term %d follows term %d", l.Term(), before.Term))
			}
			return err
		},
	}, guest{name: "once", enter: enterOnce, wait: func(ctx context.Context, c *redlatch.Client, name string) error {
		_, _, err := onceOf(c, name).Do(ctx, "k", func(context.Context) (string, error) { return "", nil })
		if err == nil {
			err = onceOf(c, name).Forget(ctx, "k")
		}
		return err
	}}, guest{name: "queue", enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
		t.Helper()
		return enterQueue(t, c, name, lease)
	}, wait: func(ctx context.Context, c *redlatch.Client, name string) error {
		m, err := redlatch.GetDelayedQueue[string](c, name).Take(ctx)
		if err == nil {
			err = m.Ack(ctx)
		}
		return err
	}}, guest{name: "scheduler", enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
		t.Helper()
		return enterScheduler(t, c, name, lease)
	}, wait: func(ctx context.Context, c *redlatch.Client, name string) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		ran := false
		err := runRepeated(ctx, c, name, lease, func(context.Context, rscheduler.Run) error {
			ran = true
			stop()
			return nil
		})
		if err == nil && !ran {
			err = errors.New("the job did not run")
		}
		return err
	}}, guest{name: "task", enter: func(t *testing.T, c *redlatch.Client, name string) (func() error, func(context.Context) error) {
		t.Helper()
		return enterTask(t, c, name, lease)
	}, wait: func(ctx context.Context, c *redlatch.Client, name string) error {
		return getNextOfGroup(ctx, c, name, lease)
	}})
}

// onceOf returns the object of a name in whose slot its keys are.
func onceOf(c *redlatch.Client, name string) *ronce.Once[string] {
	return redlatch.GetOnce[string](c, "{"+name+"}", ronce.WithTTL(time.Minute))
}

// enterOnce has a function run until the release.
func enterOnce(t *testing.T, c *redlatch.Client, name string) (alive func() error, release func(ctx context.Context) error) {
	t.Helper()
	running, finish, done := make(chan context.Context, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		_, shared, err := onceOf(c, name).Do(t.Context(), "k", func(ctx context.Context) (string, error) {
			running <- ctx
			select {
			case <-finish:
			case <-ctx.Done():
			}
			return "made", nil
		})
		if shared {
			err = errors.Join(err, errors.New("it did not run"))
		}
		done <- err
	}()
	ctx := <-running
	return func() error { return ended(ctx) }, func(context.Context) error {
		close(finish)
		return <-done
	}
}

// enterQueue has a handler hold a message, with a visibility that is renewed, until the release. That offers a second one, for whoever
// waits.
func enterQueue(t *testing.T, c *redlatch.Client, name string, visibility time.Duration) (alive func() error, release func(ctx context.Context) error) {
	t.Helper()
	q := redlatch.GetDelayedQueue[string](c, name, rdelayedqueue.WithVisibility(visibility))
	_, err := q.Offer(t.Context(), "first", 0)
	require.NoError(t, err)
	handled, finish, stopped := make(chan context.Context, 9), make(chan struct{}), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	deliveries := make(chan string, 9)
	go func() {
		stopped <- q.Consume(ctx, func(ctx context.Context, m *rdelayedqueue.Message[string]) error {
			deliveries <- fmt.Sprint(m.Value, " ", m.Attempt)
			handled <- ctx
			select {
			case <-finish:
			case <-ctx.Done():
			}
			return nil
		}, rdelayedqueue.WithConcurrency(1), rdelayedqueue.WithPrefetch(0))
	}()
	handling := <-handled
	return func() error { return ended(handling) }, func(ctx context.Context) error {
		stop()
		close(finish)
		err := <-stopped // first: the second message is not for this consumer
		<-deliveries
		if len(deliveries) > 0 {
			err = errors.Join(err, fmt.Errorf("the holder also got %s", <-deliveries))
		}
		_, offered := q.Offer(ctx, "second", 0)
		return errors.Join(err, offered)
	}
}

// runRepeated has a client run a job until ctx is done. Each run begins soon after the end of the last one, whoever had that.
func runRepeated(ctx context.Context, c *redlatch.Client, name string, lease time.Duration, run func(context.Context, rscheduler.Run) error) error {
	s := c.GetScheduler(name, rscheduler.WithConcurrency(1), rscheduler.WithLease(lease))
	if err := s.Register("job", rscheduler.EveryAfter(10*time.Millisecond), run); err != nil {
		return err
	}
	return s.Run(ctx)
}

// enterScheduler has a run of a job go on until the release.
func enterScheduler(t *testing.T, c *redlatch.Client, name string, lease time.Duration) (alive func() error, release func(ctx context.Context) error) {
	t.Helper()
	running, finish, stopped := make(chan context.Context, 9), make(chan struct{}), make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		stopped <- runRepeated(ctx, c, name, lease, func(ctx context.Context, _ rscheduler.Run) error {
			running <- ctx
			select {
			case <-finish:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	handling := <-running
	return func() error { return ended(handling) }, func(context.Context) error {
		stop()
		close(finish)
		err := <-stopped
		if len(running) > 0 {
			err = errors.Join(err, errors.New("the holder ran it again"))
		}
		return err
	}
}

// workOn has a client work on the tasks of an executor, until ctx is done.
func workOn(ctx context.Context, c *redlatch.Client, name string, visibility time.Duration, handle func(context.Context) (string, error)) (ex *rexecutor.Executor, stopped <-chan error) {
	ended := make(chan error, 1)
	ex = rexecutor.New(c, name, rexecutor.WithVisibility(visibility))
	err := guestTask.Handle(ex, func(ctx context.Context, _ rexecutor.Call[string]) (string, error) { return handle(ctx) })
	go func() { ended <- errors.Join(err, ex.Work(ctx)) }()
	return ex, ended
}

// guestTask is a task that holds the place of its group.
var (
	guestTask = rexecutor.NewTask[string, string]("guest", rexecutor.WithMaxAttempts(0), rexecutor.WithPriority(1))
	inGroup   = rexecutor.WithGroup("g")
)

// enterTask has a worker work on a task, and have the place of its group, until the release.
func enterTask(t *testing.T, c *redlatch.Client, name string, visibility time.Duration) (alive func() error, release func(ctx context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	running, finish := make(chan context.Context, 9), make(chan struct{})
	ex, stopped := workOn(ctx, c, name, visibility, func(ctx context.Context) (string, error) {
		running <- ctx
		select {
		case <-finish:
		case <-ctx.Done():
		}
		return "first", nil
	})
	f, err := guestTask.Submit(t.Context(), ex, "", inGroup)
	require.NoError(t, err)
	handling := <-running
	return func() error { return ended(handling) }, func(ctx context.Context) error {
		stop()
		close(finish)
		err := <-stopped
		if len(running) > 0 {
			err = errors.Join(err, errors.New("the holder ran another task of the group, or its own again"))
		}
		got, failed := f.Get(ctx)
		if failed == nil && got != "first" {
			failed = fmt.Errorf("the result is %q", got)
		}
		return errors.Join(err, failed)
	}
}

// getNextOfGroup submits a task of the group, works on it when the group has a place, and gets its result.
func getNextOfGroup(ctx context.Context, c *redlatch.Client, name string, visibility time.Duration) error {
	working, stop := context.WithCancel(ctx)
	ex, stopped := workOn(working, c, name, visibility, func(context.Context) (string, error) { return "next", nil })
	f, err := guestTask.Submit(ctx, ex, "", inGroup)
	var got string
	if err == nil {
		got, err = f.Get(ctx)
	}
	if err == nil && got != "next" {
		err = fmt.Errorf("the result is %q", got)
	}
	stop()
	return errors.Join(err, <-stopped)
}

// ended returns why a context has ended; nil if it has not. Err looks at the clock, which Cause does not.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return context.Cause(ctx)
}

const failoverLease = 12 * time.Second

// heldGuest is a guest that one client holds, and another one waits for.
type heldGuest struct {
	guest
	alive   func() error
	release func(context.Context) error
	waited  <-chan error
}

// enterAll has one client hold each of the guests, by the name that nameOf gives it, and another one, if there is one, wait for it.
func enterAll(t *testing.T, holder, waiter *redlatch.Client, all []guest, nameOf func(guest) string) (held []heldGuest) {
	t.Helper()
	for _, g := range all {
		h := heldGuest{guest: g}
		name := nameOf(g)
		h.alive, h.release = g.enter(t, holder, name)
		if waiter != nil {
			h.waited = g.begin(t, waiter, name)
		}
		held = append(held, h)
	}
	return held
}

// begin has a client wait for the guest.
func (g guest) begin(t *testing.T, c *redlatch.Client, name string) <-chan error {
	t.Helper()
	waited := make(chan error, 1)
	go func() { waited <- g.wait(t.Context(), c, name) }()
	return waited
}

// channels returns on how many channels those listen who wait.
func channels(all []heldGuest) (n int) {
	for _, h := range all {
		if !h.polls {
			n++
		}
		if h.name == "task" { // of the end of a task another one tells
			n++
		}
	}
	return n
}

// handOver releases the guest, requires that the one who waits gets it soon, and returns how soon.
func (h heldGuest) handOver(t *testing.T) time.Duration {
	t.Helper()
	released := time.Now()
	require.NoError(t, h.release(t.Context()), h.name)
	h.gotten(t)
	took := time.Since(released)
	t.Logf("%s: the waiter went on %v after the release", h.name, took)
	assert.Less(t, took, 3*time.Second, h.name)
	return took
}

// wokenWithin is how long a message takes to wake a waiter, at most: less than half of the time after which the waiter asks by itself.
const wokenWithin = 300 * time.Millisecond

// requireWoken requires that most hand-overs were as fast as a message makes them.
func requireWoken(t *testing.T, lag *faulttest.Lag, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	require.Less(t, took[len(took)/2], wokenWithin+lag.Late(), "hand-overs: %v", took)
}

// gotten requires that the one who waits gets it.
func (h heldGuest) gotten(t *testing.T) {
	t.Helper()
	select {
	case err := <-h.waited:
		require.NoError(t, err, h.name)
	case <-time.After(15 * time.Second):
		require.Fail(t, "it waits on", h.name)
	}
}

// nameFor returns a name that begins like this, of an object on the master that changes.
func nameFor(name string, concerned func(name string) bool) string {
	all := name
	for i := 0; !concerned(all); i++ {
		all = fmt.Sprintf("%s-%d", name, i)
	}
	return all
}

// lockKinds are the kinds of lock, and the two sides of the read-write lock.
var lockKinds = map[string]func(c *redlatch.Client, name string) rlock.Locker{
	"plain":  func(c *redlatch.Client, name string) rlock.Locker { return c.GetLock(name) },
	"fenced": func(c *redlatch.Client, name string) rlock.Locker { return c.GetFencedLock(name) },
	"fair":   func(c *redlatch.Client, name string) rlock.Locker { return c.GetFairLock(name) },
	"writer": func(c *redlatch.Client, name string) rlock.Locker { return c.GetReadWriteLock(name) },
	"reader": func(c *redlatch.Client, name string) rlock.Locker { return c.GetReadWriteLock(name).RLocker() },
}

// rival returns the lock as one who has to wait for its holder sees it.
func rival(kind string, c *redlatch.Client, name string) rlock.Locker {
	if kind == "reader" {
		kind = "writer"
	}
	return movingKinds()[kind](c, name)
}
