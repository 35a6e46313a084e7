package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
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
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/ronce"
	"github.com/redlatch/redlatch/rscheduler"
)

// failover is a topology, and a change of its master.
type failover struct {
	name  string
	start func(t *testing.T) *topology
}

// topology is a master with a replica.
type topology struct {
	url       string // for clients of the library: users have them from Open
	client    func() redis.UniversalClient
	concerned func(name string) bool // whether the object of a name is on the master that changes
	// change changes the master. The replica has whatever was acknowledged before the call.
	change func()
	// serves waits until the new master serves.
	serves func()
	// live says that the new master also has what was acknowledged during the change.
	live bool
	// frozen says that an old master does not answer meanwhile: nobody would know of a call to it whether it was made.
	frozen bool
	// silent says that it stays so: whoever waits for its answers goes on later, and subscriptions to it are found dead after silence.
	silent bool
	// retire makes an old master that still runs a replica, and ends its subscriptions, as Sentinel does some seconds later. nil if there
	// is none.
	retire func()
}

// connect returns a client of the master that lasts as long as the test.
func (p *topology) connect(t *testing.T, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	c, err := redlatch.Open(t.Context(), p.url, append(opts, redlatch.WithCloseGrace(0))...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func failovers() []failover {
	cluster := func(t *testing.T) (*topology, *redistest.Cluster, *redistest.Server, *redistest.Server) {
		t.Helper()
		c := redistest.StartCluster(t, 3)
		master := c.Nodes()[0]
		replica := c.AddReplica(t, master)
		return &topology{url: c.URL(), client: func() redis.UniversalClient { return c.Client(t) }, concerned: servedBy(t, c, master)}, c, master, replica
	}
	sentinel := func(t *testing.T) (*topology, *locktest.Group) {
		t.Helper()
		g := locktest.StartGroup(t)
		return &topology{url: g.Sentinel.URL(), client: func() redis.UniversalClient { return g.Sentinel.Client(t) }, concerned: func(string) bool { return true }}, g
	}
	return []failover{
		{"a master of a cluster is killed", func(t *testing.T) *topology {
			t.Helper()
			p, c, master, replica := cluster(t)
			for _, other := range c.Nodes()[1:] {
				c.AddReplica(t, other)
			}
			p.change = func() {
				redistest.AwaitSync(t, master, replica)
				master.Kill()
			}
			p.serves = func() { awaitPromotion(t, replica) }
			return p
		}},
		{"a master of a cluster hands over", func(t *testing.T) *topology {
			t.Helper()
			p, c, _, replica := cluster(t)
			p.change = func() { c.Failover(t, replica) }
			p.serves, p.live = func() {}, true
			return p
		}},
		{"a master of a cluster freezes", func(t *testing.T) *topology {
			t.Helper()
			p, c, master, replica := cluster(t)
			for _, other := range c.Nodes()[1:] {
				c.AddReplica(t, other)
			}
			p.url += "&read_timeout=1s" // go-redis waits for it when it asks the master for the layout
			p.frozen, p.silent = true, true
			p.change = func() {
				redistest.AwaitSync(t, master, replica)
				master.Pause()
			}
			p.serves = func() { awaitPromotion(t, replica) }
			return p
		}},
		{"a master behind Sentinel is killed", func(t *testing.T) *topology {
			t.Helper()
			p, g := sentinel(t)
			p.change = func() {
				redistest.AwaitSync(t, g.Master, g.Replica)
				g.Master.Kill()
			}
			p.serves = func() { g.Sentinel.AwaitMaster(g.Master.Addr()) }
			return p
		}},
		{"a master behind Sentinel freezes", func(t *testing.T) *topology {
			t.Helper()
			p, g := sentinel(t)
			p.frozen = true
			p.change = func() {
				redistest.AwaitSync(t, g.Master, g.Replica)
				g.Master.Pause()
			}
			p.serves = func() {
				g.Sentinel.AwaitMaster(g.Master.Addr())
				g.Master.Resume() // a subscription to one that stays silent is found dead after up to 20 s
				demote(t, g)
				awaitRole(t, g.Master, "slave")
			}
			return p
		}},
		{"a master behind Sentinel is replaced", func(t *testing.T) *topology {
			t.Helper()
			p, g := sentinel(t)
			p.change = func() {
				redistest.AwaitSync(t, g.Master, g.Replica)
				g.Sentinel.Failover()
			}
			p.serves = func() {}
			p.retire = func() { demote(t, g) }
			return p
		}},
	}
}

// servedBy returns whether the object of a name is on a master of a cluster.
func servedBy(t *testing.T, c *redistest.Cluster, master *redistest.Server) func(name string) bool {
	t.Helper()
	rdb := c.Client(t)
	return func(name string) bool {
		node, err := rdb.MasterForKey(t.Context(), name)
		require.NoError(t, err)
		return node.Options().Addr == master.Addr()
	}
}

// demote has the old master do what Sentinel has it do some seconds later.
func demote(t *testing.T, g *locktest.Group) {
	t.Helper()
	host, port, err := net.SplitHostPort(g.Replica.Addr())
	require.NoError(t, err)
	old := g.Master.Client(t)
	require.NoError(t, old.ReplicaOf(t.Context(), host, port).Err())
	require.NoError(t, old.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
}

// awaitPromotion waits until the replica of a master that was killed, or is frozen, takes its place.
func awaitPromotion(t *testing.T, replica *redistest.Server) {
	t.Helper()
	awaitRole(t, replica, "master")
}

func awaitRole(t *testing.T, server *redistest.Server, want string) {
	t.Helper()
	rdb := server.Client(t)
	redistest.Eventually(t, redistest.ElectionLimit, "the "+want, func() error {
		role, err := rdb.Do(t.Context(), "role").Slice()
		if err == nil && role[0] != want {
			err = fmt.Errorf("it is a %v", role[0])
		}
		return err
	})
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

// F9, F24, F29: whatever is held outlives a failover to a replica that has it, excludes others all the time, and is given on by its
// release; waiters go on waiting.
func TestFailoverLosesNothingThatTheReplicaHas(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	for _, tc := range failovers() {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := tc.start(t)
			lease := failoverLease
			if p.frozen { // go-redis waits for a reply first
				lease *= 2
			}
			client := func(o redlatch.Observer) *redlatch.Client {
				return p.connect(t, redlatch.WithWatchdogTimeout(lease), redlatch.WithObserver(o))
			}
			renewed, failedOver := make(chan struct{}, 1000), make(chan string, 10)
			var woken sync.Map // the names of what the messages were of
			holder, waiter := client(redlatch.Observer{
				Renewed:    func(int, int, error) { renewed <- struct{}{} },
				FailedOver: func(node string) { failedOver <- node },
			}), client(redlatch.Observer{Woken: func(_, name string) { woken.Store(strings.Trim(name, "{}"), true) }})
			names := map[string]string{}
			all := enterAll(t, holder, waiter, guests(lease), func(g guest) string {
				names[g.name] = nameFor(g.name, p.concerned)
				return names[g.name]
			})
			redistest.AwaitChannels(t, p.client(), channels(all))
			next(t, renewed)
			next(t, renewed) // so the server has answered what was asked beside the first one

			p.change()
			p.serves()
			changed := time.Now()
			for time.Since(changed) < lease { // longer than anything could be held without a renewal
				for _, h := range all {
					require.NoError(t, h.alive(), "%s is held no longer, %v after the change", h.name, time.Since(changed))
					select {
					case err := <-h.waited:
						require.Fail(t, "two hold it", "%s: %v", h.name, err)
					default:
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
			redistest.AwaitChannels(t, p.client(), channels(all))
			lag := faulttest.MeasureLag(t, "")
			woken.Clear()
			var took []time.Duration
			var asked []string // by themselves
			for _, h := range all {
				one := h.handOver(t)
				if h.polls {
					continue
				}
				took = append(took, one)
				if _, ok := woken.Load(names[h.name]); !ok {
					asked = append(asked, h.name)
				}
			}
			requireWoken(t, lag, took)
			most := 2 // so many may ask just before their message comes
			if lag.Worst() > 20*time.Millisecond {
				most = len(took) / 2
			}
			assert.LessOrEqual(t, len(asked), most, "no message woke those who waited for %v", asked)
			assert.Len(t, failedOver, 1)
		})
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
