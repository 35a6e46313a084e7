package rrwlock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rrwlock"
)

// event is something that the model lets happen to one lock at one moment between the call and the return.
type event struct {
	kind  string
	key   string
	hold  int // which hold; 0 for none
	party int // whose: holds that descend from one another are of one party
}

// The kinds of event.
const (
	writes   = "writes"   // granted: no other party held the lock, and the own one did not only read
	reads    = "reads"    // granted: no other party wrote
	released = "released" // the hold was there, and is gone
	refused  = "refused"  // the hold was not there
	vanishes = "vanishes" // the hold is gone, if it was there: an unknown release, or the end of a lease
	busy     = "busy"     // somebody held the lock
)

// holder is a hold in the model.
type holder struct{ hold, party, mode int }

const (
	reading = iota
	writing
)

// holders is the state of one lock in the model: its holds, sorted and printed, so that states can be compared.
type holders string

func (s holders) list() (all []holder) {
	for part := range strings.SplitSeq(string(s), ";") {
		var h holder
		if n, _ := fmt.Sscanf(part, "%d.%d.%d", &h.hold, &h.party, &h.mode); n == 3 {
			all = append(all, h)
		}
	}
	return all
}

func (s holders) with(h holder) holders {
	all := append(s.list(), h)
	slices.SortFunc(all, func(a, b holder) int { return cmp.Compare(a.hold, b.hold) })
	return printed(all)
}

func (s holders) without(hold int) holders {
	return printed(slices.DeleteFunc(s.list(), func(h holder) bool { return h.hold == hold }))
}

func printed(all []holder) holders {
	var b strings.Builder
	for _, h := range all {
		fmt.Fprintf(&b, "%d.%d.%d;", h.hold, h.party, h.mode)
	}
	return holders(b.String())
}

func (e event) Object() string { return e.key }

// leasedReadWriteLock is a read-write lock whose holds may end by themselves, but not before their deadlines.
var leasedReadWriteLock historytest.Model[holders, event] = step

func step(s holders, e event) (bool, holders) {
	there, others, otherWriter, own, ownWriter := false, false, false, false, false
	for _, h := range s.list() {
		there = there || h.hold == e.hold
		others = others || h.party != e.party
		otherWriter = otherWriter || h.party != e.party && h.mode == writing
		own = own || h.party == e.party
		ownWriter = ownWriter || h.party == e.party && h.mode == writing
	}
	switch e.kind {
	case writes:
		return !others && own == ownWriter, s.with(holder{e.hold, e.party, writing})
	case reads:
		return !otherWriter, s.with(holder{e.hold, e.party, reading})
	case released:
		return there, s.without(e.hold)
	case refused:
		return !there, s
	case vanishes:
		return true, s.without(e.hold)
	case busy:
		return s != "", s
	}
	return false, s
}

// record is what happened to some locks, as their users saw it.
type record struct {
	*historytest.History[event]
	strict bool // a lock that is said to be taken is a hold of the history: none that comes after its lease is given back
	holds  atomic.Int64
}

func newRecord(strict bool) *record {
	return &record{History: historytest.New[event](), strict: strict}
}

// taken is a hold of the history.
type taken struct {
	*rlock.Hold
	event
	short bool // a level beside it ends soon: when it is unlocked, so does the whole
}

// take makes an acquiring call; under is the hold in whose context it is made. An outcome that is not known leaves nobody who
// believes to hold the lock.
func (r *record) take(l *rrwlock.Lock, kind string, under *taken, try func() (*rlock.Hold, error)) *taken {
	e := event{kind: kind, key: l.Name(), hold: int(r.holds.Add(1))}
	e.party = e.hold
	if under != nil {
		e.party = under.party
	}
	call := r.Now()
	hold, err := try()
	switch {
	case err == nil:
		r.Add(e, call, r.Now())
		return &taken{Hold: hold, event: e}
	case errors.Is(err, rlock.ErrNotAcquired) && r.strict && kind == writes:
		r.Add(event{kind: busy, key: e.key, party: e.party}, call, r.Now())
	}
	return nil
}

// unlock ends a hold. Until its deadline it cannot have ended otherwise.
func (r *record) unlock(ctx context.Context, t *taken) {
	if t == nil {
		return
	}
	end, call, back := r.Unlock(ctx, t.Hold)
	e := t.event
	switch {
	case end == historytest.Released:
		e.kind = released
	case end == historytest.Refused && !t.short:
		e.kind = refused
	default:
		e.kind, back = vanishes, historytest.Forever
	}
	r.Add(e, call, back)
}

// crash forgets a hold whose client is gone: it ends by itself, not before its deadline.
func (r *record) crash(t *taken) {
	e := t.event
	e.kind = vanishes
	r.Add(e, r.Deadline(t.Hold), historytest.Forever)
}

