package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
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
	"github.com/redlatch/redlatch/rsemaphore"
)

// leaseEvent is something that happens to the permits of one semaphore at one moment between the call and the return.
type leaseEvent struct {
	Kind leaseKind
	Name string
	IDs  string // the permits that it is about, each followed by a comma
	N    int
}

type leaseKind string

const (
	leaseTaken    leaseKind = "taken"    // so many were there, and are out
	leaseRefused  leaseKind = "refused"  // fewer than n were there
	leaseReleased leaseKind = "released" // it was out, and is back
	leaseNotHeld  leaseKind = "not held" // it was not out
	leaseVanishes leaseKind = "vanishes" // it was out, and is back: by an unknown release, or at the end of the lease
	leaseAtMost   leaseKind = "at most"  // no more than n were there
	leaseExactly  leaseKind = "exactly"
)

const leasedTotal = 4 // permits of a semaphore

func (e leaseEvent) Object() string { return e.Name }

// leasedPermits is the model of a semaphore whose permits come back by themselves, but not before their leases end.
// Its state is who has a permit, sorted. A try that was given up takes permits for a while, which only makes others
// find fewer: a history with such tries says "at most".
var leasedPermits historytest.Model[string, leaseEvent] = func(out string, e leaseEvent) (bool, string) {
	there := leasedTotal - strings.Count(out, ",")
	switch e.Kind {
	case leaseTaken:
		all := strings.SplitAfter(out+e.IDs, ",")
		slices.Sort(all)
		return there >= strings.Count(e.IDs, ","), strings.Join(all, "")
	case leaseRefused:
		return there < e.N, out
	case leaseReleased, leaseVanishes:
		return isOut(out, e.IDs), withoutLease(out, e.IDs)
	case leaseNotHeld:
		return !isOut(out, e.IDs), out
	case leaseAtMost:
		return e.N <= there, out
	case leaseExactly:
		return e.N == there, out
	}
	return false, out
}

func isOut(out, id string) bool { return strings.Contains(","+out, ","+id) }

func withoutLease(out, id string) string {
	return strings.TrimPrefix(strings.Replace(","+out, ","+id, ",", 1), ",")
}

// leaseRecord is what happened to some semaphores, as their users saw it.
type leaseRecord struct {
	*historytest.History[leaseEvent]
	strict  bool // no call gives up or waits, and no lease ends
	process string
	permits atomic.Int64
}

func (r *leaseRecord) lease() time.Duration {
	if r.strict {
		return time.Minute
	}
	return 300 * time.Millisecond
}

func (r *leaseRecord) options() []redlatch.Option {
	return []redlatch.Option{
		redlatch.WithWatchdogTimeout(r.lease()), redlatch.WithCloseGrace(0),
		redlatch.WithLogger(slog.New(slog.DiscardHandler)),
	}
}

// takenPermit is a permit of the history. It ends as a hold does.
type takenPermit struct {
	*rsemaphore.Permit
	id  string
	end int // what is known of its end, see [historytest.History.Begin]
}

func (p takenPermit) Unlock(ctx context.Context) error { return p.Release(ctx) }

// acquire takes n permits, or none.
func (r *leaseRecord) acquire(ctx context.Context, s *rsemaphore.PermitSemaphore, n int) (all []takenPermit) {
	var opts []rsemaphore.PermitOption
	switch dice := rand.N(10); {
	case r.strict || dice < 2:
		opts = append(opts, rsemaphore.WithWait(0))
	default:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, rand.N(2*r.lease()))
		defer cancel()
	}
	if !r.strict && rand.N(10) == 0 {
		opts = append(opts, rsemaphore.WithFixedLease(10*time.Millisecond+rand.N(20*time.Millisecond)))
	}
	call := r.Now()
	permits, err := s.AcquireN(ctx, n, opts...)
	back := r.Now()
	switch {
	case err == nil:
		ids := ""
		for _, p := range permits {
			one := takenPermit{Permit: p, id: fmt.Sprintf("%s%d,", r.process, r.permits.Add(1))}
			end := leaseEvent{Kind: leaseVanishes, Name: s.Name(), IDs: one.id}
			one.end = r.Begin(end, r.Deadline(one), historytest.Forever)
			ids += one.id
			all = append(all, one)
		}
		r.Add(leaseEvent{Kind: leaseTaken, Name: s.Name(), IDs: ids}, call, back)
	case errors.Is(err, rsemaphore.ErrNotAcquired) && r.strict:
		r.Add(leaseEvent{Kind: leaseRefused, Name: s.Name(), N: n}, call, back)
	}
	return all
}

