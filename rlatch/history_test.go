package rlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/historytest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlatch"
)

// latchEvent is an operation on one latch that took effect, or did not, at one moment between the call and the return.
type latchEvent struct {
	Op   latchOp
	Name string
	N    int // a count, or the number of a participant
	Did  outcome
}

type latchOp string

const (
	sets     latchOp = "sets" // the count to n, if there is none
	setsOnce latchOp = "sets once"
	downs    latchOp = "downs"
	onces    latchOp = "onces" // one down, for participant n
	deletes  latchOp = "deletes"
	sees     latchOp = "sees"     // that the count is n
	goesOn   latchOp = "goes on"  // a waiter, since the count was zero
	sawCount latchOp = "is there" // a waiter saw that there is a count
	nothing  latchOp = ""
)

type outcome string

const (
	yes    outcome = "yes"
	no     outcome = "no"
	either outcome = "?" // nobody was told
)

// latchState is the state of one latch in the model.
type latchState struct {
	count  int
	downed uint64 // the participants that have counted down
	stays  stay
}

// stay is whether a latch stays open.
type stay uint8

const (
	never    stay = iota
	onceOpen      // once it has opened
	open
)

func (e latchEvent) Object() string { return e.Name }

// countDown is the model of a latch.
var countDown historytest.Model[latchState, latchEvent] = func(s latchState, e latchEvent) (bool, latchState) {
	after, did := latchStep(s, e)
	switch {
	case e.Did == no:
		return !did, after
	case did:
		return true, after
	}
	return e.Did == either, after
}

func latchStep(s latchState, e latchEvent) (after latchState, did bool) {
	switch e.Op {
	case sets:
		if s.count == 0 {
			return latchState{count: e.N}, true
		}
	case setsOnce:
		if s.count == 0 && s.stays == never {
			return latchState{count: e.N, stays: onceOpen}, true
		}
	case downs:
		return s.down(e.N), true
	case onces:
		if s.count > 0 && s.downed&(1<<e.N) == 0 {
			s.downed |= 1 << e.N
			return s.down(1), true
		}
	case deletes:
		return latchState{}, s.count > 0
	case sees:
		return s, s.count == e.N
	case goesOn:
		return s, s.count == 0
	case sawCount:
		return s, s.count > 0 || s.stays == open
	case nothing:
		return s, true
	}
	return s, false
}

func (s latchState) down(n int) latchState {
	s.count = max(s.count-n, 0)
	if s.count == 0 && s.stays == onceOpen {
		s.stays = open
	}
	return s
}

// latchRecord is what happened to some latches, as their users saw it.
type latchRecord struct {
	*historytest.History[latchEvent]
	await func(ctx context.Context, l *rlatch.Latch) error
}

// do makes a call that may change a latch. Without an answer it may have done so, or may still, unless the error
// denies it.
func (r *latchRecord) do(l *rlatch.Latch, op latchOp, n int, call func() (bool, error)) {
	e := latchEvent{op, l.Name(), n, either}
	begun := r.Now()
	entry := r.Begin(e, begun, historytest.Forever)
	did, err := call()
	switch {
	case errors.Is(err, redlatch.ErrUnknown):
		return
	case err != nil:
		e.Op = nothing
	case op == downs: // it does not tell
	case did:
		e.Did = yes
	default:
		e.Did = no
	}
	r.Settle(entry, e, begun, r.Now())
}

// use does one thing with a latch.
func (r *latchRecord) use(ctx context.Context, l *rlatch.Latch) {
	if rand.N(10) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(5*time.Millisecond))
		defer cancel()
	}
	n, begun := 1+rand.N(8), r.Now()
	switch dice := rand.N(100); {
	case dice < 8:
		r.do(l, setsOnce, n, func() (bool, error) { return l.TrySetCountOnce(ctx, n, 1000*time.Hour) })
	case dice < 25:
		r.do(l, sets, n, func() (bool, error) { return l.TrySetCount(ctx, n) })
	case dice < 43:
		r.do(l, downs, 1, func() (bool, error) { return true, l.CountDown(ctx) })
	case dice < 50:
		r.do(l, downs, n, func() (bool, error) { return true, l.CountDownBy(ctx, n) })
	case dice < 67:
		n = rand.N(4)
		r.do(l, onces, n, func() (bool, error) { return l.CountDownOnce(ctx, fmt.Sprint(n)) })
	case dice < 72:
		r.do(l, deletes, 0, func() (bool, error) { return l.Delete(ctx) })
	case dice < 80:
		if count, err := l.Count(ctx); err == nil {
			r.Add(latchEvent{sees, l.Name(), count, yes}, begun, r.Now())
		}
	default:
		wait, cancel := context.WithTimeout(ctx, rand.N(30*time.Millisecond))
		defer cancel()
		op, call := goesOn, r.await
		if dice < 85 {
			op, call = sawCount, func(ctx context.Context, l *rlatch.Latch) error { return l.AwaitSet(ctx) }
		}
		if call(wait, l) == nil {
			r.Add(latchEvent{Op: op, Name: l.Name(), Did: yes}, begun, r.Now())
		}
	}
}

