package rfairlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/historytest"
	"github.com/redlatch/redlatch/internal/test/redistest"
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
	vanishes = "vanishes" // the same, by an unknown release, or at the end of a lease
	queued   = "queued"   // these stood in the queue, in this order
)

// fair is the state of one lock in the model.
type fair struct {
	holder string
	line   string // those of own ids that are known to wait, the next one first
	served string // those of own ids that had their turn: they stand in no queue any more
}

func (e event) Object() string { return e.key }

// leasedFairLock is a fair lock whose holds may end by themselves, but not before their deadlines.
var leasedFairLock historytest.Model[fair, event] = step

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
	case released, vanishes:
		return f.holder == e.hold, fair{"", f.line, f.served}
	case refused:
		return f.holder != e.hold, f
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

	modelLease = 900 * time.Millisecond // longer than any pause of a machine, or a grant that nobody hears of in time costs a place
	modelGood  = 2 * time.Second        // the same, or live waiters would be passed over
)

// record is what happened to some locks, as their users saw it.
type record struct {
	*historytest.History[event]
	calls atomic.Int64
}

// name returns how the history names a hold, as which it also stood in the queue, unless it may have queued again.
func name(hold *rlock.Hold, brief []rlock.Option) string {
	switch {
	case hold == nil:
		return ""
	case brief != nil:
		return hold.Owner()
	}
	return ownPrefix + hold.Owner()
}

// use waits for the lock, and gives it back if it gets it; a hold of a client that dies is left to its lease.
func (r *record) use(ctx context.Context, l *rfairlock.Lock, dies func()) {
	r.calls.Add(1)
	var opts []rlock.Option
	if rand.N(5) == 0 { // one whose grant is lost for so long has had its turn, and queues again
		opts = append(opts, rlock.WithFixedLease(10*time.Millisecond+rand.N(10*time.Millisecond)))
	}
	limit := 2 * modelGood
	if r.Steps > 0 { // a step back may keep an abandoned hold for as long as the steps go on
		limit = modelLease
	}
	if rand.N(10) == 0 {
		limit = rand.N(5 * time.Millisecond)
	}
	wait, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	call := r.Now()
	hold, err := l.Lock(wait, opts...)
	id := name(hold, opts)
	if err == nil {
		r.Add(event{kind: grants, key: l.Name(), hold: id}, call, r.Now())
	}
	deadline := int64(0)
	if hold != nil {
		deadline = r.Deadline(hold)
	}
	switch {
	case dies != nil:
		dies()
		if hold != nil {
			r.Add(event{kind: vanishes, key: l.Name(), hold: id}, deadline, historytest.Forever)
		}
	case hold != nil:
		r.release(context.WithoutCancel(ctx), l, hold, id)
	}
}

// release keeps a hold for a while, some until they are lost, and ends it. Until its deadline it cannot have ended otherwise.
func (r *record) release(ctx context.Context, l *rfairlock.Lock, hold *rlock.Hold, id string) {
	timer := time.NewTimer([]time.Duration{0, rand.N(time.Millisecond), rand.N(30 * time.Millisecond)}[rand.N(3)])
	defer timer.Stop()
	select {
	case <-hold.Context().Done():
	case <-timer.C:
	}
	end, call, back := r.Unlock(ctx, hold)
	kind := map[historytest.Ending]string{historytest.Released: released, historytest.Refused: refused, historytest.Vanishes: vanishes}[end]
	r.Add(event{kind: kind, key: l.Name(), hold: id}, call, back)
}

// look notes who stands in the queue.
func (r *record) look(t *testing.T, rdb *redis.Client, name string) {
	call := r.Now()
	list, err := rdb.LRange(context.WithoutCancel(t.Context()), queueKey(name), 0, -1).Result()
	if assert.NoError(t, err) {
		r.Add(event{kind: queued, key: name, line: strings.Join(append(list, ""), ",")}, call, r.Now())
	}
}

