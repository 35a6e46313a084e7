// Package historytest records what the users of some objects saw, and has porcupine look for one order of
// events that explains it all.
package historytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

const (
	// Forever is the return of what may still happen when the history ends.
	Forever = math.MaxInt64

	checkLimit = time.Minute
)

// Event happens to one object at one moment between a call and its return.
type Event interface {
	// Object names what it happens to: objects are independent of one another.
	Object() string
}

// Op is an event with the times between which it happened, in ns since the history began.
type Op[E Event] struct {
	Event      E
	Call, Back int64
}

// Model says which events an object in a state lets happen, and what becomes of its state. States are compared by ==.
// The first state is the zero value.
type Model[S comparable, E Event] func(state S, event E) (possible bool, next S)

// Explains reports whether some order of the events is possible.
func (m Model[S, E]) Explains(ops []Op[E]) bool { return m.check(ops) == porcupine.Ok }

// Refutes reports whether no order of the events is possible. It is more than not to explain them within the time.
func (m Model[S, E]) Refutes(ops []Op[E]) bool { return m.check(ops) == porcupine.Illegal }

// RefutesUnsaid reports whether no order of the events is possible, even if holders that learned of their loss had not learned
// of it. Gone returns of an event that says that a hold was lost one that says that it may be gone from then on.
func (m Model[S, E]) RefutesUnsaid(ops []Op[E], gone func(E) (event E, lost bool)) bool {
	unsaid := slices.Clone(ops)
	for i, op := range ops {
		if event, lost := gone(op.Event); lost {
			unsaid[i] = Op[E]{event, op.Call, Forever}
		}
	}
	return m.Refutes(ops) && m.Refutes(unsaid)
}

// Harms returns what happens to an object while it is used, by the end of a test's name: nothing, and faults.
func Harms() map[string]func(*faulttest.Proxy) {
	return map[string]func(*faulttest.Proxy){"": nil, ", under faults": (*faulttest.Proxy).Disturb}
}

// RefutedSoon fails the test unless one of ten histories of an object that was broken on purpose is refuted: in a single one
// nobody may have met what is broken. It is a test of the model and runs with REDLATCH_LONG=1 only.
func RefutedSoon(t *testing.T, refuted func() bool) {
	t.Helper()
	redistest.Long(t)
	for range 10 {
		if refuted() {
			return
		}
	}
	assert.Fail(t, "what was broken on purpose is not found")
}

func (m Model[S, E]) check(ops []Op[E]) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(m.checked(), operations(ops), checkLimit)
}

func (m Model[S, E]) checked() porcupine.Model {
	return porcupine.Model{
		Partition: func(all []porcupine.Operation) (parts [][]porcupine.Operation) {
			place := map[string]int{}
			for _, op := range all {
				object := op.Input.(E).Object()
				i, ok := place[object]
				if !ok {
					i = len(parts)
					place[object], parts = i, append(parts, nil)
				}
				parts[i] = append(parts[i], op)
			}
			return parts
		},
		Init: func() any { var first S; return first },
		Step: func(state, input, _ any) (bool, any) { return m(state.(S), input.(E)) },
	}
}

func operations[E Event](ops []Op[E]) (all []porcupine.Operation) {
	for _, op := range ops {
		all = append(all, porcupine.Operation{Input: op.Event, Call: op.Call, Return: op.Back})
	}
	return all
}

// Check fails the test unless the model explains the events.
func Check[S comparable, E Event](t *testing.T, m Model[S, E], ops []Op[E]) {
	t.Helper()
	m.judge(t, m.check(ops), ops)
}

// judge fails the test unless the model has explained the events.
func (m Model[S, E]) judge(t *testing.T, result porcupine.CheckResult, ops []Op[E]) {
	t.Helper()
	if result == porcupine.Ok {
		return
	}
	var b strings.Builder
	bad := m.unexplained(ops)
	slices.SortFunc(bad, func(x, y Op[E]) int { return cmp.Compare(x.Call, y.Call) })
	for _, op := range bad {
		back := "..."
		if op.Back != Forever {
			back = time.Duration(op.Back).String()
		}
		fmt.Fprintf(&b, "%v %v %+v\n", time.Duration(op.Call), back, op.Event)
	}
	assert.Fail(t, "no order explains what was seen", "%s: %d of %d events, see %s", result, len(bad), len(ops), written(t, b.String()))
}

