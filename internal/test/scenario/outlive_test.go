package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rscheduler"
	"github.com/redlatch/redlatch/rsemaphore"
	"github.com/redlatch/redlatch/rtopic"
)

// swept is an object in a state in which its methods are called.
type swept struct {
	object any
	under  context.Context // the calls' contexts descend from this hold; nil for none
	text   string          // an argument that is a string
	free   func() error    // ends what calls wait for; nil if nothing does
}

// sweptState makes a new object in one state: mine's, which is disturbed. Theirs is another client, which is not.
type sweptState func(t *testing.T, mine, theirs *redlatch.Client, name string) swept

// long is a lease that is not renewed, so that nothing happens beside the calls.
var long = rlock.WithFixedLease(time.Hour)

func unlocks(h *rlock.Hold) func() error {
	return func() error { return h.Unlock(context.Background()) }
}

// sweptLocks are the states of a kind of lock, and of its holds.
func sweptLocks(kind string) map[string]sweptState {
	get := func(c *redlatch.Client, name string) rlock.Locker { return movingKinds()[kind](c, "{"+name+"}") }
	return map[string]sweptState{
		kind + ", free": func(_ *testing.T, mine, _ *redlatch.Client, name string) swept { return swept{object: get(mine, name)} },
		kind + ", released": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
			t.Helper()
			return swept{object: get(mine, name), free: unlocks(locktest.Acquire(t, t.Context(), rival(kind, theirs, "{"+name+"}"), long))}
		},
		kind + ", released by its own client": func(t *testing.T, mine, _ *redlatch.Client, name string) swept {
			t.Helper()
			return swept{object: get(mine, name), free: unlocks(locktest.Acquire(t, t.Context(), rival(kind, mine, "{"+name+"}")))}
		},
		kind + ", under a hold": func(t *testing.T, mine, _ *redlatch.Client, name string) swept {
			t.Helper()
			return swept{object: get(mine, name), under: locktest.Acquire(t, t.Context(), get(mine, name)).Context()}
		},
		kind + ", hold": func(t *testing.T, mine, _ *redlatch.Client, name string) swept {
			t.Helper()
			return swept{object: locktest.Acquire(t, t.Context(), get(mine, name))}
		},
		kind + ", inner hold": func(t *testing.T, mine, _ *redlatch.Client, name string) swept {
			t.Helper()
			outer := locktest.Acquire(t, t.Context(), get(mine, name))
			return swept{object: locktest.Acquire(t, outer.Context(), get(mine, name))}
		},
	}
}

