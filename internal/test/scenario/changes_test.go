// Changes are calls that change an object of each kind, and the states before and after.

package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rlatch"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rrwlock"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rsemaphore"
)

// change is a call that changes an object, and the object's state before it and after it.
type change struct {
	name          string
	before, after []int
	// unsure is the state once a call has settled whose outcome is unknown; nil if that may be either.
	unsure []int
	// ends says that the call ends a hold: what Redis refuses goes on in the background. begins, that it acquires one: what it was granted
	// before an error is released in the background.
	ends, begins bool
	// skip is how many scripts the call runs before the one that changes the object.
	skip int
	// prepare makes the object. The result makes the call, once or again.
	prepare func(t *testing.T, c *redlatch.Client) (call func() error)
	state   func(t *testing.T, rdb *redis.Client) []int
}

// lockChanges are the steps of a lock, of each kind.
func lockChanges() (changes []change) {
	all := maps.Clone(steps)
	all["wait"] = step{0, 1, steps["acquire"].prepare, func(t *testing.T, l rlock.Locker, _ *rlock.Hold) error {
		t.Helper()
		_, err := l.Lock(t.Context())
		return err
	}}
	for kind, get := range allKinds() {
		parts := []string{"object"}
		if kind == "multi" || kind == "RedLock" {
			parts = append(parts, "object-2", "object-3")
		}
		count := len(parts)
		if kind == "RedLock" {
			count = 2 // a majority, of those with the most levels
		}
		each := func(n int) []int { return slices.Repeat([]int{n}, count) }
		of := maps.Clone(all)
		switch kind {
		case "writer":
			maps.Copy(of, downgrades)
			fallthrough
		case "plain", "fenced", "fair":
			maps.Copy(of, claims)
		}
		for verb, s := range of {
			one := change{
				name: kind + " " + verb, before: each(s.before), after: each(s.after), unsure: each(min(s.before, s.after)), ends: s.after < s.before, begins: s.after > s.before,
				prepare: func(t *testing.T, c *redlatch.Client) func() error {
					t.Helper()
					l := get(c, "object")
					h := s.prepare(t, l)
					return func() error { return s.run(t, l, h) }
				},
				state: func(t *testing.T, rdb *redis.Client) (state []int) {
					t.Helper()
					for _, part := range parts {
						state = append(state, levels(t, rdb, part))
					}
					slices.Sort(state)
					return state[len(state)-count:]
				},
			}
			switch verb {
			case "take over":
				one.ends, one.begins, one.unsure = false, true, each(0)
			case "force unlock", "force unlock a reader": // it is sent once, and nothing goes on
				one.ends, one.unsure = false, nil
			}
			changes = append(changes, one)
		}
	}
	return changes
}

// claims are steps that do not ask the holder.
var claims = map[string]step{
	"take over": {2, 1, nested, func(t *testing.T, l rlock.Locker, h *rlock.Hold) error {
		t.Helper()
		_, err := l.TryLock(t.Context(), rlock.WithTakeOver(h.Owner()))
		return err
	}},
	"force unlock": {1, 0, held, forceUnlock},
}

// downgrades are steps of a read-write lock that one owner has for writing and for reading, and that of readers by force.
var downgrades = map[string]step{
	"read as well": {1, 2, held, func(t *testing.T, l rlock.Locker, h *rlock.Hold) error {
		t.Helper()
		_, err := readerOf(l).Lock(h.Context())
		return err
	}},
	"downgrade": {2, 1, func(t *testing.T, l rlock.Locker) *rlock.Hold {
		t.Helper()
		h := held(t, l)
		locktest.Acquire(t, h.Context(), readerOf(l))
		return h
	}, unlock},
	"force unlock a reader": {1, 0, func(t *testing.T, l rlock.Locker) *rlock.Hold { t.Helper(); return held(t, readerOf(l)) }, forceUnlock},
}

func readerOf(l rlock.Locker) rlock.Locker { return l.(*rrwlock.Lock).RLocker() }

func forceUnlock(t *testing.T, l rlock.Locker, _ *rlock.Hold) error {
	t.Helper()
	return did(l.(interface {
		ForceUnlock(ctx context.Context) (bool, error)
	}).ForceUnlock(t.Context()))
}