// written writes a history to a file that outlives the test, and returns its name.
func written(t *testing.T, history string) string {
	t.Helper()
	file, err := os.CreateTemp("", "history-*.txt") //nolint:usetesting // It outlives t.
	if err != nil {
		return err.Error()
	}
	_, err = file.WriteString(history)
	if err := errors.Join(err, file.Close()); err != nil {
		return err.Error()
	}
	return file.Name()
}

// CheckDecided is [Check] of a history that may be too wide to be decided in time, since many calls are in flight at once. Such a one
// proves nothing: another one is played, up to five times.
func CheckDecided[S comparable, E Event](t *testing.T, m Model[S, E], play func() []Op[E]) {
	t.Helper()
	for range 5 {
		ops := play()
		if result := m.check(ops); result != porcupine.Unknown {
			m.judge(t, result, ops)
			return
		}
		t.Log("a history was not decided in time")
	}
	assert.Fail(t, "no history was decided in time")
}

// unexplained returns what happened to those objects of which no order is possible, as far as that can be told.
func (m Model[S, E]) unexplained(ops []Op[E]) (rest []Op[E]) {
	byObject := map[string][]Op[E]{}
	for _, op := range ops {
		byObject[op.Event.Object()] = append(byObject[op.Event.Object()], op)
	}
	for _, of := range byObject {
		if !m.Explains(of) {
			rest = append(rest, of...)
		}
	}
	return rest
}

// History is what happened so far. Its methods may be called from any goroutine.
type History[E Event] struct {
	// Steps is the range within which the clocks of the servers step, see [History.Serve]; 0 for clocks that do not step.
	Steps time.Duration

	started time.Time
	emit    func(format string, args ...any) // of a process that tells its parent; nil for the parent
	calm    []func()                         // end the steps of a clock each

	mu    sync.Mutex // guards ops, steps
	ops   []Op[E]
	steps []step // those of one server in order
}

// New returns an empty history that begins now.
func New[E Event]() *History[E] { return &History[E]{started: time.Now()} }

// Now is the time for a call or its return.
func (h *History[E]) Now() int64 { return int64(time.Since(h.started)) }

// Add adds an event.
func (h *History[E]) Add(event E, call, back int64) { h.Begin(event, call, back) }

// Begin adds an event of which more may become known: what it is if nothing more is heard of it, because the process
// dies. The result is for [History.Settle].
func (h *History[E]) Begin(event E, call, back int64) (entry int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, Op[E]{event, call, back})
	h.tellLocked(len(h.ops) - 1)
	return len(h.ops) - 1
}

// Settle says what an event is that was begun before.
func (h *History[E]) Settle(entry int, event E, call, back int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops[entry] = Op[E]{event, call, back}
	h.tellLocked(entry)
}

// Ops returns a copy of what was added so far.
func (h *History[E]) Ops() []Op[E] {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ops)
}

// Events yields the events of [History.Ops].
func (h *History[E]) Events() iter.Seq[E] {
	return func(yield func(E) bool) {
		for _, op := range h.Ops() {
			if !yield(op.Event) {
				return
			}
		}
	}
}

// Hold is what ends by itself, but not before its deadline.
type Hold interface {
	ExpiresAt() time.Time
	Unlock(ctx context.Context) error
}

// Deadline is the time until which a hold that is not released certainly lasts. After its end it is the time of that.
func (h *History[E]) Deadline(hold Hold) int64 {
	return int64(hold.ExpiresAt().Sub(h.started))
}

// Ending is what is known of the end of a hold.
type Ending int

// The endings.
const (
	Released Ending = iota // the hold was there, and is gone
	Refused                // the hold was not there
	Vanishes               // the hold is gone, if it was there: by its release, or with its lease
)

// Unlock ends a hold and tells how, and between which times.
func (h *History[E]) Unlock(ctx context.Context, hold Hold) (end Ending, call, back int64) {
	deadline := h.Deadline(hold)
	call = h.Now()
	err := hold.Unlock(ctx)
	back = h.Now()
	switch {
	case back >= deadline:
		return Vanishes, min(call, deadline), Forever
	case err == nil:
		return Released, call, back
	case errors.Is(err, errs.ErrNotHeld):
		return Refused, call, back
	default:
		return Vanishes, call, Forever
	}
}

// Meanwhile waits for the users of an object, and does something behind their backs every few milliseconds.
func Meanwhile(users *sync.WaitGroup, behind func()) {
	over := make(chan struct{})
	go func() { // ends with the users
		users.Wait()
		close(over)
	}()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-over:
			return
		case <-tick.C:
			behind()
		}
	}
}
