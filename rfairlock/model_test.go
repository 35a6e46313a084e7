package rfairlock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
	"github.com/redlatch/redlatch/rfairlock"
	"github.com/redlatch/redlatch/rlock"
)

// event is something that the model lets happen to one lock at one moment between the call and the return.
type event struct {
	kind string
	key  string
	hold string // which hold; of an own id, also who waits
	line string // of a look at the queue: the own ids in it, each followed by a comma
}

// The kinds of event.
const (
	grants   = "granted"  // the lock was free, and nobody who stood in the queue before was passed over
	released = "released" // the hold was there, and is gone
	refused  = "refused"  // the hold was not there
	vanishes = "vanishes" // the hold is gone, if it was there: an unknown release, or the end of a lease
	queued   = "queued"   // these stood in the queue, in this order
)

// fair is the state of one lock in the model.
type fair struct {
	holder string
	line   string // those of own ids that are known to wait, the next one first
	served string // those of own ids that had their turn: they stand in no queue any more
}

// leasedFairLock is a fair lock whose holds may end by themselves, but not before their deadlines.
var leasedFairLock = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(event).key
			parts[key] = append(parts[key], op)
		}
		return slices.Collect(maps.Values(parts))
	},
	Init: func() any { return fair{} },
	Step: func(state, input, _ any) (bool, any) { return step(state.(fair), input.(event)) },
}

func step(f fair, e event) (bool, fair) {
	switch e.kind {
	case grants:
		rest, first := strings.CutPrefix(f.line, e.hold+",")
		own := strings.HasPrefix(e.hold, ownPrefix)
		ok := f.holder == "" && (first || f.line == "" || !own)
		if own {
			f.served += e.hold + ","
		}
		return ok, fair{e.hold, rest, f.served}
	case released:
		return f.holder == e.hold, fair{"", f.line, f.served}
	case refused:
		return f.holder != e.hold, f
	case vanishes:
		if f.holder == e.hold {
			f.holder = ""
		}
		return true, f
	case queued:
		for id := range strings.SplitSeq(strings.TrimSuffix(e.line, ","), ",") {
			if id != "" && strings.Contains(","+f.served, ","+id+",") {
				return false, f
			}
		}
		return strings.HasPrefix(e.line, f.line), fair{f.holder, e.line, f.served}
	}
	return false, f
}

const (
	ownPrefix = "own"
	forever   = math.MaxInt64
	earliness = 2 * time.Millisecond // by how much a client may end a hold before its deadline

	modelLease = 300 * time.Millisecond
	modelGood  = 2 * time.Second // longer than any pause of a machine, or live waiters would be passed over
)

// history is what happened to some locks, as their users saw it.
type history struct {
	started time.Time

	mu    sync.Mutex // guards the rest
	calls int
	ops   []porcupine.Operation
}

func (h *history) now() int64 { return int64(time.Since(h.started)) }

func (h *history) add(e event, call, back int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{Input: e, Call: call, Return: back})
}

// id names a call: every other one queues under a name of its own, by which it is known in the queue.
func (h *history) id() (id string, opts []rlock.Option) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	if h.calls%2 == 0 {
		return fmt.Sprint("pooled", h.calls), nil
	}
	id = fmt.Sprint(ownPrefix, h.calls)
	return id, []rlock.Option{rlock.WithOwner(id)}
}

// use waits for the lock, and gives it back if it gets it; a hold of a client that dies is left to its lease.
func (h *history) use(ctx context.Context, l *rfairlock.Lock, dies func()) {
	id, opts := h.id()
	if opts == nil && rand.N(5) == 0 { // one whose grant is lost for so long has had its turn, and queues again
		opts = append(opts, rlock.WithLease(10*time.Millisecond+rand.N(10*time.Millisecond)))
	}
	limit := 2 * modelGood
	if rand.N(10) == 0 {
		limit = rand.N(5 * time.Millisecond)
	}
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	call := h.now()
	hold, err := l.Lock(wait, opts...)
	if err == nil {
		h.add(event{kind: grants, key: l.Name(), hold: id}, call, h.now())
	}
	deadline := int64(0)
	if hold != nil {
		deadline = h.deadline(hold)
	}
	switch {
	case dies != nil:
		dies()
		if hold != nil {
			h.add(event{kind: vanishes, key: l.Name(), hold: id}, deadline, forever)
		}
	case hold != nil:
		h.release(context.WithoutCancel(ctx), l, hold, id)
	}
}