// permitChanges are calls on a semaphore of 5 leased permits, of which one is held.
func permitChanges() []change {
	one := func(verb string, free, leased int, unsure []int, call func(t *testing.T, s *rsemaphore.PermitSemaphore, held *rsemaphore.Permit) error) change {
		return change{
			name: "permit " + verb, before: []int{4, 1}, after: []int{free, leased}, unsure: unsure, ends: verb == "release", begins: leased > 1,
			prepare: func(t *testing.T, c *redlatch.Client) func() error {
				t.Helper()
				s := c.GetPermitSemaphore("object")
				require.NoError(t, s.SetPermits(t.Context(), 5))
				held, err := s.Acquire(t.Context())
				require.NoError(t, err)
				return func() error { return call(t, s, held) }
			},
			state: func(t *testing.T, rdb *redis.Client) []int {
				t.Helper()
				leased, err := rdb.ZCard(t.Context(), "{object}:timeout").Result()
				require.NoError(t, err)
				return []int{number(t, rdb, "object"), int(leased)}
			},
		}
	}
	first := one("try to set", 5, 0, nil, nil)
	first.before, first.prepare = []int{0, 0}, func(t *testing.T, c *redlatch.Client) func() error {
		t.Helper()
		return func() error { return did(c.GetPermitSemaphore("object").TrySetPermits(t.Context(), 5)) }
	}
	return []change{
		first,
		one("acquire", 3, 2, []int{4, 1}, func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) error {
			t.Helper()
			_, err := s.TryAcquire(t.Context())
			return err
		}),
		one("wait", 3, 2, []int{4, 1}, func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) error {
			t.Helper()
			_, err := s.Acquire(t.Context())
			return err
		}),
		one("acquire 3", 1, 4, []int{4, 1}, func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) error {
			t.Helper()
			_, err := s.AcquireN(t.Context(), 3, rsemaphore.WithWait(0))
			return err
		}),
		one("extend", 4, 1, []int{4, 1}, func(t *testing.T, _ *rsemaphore.PermitSemaphore, held *rsemaphore.Permit) error {
			t.Helper()
			return held.Extend(t.Context(), time.Minute)
		}),
		one("release", 5, 0, []int{5, 0}, func(t *testing.T, _ *rsemaphore.PermitSemaphore, held *rsemaphore.Permit) error {
			t.Helper()
			return held.Release(t.Context())
		}),
		one("extend by id", 4, 1, nil, func(t *testing.T, s *rsemaphore.PermitSemaphore, held *rsemaphore.Permit) error {
			t.Helper()
			return s.ExtendID(t.Context(), held.ID(), time.Minute)
		}),
		one("release by id", 5, 0, nil, func(t *testing.T, s *rsemaphore.PermitSemaphore, held *rsemaphore.Permit) error {
			t.Helper()
			return s.ReleaseID(t.Context(), held.ID())
		}),
		one("add", 6, 1, nil, func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) error {
			t.Helper()
			return s.AddPermits(t.Context(), 2)
		}),
		one("set", 7, 1, nil, func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) error {
			t.Helper()
			return s.SetPermits(t.Context(), 8)
		}),
	}
}

// semaphoreChanges are calls on a semaphore of 5 permits, except where there is none before.
func semaphoreChanges() (changes []change) {
	type sem = *rsemaphore.Semaphore
	one := func(verb string, before, after int, unsure []int, call func(ctx context.Context, s sem) error) {
		changes = append(changes, change{
			name: "semaphore " + verb, before: []int{before}, after: []int{after}, unsure: unsure, begins: strings.HasPrefix(verb, "acquire"),
			prepare: func(t *testing.T, c *redlatch.Client) func() error {
				t.Helper()
				s := c.GetSemaphore("object")
				if before > 0 {
					require.NoError(t, did(s.TrySetPermits(t.Context(), before)))
				}
				return func() error { return call(t.Context(), s) }
			},
			state: func(t *testing.T, rdb *redis.Client) []int { t.Helper(); return []int{number(t, rdb, "object")} },
		})
	}
	one("acquire", 5, 4, []int{5}, func(ctx context.Context, s sem) error { return did(s.TryAcquire(ctx, 1)) })
	one("acquire 3 and wait", 5, 2, []int{5}, func(ctx context.Context, s sem) error { return s.Acquire(ctx, 3) })
	one("release", 5, 7, []int{7}, func(ctx context.Context, s sem) error { return s.Release(ctx, 2) })
	one("add", 5, 7, nil, func(ctx context.Context, s sem) error { return s.AddPermits(ctx, 2) })
	one("remove", 5, 3, nil, func(ctx context.Context, s sem) error { return s.AddPermits(ctx, -2) })
	one("set", 0, 5, nil, func(ctx context.Context, s sem) error { return did(s.TrySetPermits(ctx, 5)) })
	one("drain", 5, 0, nil, func(ctx context.Context, s sem) error {
		n, err := s.Drain(ctx)
		return did(n == 5, err)
	})
	return changes
}