// release gives a permit back. Until its deadline it cannot have come back otherwise.
func (r *leaseRecord) release(ctx context.Context, name string, p takenPermit) {
	e := leaseEvent{Kind: leaseVanishes, Name: name, IDs: p.id}
	r.Settle(p.end, e, min(r.Now(), r.Deadline(p)), historytest.Forever)
	end, call, back := r.Unlock(ctx, p)
	e.Kind = map[historytest.Ending]leaseKind{
		historytest.Released: leaseReleased, historytest.Refused: leaseNotHeld, historytest.Vanishes: leaseVanishes,
	}[end]
	r.Settle(p.end, e, call, back)
}

// use does one thing with a semaphore, and releases what it has then.
func (r *leaseRecord) use(ctx context.Context, s *rsemaphore.PermitSemaphore) {
	if rand.N(10) == 0 {
		call := r.Now()
		kind := leaseAtMost
		if r.strict {
			kind = leaseExactly
		}
		if n, err := s.Available(ctx); err == nil {
			r.Add(leaseEvent{Kind: kind, Name: s.Name(), N: n}, call, r.Now())
		}
		return
	}
	all := r.acquire(ctx, s, []int{1, 1, 2, 3}[rand.N(4)])
	for _, p := range all {
		length := rand.N(2 * time.Millisecond)
		if rand.N(20) == 0 && !r.strict { // until it is lost, or was renewed
			length = r.lease() * 2 / 3
		}
		timer := time.NewTimer(length)
		select {
		case <-p.Context().Done():
		case <-timer.C:
		}
		timer.Stop()
		r.release(ctx, s.Name(), p)
	}
}

var leaseNames = []string{"a", "b"}

// user uses semaphores of one client at random, so often.
func (r *leaseRecord) user(ctx context.Context, c *redlatch.Client, steps int) {
	for range steps {
		r.use(ctx, c.GetPermitSemaphore(leaseNames[rand.N(len(leaseNames))]))
	}
}

