package rscheduler

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBackfillOfAnyLengthLeavesNothingOut(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	const missed = 2*maxTicks + 5
	j := &job{name: "job", schedule: Every(time.Second), options: jobOptions{overlap: Allow, backfill: true, catchUp: 24 * time.Hour}}
	j.text = j.schedule.String()
	m := mark{last: now.Add(-missed * time.Second).UnixMicro()}
	s := standing{job: j, text: j.text, mark: m.write(j.text)}
	var late, regular []time.Time
	for range 4 { // heartbeats
		ticks, before := s.ticks(now)
		for _, tick := range ticks {
			if at := time.UnixMicro(tick.Instant); tick.Kind == catchUp {
				late = append(late, at)
			} else {
				regular = append(regular, at)
			}
		}
		assert.Equal(t, s.mark, before, "what is not yet offered is not yet marked")
		s.mark = ticks[len(ticks)-1].after.write(j.text)
		now = now.Add(beatEvery)
	}
	require.Equal(t, missed, len(late)) //nolint:testifylint // Len would print all
	for i, at := range append(late, regular...) {
		require.Equal(t, time.Unix(int64(1_000_000-missed+1+i), 0), at)
	}
	assert.Equal(t, now.Add(horizon-beatEvery+time.Second), regular[len(regular)-1], "others go on meanwhile")
}