// number returns the value of a counter, 0 if there is none.
func number(t *testing.T, rdb *redis.Client, key string) int {
	t.Helper()
	n, err := rdb.Get(t.Context(), key).Int()
	if !errors.Is(err, redis.Nil) {
		require.NoError(t, err)
	}
	return n
}

// did returns the error of a call, and one if it says that it has changed nothing.
func did(ok bool, err error) error {
	if err == nil && !ok {
		err = errors.New("nothing was done")
	}
	return err
}

// latchChanges are calls on a latch that has a count, except where there is none before.
func latchChanges() (changes []change) {
	one := func(verb string, before, after int, call func(ctx context.Context, l *rlatch.Latch) error) {
		changes = append(changes, change{
			name: "latch " + verb, before: []int{before}, after: []int{after},
			prepare: func(t *testing.T, c *redlatch.Client) func() error {
				t.Helper()
				l := c.GetCountDownLatch("object")
				if before > 0 {
					require.NoError(t, did(l.TrySetCount(t.Context(), before)))
				}
				return func() error { return call(t.Context(), l) }
			},
			state: func(t *testing.T, rdb *redis.Client) []int { t.Helper(); return []int{number(t, rdb, "object")} },
		})
	}
	one("count down", 3, 2, func(ctx context.Context, l *rlatch.Latch) error { return l.CountDown(ctx) })
	one("count down by 2", 3, 1, func(ctx context.Context, l *rlatch.Latch) error { return l.CountDownBy(ctx, 2) })
	one("count down once", 3, 2, func(ctx context.Context, l *rlatch.Latch) error { return did(l.CountDownOnce(ctx, "one")) })
	one("open", 1, 0, func(ctx context.Context, l *rlatch.Latch) error { return l.CountDown(ctx) })
	one("set", 0, 3, func(ctx context.Context, l *rlatch.Latch) error { return did(l.TrySetCount(ctx, 3)) })
	one("set once", 0, 3, func(ctx context.Context, l *rlatch.Latch) error { return did(l.TrySetCountOnce(ctx, 3, time.Hour)) })
	one("delete", 3, 0, func(ctx context.Context, l *rlatch.Latch) error { return did(l.Delete(ctx)) })
	one("await", 0, 0, func(ctx context.Context, l *rlatch.Latch) error { return l.Await(ctx) })
	one("await a count", 3, 3, func(ctx context.Context, l *rlatch.Latch) error { return l.AwaitSet(ctx) })
	return changes
}