// settled returns the history, with what a step of the server's clock excuses, less those in the queues who were never granted, who had
// been before the look, or whose wait such a step met: these have no place that is known.
func (r *record) settled() []historytest.Op[event] {
	ops := r.Excused(func(e event) (gone []event, begins bool) {
		if e.hold == "" {
			return nil, false
		}
		return []event{{kind: vanishes, key: e.key, hold: e.hold}}, e.kind == grants
	})
	grantedAt, met := map[string]int64{}, map[string]bool{}
	for _, op := range ops {
		if op.Event.kind != grants {
			continue
		}
		if _, stepped := r.SteppedAhead(op.Call, op.Back); stepped {
			met[op.Event.hold] = true
			continue
		}
		grantedAt[op.Event.hold] = op.Back
	}
	for i, op := range ops {
		if met[op.Event.hold] {
			ops[i].Event.hold = strings.TrimPrefix(op.Event.hold, ownPrefix)
		}
		var line strings.Builder
		for id := range strings.SplitSeq(op.Event.line, ",") {
			if back, ok := grantedAt[ownPrefix+id]; ok && back > op.Call {
				line.WriteString(ownPrefix + id + ",")
			}
		}
		ops[i].Event.line = line.String()
	}
	return ops
}

// check fails the test unless one order of the events explains them all.
func (r *record) check(t *testing.T) {
	t.Helper()
	ops, count, crowds := r.settled(), map[string]int{}, 0
	for _, op := range ops {
		count[op.Event.kind]++
		if strings.Count(op.Event.line, ",") > 1 {
			crowds++
		}
	}
	t.Log(count, crowds, "with an order")
	least := int(r.calls.Load()) / 3
	orders := count[queued] / 20
	if r.Steps > 0 { // steps end holds, and waits that met one have no place
		least, orders = least/2, 0
	}
	assert.Greater(t, count[grants], least, "holds")
	assert.Greater(t, crowds, orders, "queues that have an order")
	historytest.Check(t, leasedFairLock, ops)
}

// F11
func TestHistoryIsLinearizableAndInOrder(t *testing.T) {
	play(t, faulttest.Rounds(t, 40, 80), 0, nil, nil).check(t)
}

// F1, F2, F11
func TestHistoryUnderFaultsIsLinearizableAndInOrder(t *testing.T) {
	redistest.Long(t)
	for range faulttest.Rounds(t, 1, 5) { // of some 350 steps each
		play(t, 30, 0, (*faulttest.Proxy).Disturb, nil).check(t)
	}
}

// A step ahead of the server's clock may end each lease that it meets, as docs/guarantees.md says: that of a hold, which may be gone
// from then on before its holder knows, and that of a place in the queue. That apart the model is as ever: whoever has the lock has it
// alone, and those whose wait met no step ahead are served in their order.
//
// F11, F18
func TestHistoryWhileTheClockStepsIsLinearizableAndInOrder(t *testing.T) {
	for range faulttest.Rounds(t, 1, 5) {
		play(t, 20, historytest.WideSteps, (*faulttest.Proxy).Disturb, nil).check(t)
	}
}

func TestHistoryOfABrokenLockIsRefuted(t *testing.T) {
	redistest.Long(t)
	for what, behind := range map[string]func(ctx context.Context, rdb *redis.Client) error{
		"a lock taken from its holder": func(ctx context.Context, rdb *redis.Client) error {
			return rdb.Del(ctx, "n0").Err()
		},
		"a queue whose first goes last": func(ctx context.Context, rdb *redis.Client) error {
			return rdb.LMove(ctx, queueKey("n0"), queueKey("n0"), "left", "right").Err()
		},
		"a queue whose last goes first": func(ctx context.Context, rdb *redis.Client) error {
			return rdb.LMove(ctx, queueKey("n0"), queueKey("n0"), "right", "left").Err()
		},
	} {
		for how, harm := range historytest.Harms() {
			t.Run(what+how, func(t *testing.T) {
				historytest.RefutedSoon(t, func() bool {
					r := play(t, 10, 0, harm, func(rdb *redis.Client) {
						if err := behind(t.Context(), rdb); !errors.Is(err, redis.Nil) {
							assert.NoError(t, err)
						}
					})
					return leasedFairLock.RefutesUnsaid(r.settled(), func(e event) (event, bool) {
						return event{kind: vanishes, key: e.key, hold: e.hold}, e.kind == refused
					})
				})
			})
		}
	}
}

