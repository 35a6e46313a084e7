package rsemaphore_test

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
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

// countedPermits is a semaphore. A call that gives up may borrow permits for a moment, which only makes others find
// fewer: a history with such calls says "at least" of what was drained or seen.
var countedPermits = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, op := range history {
			name := op.Input.(permitEvent).name
			parts[name] = append(parts[name], op)
		}
		var list [][]porcupine.Operation
		for _, part := range parts {
			list = append(list, part)
		}
		return list
	},
	Init: func() any { return 0 },
	Step: func(state, input, _ any) (bool, any) { return permitStep(state.(int), input.(permitEvent)) },
}

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

// permitHistory is what happened to some semaphores, as their users saw it.
type permitHistory struct {
	started time.Time
	strict  bool // no call gives up or waits: what was refused was not there

	mu  sync.Mutex // guards ops
	ops []porcupine.Operation
}

const notYet = math.MaxInt64 // the return of what goes on in the background

func (h *permitHistory) now() int64 { return int64(time.Since(h.started)) }

func (h *permitHistory) add(e permitEvent, call, back int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{Input: e, Call: call, Return: back})
}

// acquire takes permits and reports whether it did.
func (h *permitHistory) acquire(ctx context.Context, s *rsemaphore.Semaphore, n int) bool {
	call := h.now()
	var ok bool
	var err error
	switch dice := rand.N(10); {
	case h.strict || dice < 4:
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
		h.add(permitEvent{permitsTaken, s.Name(), n}, call, h.now())
	case err == nil && h.strict:
		h.add(permitEvent{permitsRefused, s.Name(), n}, call, h.now())
	}
	return ok
}

// release gives permits back, at the latest in the background.
func (h *permitHistory) release(ctx context.Context, s *rsemaphore.Semaphore, n int) {
	if !h.strict && rand.N(4) == 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Millisecond+rand.N(5*time.Millisecond))
		defer cancel()
	}
	call, back := h.now(), int64(notYet)
	err := s.Release(ctx, n)
	if err == nil {
		back = h.now()
	}
	h.add(permitEvent{permitsBack, s.Name(), n}, call, back)
}

// use does one thing with a semaphore, and releases what it has then.
func (h *permitHistory) use(t *testing.T, s *rsemaphore.Semaphore) {
	ctx, call := t.Context(), h.now()
	switch dice := rand.N(100); {
	case dice < 75:
		if n := 1 + rand.N(4); h.acquire(ctx, s, n) {
			h.release(ctx, s, n)
		}
	case dice < 85:
		n := 1 + rand.N(2)
		if assert.NoError(t, s.AddPermits(ctx, n)) {
			h.add(permitEvent{permitsBack, s.Name(), n}, call, h.now())
		}
	case dice < 90:
		n, err := s.Drain(ctx)
		switch {
		case !assert.NoError(t, err) || n == 0 && !h.strict:
		case h.strict:
			h.add(permitEvent{permitsDrained, s.Name(), n}, call, h.now())
		default:
			h.add(permitEvent{permitsTaken, s.Name(), n}, call, h.now())
		}
	default:
		n, err := s.Available(ctx)
		kind := permitsAtLeast
		if h.strict {
			kind = permitsSeen
		}
		if assert.NoError(t, err) {
			h.add(permitEvent{kind, s.Name(), n}, call, h.now())
		}
	}
}

// settle holds what is left against what the users say, after all clients have closed.
func (h *permitHistory) settle(t *testing.T, see func(name string) int, names ...string) {
	t.Helper()
	want := map[string]int{}
	for _, op := range h.ops {
		switch e := op.Input.(permitEvent); e.kind {
		case permitsSet, permitsBack:
			want[e.name] += e.n
		case permitsTaken, permitsDrained:
			want[e.name] -= e.n
		}
	}
	for _, name := range names {
		require.Equal(t, want[name], see(name), "%s has what its users say", name)
	}
	end := h.now()
	for i := range h.ops {
		h.ops[i].Return = min(h.ops[i].Return, end)
	}
	for _, name := range names {
		h.add(permitEvent{permitsSeen, name, see(name)}, end+1, end+2)
	}
}

// check fails the test unless one order of the events explains them all.
func (h *permitHistory) check(t *testing.T) {
	t.Helper()
	count := map[permitEventKind]int{}
	for _, op := range h.ops {
		count[op.Input.(permitEvent).kind]++
	}
	t.Log(count)
	assert.Greater(t, count[permitsTaken], len(h.ops)/10, "permits were taken")
	if result := porcupine.CheckOperationsTimeout(countedPermits, h.ops, time.Minute); result != porcupine.Ok {
		assert.Fail(t, "no order explains what was seen", "%s\n%s", result, h)
	}
}