// queueChanges are calls on a queue. The states are how many messages are due, in flight and dead letters, and whether it is paused.
func queueChanges() (changes []change) {
	type q = *rdelayedqueue.Queue[string]
	type m = *rdelayedqueue.Message[string]
	one := func(verb string, before, after []int, call func(ctx context.Context, q q, m m) error) {
		c := change{name: "queue " + verb, before: before, after: after, begins: strings.HasPrefix(verb, "take")}
		if c.begins {
			c.unsure = before
		}
		c.prepare = func(t *testing.T, c *redlatch.Client) func() error {
			t.Helper()
			q, m := redlatch.GetDelayedQueue[string](c, "object"), m(nil)
			if !slices.Equal(before, []int{0, 0, 0, 0}) {
				_, err := q.Offer(t.Context(), "x", 0, rdelayedqueue.WithID("id"))
				require.NoError(t, err)
			}
			if before[0] == 0 && before[1]+before[2] > 0 {
				var err error
				m, err = q.Take(t.Context())
				require.NoError(t, err)
			}
			if before[2] > 0 {
				require.NoError(t, m.Reject(t.Context(), "x"))
			}
			if before[3] > 0 {
				require.NoError(t, q.Pause(t.Context()))
			}
			return func() error { return call(t.Context(), q, m) }
		}
		c.state = func(t *testing.T, rdb *redis.Client) (state []int) {
			t.Helper()
			for _, set := range []string{"due", "flight", "dead"} {
				n, err := rdb.ZCard(t.Context(), "redlatch_dq:{object}:"+set).Result()
				require.NoError(t, err)
				state = append(state, int(n))
			}
			paused := 0
			if rdb.HExists(t.Context(), "redlatch_dq:{object}:meta", "paused").Val() {
				paused = 1
			}
			return append(state, paused)
		}
		changes = append(changes, c)
	}
	none, due, taken, dead, paused := []int{0, 0, 0, 0}, []int{1, 0, 0, 0}, []int{0, 1, 0, 0}, []int{0, 0, 1, 0}, []int{1, 0, 0, 1}
	one("offer", none, due, func(ctx context.Context, q q, _ m) error { _, err := q.Offer(ctx, "x", 0); return err })
	one("offer at", none, due, func(ctx context.Context, q q, _ m) error { _, err := q.OfferAt(ctx, "x", time.Now()); return err })
	one("offer new", none, due, func(ctx context.Context, q q, _ m) error {
		_, outcome, err := q.OfferNew(ctx, "x", 0, rdelayedqueue.WithID("id"))
		return did(outcome == rdelayedqueue.Added, err)
	})
	one("offer a batch", none, []int{2, 0, 0, 0}, func(ctx context.Context, q q, _ m) error {
		_, err := q.OfferBatch(ctx, []rdelayedqueue.Item[string]{{Value: "x"}, {Value: "y", ID: "id"}})
		return err
	})
	one("take a batch", due, taken, func(ctx context.Context, q q, _ m) error { _, err := q.TakeBatch(ctx, 2); return err })
	one("pause", due, paused, func(ctx context.Context, q q, _ m) error { return q.Pause(ctx) })
	one("pause for a time", due, paused, func(ctx context.Context, q q, _ m) error { return q.PauseFor(ctx, time.Hour) })
	one("resume", paused, due, func(ctx context.Context, q q, _ m) error { return q.Resume(ctx) })
	one("take", due, taken, func(ctx context.Context, q q, _ m) error { _, err := q.Take(ctx); return err })
	one("ack", taken, none, func(ctx context.Context, _ q, m m) error { return m.Ack(ctx) })
	one("nack", taken, due, func(ctx context.Context, _ q, m m) error { return m.Nack(ctx, 0) })
	one("snooze", taken, due, func(ctx context.Context, _ q, m m) error { return m.Snooze(ctx, 0) })
	one("reject", taken, dead, func(ctx context.Context, _ q, m m) error { return m.Reject(ctx, "x") })
	one("extend", taken, taken, func(ctx context.Context, _ q, m m) error { return m.Extend(ctx, time.Minute) })
	one("cancel", due, none, func(ctx context.Context, q q, _ m) error { return did(q.Cancel(ctx, "id")) })
	one("reschedule", due, due, func(ctx context.Context, q q, _ m) error { return did(q.Reschedule(ctx, "id", time.Hour)) })
	one("redrive", dead, due, func(ctx context.Context, q q, _ m) error { return did(q.Redrive(ctx, "id")) })
	// Of more messages than fit into one call, those before the refusal are gone: so the number says.
	one("redrive all", dead, due, func(ctx context.Context, q q, _ m) error {
		n, err := q.RedriveAll(ctx)
		return did(n == 1, err)
	})
	one("purge", dead, none, func(ctx context.Context, q q, _ m) error {
		n, err := q.Purge(ctx)
		return did(n == 1, err)
	})
	return changes
}

// onceChanges are calls for a key. The states are how many of its fields there are.
func onceChanges() []change {
	one := func(verb string, before, after int, fields []string, prepare func(t *testing.T, c *redlatch.Client) (call func() error)) change {
		return change{
			name: "once " + verb, before: []int{before}, after: []int{after}, begins: verb != "forget", prepare: prepare,
			state: func(t *testing.T, rdb *redis.Client) []int {
				t.Helper()
				n, err := rdb.HMGet(t.Context(), "redlatch_once:6:{object:k}", fields...).Result()
				require.NoError(t, err)
				return []int{len(slices.DeleteFunc(n, func(value any) bool { return value == nil }))}
			},
		}
	}
	do := func(t *testing.T, c *redlatch.Client, fn func()) error {
		t.Helper()
		_, _, err := redlatch.GetOnce[string](c, "object").Do(t.Context(), "k", func(context.Context) (string, error) {
			fn()
			return "made", nil
		})
		return err
	}
	return []change{
		one("claim", 0, 2, []string{"owner", "kept"}, func(t *testing.T, c *redlatch.Client) func() error {
			t.Helper()
			return func() error { return do(t, c, func() {}) }
		}),
		one("keep", 0, 1, []string{"kept"}, func(t *testing.T, c *redlatch.Client) func() error {
			t.Helper()
			runs, finish, made := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() { made <- do(t, c, func() { close(runs); <-finish }) }()
			<-runs
			return func() error {
				select {
				case <-finish: // once more
					return do(t, c, func() {})
				default:
					close(finish)
					return <-made
				}
			}
		}),
		one("forget", 2, 0, []string{"owner", "kept"}, func(t *testing.T, c *redlatch.Client) func() error {
			t.Helper()
			require.NoError(t, do(t, c, func() {}))
			return func() error { return redlatch.GetOnce[string](c, "object").Forget(t.Context(), "k") }
		}),
	}
}