func (h *history) deadline(hold *rlock.Hold) int64 {
	return int64(hold.Deadline().Add(-earliness).Sub(h.started))
}

// release keeps a hold for a while, some until they are lost, and ends it. Until its deadline it cannot have ended otherwise.
func (h *history) release(ctx context.Context, l *rfairlock.Lock, hold *rlock.Hold, id string) {
	timer := time.NewTimer([]time.Duration{0, rand.N(time.Millisecond), rand.N(30 * time.Millisecond)}[rand.N(3)])
	defer timer.Stop()
	select {
	case <-hold.Context().Done():
	case <-timer.C:
	}
	e, call := event{kind: released, key: l.Name(), hold: id}, h.now()
	deadline := h.deadline(hold) // afterwards it is the time of the end
	err := hold.Unlock(ctx)
	back := h.now()
	switch {
	case back >= deadline: // it may have been released, or have run out
		e.kind, call, back = vanishes, min(call, deadline), forever
	case errors.Is(err, rlock.ErrNotHeld):
		e.kind = refused
	case err != nil:
		e.kind, back = vanishes, forever
	}
	h.add(e, call, back)
}

// look notes who stands in the queue.
func (h *history) look(t *testing.T, rdb *redis.Client, name string) {
	call := h.now()
	list, err := rdb.LRange(context.WithoutCancel(t.Context()), "redisson_lock_queue:{"+name+"}", 0, -1).Result()
	if assert.NoError(t, err) {
		h.add(event{kind: queued, key: name, line: strings.Join(append(list, ""), ",")}, call, h.now())
	}
}

// settled returns the history less those in the queues who were never granted, and those who had been before the look.
func (h *history) settled() []porcupine.Operation {
	grantedAt := map[string]int64{}
	for _, op := range h.ops {
		if e := op.Input.(event); e.kind == grants {
			grantedAt[e.hold] = op.Return
		}
	}
	ops := slices.Clone(h.ops)
	for i, op := range ops {
		e := op.Input.(event)
		var line strings.Builder
		for id := range strings.SplitSeq(e.line, ",") {
			if back, ok := grantedAt[id]; ok && strings.HasPrefix(id, ownPrefix) && back > op.Call {
				line.WriteString(id + ",")
			}
		}
		e.line = line.String()
		ops[i].Input = e
	}
	return ops
}

// check fails the test unless one order of the events explains them all.
func (h *history) check(t *testing.T) {
	t.Helper()
	ops, count, crowds := h.settled(), map[string]int{}, 0
	for _, op := range ops {
		e := op.Input.(event)
		count[e.kind]++
		if strings.Count(e.line, ",") > 1 {
			crowds++
		}
	}
	t.Log(count, crowds, "with an order")
	assert.Greater(t, count[grants], h.calls/3, "holds")
	assert.Greater(t, crowds, count[queued]/20, "queues that have an order")
	if result := porcupine.CheckOperationsTimeout(leasedFairLock, ops, time.Minute); result != porcupine.Ok {
		slices.SortFunc(ops, func(x, y porcupine.Operation) int { return cmp.Compare(x.Call, y.Call) })
		for _, op := range ops {
			t.Logf("%v %v %+v", time.Duration(op.Call), time.Duration(op.Return), op.Input)
		}
		assert.Fail(t, "no order explains what was seen", result)
	}
}

// counted is how often to do something: in the ordinary run, and in the long one.
func counted(usual, soak int) int {
	if os.Getenv("REDLATCH_SOAK") == "1" {
		return soak
	}
	return usual
}

func TestHistoryIsLinearizableAndInOrder(t *testing.T) {
	h := record(t, counted(40, 150), nil)
	h.check(t)
}

