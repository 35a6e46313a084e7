package rlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// settled bounds the life of what a lost reply left behind: a phantom's first release is repeated after 0.1 and 0.5 s.
const settled = 1500 * time.Millisecond

// acquirer is a way to get the lock that goes on after an outcome that is not known.
type acquirer func(t *testing.T, r *rig, ctx context.Context, l *rlock.Lock) *rlock.Hold

func byLock(t *testing.T, _ *rig, ctx context.Context, l *rlock.Lock) *rlock.Hold {
	t.Helper()
	h, err := l.Lock(ctx)
	require.NoError(t, err)
	return h
}

// byTryLock asks again after ErrUnknown, once what the try may have left is gone.
func byTryLock(t *testing.T, r *rig, ctx context.Context, l *rlock.Lock) *rlock.Hold {
	t.Helper()
	for {
		h, err := l.TryLock(ctx)
		if !errors.Is(err, redlatch.ErrUnknown) {
			require.NoError(t, err)
			return h
		}
		redistest.Eventually(t, settled+r.lag.Late(), "a try of unknown outcome is released", func() error { return r.noKeys(t, l.Name()) })
	}
}

// life is what may happen to a lock, step by step. Each step leaves so many levels on the server.
var life = []struct {
	name   string
	levels int
	do     func(t *testing.T, p *patient)
}{
	{"Lock", 1, func(t *testing.T, p *patient) { p.outer = p.acquire(t, p.rig, t.Context(), p.lock) }},
	{"nested Lock", 2, func(t *testing.T, p *patient) { p.inner = p.acquire(t, p.rig, p.outer.Context(), p.lock) }},
	{"Extend", 2, func(t *testing.T, p *patient) { require.NoError(t, p.inner.Extend(t.Context(), 20*time.Second)) }},
	{"nested Unlock", 1, func(t *testing.T, p *patient) { require.NoError(t, p.inner.Unlock(t.Context())) }},
	{"HoldCount", 1, func(t *testing.T, p *patient) { require.Equal(t, 1, count(t, p.lock, p.outer)) }},
	{"Unlock", 0, func(t *testing.T, p *patient) { require.NoError(t, p.outer.Unlock(t.Context())) }},
}

// count asks for the levels of a hold until there is an answer: a question is given up after three lost replies.
func count(t *testing.T, l *rlock.Lock, h *rlock.Hold) (n int) {
	t.Helper()
	redistest.Eventually(t, settled, "the count is told", func() (err error) {
		n, err = l.HoldCount(h.Context())
		return err
	})
	return n
}

// patient is a lock that loses replies.
type patient struct {
	rig          *rig
	acquire      acquirer
	lock         *rlock.Lock
	outer, inner *rlock.Hold
}

// live takes the lock through its life. The fault begins before one step, and each step must come out as if there
// was none.
func (p *patient) live(t *testing.T, sick int, fault func()) {
	t.Helper()
	for i, step := range life {
		if i == sick {
			fault()
		}
		step.do(t, p)
		if step.levels == 0 {
			redistest.Eventually(t, settled+p.rig.lag.Late(), "nothing is left", func() error { return p.rig.noKeys(t, p.lock.Name()) })
			continue
		}
		require.NoError(t, p.rig.holds(t, p.lock.Name(), p.outer.Owner(), step.levels), step.name)
	}
}

// F2
func TestLostReplyChangesNoOutcome(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	r := newRig(t)
	acquirers := map[string]acquirer{"Lock": byLock, "TryLock": byTryLock}
	faults := map[string]func(n int){
		"the nth": func(n int) { r.proxy.DropReply(faulttest.Script, n) },
		"n":       func(n int) { r.proxy.DropReplies(faulttest.Script, n) },
	}
	for by, acquire := range acquirers {
		c := r.client(t, redlatch.WithWatchdogTimeout(lease))
		for which, fault := range faults {
			for sick, step := range life {
				for n := 1; n <= 4; n++ {
					name := fmt.Sprintf("%s: %s of %s=%d", by, which, step.name, n)
					before := r.proxy.Dropped()
					p := &patient{rig: r, acquire: acquire, lock: c.GetLock(name)}
					p.live(t, sick, func() { fault(n) })
					require.False(t, t.Failed(), name)
					useUp(t, r, p.lock, before+lost(which, n))
				}
			}
		}
	}
	r.empty(t, settled)
}

