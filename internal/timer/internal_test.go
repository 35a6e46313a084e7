package timer

import (
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimerIsSmall(t *testing.T) {
	assert.LessOrEqual(t, unsafe.Sizeof(Timer{}), uintptr(40))
}

func TestOneStepMovesAtMostAThousand(t *testing.T) {
	const n = 2500
	w := New(func() time.Duration { return 0 })
	timers := make([]Timer, n)
	for i := range timers {
		timers[i].tick = 512 + int64(i)%256
		w.slots.link(&timers[i])
	}
	w.count = n

	moving := func() int { return len(w.slots.moving.appendTo(nil)) }
	steps := 0
	for before, settled := n, false; !settled; steps++ {
		require.Less(t, steps, 4)
		settled = w.advanceLocked(512)
		after := moving()
		assert.LessOrEqual(t, before-after, maxMoves)
		before = after
	}
	assert.Equal(t, 3, steps)

	batch := w.takeLocked(nil)
	assert.Len(t, batch, 10, "every 256th is due at 512")
}

// A tick may be the beginning of slots of several levels, each with a timer that was set from another distance.
func TestSlotsThatBeginTogetherOpenTogether(t *testing.T) {
	for _, edge := range []int64{1 << 8, 1 << 16, 1 << 24, 3<<16 + 7<<8} {
		w := New(func() time.Duration { return 0 })
		var timers [2 * levels]Timer
		for i := range levels { // from afar to close by
			require.True(t, w.advanceLocked(edge-edge>>(slotBits*i)))
			on, after := &timers[2*i], &timers[2*i+1]
			on.tick, after.tick = edge, edge+1
			w.slots.link(on)
			w.slots.link(after)
			w.count += 2
		}
		require.True(t, w.advanceLocked(edge))
		assert.Len(t, w.takeLocked(nil), levels, "due at %d", edge)
		require.True(t, w.advanceLocked(edge+1))
		assert.Len(t, w.takeLocked(nil), levels, "due right after %d", edge)
		assert.Zero(t, w.count)
	}
}

func TestTakeFillsABatchAndLeavesTheRest(t *testing.T) {
	w := New(func() time.Duration { return 0 })
	timers := make([]Timer, maxBatch+1)
	for i := range timers {
		w.slots.link(&timers[i])
	}
	assert.Len(t, w.takeLocked(nil), maxBatch)
	assert.Len(t, w.takeLocked(nil), 1)
}

// The slot found first must be the one a search through all of them finds, and must begin neither late nor in the past.
func TestFirstSlotIsNeverLate(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var s slots
		s.init(rng.Int64N(1 << rng.IntN(40)))
		timers := make([]Timer, 1+rng.IntN(20))
		earliest, earliestStart := int64(never), int64(never)
		for i := range timers {
			timers[i].tick = s.cur + 1 + rng.Int64N(1<<rng.IntN(36))
			earliest = min(earliest, timers[i].tick)
			start := s.link(&timers[i])
			require.Greater(t, start, s.cur)
			require.LessOrEqual(t, start, timers[i].tick)
			earliestStart = min(earliestStart, start)
		}
		require.Equal(t, earliestStart, s.first(), "link promises the start that first finds")
		for fired := false; !fired; {
			start := s.first()
			require.LessOrEqual(t, start, earliest)
			s.open(start)
			require.False(t, s.due.empty() && s.moving.empty())
			for !s.moving.empty() {
				e := s.moving.next
				s.unlink(e)
				s.link(e)
			}
			fired = !s.due.empty()
		}
		require.Equal(t, earliest, s.cur)
		require.Equal(t, earliest, s.due.next.tick)

		for _, e := range s.appendTo(nil) {
			s.unlink(e)
		}
		require.Zero(t, s.occupied)
	}
}