func queueKey(name string) string { return "redisson_lock_queue:{" + name + "}" }

// play has goroutines of three clients use two locks at random, while somebody looks at their queues, and does something behind their
// backs. With harm, some clients die as well, waiting or holding.
func play(t *testing.T, steps int, clocks time.Duration, harm func(*faulttest.Proxy), behind func(rdb *redis.Client)) *record {
	t.Helper()
	r := &record{History: historytest.New[event]()}
	r.Steps = clocks
	server := r.Serve(t)
	rdb := server.Client(t)
	var users sync.WaitGroup
	for range 3 {
		proxy := faulttest.NewProxy(t, server.Addr())
		client := modelClient(t, proxy.Addr())
		if harm != nil {
			harm(proxy)
		}
		for range 4 {
			users.Go(func() {
				for i := range steps {
					name := fmt.Sprint("n", rand.N(2))
					if harm != nil && i%25 == 24 {
						doomed := modelClient(t, proxy.Addr(), redlatch.WithAbandonOnClose())
						r.use(t.Context(), doomed.GetFairLock(name), func() { _ = doomed.Close() })
						continue
					}
					if i%4 == 0 {
						r.look(t, rdb, name)
					}
					r.use(t.Context(), client.GetFairLock(name), nil)
				}
			})
		}
	}
	if behind != nil {
		historytest.Meanwhile(&users, func() { behind(rdb) })
	}
	users.Wait()
	r.Calm()
	return r
}

// modelClient returns a client of a real server. It is closed when the test ends.
func modelClient(t *testing.T, addr string, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	opts = append(opts, redlatch.WithLogger(slog.New(slog.DiscardHandler)), redlatch.WithCloseGrace(0),
		redlatch.WithWatchdogTimeout(modelLease), redlatch.WithFairWaitTimeout(modelGood))
	c, err := redlatch.New(rdb, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func TestModelTellsGoodHistoriesFromBadOnes(t *testing.T) {
	type ops = []historytest.Op[event]
	at := func(kind, hold, line string, call, back int64) historytest.Op[event] {
		return historytest.Op[event]{Event: event{kind, "k", hold, line}, Call: call, Back: back}
	}
	for _, tc := range []struct {
		what string
		good bool
		ops  ops
	}{
		{"in order", true, ops{at(queued, "", "own1,own2,", 0, 1), at(grants, "own1", "", 0, 3), at(released, "own1", "", 4, 5), at(grants, "own2", "", 0, 7)}},
		{"out of order", false, ops{at(queued, "", "own1,own2,", 0, 1), at(grants, "own2", "", 0, 3), at(released, "own2", "", 4, 5), at(grants, "own1", "", 0, 7)}},
		{"past the queue", false, ops{at(queued, "", "own1,", 0, 1), at(grants, "own2", "", 2, 3), at(released, "own2", "", 4, 5), at(grants, "own1", "", 0, 7)}},
		{"a queue that turns round", false, ops{at(queued, "", "own1,own2,", 0, 1), at(queued, "", "own2,own1,", 2, 3)}},
		{"two at once", false, ops{at(grants, "own1", "", 0, 1), at(grants, "own2", "", 2, 3)}},
		{"after a lease that may have ended", true, ops{at(grants, "own1", "", 0, 1), at(vanishes, "own1", "", 2, historytest.Forever), at(grants, "own2", "", 3, 4)}},
		{"before it", false, ops{at(grants, "own1", "", 0, 1), at(vanishes, "own1", "", 5, historytest.Forever), at(grants, "own2", "", 3, 4)}},
	} {
		require.Equal(t, tc.good, leasedFairLock.Explains(tc.ops), tc.what)
	}
}