func lost(which string, n int) int {
	if which == "n" {
		return n
	}
	return 1
}

// useUp has the replies lost that are still to be lost, so that they do not meet the next run.
func useUp(t *testing.T, r *rig, l *rlock.Lock, dropped int) {
	t.Helper()
	redistest.Eventually(t, patience, "all replies are lost", func() error {
		if n := r.proxy.Dropped(); n != dropped {
			_, _ = l.IsLocked(t.Context()) // It may fail: its reply is what is lost.
			return fmt.Errorf("%d of %d", n, dropped)
		}
		return nil
	})
}

// F2
func TestForcedReleaseFreesOneHolderAtMost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.load(t, "force")
	forced := r.client(t, redlatch.WithWatchdogTimeout(lease)).GetLock("forced")
	locktest.Acquire(t, t.Context(), r.direct(t, redlatch.WithWatchdogTimeout(lease)).GetLock("forced"))
	next := r.direct(t, redlatch.WithWatchdogTimeout(lease)).GetLock("forced")
	waiting := locktest.Begin(func() (*rlock.Hold, error) { return next.Lock(t.Context()) })
	r.listening(t, 1)
	r.proxy.DropReply(faulttest.Script, 1)
	_, err := forced.ForceUnlock(t.Context())
	require.ErrorIs(t, err, redlatch.ErrUnknown)
	hold := locktest.Next(t, waiting)
	require.NoError(t, r.holds(t, "forced", hold.Owner(), 1))
	locktest.Unlock(t, hold)
}

// model is what the server should have: the levels of one lock that a client holds, in the order of their nesting.
type model struct {
	rig    *rig
	lock   *rlock.Lock
	levels []*rlock.Hold
}

// F2
func TestRandomLostRepliesAgreeWithAModel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c := r.client(t, redlatch.WithWatchdogTimeout(lease))
	var models []*model
	for i := range 4 {
		models = append(models, &model{rig: r, lock: c.GetLock(fmt.Sprintf("model-%d", i))})
	}
	for range faulttest.Rounds(t, 300, 10_000) {
		if rand.N(3) == 0 {
			r.proxy.DropReply(faulttest.Script, 1+rand.N(3))
		}
		m := models[rand.N(len(models))]
		m.step(t)
		m.check(t)
	}
	t.Logf("%d replies were lost", r.proxy.Dropped())
	for _, m := range models {
		for len(m.levels) > 0 {
			m.unlock(t)
		}
		m.check(t)
	}
	r.empty(t, settled)
}

// step does one thing at random.
func (m *model) step(t *testing.T) {
	t.Helper()
	switch n := rand.N(10); {
	case len(m.levels) == 0 && n < 5:
		m.levels = append(m.levels, byLock(t, m.rig, t.Context(), m.lock))
	case len(m.levels) == 0:
		m.levels = append(m.levels, byTryLock(t, m.rig, t.Context(), m.lock))
	case n < 3:
		ctx := m.levels[len(m.levels)-1].Context()
		m.levels = append(m.levels, byLock(t, m.rig, ctx, m.lock))
	case n < 4:
		_, err := m.lock.TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired, "a stranger")
	case n < 5:
		require.NoError(t, m.levels[rand.N(len(m.levels))].Extend(t.Context(), lease))
	case n < 6:
		require.Equal(t, len(m.levels), count(t, m.lock, m.levels[len(m.levels)-1]))
	default:
		m.unlock(t)
	}
}

// unlock ends a level, any of them.
func (m *model) unlock(t *testing.T) {
	t.Helper()
	i := rand.N(len(m.levels))
	require.NoError(t, m.levels[i].Unlock(t.Context()))
	require.ErrorIs(t, m.levels[i].Unlock(t.Context()), rlock.ErrNotHeld, "a second time")
	m.levels = append(m.levels[:i], m.levels[i+1:]...)
}

func (m *model) check(t *testing.T) {
	t.Helper()
	if len(m.levels) == 0 {
		redistest.Eventually(t, settled+m.rig.lag.Late(), "nothing is left", func() error { return m.rig.noKeys(t, m.lock.Name()) })
		return
	}
	require.NoError(t, m.rig.holds(t, m.lock.Name(), m.levels[0].Owner(), len(m.levels)))
	for _, h := range m.levels {
		assert.NoError(t, h.Context().Err())
	}
}
