package rlock_test

import (
	"cmp"
	"context"
	"errors"
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

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faulttest"
	"github.com/redlatch/redlatch/internal/redistest"
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

// leasedMutex is a lock whose holds may end by themselves, but not before their deadlines.
var leasedMutex = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(event).key
			parts[key] = append(parts[key], op)
		}
		var list [][]porcupine.Operation
		for _, part := range parts {
			list = append(list, part)
		}
		return list
	},
	Init: func() any { return mutex{} },
	Step: func(state, input, _ any) (bool, any) { return step(state.(mutex), input.(event)) },
}

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

// history is what happened to some locks, as their users saw it.
type history struct {
	started time.Time
	strict  bool // a lock that is said to be taken is a hold of the history

	mu    sync.Mutex // guards the rest
	holds int
	ops   []porcupine.Operation
}

const forever = math.MaxInt64

// earliness is by how much a client may end a hold before its deadline.
const earliness = 2 * time.Millisecond

func (h *history) now() int64 { return int64(time.Since(h.started)) }

func (h *history) add(e event, call, back int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{Input: e, Call: call, Return: back})
}

func (h *history) nextHold() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds++
	return h.holds
}

// acquire makes an acquiring call. An outcome that is not known leaves nobody who believes to hold the lock.
func (h *history) acquire(key string, try func() (*rlock.Hold, error)) (hold *rlock.Hold, id int) {
	call := h.now()
	hold, err := try()
	switch {
	case err == nil:
		id = h.nextHold()
		h.add(event{granted, key, id, hold.Token()}, call, h.now())
	case errors.Is(err, rlock.ErrNotAcquired) && h.strict:
		h.add(event{kind: busy, key: key}, call, h.now())
	}
	return hold, id
}

func (h *history) look(ctx context.Context, l *rlock.Lock) {
	call := h.now()
	locked, err := l.IsLocked(ctx)
	switch {
	case err != nil:
	case !locked:
		h.add(event{kind: free, key: l.Name()}, call, h.now())
	case h.strict:
		h.add(event{kind: busy, key: l.Name()}, call, h.now())
	}
}

// unlock ends a hold. Until its deadline it cannot have ended otherwise.
func (h *history) unlock(ctx context.Context, key string, hold *rlock.Hold, id int) {
	deadline := int64(hold.Deadline().Add(-earliness).Sub(h.started)) // afterwards it is the time of the end
	call := h.now()
	err := hold.Unlock(ctx)
	back := h.now()
	switch {
	case back >= deadline: // it may have been released, or have run out
		h.add(event{kind: vanishes, key: key, hold: id}, min(call, deadline), forever)
	case err == nil:
		h.add(event{kind: released, key: key, hold: id}, call, back)
	case errors.Is(err, rlock.ErrNotHeld):
		h.add(event{kind: refused, key: key, hold: id}, call, back)
	default:
		h.add(event{kind: vanishes, key: key, hold: id}, call, forever)
	}
}

// check fails the test unless one order of the events explains them all.
func (h *history) check(t *testing.T) {
	t.Helper()
	count := map[eventKind]int{}
	for _, op := range h.ops {
		count[op.Input.(event).kind]++
	}
	t.Log(count)
	assert.Greater(t, count[granted], len(h.ops)/5, "holds")
	if result := porcupine.CheckOperationsTimeout(leasedMutex, h.ops, time.Minute); result != porcupine.Ok {
		assert.Fail(t, "no order explains what was seen", "%s\n%s", result, h)
	}
}

func (h *history) String() string {
	var b strings.Builder
	slices.SortFunc(h.ops, func(x, y porcupine.Operation) int { return cmp.Compare(x.Call, y.Call) })
	for _, op := range h.ops {
		back := "..."
		if op.Return != forever {
			back = time.Duration(op.Return).String()
		}
		fmt.Fprintf(&b, "%v %v %+v\n", time.Duration(op.Call), back, op.Input)
	}
	return b.String()
}

func TestHistoryIsLinearizable(t *testing.T) {
	h := &history{strict: true}
	record(t, h, nil)
	h.check(t)
}

func TestHistoryUnderFaultsIsLinearizable(t *testing.T) {
	for range counted(2, 200) {
		h := &history{}
		record(t, h, damage)
		h.check(t)
	}
}