// sweptCounters are the states of what is counted.
var sweptCounters = map[string]sweptState{
	"semaphore, free": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		require.NoError(t, theirs.GetSemaphore(name).AddPermits(t.Context(), 5))
		return swept{object: mine.GetSemaphore(name)}
	},
	"semaphore, released": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		return swept{object: mine.GetSemaphore(name), free: func() error { return theirs.GetSemaphore(name).AddPermits(context.Background(), 5) }}
	},
	"semaphore, with a maximum": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		require.NoError(t, theirs.GetSemaphore(name).AddPermits(t.Context(), 5))
		return swept{object: mine.GetSemaphore(name, rsemaphore.WithMax(9))}
	},
	"permits, free": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		require.NoError(t, theirs.GetPermitSemaphore(name).SetPermits(t.Context(), 5))
		p, err := theirs.GetPermitSemaphore(name).Acquire(t.Context())
		require.NoError(t, err)
		return swept{object: mine.GetPermitSemaphore(name), text: p.ID()}
	},
	"permits, released": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		require.NoError(t, theirs.GetPermitSemaphore(name).SetPermits(t.Context(), 2))
		all, err := theirs.GetPermitSemaphore(name).AcquireN(t.Context(), 2)
		require.NoError(t, err)
		return swept{object: mine.GetPermitSemaphore(name), text: all[0].ID(), free: func() error {
			return errors.Join(all[0].Release(context.Background()), all[1].Release(context.Background()))
		}}
	},
	"permit": func(t *testing.T, mine, _ *redlatch.Client, name string) swept {
		t.Helper()
		require.NoError(t, mine.GetPermitSemaphore(name).SetPermits(t.Context(), 5))
		p, err := mine.GetPermitSemaphore(name).Acquire(t.Context())
		require.NoError(t, err)
		return swept{object: p}
	},
	"latch, without a count": func(_ *testing.T, mine, theirs *redlatch.Client, name string) swept {
		return swept{object: mine.GetCountDownLatch(name), text: "participant", free: func() error {
			_, err := theirs.GetCountDownLatch(name).TrySetCount(context.Background(), 1)
			return err
		}}
	},
	"latch, counted down": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		_, err := theirs.GetCountDownLatch(name).TrySetCount(t.Context(), 2)
		require.NoError(t, err)
		return swept{object: mine.GetCountDownLatch(name), text: "participant", free: func() error {
			return theirs.GetCountDownLatch(name).CountDownBy(context.Background(), 2)
		}}
	},
	"rate limiter": func(_ *testing.T, mine, _ *redlatch.Client, name string) swept {
		return swept{object: mine.GetRateLimiter(name, rratelimiter.Per(1000, time.Second)), text: "key"}
	},
	"ids": func(_ *testing.T, mine, _ *redlatch.Client, name string) swept {
		return swept{object: mine.GetIDGenerator(name)}
	},
	"barrier": func(_ *testing.T, mine, theirs *redlatch.Client, name string) swept {
		return swept{object: mine.GetBarrier(name, 2), free: func() error { return theirs.GetBarrier(name, 2).Await(context.Background()) }}
	},
	"double barrier": func(_ *testing.T, mine, _ *redlatch.Client, name string) swept {
		return swept{object: mine.GetDoubleBarrier(name, 1)}
	},
	"election": func(_ *testing.T, mine, _ *redlatch.Client, name string) swept {
		return swept{object: mine.GetElection(name)}
	},
	"leadership": func(t *testing.T, mine, _ *redlatch.Client, name string) swept {
		t.Helper()
		lead, err := mine.GetElection(name).Campaign(t.Context())
		require.NoError(t, err)
		return swept{object: lead, text: "value"}
	},
	"scheduler": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		s := theirs.GetScheduler(name)
		require.NoError(t, s.Register("job", rscheduler.EveryAfter(time.Hour), func(context.Context, rscheduler.Run) error { return nil }))
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		synctest.Wait()
		stop()
		require.NoError(t, <-ran)
		return swept{object: mine.GetScheduler(name), text: "job"}
	},
	"client, asking": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		locktest.Acquire(t, t.Context(), theirs.GetLock(name), long)
		return swept{object: mine, text: theirs.ID()}
	},
	"client, listing": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		for kind, get := range lockKinds {
			locktest.Acquire(t, t.Context(), get(theirs, name+kind), long)
		}
		require.NoError(t, theirs.GetPermitSemaphore(name+"permit").SetPermits(t.Context(), 1))
		require.NoError(t, theirs.GetSemaphore(name+"semaphore").AddPermits(t.Context(), 1))
		return swept{object: mine, text: "*"}
	},
}

// sweptOnce has a client run the function of a key until it is freed.
func sweptOnce(t *testing.T, runs *redlatch.Client, name string) (free func() error) {
	t.Helper()
	done := make(chan struct{})
	go func() { // ends with the test, if it is not freed
		_, _, _ = redlatch.GetOnce[string](runs, name).Do(t.Context(), "key", func(ctx context.Context) (string, error) {
			select {
			case <-done:
			case <-ctx.Done():
			}
			return "value", nil
		})
	}()
	synctest.Wait()
	return sync.OnceValue(func() error { close(done); return nil })
}

// sweptQueue is a queue whose messages are not delivered again meanwhile.
func sweptQueue(c *redlatch.Client, name string) *rdelayedqueue.Queue[string] {
	return redlatch.GetDelayedQueue[string](c, name, rdelayedqueue.WithVisibility(time.Hour))
}

