package rscheduler_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/rscheduler"
)

// Whatever an expression says, it is refused, or its instants are whole seconds that rise, each the first one after any time before it.
func FuzzCron(f *testing.F) {
	for _, expr := range []string{
		"*/15 * * * *", "0 0 29 2 *", "0 30 2 * * *", "0 0 12 ? * 6#5 2026-2030", "0 0 LW * ?", "0 0 0 1W * ?", "@hourly", "0 0 L-31 * *", "59 59 23 31 12 ? 2099",
	} {
		f.Add(expr, uint8(1), int64(1_774_747_800))
	}
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(f, err)
	dialects := [][]rscheduler.CronOption{
		nil, {rscheduler.Quartz()}, {rscheduler.Spring()}, {rscheduler.Unix()}, {rscheduler.In(berlin)}, {rscheduler.Quartz(), rscheduler.In(berlin)},
	}
	f.Fuzz(func(t *testing.T, expr string, dialect uint8, seconds int64) {
		s, err := rscheduler.Cron(expr, dialects[int(dialect)%len(dialects)]...)
		if err != nil {
			require.ErrorIs(t, err, errs.ErrInvalid)
			return
		}
		after := time.Unix(seconds%4_102_444_800, 0).UTC() // before 2100
		for range 3 {
			next, ok := s.Next(after)
			if !ok {
				return
			}
			require.True(t, next.After(after), "%v after %v", next, after)
			assert.Zero(t, next.Nanosecond())
			again, ok := s.Next(after.Add(next.Sub(after) / 2))
			assert.True(t, ok && again.Equal(next), "%v, or %v", again, next)
			after = next
		}
	})
}