// check fails the test unless one order of the events explains them all.
func (r *record) check(t *testing.T) {
	t.Helper()
	historytest.Check(t, leasedReadWriteLock, r.counted(t))
}

// counted returns the history, and requires that enough has happened.
func (r *record) counted(t *testing.T) []historytest.Op[event] {
	t.Helper()
	ops, count := r.ops(), map[string]int{}
	for e := range r.Events() {
		count[e.kind]++
	}
	t.Log(count)
	assert.Greater(t, min(count[reads], count[writes]), len(ops)/20, "holds of both kinds")
	return ops
}

// ops returns the history, with what a step of the server's clock excuses.
func (r *record) ops() []historytest.Op[event] {
	return r.Excused(func(e event) (gone []event, begins bool) {
		return []event{{vanishes, e.key, e.hold, e.party}}, e.kind == reads || e.kind == writes
	})
}

const modelLease = 300 * time.Millisecond

// F12
func TestHistoryIsLinearizable(t *testing.T) {
	r := newRecord(true)
	r.play(t, faulttest.Rounds(t, 40, 200), nil, nil)
	r.check(t)
}

// F12
func TestHistoryUnderFaultsIsLinearizable(t *testing.T) {
	redistest.Long(t)
	for round := range faulttest.Rounds(t, 1, 35) { // of some 350 steps each
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			r := newRecord(false)
			r.play(t, 40, (*faulttest.Proxy).Disturb, nil)
			r.check(t)
		})
	}
}

// A step ahead of the server's clock may end each lease that it meets, as docs/guarantees.md says: from then on such a hold may be
// gone, before its holder knows. That apart the model is as ever.
//
// F18
func TestHistoryWhileTheClockStepsIsLinearizable(t *testing.T) {
	for range faulttest.Rounds(t, 1, 5) {
		historytest.CheckDecided(t, leasedReadWriteLock, func() []historytest.Op[event] {
			r := newRecord(false)
			r.Steps = historytest.WideSteps
			r.play(t, 15, (*faulttest.Proxy).Disturb, nil)
			return r.counted(t)
		})
	}
}

func TestHistoryOfABrokenLockIsRefuted(t *testing.T) {
	redistest.Long(t)
	for _, mode := range []string{"read", "write"} {
		for how, harm := range historytest.Harms() {
			t.Run("a lock taken from who can "+mode+how, func(t *testing.T) {
				historytest.RefutedSoon(t, func() bool {
					r := newRecord(harm == nil)
					r.play(t, 20, harm, func(rdb *redis.Client) {
						assert.NoError(t, takeAway.Run(t.Context(), rdb, []string{"n0"}, mode).Err())
					})
					return leasedReadWriteLock.RefutesUnsaid(r.ops(), func(e event) (event, bool) {
						return event{vanishes, e.key, e.hold, e.party}, e.kind == refused
					})
				})
			})
		}
	}
}

// takeAway deletes a lock that is held in a mode.
var takeAway = redis.NewScript(`return redis.call('hget', KEYS[1], 'mode') == ARGV[1] and redis.call('del', KEYS[1]) or 0`)

// play has goroutines of three clients use a few locks at random, and does something behind their backs.
func (r *record) play(t *testing.T, steps int, harm func(*faulttest.Proxy), behind func(rdb *redis.Client)) {
	t.Helper()
	server := r.Serve(t)
	rdb := server.Client(t)
	length := modelLease
	if r.strict {
		length = time.Minute
	}
	var users sync.WaitGroup
	for range 3 {
		proxy := faulttest.NewProxy(t, server.Addr())
		client := clientAt(t, proxy.Addr(), redlatch.WithWatchdogTimeout(length))
		if harm != nil {
			harm(proxy)
		}
		for range 3 {
			users.Go(func() {
				for range steps {
					name := fmt.Sprint("n", rand.N(3))
					if rand.N(40) == 0 && !r.strict {
						doomed := clientAt(t, proxy.Addr(), redlatch.WithWatchdogTimeout(modelLease/3), redlatch.WithAbandonOnClose())
						r.die(t.Context(), doomed, doomed.GetReadWriteLock(name))
						continue
					}
					r.use(t.Context(), client.GetReadWriteLock(name))
				}
			})
		}
	}
	if behind != nil {
		historytest.Meanwhile(&users, func() { behind(rdb) })
	}
	users.Wait()
	r.Calm()
}