// sweptGenerics are the states of objects that have a type of value.
var sweptGenerics = map[string]sweptState{
	"once, free": func(_ *testing.T, mine, _ *redlatch.Client, name string) swept {
		return swept{object: redlatch.GetOnce[string](mine, name), text: "key"}
	},
	"once, kept": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		_, _, err := redlatch.GetOnce[string](theirs, name).Do(t.Context(), "key", func(context.Context) (string, error) { return "value", nil })
		require.NoError(t, err)
		return swept{object: redlatch.GetOnce[string](mine, name), text: "key"}
	},
	"once, ended": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		return swept{object: redlatch.GetOnce[string](mine, name), text: "key", free: sweptOnce(t, theirs, name)}
	},
	"once, ended by its own client": func(t *testing.T, mine, _ *redlatch.Client, name string) swept {
		t.Helper()
		return swept{object: redlatch.GetOnce[string](mine, name), text: "key", free: sweptOnce(t, mine, name)}
	},
	"topic": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		_, err := redlatch.GetTopic[string](theirs, name).Subscribe(t.Context())
		require.NoError(t, err)
		return swept{object: redlatch.GetTopic[string](mine, name), text: "value"}
	},
	"queue, stocked": func(t *testing.T, mine, theirs *redlatch.Client, name string) swept {
		t.Helper()
		q := sweptQueue(theirs, name)
		for _, id := range []string{"dead", "held"} {
			_, err := q.Offer(t.Context(), "value", 0, rdelayedqueue.WithID(id))
			require.NoError(t, err)
			m, err := q.Take(t.Context())
			require.NoError(t, err)
			if id == "dead" {
				require.NoError(t, m.Reject(t.Context(), "why"))
			}
		}
		for id, delay := range map[string]time.Duration{"ready": 0, "more": 0, "later": time.Hour} {
			_, err := q.Offer(t.Context(), "value", delay, rdelayedqueue.WithID(id))
			require.NoError(t, err)
		}
		return swept{object: sweptQueue(mine, name), text: "later"}
	},
	"queue, empty": func(_ *testing.T, mine, theirs *redlatch.Client, name string) swept {
		return swept{object: sweptQueue(mine, name), text: "id", free: func() error {
			_, err := sweptQueue(theirs, name).Offer(context.Background(), "value", 0)
			return err
		}}
	},
	"message": func(t *testing.T, mine, _ *redlatch.Client, name string) swept {
		t.Helper()
		q := sweptQueue(mine, name)
		_, err := q.Offer(t.Context(), "value", 0)
		require.NoError(t, err)
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		return swept{object: m, text: "why"}
	},
	"topics of a pattern": func(_ *testing.T, mine, _ *redlatch.Client, name string) swept {
		return swept{object: redlatch.GetPatternTopic[string](mine, name+"*")}
	},
}

// sweptOptions are the options with which methods are called that take some.
var sweptOptions = map[reflect.Type][][]any{
	reflect.TypeFor[rlock.Option]():              {{}, {rlock.WithWait(time.Minute)}, {rlock.WithHolder(), rlock.WithWait(50 * time.Millisecond)}},
	reflect.TypeFor[rsemaphore.AcquireOption]():  {{}, {rsemaphore.WithWait(time.Minute)}, {rsemaphore.WithWait(50 * time.Millisecond)}},
	reflect.TypeFor[rsemaphore.PermitOption]():   {{}, {rsemaphore.WithWait(time.Minute)}, {rsemaphore.WithWait(50 * time.Millisecond)}},
	reflect.TypeFor[relection.CampaignOption]():  {{}, {relection.WithValue("value")}},
	reflect.TypeFor[redlatch.ObjectsOption]():    {{}, {redlatch.WithKinds("latch")}},
	reflect.TypeFor[rtopic.SubscribeOption]():    {{}, {rtopic.WithBuffer(1)}},
	reflect.TypeFor[rdelayedqueue.OfferOption](): {{}, {rdelayedqueue.WithID("an id")}},
	reflect.TypeFor[rdelayedqueue.State]():       {{}, {rdelayedqueue.Ready, rdelayedqueue.Dead}},
}

// sweptCall is a method, and the options with which it is called.
type sweptCall struct {
	method reflect.Method
	opts   []any
}

var contextType = reflect.TypeFor[context.Context]()

// sweptCalls are the methods of an object that take a context: all that ask Redis.
func sweptCalls(t *testing.T, object any) (all []sweptCall) {
	t.Helper()
	of := reflect.TypeOf(object)
	for i := range of.NumMethod() {
		m := of.Method(i)
		switch last := m.Type.NumIn() - 1; {
		case last < 1 || m.Type.In(1) != contextType:
		case of == reflect.TypeFor[*rscheduler.Scheduler]() && m.Name == "Run", m.Name == "Consume": // they drain
		case m.Type.IsVariadic():
			variants := sweptOptions[m.Type.In(last).Elem()]
			require.NotEmpty(t, variants, "with what is %s called?", m.Name)
			for _, opts := range variants {
				all = append(all, sweptCall{m, opts})
			}
		default:
			all = append(all, sweptCall{m, nil})
		}
	}
	return all
}

