package gridtest

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/historytest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Register is a number that is read, and changed on condition of what it was.
type Register struct {
	Get            func(ctx context.Context) (v int, ok bool, err error)
	CompareAndSwap func(ctx context.Context, old, v int) (ok bool, err error)
	Update         func(ctx context.Context, fn func(v int, ok bool) (int, error)) (int, error)
}

// event is what happened to a register. No value is written twice, and 0 is none.
type event struct {
	Name     string
	Op       op
	Client   int
	Old, New int
}

type op string

const (
	swaps   op = "swaps"
	refused op = "refuses" // a swap, since it is not the old value
	unknown op = "swaps?"  // the answer was lost
	sees    op = "sees"
)

func (e event) Object() string { return e.Name }

// oneRegister is the model of a register: a historytest.Model.
func oneRegister(s int, e event) (bool, int) {
	switch e.Op {
	case swaps:
		return s == e.Old, e.New
	case refused:
		return s != e.Old, s
	}
	return s == e.New, s
}

// linear is a history of registers.
type linear struct {
	maxStale time.Duration // of what is read; 0 if it is never old
	history  *historytest.History[event]
	names    []string
	over     context.Context //nolint:containedctx // ends the play
	users    sync.WaitGroup
	gate     sync.RWMutex // a change has it; who locks it knows that none is under way
}

// Linearizable tests that changes and reads of registers by several clients have one order, in which a change whose answer was lost
// may be, while connections are cut and black holes, and replies and messages are lost; and that a failover to a replica that has all
// leaves that order. What is read may be old by maxStale, but not older than the client's own changes; 0 if it is never old.
func Linearizable(t *testing.T, maxStale time.Duration, register func(c *redlatch.Client, name string) Register) {
	t.Helper()
	for name, harmful := range map[string]bool{"calm": false, "faults": true} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t)
			l := begin(t, maxStale, time.Duration(faulttest.Rounds(t, 1, 20))*time.Second)
			var proxies []*faulttest.Proxy
			for i := range 4 {
				proxy := faulttest.NewProxy(t, server.Addr())
				proxies = append(proxies, proxy)
				rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), ReadTimeout: 300 * time.Millisecond})
				c, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(slog.DiscardHandler)))
				require.NoError(t, err)
				t.Cleanup(func() {
					assert.NoError(t, c.Close())
					assert.NoError(t, rdb.Close())
				})
				l.use(i+1, c, register)
			}
			historytest.Meanwhile(&l.users, func() {
				if harmful {
					harm(proxies[rand.N(len(proxies))])
				}
			})
			for _, p := range proxies {
				p.Blackhole(false)
				p.DropMessages(false)
			}
			c, err := redlatch.New(server.Client(t))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			l.end(t, c, register)
		})
	}
	t.Run("failover", func(t *testing.T) {
		redistest.Long(t)
		group := locktest.StartGroup(t)
		l := begin(t, maxStale, 10*time.Second)
		for i := range 4 {
			l.use(i+1, group.Client(t), register)
		}
		<-time.After(time.Second) // of history before it
		l.gate.Lock()
		redistest.AwaitSync(t, group.Master, group.Replica)
		group.Master.Kill()
		l.gate.Unlock()
		l.users.Wait()
		group.Sentinel.AwaitMaster(group.Master.Addr())
		l.end(t, group.Client(t), register)
	})
}

func harm(p *faulttest.Proxy) {
	switch rand.N(60) {
	case 0:
		p.Cut()
	case 1, 2:
		p.DropReply(faulttest.Script, 1)
	case 3:
		p.Blackhole(true)
	case 4:
		p.DropMessages(true)
	case 5, 6, 7, 8, 9, 10:
		p.Blackhole(false)
	case 11, 12:
		p.DropMessages(false)
	}
}

func begin(t *testing.T, maxStale, length time.Duration) *linear {
	l := &linear{maxStale: maxStale, history: historytest.New[event](), names: []string{"a", "b"}}
	var cancel context.CancelFunc
	l.over, cancel = context.WithTimeout(t.Context(), length)
	t.Cleanup(cancel)
	return l
}

// use has a client read and change each register until the play is over.
func (l *linear) use(client int, c *redlatch.Client, register func(c *redlatch.Client, name string) Register) {
	for i, name := range l.names {
		r := register(c, name)
		value := client<<24 | i<<20
		l.users.Go(func() { // ends with the play
			for l.over.Err() == nil {
				value++
				l.change(client, name, r, value)
				<-time.After(rand.N(4 * time.Millisecond))
			}
		})
		l.users.Go(func() { // ends with the play
			for l.over.Err() == nil {
				l.get(client, name, r)
				<-time.After(rand.N(4 * time.Millisecond))
			}
		})
	}
}

