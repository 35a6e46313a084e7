package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/timer"
)

// queue is a kind that knows its waiters, as far as a patrol asks it.
type queue struct{ Apart }

func (queue) Period() time.Duration { return time.Second }

// A waiter that was refused joins its channel next, on which the release may have been announced already. The patrol that
// looks for that may be sent before the waiter has returned from its try.
func TestPatrolSentAfterARefusalIsHeeded(t *testing.T) {
	c := clock.New()
	e := &core.Core{Clock: c, Timers: timer.New(c.Now)}
	t.Cleanup(e.Timers.Close)
	s := &Space{Registry: &Registry{core: e}, apart: queue{}}
	sh := &shard{}
	l := &line{space: s, shard: sh, key: "orders", joining: true}
	w := &waiter{line: l, space: s, options: &Options{}, entry: "1", asks: 1, trying: true}
	l.head, l.tail, l.tryAt = w, w, never

	w.busy(l.wakes, tried{ttl: time.Minute})
	sh.mu.Lock()
	defer sh.mu.Unlock()
	rounds := w.patrol.roundsLocked()
	require.Len(t, rounds, 1)
	rounds[0].resumeLocked(1, c.Now())
	assert.LessOrEqual(t, l.tryAt, c.Now(), "it asks now")
}