// damage does something to one request in ten.
func damage(p *faulttest.Proxy) {
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

// record has goroutines of several clients use a few locks at random.
func record(t *testing.T, h *history, harm func(*faulttest.Proxy)) {
	t.Helper()
	server := redistest.Start(t)
	h.started = time.Now()
	var users sync.WaitGroup
	for range 3 {
		proxy := faulttest.NewProxy(t, server.Addr())
		client := clientAt(t, proxy.Addr(), redlatch.WithLease(shortLease/2), redlatch.WithCloseGrace(0))
		locks := []*rlock.Lock{
			client.GetLock("plain 1"), client.GetLock("plain 2"),
			client.GetFencedLock("fenced 1"), client.GetFencedLock("fenced 2"),
		}
		if harm != nil {
			harm(proxy)
			t.Cleanup(func() { proxy.OnCommand(nil); proxy.Delay(0) })
		}
		for range 3 {
			users.Go(func() {
				for range 80 {
					h.use(t.Context(), locks[rand.N(len(locks))])
				}
			})
		}
	}
	users.Wait()
}

// use does one thing with a lock, and releases it if it has it then.
func (h *history) use(ctx context.Context, l *rlock.Lock) {
	wait := ctx
	if !h.strict { // a call that is given up leaves an unknown outcome
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, shortLease)
		defer cancel()
	}
	var opts []rlock.Option
	dice := rand.N(100)
	if dice < 10 {
		opts = append(opts, rlock.WithLease(10*time.Millisecond+rand.N(10*time.Millisecond)))
	}
	var hold *rlock.Hold
	var id int
	switch {
	case dice < 60:
		hold, id = h.acquire(l.Name(), func() (*rlock.Hold, error) { return l.Lock(wait, opts...) })
	case dice < 80:
		hold, id = h.acquire(l.Name(), func() (*rlock.Hold, error) { return l.TryLock(wait) })
	default:
		h.look(wait, l)
	}
	if hold == nil {
		return
	}
	work(hold, dice)
	h.unlock(ctx, l.Name(), hold, id)
}

// work keeps a hold for a while: some until they are lost, some until they were renewed, most for no time at all.
func work(hold *rlock.Hold, dice int) {
	length := time.Duration(0)
	switch {
	case dice < 5: // of a short lease
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
	type op struct {
		event
		call, back int64
	}
	for _, tc := range []struct {
		what string
		good bool
		ops  []op
	}{
		{"one after the other", true, []op{{event{granted, "k", 1, 0}, 0, 1}, {event{released, "k", 1, 0}, 2, 3}, {event{granted, "k", 2, 0}, 4, 5}}},
		{"granted while the release is under way", true, []op{{event{granted, "k", 1, 0}, 0, 1}, {event{released, "k", 1, 0}, 2, 9}, {event{granted, "k", 2, 0}, 4, 5}}},
		{"two at once", false, []op{{event{granted, "k", 1, 0}, 0, 1}, {event{granted, "k", 2, 0}, 2, 3}, {event{released, "k", 1, 0}, 4, 5}}},
		{"two keys at once", true, []op{{event{granted, "k", 1, 0}, 0, 1}, {event{granted, "l", 2, 0}, 2, 3}}},
		{"granted after an unknown release", true, []op{{event{granted, "k", 1, 0}, 0, 1}, {event{vanishes, "k", 1, 0}, 2, forever}, {event{granted, "k", 2, 0}, 9, 10}}},
		{"granted before the deadline", false, []op{{event{granted, "k", 1, 0}, 0, 1}, {event{granted, "k", 2, 0}, 4, 5}, {event{vanishes, "k", 1, 0}, 6, forever}}},
		{"lost before the deadline", false, []op{{event{granted, "k", 1, 0}, 0, 1}, {event{refused, "k", 1, 0}, 2, 3}}},
		{"free while it is held", false, []op{{event{granted, "k", 1, 0}, 0, 1}, {event{free, "k", 0, 0}, 2, 3}, {event{released, "k", 1, 0}, 4, 5}}},
		{"busy while nobody holds it", false, []op{{event{busy, "k", 0, 0}, 0, 1}}},
		{"a token that falls", false, []op{{event{granted, "k", 1, 7}, 0, 1}, {event{released, "k", 1, 0}, 2, 3}, {event{granted, "k", 2, 7}, 4, 5}}},
	} {
		var ops []porcupine.Operation
		for _, o := range tc.ops {
			ops = append(ops, porcupine.Operation{Input: o.event, Call: o.call, Return: o.back})
		}
		require.Equal(t, tc.good, porcupine.CheckOperations(leasedMutex, ops), tc.what)
	}
}