// do calls the method on s.
func (c sweptCall) do(t *testing.T, ctx context.Context, s swept) error {
	t.Helper()
	if s.under != nil {
		ctx = under{ctx, s.under}
	}
	args := []reflect.Value{reflect.ValueOf(s.object)}
	params := c.method.Type.NumIn()
	if c.method.Type.IsVariadic() {
		params--
	}
	for i := 1; i < params; i++ {
		switch c.method.Type.In(i) {
		case contextType:
			args = append(args, reflect.ValueOf(ctx))
		case reflect.TypeFor[int]():
			args = append(args, reflect.ValueOf(2))
		case reflect.TypeFor[string]():
			args = append(args, reflect.ValueOf(s.text))
		case reflect.TypeFor[time.Time]():
			args = append(args, reflect.ValueOf(time.Now()))
		case reflect.TypeFor[rdelayedqueue.State]():
			args = append(args, reflect.ValueOf(rdelayedqueue.Ready))
		case reflect.TypeFor[[]rdelayedqueue.Item[string]]():
			args = append(args, reflect.ValueOf([]rdelayedqueue.Item[string]{{Value: "value"}, {Value: "later", Delay: time.Hour}}))
		case reflect.TypeFor[time.Duration]():
			args = append(args, reflect.ValueOf(time.Minute))
		case reflect.TypeFor[func(context.Context) error]():
			args = append(args, reflect.ValueOf(func(context.Context) error { return nil }))
		case reflect.TypeFor[func(context.Context) (string, error)]():
			args = append(args, reflect.ValueOf(func(context.Context) (string, error) { return "value", nil }))
		case reflect.TypeFor[func(context.Context, int64) error]():
			args = append(args, reflect.ValueOf(func(context.Context, int64) error { return nil }))
		default:
			require.Fail(t, "with what is it called?", "%s: %v", c.method.Name, c.method.Type)
		}
	}
	for _, o := range c.opts {
		args = append(args, reflect.ValueOf(o))
	}
	results := c.method.Func.Call(args)
	last := results[len(results)-1].Interface()
	switch all := last.(type) {
	case iter.Seq2[redlatch.Object, error]:
		return firstError(all)
	case iter.Seq2[rdelayedqueue.Entry[string], error]:
		return firstError(all)
	case iter.Seq2[relection.Leader, error]:
		return firstError(all)
	}
	err, _ := last.(error)
	return err
}

// firstError goes through all, up to the first error but that nobody leads.
func firstError[T any](all iter.Seq2[T, error]) error {
	for _, err := range all {
		if err != nil && !errors.Is(err, relection.ErrNoLeader) {
			return err
		}
	}
	return nil
}

// sweptReplies is how many replies a method waits for that waits for more than one. A lock of several locks needs them of each.
// A barrier subscribes and asks at once, and either may be answered first.
var sweptReplies = map[string]int{"barrier, Await": 2, "double barrier, Enter": 2, "double barrier, Leave": 2, "Do": 2, "RDo": 2, "Holder": 3, "Info": 3, "Ask": 2, "Objects": 1000, "Campaign": 2, "Candidates": 2, "Resign": 2, "Trigger": 2, "Jobs": 2, "All": 2, "Purge": 3}

// sweep is a bubble in which the methods of one object are called.
type sweep struct {
	*locktest.Bubble
	state  sweptState
	theirs *locktest.Peer
	made   int
}

const (
	sweepLimit = 300 * time.Millisecond
	sweepSlack = 50 * time.Millisecond
	// What an Unlock has at least, however near the deadline of its context is.
	releaseTime = 100 * time.Millisecond
	sweepFreed  = 100 * time.Millisecond // when what is waited for comes
)

