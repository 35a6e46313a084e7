package rdelayedqueue_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// model is what a queue should hold, and what is done to it at random.
type model struct {
	q        *rdelayedqueue.Queue[job]
	random   *rand.Rand
	states   map[string]rdelayedqueue.State
	attempts map[string]int
	done     map[string]bool
	next     map[string]rdelayedqueue.State // of what has replaced a message in flight
	held     []*rdelayedqueue.Message[job]
}

// offer offers under one of a few ids, most of them taken, and replaces what has the id at times.
func (m *model) offer(t *testing.T) {
	id := strconv.Itoa(m.random.IntN(40) + len(m.done))
	delay, state := time.Duration(0), rdelayedqueue.Ready
	if m.random.IntN(2) == 0 {
		delay, state = 24*time.Hour, rdelayedqueue.Delayed
	}
	opts := []rdelayedqueue.OfferOption{rdelayedqueue.WithID(id)}
	replaces := m.random.IntN(2) == 0
	if replaces {
		opts = append(opts, rdelayedqueue.WithReplace())
	}
	before, lives := m.states[id]
	want := rdelayedqueue.Kept
	switch {
	case before == rdelayedqueue.Dead:
		_, _, err := m.q.OfferNew(t.Context(), job{Name: id}, delay, opts...)
		require.ErrorIs(t, err, rdelayedqueue.ErrDead)
		return
	case lives && replaces:
		want = rdelayedqueue.Replaced
	case !lives && (replaces || !m.done[id]):
		want = rdelayedqueue.Added
	}
	_, outcome, err := m.q.OfferNew(t.Context(), job{Name: id}, delay, opts...)
	require.NoError(t, err)
	require.Equal(t, want, outcome, id)
	switch {
	case outcome == rdelayedqueue.Kept:
	case before == rdelayedqueue.InFlight:
		m.next[id], m.attempts[id] = state, 0
	default:
		m.states[id], m.attempts[id] = state, 0
		if m.done[id] {
			m.done[id] = false // what was done before keeps none out any more
		}
	}
}

func (m *model) take(t *testing.T) {
	if m.pick(rdelayedqueue.Ready) == "" {
		return
	}
	messages, err := m.q.TakeBatch(t.Context(), 1+m.random.IntN(3))
	require.NoError(t, err)
	for _, taken := range messages {
		require.Equal(t, rdelayedqueue.Ready, m.states[taken.ID], taken.ID)
		m.states[taken.ID] = rdelayedqueue.InFlight
		m.attempts[taken.ID]++
		require.Equal(t, m.attempts[taken.ID], taken.Attempt, "a claim whose reply was lost does not count")
	}
	m.held = append(m.held, messages...)
}

// finish ends the work on a message in one way or another.
func (m *model) finish(t *testing.T) {
	if len(m.held) == 0 {
		return
	}
	i := m.random.IntN(len(m.held))
	taken := m.held[i]
	how := m.random.IntN(7)
	if how == 0 {
		require.NoError(t, taken.Extend(t.Context(), 24*time.Hour))
		return
	}
	m.held = append(m.held[:i], m.held[i+1:]...)
	if how == 6 {
		require.NoError(t, taken.Successor(t.Context(), job{Name: taken.ID}, 24*time.Hour))
		m.states[taken.ID], m.attempts[taken.ID] = rdelayedqueue.Delayed, 0
		delete(m.next, taken.ID)
		return
	}
	if next, replaced := m.next[taken.ID]; replaced {
		defer func() {
			m.states[taken.ID] = next
			delete(m.next, taken.ID)
		}()
	}
	switch how {
	case 1:
		require.NoError(t, taken.Nack(t.Context(), 0))
		m.states[taken.ID] = rdelayedqueue.Ready
	case 2:
		require.NoError(t, taken.Nack(t.Context(), 24*time.Hour))
		m.states[taken.ID] = rdelayedqueue.Delayed
	case 3:
		require.NoError(t, taken.Snooze(t.Context(), 24*time.Hour))
		m.states[taken.ID] = rdelayedqueue.Delayed
		m.attempts[taken.ID] = max(0, m.attempts[taken.ID]-1) // 0 of one that was replaced
	case 4:
		require.NoError(t, taken.Reject(t.Context(), "x"))
		m.states[taken.ID] = rdelayedqueue.Dead
	default:
		require.NoError(t, taken.Ack(t.Context()))
		_, replaced := m.next[taken.ID]
		m.done[taken.ID] = m.done[taken.ID] || !replaced
		delete(m.states, taken.ID)
	}
}

// operate cancels, reschedules or redrives.
func (m *model) operate(t *testing.T) {
	delayed, dead := m.pick(rdelayedqueue.Delayed), m.pick(rdelayedqueue.Dead)
	ok, err := true, error(nil)
	switch how := m.random.IntN(3); {
	case how == 0 && delayed != "":
		ok, err = m.q.Cancel(t.Context(), delayed)
		delete(m.states, delayed)
	case how == 1 && delayed != "":
		ok, err = m.q.Reschedule(t.Context(), delayed, 0)
		m.states[delayed] = rdelayedqueue.Ready
	case how == 2 && dead != "":
		ok, err = m.q.Redrive(t.Context(), dead)
		m.states[dead], m.attempts[dead] = rdelayedqueue.Ready, 0
	}
	require.NoError(t, err)
	require.True(t, ok)
}

// pick returns some id in a state, or nothing.
func (m *model) pick(s rdelayedqueue.State) string {
	for id, state := range m.states {
		if state == s {
			return id
		}
	}
	return ""
}

func (m *model) stats() (s rdelayedqueue.Stats) {
	for _, state := range m.states {
		switch state {
		case rdelayedqueue.Delayed:
			s.Delayed++
		case rdelayedqueue.Ready:
			s.Ready++
		case rdelayedqueue.InFlight:
			s.InFlight++
		case rdelayedqueue.Dead:
			s.Dead++
		}
	}
	return s
}

// F2
func TestQueueEqualsItsModelAfterLostReplies(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		sound := jobs(b.Peer(t))
		m := &model{
			q:      jobs(p, rdelayedqueue.WithVisibility(24*time.Hour), rdelayedqueue.WithMaxAttempts(0), rdelayedqueue.WithDedupe(24*time.Hour)),
			random: rand.New(rand.NewPCG(seed, 0)), states: map[string]rdelayedqueue.State{}, attempts: map[string]int{}, done: map[string]bool{},
			next: map[string]rdelayedqueue.State{},
		}
		operations := []func(*testing.T){m.offer, m.offer, m.take, m.finish, m.finish, m.operate}
		for i := range faulttest.Rounds(t, 1500, 15_000) {
			if m.random.IntN(3) == 0 {
				p.LoseReplies(1 + m.random.IntN(3))
			}
			operations[m.random.IntN(len(operations))](t)
			require.Equal(t, m.stats(), stats(t, sound), "after operation %d", i)
		}
		p.LoseReplies(0)
		for id, state := range m.states {
			e, err := sound.Get(t.Context(), id)
			require.NoError(t, err)
			require.NotNil(t, e, id)
			assert.Equal(t, state, e.State, id)
			assert.Equal(t, id, e.Value.Name)
			assert.Equal(t, m.attempts[id], e.Attempt, id)
		}
	})
}