func TestHistoryUnderFaultsIsLinearizableAndInOrder(t *testing.T) {
	for range counted(1, 150) { // of some 350 steps each
		h := record(t, 30, func(p *faulttest.Proxy) {
			p.OnCommand(func([]string) {
				switch dice := rand.N(100); {
				case dice < 3:
					p.DropReply(faulttest.Script, 1)
				case dice < 4:
					p.Cut()
				case dice < 7:
					p.Delay(rand.N(3 * time.Millisecond))
				case dice < 10:
					p.Delay(0)
				}
			})
		})
		h.check(t)
	}
}

// record has goroutines of three clients use two locks at random, while somebody looks at their queues. With harm, some
// clients die as well, waiting or holding.
func record(t *testing.T, steps int, harm func(*faulttest.Proxy)) *history {
	t.Helper()
	server := redistest.Start(t)
	rdb := server.Client(t)
	h := &history{started: time.Now()}
	var users sync.WaitGroup
	for range 3 {
		proxy := faulttest.NewProxy(t, server.Addr())
		client := modelClient(t, proxy.Addr())
		if harm != nil {
			harm(proxy)
			t.Cleanup(func() { proxy.OnCommand(nil); proxy.Delay(0) })
		}
		for range 4 {
			users.Go(func() {
				for i := range steps {
					name := fmt.Sprint("n", rand.N(2))
					if harm != nil && i%25 == 24 {
						doomed := modelClient(t, proxy.Addr(), redlatch.WithAbandonOnClose())
						h.use(t.Context(), doomed.GetFairLock(name), func() { _ = doomed.Close() })
						continue
					}
					if i%4 == 0 {
						h.look(t, rdb, name)
					}
					h.use(t.Context(), client.GetFairLock(name), nil)
				}
			})
		}
	}
	users.Wait()
	return h
}

// modelClient returns a client of a real server. It is closed when the test ends.
func modelClient(t *testing.T, addr string, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	opts = append(opts, redlatch.WithLogger(slog.New(slog.DiscardHandler)), redlatch.WithCloseGrace(0),
		redlatch.WithLease(modelLease), redlatch.WithFairWaitTimeout(modelGood))
	c, err := redlatch.New(rdb, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func TestModelTellsGoodHistoriesFromBadOnes(t *testing.T) {
	at := func(kind, hold, line string, call, back int64) porcupine.Operation {
		return porcupine.Operation{Input: event{kind, "k", hold, line}, Call: call, Return: back}
	}
	for _, tc := range []struct {
		what string
		good bool
		ops  []porcupine.Operation
	}{
		{"in order", true, []porcupine.Operation{at(queued, "", "own1,own2,", 0, 1), at(grants, "own1", "", 0, 3), at(released, "own1", "", 4, 5), at(grants, "own2", "", 0, 7)}},
		{"out of order", false, []porcupine.Operation{at(queued, "", "own1,own2,", 0, 1), at(grants, "own2", "", 0, 3), at(released, "own2", "", 4, 5), at(grants, "own1", "", 0, 7)}},
		{"past the queue", false, []porcupine.Operation{at(queued, "", "own1,", 0, 1), at(grants, "own2", "", 2, 3), at(released, "own2", "", 4, 5), at(grants, "own1", "", 0, 7)}},
		{"a queue that turns round", false, []porcupine.Operation{at(queued, "", "own1,own2,", 0, 1), at(queued, "", "own2,own1,", 2, 3)}},
		{"two at once", false, []porcupine.Operation{at(grants, "own1", "", 0, 1), at(grants, "own2", "", 2, 3)}},
		{"after a lease that may have ended", true, []porcupine.Operation{at(grants, "own1", "", 0, 1), at(vanishes, "own1", "", 2, forever), at(grants, "own2", "", 3, 4)}},
		{"before it", false, []porcupine.Operation{at(grants, "own1", "", 0, 1), at(vanishes, "own1", "", 5, forever), at(grants, "own2", "", 3, 4)}},
	} {
		require.Equal(t, tc.good, porcupine.CheckOperations(leasedFairLock, tc.ops), tc.what)
	}
}
