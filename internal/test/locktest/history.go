package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/historytest"
	"github.com/redlatch/redlatch/rlock"
)

// Event is something that the model lets happen to one key at one moment between the call and the return. What
// happens to a lock that is made of several happens to each of its keys.
type Event struct {
	Kind  EventKind
	Key   string
	Hold  string // which hold; empty for none
	Token int64  // of a granted hold; 0 if it has none
}

// EventKind is what happens.
type EventKind string

// The kinds of event.
const (
	WasGranted  EventKind = "granted"  // the lock was free, and is the hold's
	WasReleased EventKind = "released" // the lock was the hold's, and is free
	WasRefused  EventKind = "refused"  // the lock was not the hold's
	MayVanish   EventKind = "vanishes" // the lock is free if it was the hold's: an unknown release, or the end of a lease
	WasFree     EventKind = "free"     // the lock was free
	WasBusy     EventKind = "busy"     // the lock was not free
)

// Object names the key.
func (e Event) Object() string { return e.Key }

// Mutex is the state of one key in the model.
type Mutex struct {
	Holder string // empty while it is free
	Token  int64  // the highest that was given out
}

// LeasedMutex is the model of a lock whose holds may end by themselves, but not before their deadlines.
func LeasedMutex(m Mutex, e Event) (possible bool, next Mutex) {
	switch e.Kind {
	case WasGranted:
		ok := m.Holder == "" && (e.Token == 0 || e.Token > m.Token)
		return ok, Mutex{Holder: e.Hold, Token: max(m.Token, e.Token)}
	case WasReleased:
		return m.Holder == e.Hold, Mutex{Token: m.Token}
	case WasRefused:
		return m.Holder != e.Hold, m
	case MayVanish:
		if m.Holder == e.Hold {
			m.Holder = ""
		}
		return true, m
	case WasFree:
		return m.Holder == "", m
	case WasBusy:
		return m.Holder != "", m
	}
	return false, m
}

func leasedMutex() historytest.Model[Mutex, Event] { return LeasedMutex }

// History is what happened to some locks, as their users saw it.
type History struct {
	*historytest.History[Event]

	// Strict says that a lock that is said to be taken is a hold of the history: none that comes after its lease is
	// given back.
	Strict bool
	// Lease is that of the clients.
	Lease time.Duration

	process string // part of the name of each hold
	holds   atomic.Int64
}

// NewHistory returns an empty history that begins now.
func NewHistory(strict bool, lease time.Duration) *History {
	return &History{History: historytest.New[Event](), Strict: strict, Lease: lease}
}

// NewHistoryIn returns a history under faults in another process, see [historytest.NewIn].
func NewHistoryIn(process, begun string, lease time.Duration, emit func(string, ...any)) (*History, error) {
	h, err := historytest.NewIn[Event](begun, emit)
	return &History{History: h, Lease: lease, process: process}, err
}

// Options returns the options of the clients. Set Steps before.
func (h *History) Options() []redlatch.Option {
	opts := []redlatch.Option{redlatch.WithWatchdogTimeout(h.Lease), redlatch.WithCloseGrace(0)}
	if h.Steps > 0 { // a hand-off within a client gives on a lease that an earlier step may have ended
		opts = append(opts, redlatch.WithHandoffBudget(0))
	}
	return opts
}

// held is a hold of the history, on each of its keys.
type held struct {
	*rlock.Hold
	id   string
	keys []string
	ends []int // what is known of its end, by key, see [historytest.History.Begin]
}

// acquire makes an acquiring call. An outcome that is not known leaves nobody who believes to hold the lock.
func (h *History) acquire(keys []string, try func() (*rlock.Hold, error)) *held {
	call := h.Now()
	hold, err := try()
	back := h.Now()
	switch {
	case err == nil:
		id := fmt.Sprint(h.process, h.holds.Add(1))
		one := &held{Hold: hold, id: id, keys: keys}
		deadline := h.Deadline(hold)
		for _, key := range keys {
			one.ends = append(one.ends, h.Begin(Event{Kind: MayVanish, Key: key, Hold: id}, deadline, historytest.Forever))
			h.Add(Event{WasGranted, key, id, hold.Token()}, call, back)
		}
		return one
	case errors.Is(err, rlock.ErrNotAcquired) && h.Strict && len(keys) == 1: // several keys may have been busy in turn
		h.Add(Event{Kind: WasBusy, Key: keys[0]}, call, back)
	}
	return nil
}