// call calls the method on a new object of a new client, and keeps back the nth reply; none for 0.
func (s *sweep) call(t *testing.T, c sweptCall, nth int) (took time.Duration, err error) {
	t.Helper()
	s.made++
	mine := s.Peer(t, redlatch.WithCloseGrace(0), redlatch.WithoutPresence())
	object := s.state(t, mine.Client, s.theirs.Client, fmt.Sprint("n", s.made))
	time.Sleep(4 * time.Second) // by then the other client is listening
	synctest.Wait()
	if nth > 0 {
		mine.HangAnyReply(nth)
	}
	if object.free != nil {
		time.AfterFunc(sweepFreed, func() { _ = object.free() }) // the call may have ended it
	}
	ctx, cancel := context.WithTimeout(t.Context(), sweepLimit)
	defer cancel()
	start := time.Now()
	err = c.do(t, ctx, object)
	took = time.Since(start)
	time.Sleep(time.Second)
	mine.Cut()
	require.NoError(t, mine.Close())
	return took, err
}

// F26, F27
func TestNoCallOutlivesItsContextOrItsAnswer(t *testing.T) {
	states := maps.Clone(sweptCounters)
	maps.Copy(states, sweptGenerics)
	for kind := range movingKinds() {
		maps.Copy(states, sweptLocks(kind))
	}
	var swept sync.Map                 // the types of the objects
	most := faulttest.Rounds(t, 5, 20) // replies of a call that are kept back, one at a time
	t.Run("sweep", func(t *testing.T) {
		for name, state := range states {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				parts := 1
				if strings.HasPrefix(name, "multi,") || strings.HasPrefix(name, "red,") {
					parts = 3
				}
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					s := &sweep{Bubble: b, state: state, theirs: b.Peer(t, redlatch.WithCloseGrace(0))}
					object := state(t, b.Peer(t, redlatch.WithCloseGrace(0), redlatch.WithoutPresence()).Client, s.theirs.Client, "n").object
					swept.Store(reflect.TypeOf(object), true)
					for _, c := range sweptCalls(t, object) {
						if len(c.opts) == 0 {
							_, _ = s.call(t, c, 0) // from here on Redis knows the scripts
						}
						usual, refused := s.call(t, c, 0)
						assert.LessOrEqual(t, usual, sweepLimit+sweepSlack, c.method.Name)
						replies := parts * max(1, sweptReplies[c.method.Name], sweptReplies[name+", "+c.method.Name])
						last := min(replies+1, most)
						switch {
						case faulttest.Soaking():
							last = most
						case usual > 0: // it waits, subscribes and asks again
							last = max(last, 4)
						}
						for nth := 1; nth <= last; nth++ {
							took, err := s.call(t, c, nth)
							what := fmt.Sprintf("%s with %d options, reply %d kept back: %v", c.method.Name, len(c.opts), nth, err)
							longest := sweepLimit + sweepSlack
							if err == nil && strings.HasSuffix(c.method.Name, "Do") {
								longest += releaseTime // it was acquired late
							}
							assert.LessOrEqual(t, took, longest, what)
							if usual == 0 && refused == nil && nth == 1 && errors.Is(err, context.DeadlineExceeded) {
								assert.True(t, errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrUnknown), what)
							}
							if usual == 0 && refused == nil && nth > replies {
								assert.NoError(t, err, what)
								assert.LessOrEqual(t, took, sweepSlack, "it was answered: %s", what)
							}
						}
					}
				})
			})
		}
	})
	all := reachable(reflect.TypeFor[*redlatch.Client](), nil)
	for _, of := range reachable(reflect.TypeFor[*rdelayedqueue.Queue[string]](), all) {
		_, ok := swept.Load(of)
		assert.True(t, ok, "%v has methods that were not called", of)
	}
}

// reachable returns the types that have methods with a context, among those which the methods of one of them return.
func reachable(from reflect.Type, known []reflect.Type) []reflect.Type {
	waits := false
	for i := range from.NumMethod() {
		m := from.Method(i).Type
		waits = waits || m.NumIn() > 1 && m.In(1) == contextType
	}
	if from.Kind() != reflect.Pointer || !waits || slices.Contains(known, from) {
		return known
	}
	known = append(known, from)
	for i := range from.NumMethod() {
		m := from.Method(i).Type
		for j := range m.NumOut() {
			result := m.Out(j)
			if result.Kind() == reflect.Slice {
				result = result.Elem()
			}
			known = reachable(result, known)
		}
	}
	return known
}