// permitUser uses semaphores until it is killed. Args: its name, when the history began, the address.
func permitUser(args []string) {
	h, err := historytest.NewIn[leaseEvent](args[1], faulttest.Emit)
	if err != nil {
		panic(err)
	}
	r := &leaseRecord{History: h, process: args[0]}
	c, err := redlatch.New(redis.NewClient(&redis.Options{Addr: args[2]}), r.options()...)
	if err != nil {
		panic(err)
	}
	for range 2 {
		go r.user(context.Background(), c, 1<<30) // until the process is killed
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // nobody writes
}

// play has clients use semaphores. With harm, processes use them too, which are killed.
func (r *leaseRecord) play(t *testing.T, harm func(*faulttest.Proxy), behind func(rdb *redis.Client)) {
	t.Helper()
	server := r.Serve(t)
	rdb := server.Client(t)
	direct := clientThrough(t, server.Addr())
	for _, name := range leaseNames {
		givePermits(t, direct.GetPermitSemaphore(name), leasedTotal)
	}
	var users sync.WaitGroup
	through := func() *faulttest.Proxy {
		p := faulttest.NewProxy(t, server.Addr())
		if harm != nil {
			harm(p)
		}
		return p
	}
	var ends []func()
	for range 6 {
		p := through()
		c := clientThrough(t, p.Addr(), r.options()...)
		ends = append(ends, func() {
			p.Calm()
			assert.NoError(t, c.Close())
		})
		users.Go(func() { r.user(t.Context(), c, 60) })
		if !r.strict { // a client that has a waiter refuses others without asking
			users.Go(func() { r.user(t.Context(), c, 60) })
		}
	}
	if harm != nil {
		users.Go(func() {
			for i := range 2 {
				child := faulttest.StartChild(t, "permit user", fmt.Sprintf("killed%d:", i), r.Begun(), through().Addr())
				r.Sacrifice(t, child, 200*time.Millisecond, r.lease()/2*time.Duration(1+rand.N(3)))
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
	r.settle(t, direct)
}

// settle waits until all permits are there, as they have to be once all leases have ended, and notes how many there
// are.
func (r *leaseRecord) settle(t *testing.T, direct *redlatch.Client) {
	t.Helper()
	for _, name := range leaseNames {
		end := time.Now().Add(permitsSettle)
		for {
			call := r.Now()
			n, err := direct.GetPermitSemaphore(name).Available(t.Context())
			require.NoError(t, err)
			if n >= leasedTotal || r.strict || time.Now().After(end) {
				r.Add(leaseEvent{Kind: leaseExactly, Name: name, N: n}, call, r.Now())
				break
			}
			<-time.After(10 * time.Millisecond)
		}
	}
}

// check requires that enough has happened.
func (r *leaseRecord) check(t *testing.T) {
	t.Helper()
	count, all := map[leaseKind]int{}, 0
	for e := range r.Events() {
		count[e.Kind]++
		all++
	}
	t.Log(count)
	assert.Greater(t, count[leaseTaken], all/5, "permits were taken")
	least := count[leaseTaken] / 2
	if r.Steps > 0 { // steps end leases
		least /= 2
	}
	assert.Greater(t, count[leaseReleased], least, "most ends are known to be releases")
}

// ops returns the history, with what a step of the server's clock excuses, less the ends of permits of which a process that was
// killed did not say that it had them.
func (r *leaseRecord) ops() []historytest.Op[leaseEvent] {
	known := map[string]bool{}
	for e := range r.Events() {
		if e.Kind == leaseTaken {
			for id := range strings.SplitAfterSeq(e.IDs, ",") {
				known[id] = true
			}
		}
	}
	return slices.DeleteFunc(r.Excused(func(e leaseEvent) (gone []leaseEvent, begins bool) {
		for id := range strings.SplitAfterSeq(e.IDs, ",") {
			if id != "" {
				gone = append(gone, leaseEvent{Kind: leaseVanishes, Name: e.Name, IDs: id})
			}
		}
		return gone, e.Kind == leaseTaken
	}), func(op historytest.Op[leaseEvent]) bool {
		return op.Event.Kind == leaseVanishes && !known[op.Event.IDs]
	})
}

// F2, F13
func TestPermitHistoryUnderFaultsIsLinearizable(t *testing.T) {
	redistest.Long(t)
	for range faulttest.Rounds(t, 1, 8) {
		r := &leaseRecord{History: historytest.New[leaseEvent]()}
		r.play(t, (*faulttest.Proxy).Disturb, nil)
		r.check(t)
		historytest.Check(t, leasedPermits, r.ops())
	}
}

// A step ahead of the server's clock may end each lease that it meets, as docs/guarantees.md says: from then on such a permit may be
// back, before its holder knows. That apart the model is as ever: a step back ends no lease, and none comes back twice.
//
// F13, F18
func TestPermitHistoryWhileTheClockStepsIsLinearizable(t *testing.T) {
	for range faulttest.Rounds(t, 1, 4) {
		r := &leaseRecord{History: historytest.New[leaseEvent]()}
		r.Steps = historytest.WideSteps
		r.play(t, (*faulttest.Proxy).Disturb, nil)
		r.check(t)
		historytest.Check(t, leasedPermits, r.ops())
	}
}

// F13
func TestPermitHistoryIsLinearizable(t *testing.T) {
	r := &leaseRecord{History: historytest.New[leaseEvent](), strict: true}
	r.play(t, nil, nil)
	r.check(t)
	historytest.Check(t, leasedPermits, r.ops())
}

func TestHistoryOfABrokenPermitSemaphoreIsRefuted(t *testing.T) {
	redistest.Long(t)
	add := func(n int64) func(rdb *redis.Client) {
		return func(rdb *redis.Client) { assert.NoError(t, rdb.IncrBy(t.Context(), "a", n).Err()) }
	}
	take := func(rdb *redis.Client) {
		popped, err := rdb.ZPopMin(t.Context(), "{a}:timeout").Result()
		assert.NoError(t, err)
		add(int64(len(popped)))(rdb)
	}
	for what, tc := range map[string]struct {
		strict, once bool
		harm         func(*faulttest.Proxy)
		behind       func(rdb *redis.Client)
	}{
		"a permit too many, whatever is seen":          {true, true, nil, add(1)},
		"a permit too many, under leases":              {false, true, nil, add(1)},
		"a permit too many, under faults":              {false, true, (*faulttest.Proxy).Disturb, add(1)},
		"a permit too few":                             {true, true, nil, add(-1)},
		"a permit taken from its holder":               {false, false, nil, take},
		"a permit taken from its holder, under faults": {false, false, (*faulttest.Proxy).Disturb, take},
	} {
		t.Run(what, func(t *testing.T) {
			historytest.RefutedSoon(t, func() bool {
				r, broken := &leaseRecord{History: historytest.New[leaseEvent](), strict: tc.strict}, false
				r.play(t, tc.harm, func(rdb *redis.Client) {
					if !tc.once || !broken {
						tc.behind(rdb)
					}
					broken = true
				})
				return leasedPermits.Refutes(r.ops())
			})
		})
	}
}

func TestPermitModelTellsGoodHistoriesFromBadOnes(t *testing.T) {
	type ops = []historytest.Op[leaseEvent]
	at := func(kind leaseKind, ids string, n int, call, back int64) historytest.Op[leaseEvent] {
		return historytest.Op[leaseEvent]{Event: leaseEvent{kind, "k", ids, n}, Call: call, Back: back}
	}
	const forever = historytest.Forever
	for _, tc := range []struct {
		what string
		good bool
		ops  ops
	}{
		{"all are out", true, ops{
			at(leaseTaken, "1,2,3,", 0, 0, 1), at(leaseTaken, "12,", 0, 2, 3), at(leaseRefused, "", 1, 4, 5),
		}},
		{"one too many", false, ops{at(leaseTaken, "1,2,3,", 0, 0, 1), at(leaseTaken, "4,5,", 0, 2, 3)}},
		{"back at the end of the lease", true, ops{
			at(leaseTaken, "1,2,3,", 0, 0, 1), at(leaseVanishes, "1,", 0, 2, forever),
			at(leaseTaken, "4,5,", 0, 3, 4),
		}},
		{"back before it", false, ops{
			at(leaseTaken, "1,2,3,", 0, 0, 1), at(leaseVanishes, "1,", 0, 5, forever),
			at(leaseTaken, "4,5,", 0, 3, 4),
		}},
		{"back twice", false, ops{
			at(leaseTaken, "1,", 0, 0, 1), at(leaseReleased, "1,", 0, 2, 3), at(leaseReleased, "1,", 0, 4, 5),
		}},
		{"another of a similar name", false, ops{at(leaseTaken, "12,", 0, 0, 1), at(leaseReleased, "2,", 0, 2, 3)}},
		{"lost before its time", false, ops{at(leaseTaken, "1,", 0, 0, 1), at(leaseNotHeld, "1,", 0, 2, 3)}},
		{"a refusal without a reason", false, ops{at(leaseTaken, "1,2,", 0, 0, 1), at(leaseRefused, "", 2, 2, 3)}},
		{"more than there are", false, ops{at(leaseTaken, "1,2,", 0, 0, 1), at(leaseAtMost, "", 3, 2, 3)}},
		{"one that does not come back", false, ops{
			at(leaseTaken, "1,", 0, 0, 1), at(leaseReleased, "1,", 0, 2, 3), at(leaseExactly, "", 3, 4, 5),
		}},
	} {
		require.Equal(t, tc.good, leasedPermits.Explains(tc.ops), tc.what)
		require.Equal(t, !tc.good, leasedPermits.Refutes(tc.ops), tc.what)
	}
}