// electionChanges are calls on an election. The states are how often its lock is held, the value of the leader, and how many candidates
// have one.
func electionChanges() []change {
	campaign := func(t *testing.T, c *redlatch.Client) (*relection.Leadership, error) {
		t.Helper()
		return c.GetElection("object").Campaign(t.Context(), relection.WithValue("1"))
	}
	one := func(verb string, before, after []int, call func(ctx context.Context, l *relection.Leadership) error) change {
		return change{
			name: "election " + verb, before: before, after: after, ends: verb == "resign",
			prepare: func(t *testing.T, c *redlatch.Client) func() error {
				t.Helper()
				l, err := campaign(t, c)
				require.NoError(t, err)
				return func() error { return call(t.Context(), l) }
			},
			state: leads,
		}
	}
	nobody, leader := []int{0, 0, 0}, []int{1, 1, 0}
	elect := change{
		before: nobody, after: leader, unsure: nobody, begins: true, state: leads,
		prepare: func(t *testing.T, c *redlatch.Client) func() error {
			t.Helper()
			return func() error { _, err := campaign(t, c); return err }
		},
	}
	term := elect
	elect.name, term.name, term.skip = "election campaign", "election term", 1
	resign := one("resign", leader, nobody, func(ctx context.Context, l *relection.Leadership) error { return l.Resign(ctx) })
	resign.unsure = nobody
	return []change{
		elect, term, resign,
		one("proclaim", leader, []int{1, 2, 0}, func(ctx context.Context, l *relection.Leadership) error { return l.Proclaim(ctx, "2") }),
	}
}

func leads(t *testing.T, rdb *redis.Client) []int {
	t.Helper()
	value := 0
	leader, err := rdb.HMGet(t.Context(), "redlatch_election:{object}", "owner", "value").Result()
	require.NoError(t, err)
	if owner, ok := leader[0].(string); ok && rdb.HExists(t.Context(), "object", owner).Val() { // else it has resigned
		value, err = strconv.Atoi(fmt.Sprint(leader[1]))
		require.NoError(t, err)
	}
	candidates, err := rdb.HLen(t.Context(), "redlatch_election_candidates:{object}").Result()
	require.NoError(t, err)
	return []int{levels(t, rdb, "object"), value, int(candidates)}
}

// jobChanges are calls for a job. The states are whether there is one, whether it is paused, and how many of its ticks are queued.
func jobChanges() (changes []change) {
	type jobs = *rscheduler.Scheduler
	one := func(verb string, before, after []int, call func(ctx context.Context, s jobs) error) {
		c := change{name: "job " + verb, before: before, after: after}
		if verb == "trigger" {
			c.skip = 1
		}
		c.prepare = func(t *testing.T, c *redlatch.Client) func() error {
			t.Helper()
			s := c.GetScheduler("object")
			require.NoError(t, s.Register("job", rscheduler.At(time.Now().Add(time.Hour)), func(context.Context, rscheduler.Run) error { return nil }))
			ctx, stop := context.WithTimeout(t.Context(), time.Second) // in the bubble: it writes the job
			defer stop()
			require.NoError(t, s.Run(ctx))
			if before[1] == 1 {
				require.NoError(t, s.Pause(t.Context(), "job", "x"))
			}
			return func() error { return call(t.Context(), s) }
		}
		c.state = func(t *testing.T, rdb *redis.Client) (state []int) {
			t.Helper()
			paused, err := rdb.HExists(t.Context(), "redlatch_sched:{object}:job:job", "paused").Result()
			require.NoError(t, err)
			for i, count := range []*redis.IntCmd{rdb.ZCard(t.Context(), "redlatch_sched:{object}:jobs"), rdb.HLen(t.Context(), "redlatch_dq:{object}:ticks:bodies")} {
				n, err := count.Result()
				require.NoError(t, err)
				if state = append(state, int(n)); i == 0 {
					state = append(state, map[bool]int{true: 1}[paused])
				}
			}
			return state
		}
		changes = append(changes, c)
	}
	idle, paused := []int{1, 0, 1}, []int{1, 1, 1}
	one("trigger", idle, []int{1, 0, 2}, func(ctx context.Context, s jobs) error { return s.Trigger(ctx, "job") })
	one("pause", idle, paused, func(ctx context.Context, s jobs) error { return s.Pause(ctx, "job", "x") })
	one("resume", paused, idle, func(ctx context.Context, s jobs) error { return s.Resume(ctx, "job") })
	one("remove", paused, []int{0, 0, 0}, func(ctx context.Context, s jobs) error { return did(s.Remove(ctx, "job")) })
	return changes
}

