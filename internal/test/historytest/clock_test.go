package historytest_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/historytest"
)

// leased is an event of a hold, by its name.
type leased struct {
	name string
	kind string
}

func (l leased) Object() string { return "" }

// F18
func TestOnlyWhatAStepAheadMetIsExcused(t *testing.T) {
	h := historytest.New[leased]()
	h.Steps = historytest.WideSteps
	rdb := h.Serve(t).Client(t)
	h.Add(leased{"early", "begins"}, 0, 1)
	h.Add(leased{"early", "ends"}, 2, 3)
	h.Add(leased{"met", "begins"}, 0, 1)
	began := h.Now()
	var shown atomic.Int64
	require.Eventually(t, func() bool {
		now, err := rdb.Time(t.Context()).Result()
		shown.Store(int64(time.Until(now)))
		return err == nil && time.Duration(shown.Load()) > time.Minute
	}, 20*time.Second, 10*time.Millisecond)
	h.Calm()
	earliest, latest, highest := h.ServerTime(began, h.Now())
	assert.Equal(t, began, earliest, "the clock had not stepped at first")
	assert.Greater(t, latest, shown.Load())
	assert.LessOrEqual(t, latest, highest)
	end := h.Now()
	h.Add(leased{"met", "ends"}, end, end+1)
	late := end + int64(time.Minute)
	h.Add(leased{"late", "begins"}, late, late+1)
	h.Add(leased{"late", "ends"}, late+2, late+3)
	ops := h.Excused(func(e leased) ([]leased, bool) { return []leased{{e.name, "gone"}}, e.kind == "begins" })
	require.Len(t, ops, 6)
	assert.Equal(t, historytest.Op[leased]{Event: leased{"early", "ends"}, Call: 2, Back: 3}, ops[1])
	assert.Equal(t, leased{"met", "gone"}, ops[3].Event)
	assert.Less(t, ops[3].Call, end)
	assert.Equal(t, end+1, ops[3].Back)
	assert.Equal(t, historytest.Op[leased]{Event: leased{"late", "ends"}, Call: late + 2, Back: late + 3}, ops[5])
	earliest, _, _ = h.ServerTime(late, late)
	assert.Equal(t, late+int64(historytest.WideSteps), earliest)
}