var latchNames = []string{"a", "b", "c"}

// user uses latches of one client at random, so often.
func (r *latchRecord) user(ctx context.Context, c *redlatch.Client, steps int) {
	for range steps {
		r.use(ctx, c.GetCountDownLatch(latchNames[rand.N(len(latchNames))]))
	}
}

const latchLease = 500 * time.Millisecond // for so long at most a call is repeated

// latchUser uses latches until it is killed. Args: when the history began, the address.
func latchUser(args []string) {
	h, err := historytest.NewIn[latchEvent](args[0], faulttest.Emit)
	if err != nil {
		panic(err)
	}
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[1]}),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)), redlatch.WithWatchdogTimeout(latchLease))
	if err != nil {
		panic(err)
	}
	r := &latchRecord{h, func(ctx context.Context, l *rlatch.Latch) error { return l.Await(ctx) }}
	for range 2 {
		go r.user(context.Background(), c, 1<<30) // until the process is killed
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // nobody writes
}

// play has three clients use latches. With harm, processes use them too, which are killed.
func (r *latchRecord) play(t *testing.T, harm func(*faulttest.Proxy), behind func(rdb *redis.Client)) {
	t.Helper()
	server := r.Serve(t)
	rdb := server.Client(t)
	var users sync.WaitGroup
	var ends []func()
	through := func() *faulttest.Proxy {
		p := faulttest.NewProxy(t, server.Addr())
		if harm != nil {
			harm(p)
		}
		return p
	}
	for range 3 {
		p := through()
		c := clientThrough(t, p.Addr(), redlatch.WithWatchdogTimeout(latchLease), redlatch.WithCloseGrace(0))
		ends = append(ends, func() {
			p.Calm()
			assert.NoError(t, c.Close())
		})
		for range 2 {
			users.Go(func() { r.user(t.Context(), c, 120) })
		}
	}
	if harm != nil {
		users.Go(func() {
			for range 2 {
				child := faulttest.StartChild(t, "latch user", r.Begun(), through().Addr())
				r.Sacrifice(t, child, 200*time.Millisecond, latchLease/2)
			}
		})
	}
	if behind != nil {
		historytest.Meanwhile(&users, func() { behind(rdb) })
	}
	users.Wait()
	r.Calm()
	for _, end := range ends {
		end()
	}
	for _, name := range latchNames {
		begun := r.Now()
		r.Add(latchEvent{sees, name, count(t, rdb, name), yes}, begun, r.Now())
	}
}

func newLatchRecord() *latchRecord {
	return &latchRecord{
		historytest.New[latchEvent](), func(ctx context.Context, l *rlatch.Latch) error { return l.Await(ctx) },
	}
}

// check requires that enough has happened.
func (r *latchRecord) check(t *testing.T) {
	t.Helper()
	seen, all := map[string]int{}, 0
	for e := range r.Events() {
		seen[fmt.Sprintf("%s: %s", e.Op, e.Did)]++
		all++
	}
	t.Log(all, seen)
	for _, often := range []string{
		"sets once: yes", "sets once: no", "sets: yes", "sets: no", "downs: ?", "onces: yes", "onces: no", "deletes: yes", "goes on: yes", "is there: yes",
	} {
		assert.NotZero(t, seen[often], often)
	}
}

// F2, F4
func TestLatchHistoryUnderFaultsIsLinearizable(t *testing.T) {
	for range faulttest.Rounds(t, 1, 20) {
		r := newLatchRecord()
		r.play(t, (*faulttest.Proxy).Disturb, nil)
		r.check(t)
		historytest.Check(t, countDown, r.Ops())
	}
}

// Nothing of a latch has a time. Redis keeps the records of repeated calls for an hour, so that steps of less than that change
// nothing at all.
//
// F2, F18
func TestLatchHistoryWhileTheClockStepsIsLinearizable(t *testing.T) {
	for range faulttest.Rounds(t, 1, 6) {
		r := newLatchRecord()
		r.Steps = historytest.WideSteps
		r.play(t, (*faulttest.Proxy).Disturb, nil)
		r.check(t)
		historytest.Check(t, countDown, r.Ops())
	}
}

// F22
func TestLatchHistoryIsLinearizable(t *testing.T) {
	r := newLatchRecord()
	r.play(t, nil, nil)
	r.check(t)
	historytest.Check(t, countDown, r.Ops())
}