// look notes whether a lock is free, if that can be asked.
func (h *History) look(ctx context.Context, l rlock.Locker) {
	asked, ok := l.(interface {
		IsLocked(ctx context.Context) (bool, error)
	})
	if !ok {
		return
	}
	call := h.Now()
	locked, err := asked.IsLocked(ctx)
	switch {
	case err != nil:
	case !locked:
		h.Add(Event{Kind: WasFree, Key: l.Name()}, call, h.Now())
	case h.Strict:
		h.Add(Event{Kind: WasBusy, Key: l.Name()}, call, h.Now())
	}
}

// unlock ends a hold. Until its deadline it cannot have ended otherwise.
func (h *History) unlock(ctx context.Context, one *held) {
	begun := min(h.Now(), h.Deadline(one.Hold))
	h.settle(one, MayVanish, begun, historytest.Forever)
	end, call, back := h.Unlock(ctx, one.Hold)
	kind := map[historytest.Ending]EventKind{
		historytest.Released: WasReleased, historytest.Refused: WasRefused, historytest.Vanishes: MayVanish,
	}[end]
	h.settle(one, kind, call, back)
}

func (h *History) settle(one *held, kind EventKind, call, back int64) {
	for i, key := range one.keys {
		h.Settle(one.ends[i], Event{Kind: kind, Key: key, Hold: one.id}, call, back)
	}
}

// Use does one thing with a lock that consists of keys, by default that of its name, and releases it if it has it then.
func (h *History) Use(ctx context.Context, l rlock.Locker, keys ...string) {
	if keys == nil {
		keys = []string{l.Name()}
	}
	wait := ctx
	if !h.Strict { // a call that is given up leaves an unknown outcome
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, 2*h.Lease)
		defer cancel()
	}
	var opts []rlock.Option
	dice := rand.N(100)
	if dice < 10 && !h.Strict {
		opts = append(opts, rlock.WithFixedLease(10*time.Millisecond+rand.N(10*time.Millisecond)))
	}
	var one *held
	switch {
	case dice < 60:
		one = h.acquire(keys, func() (*rlock.Hold, error) { return l.Lock(wait, opts...) })
	case dice < 80:
		one = h.acquire(keys, func() (*rlock.Hold, error) { return l.TryLock(wait) })
	default:
		h.look(wait, l)
	}
	if one == nil {
		return
	}
	h.work(one, dice)
	h.unlock(ctx, one)
}

// work keeps a hold for a while: some until they are lost, some until they were renewed, most for no time at all.
func (h *History) work(one *held, dice int) {
	length := time.Duration(0)
	switch {
	case dice < 5 && !h.Strict: // of a short lease
		length = time.Second
	case dice < 6 && !h.Strict:
		length = h.Lease * 2 / 3
	case dice < 30:
		length = rand.N(time.Millisecond)
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-one.Context().Done():
	case <-timer.C:
	}
}

// Check fails the test unless one order of the events explains them all.
func (h *History) Check(t *testing.T) {
	t.Helper()
	count := h.count(t)
	least := count[WasGranted] / 2
	if h.Steps > 0 { // steps end holds
		least /= 2
	}
	assert.Greater(t, count[WasReleased], least, "most ends are known to be releases")
	historytest.Check(t, leasedMutex(), h.ops())
}

// ops returns the history, with what a step of a server's clock excuses.
func (h *History) ops() []historytest.Op[Event] {
	return h.Excused(func(e Event) (gone []Event, begins bool) {
		return []Event{{Kind: MayVanish, Key: e.Key, Hold: e.Hold}}, e.Kind == WasGranted
	})
}

// Refuted reports whether no order of the events explains them all, even if the holders that were told of their loss had
// not been told.
func (h *History) Refuted(t *testing.T) bool {
	t.Helper()
	h.count(t)
	return leasedMutex().RefutesUnsaid(h.ops(), func(e Event) (Event, bool) {
		return Event{Kind: MayVanish, Key: e.Key, Hold: e.Hold}, e.Kind == WasRefused
	})
}

// count requires that enough has happened.
func (h *History) count(t *testing.T) map[EventKind]int {
	t.Helper()
	count, all, processes := map[EventKind]int{}, 0, map[string]int{}
	for e := range h.Events() {
		count[e.Kind]++
		all++
		if e.Kind == WasGranted {
			processes[strings.TrimRight(e.Hold, "0123456789")]++
		}
	}
	t.Log(count, processes)
	assert.Greater(t, count[WasGranted], all/5, "holds")
	return count
}