// die takes a lock and never releases it.
func (r *record) die(ctx context.Context, c *redlatch.Client, l *rrwlock.Lock) {
	wait := rlock.WithWait(modelLease)
	kind, side := writes, rlock.Locker(l)
	if rand.N(2) == 0 {
		kind, side = reads, l.RLocker()
	}
	hold := r.take(l, kind, nil, func() (*rlock.Hold, error) { return side.Lock(ctx, wait) })
	_ = c.Close() // what it says of a broken connection is not of interest
	if hold != nil {
		r.crash(hold)
	}
}

// use does one thing with a lock, and releases it if it has it then.
func (r *record) use(ctx context.Context, l *rrwlock.Lock) {
	wait := ctx
	if !r.strict { // a call that is given up leaves an unknown outcome
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, modelLease)
		defer cancel()
	}
	ctx = context.WithoutCancel(ctx)
	dice := rand.N(100)
	var opts []rlock.Option
	if dice%10 == 0 && !r.strict {
		opts = append(opts, rlock.WithFixedLease(10*time.Millisecond+rand.N(10*time.Millisecond)))
	}
	kind, side := writes, rlock.Locker(l)
	if dice < 55 {
		kind, side = reads, l.RLocker()
	}
	lock := side.Lock
	if rand.N(4) == 0 {
		lock = side.TryLock
	}
	outer := r.take(l, kind, nil, func() (*rlock.Hold, error) { return lock(wait, opts...) })
	if outer == nil {
		return
	}
	var inner *taken
	switch rand.N(3) {
	case 0: // re-enter
		inner = r.take(l, kind, outer, func() (*rlock.Hold, error) { return side.Lock(outer.Context()) })
	case 1:
		if kind == reads {
			_, err := l.Lock(outer.Context())
			if !errors.Is(err, rrwlock.ErrUpgrade) && outer.Context().Err() == nil {
				panic(err)
			}
			break
		}
		inner = r.take(l, reads, outer, func() (*rlock.Hold, error) { return l.RLock(outer.Context(), opts...) })
	}
	if inner != nil {
		inner.short = len(opts) > 0
	}
	linger(outer, dice)
	if rand.N(3) == 0 {
		outer, inner = inner, outer
	}
	r.unlock(ctx, outer)
	linger(inner, dice)
	r.unlock(ctx, inner)
}

// linger keeps a hold for a while: some until they are lost, some until they were renewed, most for no time at all.
func linger(t *taken, dice int) {
	if t == nil {
		return
	}
	length := time.Duration(0)
	switch {
	case dice%10 == 0: // of a short lease
		length = 30 * time.Millisecond
	case dice == 1:
		length = modelLease / 2
	case dice < 60:
		length = rand.N(time.Millisecond)
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-t.Context().Done():
	case <-timer.C:
	}
}

func TestModelTellsGoodHistoriesFromBadOnes(t *testing.T) {
	type ops = []historytest.Op[event]
	at := func(kind string, hold, party int, call, back int64) historytest.Op[event] {
		return historytest.Op[event]{Event: event{kind, "k", hold, party}, Call: call, Back: back}
	}
	for _, tc := range []struct {
		what string
		good bool
		ops  ops
	}{
		{"two readers", true, ops{at(reads, 1, 1, 0, 1), at(reads, 2, 2, 2, 3), at(released, 1, 1, 4, 5), at(released, 2, 2, 6, 7)}},
		{"two writers", false, ops{at(writes, 1, 1, 0, 1), at(writes, 2, 2, 2, 3), at(released, 1, 1, 4, 5)}},
		{"a writer beside a reader", false, ops{at(reads, 1, 1, 0, 1), at(writes, 2, 2, 2, 3)}},
		{"a reader beside a writer", false, ops{at(writes, 1, 1, 0, 1), at(reads, 2, 2, 2, 3)}},
		{"a writer after a lease that may have ended", true, ops{at(reads, 1, 1, 0, 1), at(vanishes, 1, 1, 2, historytest.Forever), at(writes, 2, 2, 5, 6)}},
		{"a writer before it", false, ops{at(reads, 1, 1, 0, 1), at(vanishes, 1, 1, 4, historytest.Forever), at(writes, 2, 2, 2, 3)}},
		{"a downgrade", true, ops{at(writes, 1, 1, 0, 1), at(reads, 2, 1, 2, 3), at(released, 1, 1, 4, 9), at(reads, 3, 3, 5, 6)}},
		{"a writer beside the downgraded one", false, ops{at(writes, 1, 1, 0, 1), at(reads, 2, 1, 2, 3), at(released, 1, 1, 4, 5), at(writes, 3, 3, 6, 7)}},
		{"an upgrade", false, ops{at(reads, 1, 1, 0, 1), at(writes, 2, 1, 2, 3)}},
		{"busy without a holder", false, ops{at(busy, 0, 0, 0, 1)}},
	} {
		require.Equal(t, tc.good, leasedReadWriteLock.Explains(tc.ops), tc.what)
	}
}