func TestHistoryOfABrokenLatchIsRefuted(t *testing.T) {
	redistest.Long(t)
	for what, behind := range map[string]func(rdb *redis.Client) error{
		"a count changed":       func(rdb *redis.Client) error { return rdb.SetXX(t.Context(), "a", 4, 0).Err() },
		"a count counted twice": func(rdb *redis.Client) error { return countTwice.Run(t.Context(), rdb, []string{"a"}).Err() },
		"a count deleted":       func(rdb *redis.Client) error { return rdb.Del(t.Context(), "a").Err() },
		"the participants erased": func(rdb *redis.Client) error {
			return rdb.Del(t.Context(), "redlatch_latch_once:{a}").Err()
		},
	} {
		for how, harm := range historytest.Harms() {
			t.Run(what+how, func(t *testing.T) {
				historytest.RefutedSoon(t, func() bool {
					r := newLatchRecord()
					r.play(t, harm, func(rdb *redis.Client) {
						if err := behind(rdb); !errors.Is(err, redis.Nil) {
							assert.NoError(t, err)
						}
					})
					return countDown.Refutes(r.Ops())
				})
			})
		}
	}
	t.Run("a wait that ends at once", func(t *testing.T) {
		historytest.RefutedSoon(t, func() bool {
			r := newLatchRecord()
			r.await = func(context.Context, *rlatch.Latch) error { return nil }
			r.play(t, nil, nil)
			return countDown.Refutes(r.Ops())
		})
	})
}

// countTwice counts a latch down that has more than one to go.
var countTwice = redis.NewScript(`return tonumber(redis.call('get', KEYS[1]) or 0) > 1 and redis.call('decr', KEYS[1]) or 0`)

func TestLatchModelTellsGoodHistoriesFromBadOnes(t *testing.T) {
	type ops = []historytest.Op[latchEvent]
	at := func(op latchOp, n int, did outcome, call, back int64) historytest.Op[latchEvent] {
		return historytest.Op[latchEvent]{Event: latchEvent{op, "k", n, did}, Call: call, Back: back}
	}
	const forever = historytest.Forever
	for _, tc := range []struct {
		what string
		good bool
		ops  ops
	}{
		{"down to zero", true, ops{
			at(sets, 2, yes, 0, 1), at(downs, 2, either, 2, 3), at(goesOn, 0, yes, 0, 9), at(sets, 1, yes, 4, 5),
		}},
		{"set while it is", false, ops{at(sets, 2, yes, 0, 1), at(sets, 2, yes, 2, 3)}},
		{"not set while it is not", false, ops{at(sets, 2, no, 0, 1)}},
		{"counted twice", false, ops{at(sets, 2, yes, 0, 1), at(downs, 1, either, 2, 3), at(sees, 0, yes, 4, 5)}},
		{"an unknown count that came", true, ops{
			at(sets, 1, yes, 0, 1), at(downs, 1, either, 2, forever), at(sees, 0, yes, 4, 5),
		}},
		{"one that did not", true, ops{
			at(sets, 1, yes, 0, 1), at(downs, 1, either, 2, forever), at(sees, 1, yes, 4, 5),
		}},
		{"one that came twice", false, ops{
			at(sets, 2, yes, 0, 1), at(downs, 1, either, 2, forever), at(sees, 0, yes, 4, 5),
		}},
		{"one that was undone", false, ops{
			at(sets, 1, yes, 0, 1), at(downs, 1, either, 2, forever), at(sees, 0, yes, 4, 5), at(sees, 1, yes, 6, 7),
		}},
		{"a participant twice", false, ops{at(sets, 5, yes, 0, 1), at(onces, 1, yes, 2, 3), at(onces, 1, yes, 4, 5)}},
		{"a participant after another use", true, ops{
			at(sets, 1, yes, 0, 1), at(onces, 1, yes, 2, 3), at(sets, 1, yes, 4, 5), at(onces, 1, yes, 6, 7),
		}},
		{"open again", false, ops{at(setsOnce, 1, yes, 0, 1), at(downs, 1, either, 2, 3), at(setsOnce, 1, yes, 4, 5)}},
		{"not open again", false, ops{at(setsOnce, 1, yes, 0, 1), at(downs, 1, either, 2, 3), at(sets, 1, no, 4, 5)}},
		{"open until it is deleted", true, ops{
			at(setsOnce, 1, yes, 0, 1), at(downs, 1, either, 2, 3), at(setsOnce, 1, no, 4, 5), at(sawCount, 0, yes, 4, 5),
			at(deletes, 0, no, 6, 7), at(setsOnce, 2, yes, 8, 9), at(sees, 2, yes, 10, 11),
		}},
		{"a wait that ends early", false, ops{
			at(sets, 1, yes, 0, 1), at(goesOn, 0, yes, 2, 3), at(downs, 1, either, 4, 5),
		}},
	} {
		require.Equal(t, tc.good, countDown.Explains(tc.ops), tc.what)
		require.Equal(t, !tc.good, countDown.Refutes(tc.ops), tc.what)
	}
}
