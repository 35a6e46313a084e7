package redistest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestClockOfAServerIsItsOwn(t *testing.T) {
	s, clock := redistest.StartClock(t, -time.Hour)
	rdb := s.Client(t)
	ahead := func(want time.Duration) {
		now, err := rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		assert.WithinDuration(t, time.Now().Add(want), now, time.Second)
	}
	ahead(-time.Hour)
	require.NoError(t, rdb.Set(t.Context(), "a", 1, time.Minute).Err())
	clock.Set(24 * time.Hour)
	ahead(24 * time.Hour)
	assert.Zero(t, rdb.Exists(t.Context(), "a").Val(), "its minute is over")
	s.Restart()
	ahead(24 * time.Hour)
}