func (h *permitHistory) String() string {
	var b strings.Builder
	slices.SortFunc(h.ops, func(x, y porcupine.Operation) int { return cmp.Compare(x.Call, y.Call) })
	for _, op := range h.ops {
		fmt.Fprintf(&b, "%v %v %+v\n", time.Duration(op.Call), time.Duration(op.Return), op.Input)
	}
	return b.String()
}

// recordPermits has goroutines of several clients use a few semaphores at random.
func recordPermits(t *testing.T, h *permitHistory, harm func(*faulttest.Proxy)) {
	t.Helper()
	server := redistest.Start(t)
	rdb := server.Client(t)
	names := []string{"a", "b"}
	h.started = time.Now()
	direct := clientThrough(t, server.Addr())
	for _, name := range names {
		call := h.now()
		give(t, direct.GetSemaphore(name), 4)
		h.add(permitEvent{permitsSet, name, 4}, call, h.now())
	}
	var users sync.WaitGroup
	var ends []func()
	for range 3 {
		proxy := faulttest.NewProxy(t, server.Addr())
		client := clientThrough(t, proxy.Addr())
		if harm != nil {
			harm(proxy)
			t.Cleanup(func() { proxy.OnCommand(nil) })
		}
		ends = append(ends, func() { // Close gives back what callers that gave up have got
			proxy.OnCommand(nil)
			proxy.Delay(0)
			assert.NoError(t, client.Close())
		})
		for range 3 {
			users.Go(func() {
				for range 50 {
					h.use(t, client.GetSemaphore(names[rand.N(len(names))]))
				}
			})
		}
	}
	users.Wait()
	for _, end := range ends {
		end()
	}
	h.settle(t, func(name string) int { return counter(t, rdb, name) }, names...)
}

func TestSemaphoreHistoryIsLinearizable(t *testing.T) {
	for range semaphoreRuns(1, 50) {
		h := &permitHistory{strict: true}
		recordPermits(t, h, nil)
		h.check(t)
	}
}

func TestSemaphoreHistoryUnderFaultsIsLinearizable(t *testing.T) {
	for range semaphoreRuns(2, 100) {
		h := &permitHistory{}
		recordPermits(t, h, harmSemaphores)
		h.check(t)
	}
}

// harmSemaphores does something to one request in ten.
func harmSemaphores(p *faulttest.Proxy) {
	p.OnCommand(func([]string) {
		switch dice := rand.N(100); {
		case dice < 4:
			p.DropReply(faulttest.Script, 1)
		case dice < 5:
			p.Cut()
		case dice < 8:
			p.Delay(rand.N(3 * time.Millisecond))
		case dice < 11:
			p.Delay(0)
		}
	})
}

func TestSemaphoreModelRefusesWhatCannotBe(t *testing.T) {
	at := func(kind permitEventKind, n int, call, back int64) porcupine.Operation {
		return porcupine.Operation{Input: permitEvent{kind, "s", n}, Call: call, Return: back}
	}
	for _, c := range []struct {
		name string
		ok   bool
		ops  []porcupine.Operation
	}{
		{"all are taken", true, []porcupine.Operation{at(permitsSet, 2, 0, 1), at(permitsTaken, 2, 2, 3), at(permitsRefused, 1, 4, 5)}},
		{"one too many", false, []porcupine.Operation{at(permitsSet, 2, 0, 1), at(permitsTaken, 2, 2, 3), at(permitsTaken, 1, 4, 5), at(permitsBack, 1, 6, 7)}},
		{"one that comes back meanwhile", true, []porcupine.Operation{at(permitsSet, 1, 0, 1), at(permitsTaken, 1, 2, 3), at(permitsBack, 1, 4, 9), at(permitsTaken, 1, 5, 6)}},
		{"a release that counts twice", false, []porcupine.Operation{at(permitsSet, 2, 0, 1), at(permitsTaken, 1, 2, 3), at(permitsBack, 1, 4, 5), at(permitsSeen, 3, 6, 7)}},
		{"a refusal without a reason", false, []porcupine.Operation{at(permitsSet, 2, 0, 1), at(permitsRefused, 2, 2, 3)}},
	} {
		got := porcupine.CheckOperations(countedPermits, c.ops)
		require.Equal(t, c.ok, got, c.name)
	}
}