// limitChanges are calls for tokens. The state is how many are taken.
func limitChanges() (changes []change) {
	states := map[string]func(t *testing.T, rdb *redis.Client) []int{
		"per": func(t *testing.T, rdb *redis.Client) []int {
			t.Helper()
			back := number(t, rdb, "redlatch_rate:6:{object:k}")
			return []int{max(0, int(time.Until(time.UnixMicro(int64(back))).Round(time.Hour).Hours()))}
		},
		"window": func(t *testing.T, rdb *redis.Client) []int {
			t.Helper()
			used := 0
			for _, entry := range rdb.LRange(t.Context(), "redlatch_window:6:{object:k}", 0, -1).Val() {
				n, err := strconv.Atoi(strings.Fields(entry)[1])
				require.NoError(t, err)
				used += n
			}
			return []int{used}
		},
	}
	verbs := map[string]func(ctx context.Context, l *rratelimiter.Limiter) error{
		"allow": func(ctx context.Context, l *rratelimiter.Limiter) error {
			got, err := l.Allow(ctx, "k", 2)
			return did(got.Allowed, err)
		},
		"wait": func(ctx context.Context, l *rratelimiter.Limiter) error { return l.Wait(ctx, "k", 2) },
	}
	for kind, rate := range limitRates {
		for verb, call := range verbs {
			changes = append(changes, change{
				name: "limiter " + kind + " " + verb, before: []int{0}, after: []int{2},
				prepare: func(t *testing.T, c *redlatch.Client) func() error {
					t.Helper()
					return func() error { return call(t.Context(), c.GetRateLimiter("object", rate(10, 10*time.Hour))) }
				},
				state: states[kind],
			})
		}
	}
	return changes
}

// limitRates are the ways in which a limiter counts.
var limitRates = map[string]func(int, time.Duration) rratelimiter.Rate{"per": rratelimiter.Per, "window": rratelimiter.Window}

func (c change) refused(t *testing.T, b *locktest.Bubble, refusal string, lost int) {
	t.Helper()
	first := newRefusedPeer(t, b)
	require.NoError(t, c.prepare(t, first.Client)()) // Redis knows the scripts from now on
	require.NoError(t, first.Close())
	require.NoError(t, b.Redis.FlushAll(t.Context()).Err())

	p := newRefusedPeer(t, b)
	call := c.prepare(t, p.Client)
	time.Sleep(time.Millisecond) // in the bubble: a RedLock returns before its last master has answered
	require.Equal(t, c.before, c.state(t, b.Redis))
	o := p.obstruct(b, refusal, "", c.skip, lost)
	time.AfterFunc(15*time.Second, o.lift) // so that what was held before is not lost
	err := call()
	said := c.state(t, b.Redis)
	o.lift()
	if refusals[refusal].reply != "" && err == nil {
		assert.Positive(t, o.refused, "nothing was refused")
	}
	time.Sleep(5 * time.Second) // in the bubble: what is undone later is by then
	now := c.state(t, b.Redis)
	switch {
	case err == nil:
		assert.Equal(t, c.after, now)
	case errors.Is(err, redlatch.ErrUnknown):
		switch {
		case c.unsure == nil:
			assert.Contains(t, [][]int{c.before, c.after}, now, "after %v", err)
		case c.begins && lost == 0: // it was never granted
			assert.Equal(t, c.before, now, "after %v", err)
		default:
			assert.Equal(t, c.unsure, now, "after %v", err)
		}
	default:
		if !c.begins {
			assert.Equal(t, c.before, said, "after %v", err)
		}
		again := call()
		if c.ends {
			assert.ErrorIs(t, again, rlock.ErrNotHeld)
			return
		}
		assert.Equal(t, c.before, now, "after %v", err)
		assert.NoError(t, again, "the repetition after %v", err)
		assert.Equal(t, c.after, c.state(t, b.Redis))
	}
}
