package rsemaphore_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/historytest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// permitEvent is something that happens to one semaphore at one moment between the call and the return.
type permitEvent struct {
	kind permitEventKind
	name string
	n    int
}

type permitEventKind string

const (
	permitsSet     permitEventKind = "set"     // so many were given, and there were none
	permitsTaken   permitEventKind = "taken"   // so many were there, and are taken
	permitsRefused permitEventKind = "refused" // fewer were there
	permitsBack    permitEventKind = "back"    // so many more are there
	permitsDrained permitEventKind = "drained" // so many were taken, and none is left
	permitsAtLeast permitEventKind = "at least"
	permitsSeen    permitEventKind = "seen" // exactly so many were there
)

func (e permitEvent) Object() string { return e.name }

// countedPermits is a semaphore. A call that gives up may borrow permits for a moment, which only makes others find
// fewer: a history with such calls says "at least" of what was drained or seen.
var countedPermits historytest.Model[int, permitEvent] = permitStep

func permitStep(there int, e permitEvent) (bool, int) {
	switch e.kind {
	case permitsSet:
		return there == 0, e.n
	case permitsTaken:
		return there >= e.n, there - e.n
	case permitsRefused:
		return there < e.n, there
	case permitsBack:
		return true, there + e.n
	case permitsDrained:
		return there == e.n, 0
	case permitsAtLeast:
		return there >= e.n, there
	case permitsSeen:
		return there == e.n, there
	}
	return false, there
}

// permitRecord is what happened to some semaphores, as their users saw it.
type permitRecord struct {
	*historytest.History[permitEvent]
	strict bool // no call gives up or waits: what was refused was not there
}

func newPermitRecord(strict bool) *permitRecord {
	return &permitRecord{History: historytest.New[permitEvent](), strict: strict}
}

// acquire takes permits and reports whether it did.
func (r *permitRecord) acquire(ctx context.Context, s *rsemaphore.Semaphore, n int) bool {
	call := r.Now()
	var ok bool
	var err error
	switch dice := rand.N(10); {
	case r.strict || dice < 4:
		ok, err = s.TryAcquire(ctx, n)
	case dice < 7:
		ok, err = s.TryAcquire(ctx, n, rsemaphore.WithWait(rand.N(20*time.Millisecond)))
	default:
		limited, cancel := context.WithTimeout(ctx, rand.N(20*time.Millisecond))
		defer cancel()
		err = s.Acquire(limited, n)
		ok = err == nil
	}
	switch {
	case ok:
		r.Add(permitEvent{permitsTaken, s.Name(), n}, call, r.Now())
	case err == nil && r.strict:
		r.Add(permitEvent{permitsRefused, s.Name(), n}, call, r.Now())
	}
	return ok
}

// release gives permits back, at the latest in the background.
func (r *permitRecord) release(ctx context.Context, s *rsemaphore.Semaphore, n int) {
	if !r.strict && rand.N(4) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Millisecond+rand.N(5*time.Millisecond))
		defer cancel()
	}
	call, back := r.Now(), int64(historytest.Forever) // in the background
	err := s.Release(ctx, n)
	if err == nil {
		back = r.Now()
	}
	r.Add(permitEvent{permitsBack, s.Name(), n}, call, back)
}

// use does one thing with a semaphore, and releases what it has then.
func (r *permitRecord) use(t *testing.T, s *rsemaphore.Semaphore) {
	ctx, call := t.Context(), r.Now()
	switch dice := rand.N(100); {
	case dice < 75:
		if n := 1 + rand.N(4); r.acquire(ctx, s, n) {
			r.release(ctx, s, n)
		}
	case dice < 85:
		n := 1 + rand.N(2)
		if assert.NoError(t, s.AddPermits(ctx, n)) {
			r.Add(permitEvent{permitsBack, s.Name(), n}, call, r.Now())
		}
	case dice < 90:
		n, err := s.Drain(ctx)
		switch {
		case !assert.NoError(t, err) || n == 0 && !r.strict:
		case r.strict:
			r.Add(permitEvent{permitsDrained, s.Name(), n}, call, r.Now())
		default:
			r.Add(permitEvent{permitsTaken, s.Name(), n}, call, r.Now())
		}
	default:
		n, err := s.Available(ctx)
		kind := permitsAtLeast
		if r.strict {
			kind = permitsSeen
		}
		if assert.NoError(t, err) {
			r.Add(permitEvent{kind, s.Name(), n}, call, r.Now())
		}
	}
}

// settled returns the history with what is left in the end. All clients have closed: nothing comes back after that.
func (r *permitRecord) settled(see func(name string) int, names ...string) []historytest.Op[permitEvent] {
	end, ops := r.Now(), r.Ops()
	for i := range ops {
		ops[i].Back = min(ops[i].Back, end)
	}
	for _, name := range names {
		seen := permitEvent{permitsSeen, name, see(name)}
		ops = append(ops, historytest.Op[permitEvent]{Event: seen, Call: end + 1, Back: end + 2})
	}
	return ops
}

// checkPermits fails the test unless one order of the events explains them all.
func checkPermits(t *testing.T, ops []historytest.Op[permitEvent]) {
	t.Helper()
	count := map[permitEventKind]int{}
	for _, op := range ops {
		count[op.Event.kind]++
	}
	t.Log(count)
	assert.Greater(t, count[permitsTaken], len(ops)/10, "permits were taken")
	historytest.Check(t, countedPermits, ops)
}

