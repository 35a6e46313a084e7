package historytest

import (
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/test/faulttest"
)

// told comes before what a process tells of its history.
const told = "history "

// line is an entry of a history on its way from one process to another.
type line[E Event] struct {
	Entry int
	Op    Op[E]
}

// NewIn returns a history in another process, which tells all of it. Begun is what [History.Begun] returned in the
// first process. The exported fields of the events are told.
func NewIn[E Event](begun string, emit func(format string, args ...any)) (*History[E], error) {
	ns, err := strconv.ParseInt(begun, 10, 64)
	if err != nil {
		return nil, err
	}
	return &History[E]{started: time.Unix(0, ns), emit: emit}, nil
}

// Begun is when the history began, for [NewIn]. All processes of one machine have the same clock.
func (h *History[E]) Begun() string { return strconv.FormatInt(h.started.UnixNano(), 10) }

func (h *History[E]) tellLocked(entry int) {
	if h.emit == nil {
		return
	}
	text, err := json.Marshal(line[E]{entry, h.ops[entry]})
	if err != nil {
		panic(err) // events are plain data
	}
	h.emit("%s%s", told, text)
}

// Follow adds what another process tells, until that ends. Other lines are skipped.
func (h *History[E]) Follow(lines iter.Seq[string]) error {
	own := map[int]int{} // by the other's entry
	for text := range lines {
		text, ok := strings.CutPrefix(text, told)
		if !ok {
			continue
		}
		var l line[E]
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		if entry, known := own[l.Entry]; known {
			h.Settle(entry, l.Op.Event, l.Op.Call, l.Op.Back)
			continue
		}
		own[l.Entry] = h.Begin(l.Op.Event, l.Op.Call, l.Op.Back)
	}
	return nil
}

// Sacrifice follows a child process for a while, has it stand still for a while, and kills it soon after that. What
// it does is part of the history.
func (h *History[E]) Sacrifice(t *testing.T, child *faulttest.Child, run, still time.Duration) {
	t.Helper()
	var following sync.WaitGroup
	following.Go(func() { assert.NoError(t, h.Follow(child.Lines())) })
	<-time.After(run) // what other processes do meanwhile is no event here
	child.Stop()
	<-time.After(still)
	child.Cont()
	<-time.After(rand.N(run / 2))
	child.Kill()
	following.Wait()
}
