package rlock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/historytest"
	"github.com/redlatch/redlatch/rlock"
)

// event is something that the model lets happen to one lock at one moment between the call and the return.
type event struct {
	kind  eventKind
	key   string
	hold  int   // which hold; 0 for none
	token int64 // of a granted hold; 0 if it has none
}

type eventKind string

const (
	granted  eventKind = "granted"  // the lock was free, and is the hold's
	released eventKind = "released" // the lock was the hold's, and is free
	refused  eventKind = "refused"  // the lock was not the hold's
	vanishes eventKind = "vanishes" // the lock is free if it was the hold's: an unknown release, or the end of a lease
	free     eventKind = "free"     // the lock was free
	busy     eventKind = "busy"     // the lock was not free
)

// mutex is the state of one lock in the model.
type mutex struct {
	holder int   // 0 while it is free
	token  int64 // the highest that was given out
}

func (e event) Object() string { return e.key }

// leasedMutex is a lock whose holds may end by themselves, but not before their deadlines.
var leasedMutex historytest.Model[mutex, event] = step

func step(m mutex, e event) (bool, mutex) {
	switch e.kind {
	case granted:
		ok := m.holder == 0 && (e.token == 0 || e.token > m.token)
		return ok, mutex{holder: e.hold, token: max(m.token, e.token)}
	case released:
		return m.holder == e.hold, mutex{token: m.token}
	case refused:
		return m.holder != e.hold, m
	case vanishes:
		if m.holder == e.hold {
			m.holder = 0
		}
		return true, m
	case free:
		return m.holder == 0, m
	case busy:
		return m.holder != 0, m
	}
	return false, m
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

// acquire makes an acquiring call. An outcome that is not known leaves nobody who believes to hold the lock.
func (r *record) acquire(key string, try func() (*rlock.Hold, error)) (hold *rlock.Hold, id int) {
	call := r.Now()
	hold, err := try()
	switch {
	case err == nil:
		id = int(r.holds.Add(1))
		r.Add(event{granted, key, id, hold.Token()}, call, r.Now())
	case errors.Is(err, rlock.ErrNotAcquired) && r.strict:
		r.Add(event{kind: busy, key: key}, call, r.Now())
	}
	return hold, id
}

func (r *record) look(ctx context.Context, l *rlock.Lock) {
	call := r.Now()
	locked, err := l.IsLocked(ctx)
	switch {
	case err != nil:
	case !locked:
		r.Add(event{kind: free, key: l.Name()}, call, r.Now())
	case r.strict:
		r.Add(event{kind: busy, key: l.Name()}, call, r.Now())
	}
}

// unlock ends a hold. Until its deadline it cannot have ended otherwise.
func (r *record) unlock(ctx context.Context, key string, hold *rlock.Hold, id int) {
	end, call, back := r.Unlock(ctx, hold)
	kind := map[historytest.Ending]eventKind{historytest.Released: released, historytest.Refused: refused, historytest.Vanishes: vanishes}[end]
	r.Add(event{kind: kind, key: key, hold: id}, call, back)
}

// check fails the test unless one order of the events explains them all.
func (r *record) check(t *testing.T) {
	t.Helper()
	ops, count := r.Ops(), map[eventKind]int{}
	for e := range r.Events() {
		count[e.kind]++
	}
	t.Log(count)
	assert.Greater(t, count[granted], len(ops)/5, "holds")
	assert.Greater(t, count[released], count[granted]/2, "most ends are known to be releases")
	historytest.Check(t, leasedMutex, ops)
}

func TestHistoryIsLinearizable(t *testing.T) {
	r := newRecord(true)
	r.play(t, nil)
	r.check(t)
}

func TestHistoryUnderFaultsIsLinearizable(t *testing.T) {
	for range faulttest.Rounds(t, 2, 200) {
		r := newRecord(false)
		r.play(t, (*faulttest.Proxy).Disturb)
		r.check(t)
	}
}

// play has goroutines of several clients use a few locks at random.
func (r *record) play(t *testing.T, harm func(*faulttest.Proxy)) {
	t.Helper()
	server := serve(t)
	length := shortLease / 2
	if r.strict {
		length = time.Minute
	}
	var users sync.WaitGroup
	for range 3 {
		proxy := faulttest.NewProxy(t, server.Addr())
		client := clientAt(t, proxy.Addr(), redlatch.WithWatchdogTimeout(length), redlatch.WithCloseGrace(0))
		locks := []*rlock.Lock{
			client.GetLock("plain 1"), client.GetLock("plain 2"),
			client.GetFencedLock("fenced 1"), client.GetFencedLock("fenced 2"),
		}
		if harm != nil {
			harm(proxy)
		}
		for range 3 {
			users.Go(func() {
				for range 80 {
					r.use(t.Context(), locks[rand.N(len(locks))])
				}
			})
		}
	}
	users.Wait()
}

// use does one thing with a lock, and releases it if it has it then.
func (r *record) use(ctx context.Context, l *rlock.Lock) {
	wait := ctx
	if !r.strict { // a call that is given up leaves an unknown outcome
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, shortLease)
		defer cancel()
	}
	var opts []rlock.Option
	dice := rand.N(100)
	if dice < 10 && !r.strict {
		opts = append(opts, rlock.WithLease(10*time.Millisecond+rand.N(10*time.Millisecond)))
	}
	var hold *rlock.Hold
	var id int
	switch {
	case dice < 60:
		hold, id = r.acquire(l.Name(), func() (*rlock.Hold, error) { return l.Lock(wait, opts...) })
	case dice < 80:
		hold, id = r.acquire(l.Name(), func() (*rlock.Hold, error) { return l.TryLock(wait) })
	default:
		r.look(wait, l)
	}
	if hold == nil {
		return
	}
	r.work(hold, dice)
	r.unlock(ctx, l.Name(), hold, id)
}