func TestHistoryOfABrokenSemaphoreIsRefuted(t *testing.T) {
	redistest.Long(t)
	for what, tc := range map[string]struct {
		strict bool
		n      int64
		harm   func(*faulttest.Proxy)
	}{
		"a permit too many, whatever is seen": {true, 1, nil},
		"a permit too many, under waits":      {false, 1, nil},
		"a permit too many, under faults":     {false, 1, (*faulttest.Proxy).Disturb},
		"a permit too few":                    {true, -1, nil},
		"a permit lost, under waits":          {false, -1, nil},
		"a permit lost, under faults":         {false, -1, (*faulttest.Proxy).Disturb},
	} {
		t.Run(what, func(t *testing.T) {
			historytest.RefutedSoon(t, func() bool {
				var once sync.Once
				return countedPermits.Refutes(newPermitRecord(tc.strict).play(t, tc.harm, func(rdb *redis.Client) {
					once.Do(func() { assert.NoError(t, rdb.IncrBy(t.Context(), "a", tc.n).Err()) })
				}))
			})
		})
	}
}

// play has goroutines of several clients use a few semaphores at random, does something behind their backs, and returns what
// happened.
func (r *permitRecord) play(t *testing.T, harm func(*faulttest.Proxy), behind func(rdb *redis.Client)) []historytest.Op[permitEvent] {
	t.Helper()
	server := r.Serve(t)
	rdb := server.Client(t)
	names := []string{"a", "b"}
	direct := clientThrough(t, server.Addr())
	for _, name := range names {
		call := r.Now()
		give(t, direct.GetSemaphore(name), 4)
		r.Add(permitEvent{permitsSet, name, 4}, call, r.Now())
	}
	var users sync.WaitGroup
	var ends []func()
	for range 3 {
		proxy := faulttest.NewProxy(t, server.Addr())
		client := clientThrough(t, proxy.Addr())
		if harm != nil {
			harm(proxy)
		}
		ends = append(ends, func() { // Close gives back what callers that gave up have got
			proxy.Calm()
			assert.NoError(t, client.Close())
		})
		for range 3 {
			users.Go(func() {
				for range 50 {
					r.use(t, client.GetSemaphore(names[rand.N(len(names))]))
				}
			})
		}
	}
	if behind != nil {
		historytest.Meanwhile(&users, func() { behind(rdb) })
	}
	users.Wait()
	r.Calm()
	for _, end := range ends {
		end()
	}
	return r.settled(func(name string) int { return counter(t, rdb, name) }, names...)
}

// F13
func TestSemaphoreHistoryIsLinearizable(t *testing.T) {
	for range faulttest.Rounds(t, 1, 15) {
		checkPermits(t, newPermitRecord(true).play(t, nil, nil))
	}
}

// F2, F13
func TestSemaphoreHistoryUnderFaultsIsLinearizable(t *testing.T) {
	redistest.Long(t)
	for range faulttest.Rounds(t, 2, 15) {
		checkPermits(t, newPermitRecord(false).play(t, (*faulttest.Proxy).Disturb, nil))
	}
}

// Permits of a semaphore that counts have no time. Redis keeps the records of repeated calls for an hour, so that steps of less than
// that change nothing at all.
//
// F2, F18
func TestSemaphoreHistoryWhileTheClockStepsIsLinearizable(t *testing.T) {
	for range faulttest.Rounds(t, 1, 5) {
		r := newPermitRecord(false)
		r.Steps = historytest.WideSteps
		checkPermits(t, r.play(t, (*faulttest.Proxy).Disturb, nil))
	}
}

func TestSemaphoreModelRefusesWhatCannotBe(t *testing.T) {
	type ops = []historytest.Op[permitEvent]
	at := func(kind permitEventKind, n int, call, back int64) historytest.Op[permitEvent] {
		return historytest.Op[permitEvent]{Event: permitEvent{kind, "s", n}, Call: call, Back: back}
	}
	for _, c := range []struct {
		name string
		ok   bool
		ops  ops
	}{
		{"all are taken", true, ops{at(permitsSet, 2, 0, 1), at(permitsTaken, 2, 2, 3), at(permitsRefused, 1, 4, 5)}},
		{"one too many", false, ops{at(permitsSet, 2, 0, 1), at(permitsTaken, 2, 2, 3), at(permitsTaken, 1, 4, 5), at(permitsBack, 1, 6, 7)}},
		{"one that comes back meanwhile", true, ops{at(permitsSet, 1, 0, 1), at(permitsTaken, 1, 2, 3), at(permitsBack, 1, 4, 9), at(permitsTaken, 1, 5, 6)}},
		{"a release that counts twice", false, ops{at(permitsSet, 2, 0, 1), at(permitsTaken, 1, 2, 3), at(permitsBack, 1, 4, 5), at(permitsSeen, 3, 6, 7)}},
		{"a refusal without a reason", false, ops{at(permitsSet, 2, 0, 1), at(permitsRefused, 2, 2, 3)}},
	} {
		require.Equal(t, c.ok, countedPermits.Explains(c.ops), c.name)
	}
}
