package historytest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/test/historytest"
)

// flip turns a switch that has a name; flips to where it stands already are not possible.
type flip struct {
	name string
	on   bool
}

func (f flip) Object() string { return f.name }

var switches historytest.Model[bool, flip] = func(on bool, f flip) (bool, bool) { return on != f.on, f.on }

func TestModelExplainsEachObjectByItself(t *testing.T) {
	type ops = []historytest.Op[flip]
	at := func(name string, on bool, call, back int64) historytest.Op[flip] {
		return historytest.Op[flip]{Event: flip{name, on}, Call: call, Back: back}
	}
	assert.True(t, switches.Explains(nil))
	assert.True(t, switches.Explains(ops{at("a", true, 0, 1), at("b", true, 2, 3), at("a", false, 4, 5)}))
	assert.True(t, switches.Explains(ops{at("a", false, 0, 9), at("a", true, 1, 2)}), "in another order than they began")
	assert.False(t, switches.Explains(ops{at("a", false, 0, 1), at("a", true, 2, 3)}))
	assert.True(t, switches.Refutes(ops{at("a", false, 0, 1), at("a", true, 2, 3)}))
	assert.False(t, switches.Refutes(ops{at("a", true, 0, 1), at("b", true, 2, 3)}))
	assert.False(t, switches.Explains(ops{at("b", true, 0, 1), at("a", true, 2, 3), at("a", true, 4, historytest.Forever)}))
}

func TestHistoryKeepsWhatWasAdded(t *testing.T) {
	h := historytest.New[flip]()
	call := h.Now()
	h.Add(flip{"a", true}, call, h.Now())
	h.Add(flip{"a", false}, h.Now(), historytest.Forever)
	ops := h.Ops()
	assert.Len(t, ops, 2)
	assert.LessOrEqual(t, ops[0].Call, ops[0].Back)
	assert.LessOrEqual(t, ops[0].Back, ops[1].Call)
	for e := range h.Events() {
		assert.Equal(t, flip{"a", true}, e)
		break
	}
}

// hold ends as it is told.
type hold struct {
	deadline time.Time
	err      error
}

func (h hold) ExpiresAt() time.Time         { return h.deadline }
func (h hold) Unlock(context.Context) error { return h.err }

func TestUnlockTellsWhatIsKnown(t *testing.T) {
	h := historytest.New[flip]()
	later := time.Now().Add(time.Hour)
	for _, tc := range []struct {
		what string
		hold hold
		end  historytest.Ending
	}{
		{"released in time", hold{later, nil}, historytest.Released},
		{"gone before its time", hold{later, errs.ErrNotHeld}, historytest.Refused},
		{"no answer", hold{later, errors.New("timeout")}, historytest.Vanishes},
		{"after its deadline", hold{time.Now(), nil}, historytest.Vanishes},
	} {
		end, call, back := h.Unlock(t.Context(), tc.hold)
		assert.Equal(t, tc.end, end, tc.what)
		assert.LessOrEqual(t, call, h.Now(), tc.what)
		assert.Equal(t, end == historytest.Vanishes, back == historytest.Forever, tc.what)
	}
}

func TestFollowedProcessIsPartOfTheHistory(t *testing.T) {
	type event = named
	h := historytest.New[event]()
	var lines []string
	emit := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	other, err := historytest.NewIn[event](h.Begun(), emit)
	require.NoError(t, err)
	h.Add(event{"own"}, h.Now(), h.Now())
	before := h.Now()
	entry := other.Begin(event{"may have been done"}, other.Now(), historytest.Forever)
	other.Add(event{"done"}, 2, 3)
	other.Settle(entry, event{"was done"}, 4, 5)
	other.Begin(event{"may be done"}, other.Now(), historytest.Forever)
	lines = append(lines, "something else")
	require.NoError(t, h.Follow(slices.Values(lines)))
	ops := h.Ops()
	require.Len(t, ops, 4)
	assert.Equal(t, historytest.Op[event]{Event: event{"was done"}, Call: 4, Back: 5}, ops[1])
	assert.Equal(t, historytest.Op[event]{Event: event{"done"}, Call: 2, Back: 3}, ops[2])
	assert.Equal(t, event{"may be done"}, ops[3].Event)
	assert.EqualValues(t, historytest.Forever, ops[3].Back)
	assert.InDelta(t, before, ops[3].Call, float64(time.Second), "both have the same clock")
	require.Error(t, h.Follow(slices.Values([]string{"history nonsense"})))
	_, err = historytest.NewIn[event]("nonsense", emit)
	require.Error(t, err)
}

// named is an event that another process can tell of.
type named struct{ Name string }

func (n named) Object() string { return n.Name }