// work keeps a hold for a while: some until they are lost, some until they were renewed, most for no time at all.
func (r *record) work(hold *rlock.Hold, dice int) {
	length := time.Duration(0)
	switch {
	case dice < 5 && !r.strict: // of a short lease
		length = time.Second
	case dice < 6:
		length = shortLease / 3
	case dice < 30:
		length = rand.N(time.Millisecond)
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-hold.Context().Done():
	case <-timer.C:
	}
}

func TestModelTellsGoodHistoriesFromBadOnes(t *testing.T) {
	type ops = []historytest.Op[event]
	at := func(e event, call, back int64) historytest.Op[event] {
		return historytest.Op[event]{Event: e, Call: call, Back: back}
	}
	for _, tc := range []struct {
		what string
		good bool
		ops  ops
	}{
		{"one after the other", true, ops{at(event{granted, "k", 1, 0}, 0, 1), at(event{released, "k", 1, 0}, 2, 3), at(event{granted, "k", 2, 0}, 4, 5)}},
		{"granted while the release is under way", true, ops{at(event{granted, "k", 1, 0}, 0, 1), at(event{released, "k", 1, 0}, 2, 9), at(event{granted, "k", 2, 0}, 4, 5)}},
		{"two at once", false, ops{at(event{granted, "k", 1, 0}, 0, 1), at(event{granted, "k", 2, 0}, 2, 3), at(event{released, "k", 1, 0}, 4, 5)}},
		{"two keys at once", true, ops{at(event{granted, "k", 1, 0}, 0, 1), at(event{granted, "l", 2, 0}, 2, 3)}},
		{"granted after an unknown release", true, ops{at(event{granted, "k", 1, 0}, 0, 1), at(event{vanishes, "k", 1, 0}, 2, historytest.Forever), at(event{granted, "k", 2, 0}, 9, 10)}},
		{"granted before the deadline", false, ops{at(event{granted, "k", 1, 0}, 0, 1), at(event{granted, "k", 2, 0}, 4, 5), at(event{vanishes, "k", 1, 0}, 6, historytest.Forever)}},
		{"lost before the deadline", false, ops{at(event{granted, "k", 1, 0}, 0, 1), at(event{refused, "k", 1, 0}, 2, 3)}},
		{"free while it is held", false, ops{at(event{granted, "k", 1, 0}, 0, 1), at(event{free, "k", 0, 0}, 2, 3), at(event{released, "k", 1, 0}, 4, 5)}},
		{"busy while nobody holds it", false, ops{at(event{busy, "k", 0, 0}, 0, 1)}},
		{"a token that falls", false, ops{at(event{granted, "k", 1, 7}, 0, 1), at(event{released, "k", 1, 0}, 2, 3), at(event{granted, "k", 2, 7}, 4, 5)}},
	} {
		require.Equal(t, tc.good, leasedMutex.Explains(tc.ops), tc.what)
	}
}