// callLimit is how long a call may take.
const callLimit = time.Second

// get returns the value; ok is false if there was no answer.
func (l *linear) get(client int, name string, r Register) (v int, ok bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.over), callLimit)
	defer cancel()
	call := l.history.Now()
	v, _, err := r.Get(ctx)
	if err != nil {
		return 0, false
	}
	l.history.Add(event{name, sees, client, 0, v}, call, l.history.Now())
	return v, true
}

// change makes one change of either kind.
func (l *linear) change(client int, name string, r Register, value int) {
	old := 0
	swap := rand.N(2) == 0
	if swap {
		var ok bool
		if old, ok = l.get(client, name, r); !ok || old == 0 {
			return
		}
	}
	l.gate.RLock()
	defer l.gate.RUnlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.over), callLimit)
	defer cancel()
	call := l.history.Now()
	ok, err := true, error(nil)
	if swap {
		ok, err = r.CompareAndSwap(ctx, old, value)
	} else {
		_, err = r.Update(ctx, func(v int, _ bool) (int, error) {
			old = v
			return value, nil
		})
	}
	back := l.history.Now()
	switch {
	case errors.Is(err, redlatch.ErrUnknown):
		l.history.Add(event{name, unknown, client, old, value}, call, historytest.Forever)
	case err != nil: // nothing was changed
	case ok:
		l.history.Add(event{name, swaps, client, old, value}, call, back)
	default:
		l.history.Add(event{name, refused, client, old, value}, call, back)
	}
}

// end waits for the clients and judges the history.
func (l *linear) end(t *testing.T, c *redlatch.Client, register func(c *redlatch.Client, name string) Register) {
	t.Helper()
	for _, name := range l.names {
		redistest.Eventually(t, redistest.ElectionLimit, "the last value", func() error {
			if _, ok := l.get(0, name, register(c, name)); !ok {
				return errors.New("no answer")
			}
			return nil
		})
	}
	ops := l.certain()
	changes, reads, count := ops[:0:0], ops[:0:0], map[op]int{}
	for _, one := range ops {
		count[one.Event.Op]++
		if l.maxStale > 0 && one.Event.Op == sees {
			reads = append(reads, one)
		} else {
			changes = append(changes, one)
		}
	}
	t.Logf("%v", count)
	require.NotZero(t, count[swaps])
	require.NotZero(t, count[sees])
	historytest.Check(t, historytest.Model[int, event](oneRegister), changes)
	for _, name := range l.names {
		l.checkReads(t, name, changes, reads)
	}
}

// certain returns what happened: of the changes whose answers were lost those whose values were seen. One that nobody saw has changed
// nothing that anybody saw: only a change that saw its value could have replaced it.
func (l *linear) certain() (ops []historytest.Op[event]) {
	seen := map[int]bool{}
	for e := range l.history.Events() {
		if e.Op == sees {
			seen[e.New] = true
		}
		seen[e.Old] = true
	}
	for _, one := range l.history.Ops() {
		if one.Event.Op == unknown {
			if !seen[one.Event.New] {
				continue
			}
			one.Event.Op = swaps
		}
		ops = append(ops, one)
	}
	return ops
}

// checkReads fails the test for each value that was read and too old: the changes say in which order values were there.
func (l *linear) checkReads(t *testing.T, name string, changes, reads []historytest.Op[event]) {
	t.Helper()
	after := map[int]historytest.Op[event]{}
	for _, one := range changes {
		if one.Event.Name == name && one.Event.Op == swaps {
			require.NotContains(t, after, one.Event.Old, "two have replaced it")
			after[one.Event.Old] = one
		}
	}
	var order []historytest.Op[event]
	place := map[int]int{0: 0}
	for one, ok := after[0]; ok; one, ok = after[one.Event.New] {
		order = append(order, one)
		place[one.Event.New] = len(order)
	}
	for _, r := range reads {
		if r.Event.Name != name {
			continue
		}
		at, known := place[r.Event.New]
		require.True(t, known, "%d was never there", r.Event.New)
		for _, later := range order[at:] {
			if later.Back <= r.Call-int64(l.maxStale) || later.Event.Client == r.Event.Client && later.Back <= r.Call {
				assert.Fail(t, "a value is too old", "%+v was over for %v by %+v", r.Event, time.Duration(r.Call-later.Back), later.Event)
				break
			}
		}
	}
}
