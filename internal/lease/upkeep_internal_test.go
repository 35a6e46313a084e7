package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/timer"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// queued is a kind whose waiters are woken alone, as far as an upkeep asks it.
type queued struct{ Apart }

func (queued) Period() time.Duration { return time.Second }

// A waiter that was refused joins its channel next, on which the release may have been announced already. The sweep that
// looks for that may be sent before the waiter has returned from its attempt.
func TestSweepSentAfterARefusalIsHeeded(t *testing.T) {
	c := clock.New()
	e := &core.Core{Clock: c, Timers: timer.New(c.Now)}
	t.Cleanup(e.Timers.Close)
	s := &Space{Registry: &Registry{core: e}, apart: queued{}}
	sh := &shard{queues: map[string]*queue{}}
	n := &Name{space: s, key: "orders"}
	w := n.joinLocked(t.Context(), sh, none)
	w.entry, w.queue.joining = "1", true
	wakeups := w.queue.Asking(&w.Waiter, c.Now())

	w.busy(wakeups, tried{ttl: time.Minute})
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sweeps := w.upkeep.sweepsLocked()
	require.Len(t, sweeps, 1)
	sweeps[0].resumeLocked(1, c.Now())
	next, _ := w.Next(c.Now())
	assert.Equal(t, waitqueue.Ask, next, "it asks now")
}
