package rdelayedqueue_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// member is a message of a groupModel.
type member struct {
	id, group   string
	priority    int
	place       int // of operations; that of one with a delay is far behind
	number      int // of offers
	state       rdelayedqueue.State
	held        *rdelayedqueue.Message[job]
	replacement *member // of one in flight
}

// groupModel is what a queue with groups and priorities should hold, and what is done to it at random.
type groupModel struct {
	q       *rdelayedqueue.Queue[job]
	sound   *rdelayedqueue.Queue[job] // whose replies are not lost
	random  *rand.Rand
	limit   int
	skips   bool
	step    int
	numbers int
	all     map[string]*member
	ghosts  []*member // cancelled in flight, whose holder has not ended them
}

const farOff = 1 << 40

// when returns a delay, and the place and the state of what is due after it.
func (g *groupModel) when() (time.Duration, int, rdelayedqueue.State) {
	if g.random.IntN(3) == 0 {
		return 24 * time.Hour, g.step + farOff, rdelayedqueue.Delayed
	}
	return 0, g.step, rdelayedqueue.Ready
}

// terms chooses a group and a priority. What replaces a message in flight has those of that whatever its offer says.
func (g *groupModel) terms(m, old *member) []rdelayedqueue.OfferOption {
	var opts []rdelayedqueue.OfferOption
	m.group, m.priority = []string{"", "a1", "a0 e2\u00e9", "g3s:e4"}[g.random.IntN(4)], max(0, g.random.IntN(4)-1)*4
	if m.group != "" {
		opts = append(opts, rdelayedqueue.WithGroup(m.group))
	}
	if m.priority > 0 {
		opts = append(opts, rdelayedqueue.WithPriority(m.priority))
	}
	if old != nil && old.held != nil {
		m.group, m.priority = old.group, old.priority
	}
	return opts
}

func (g *groupModel) offer(t *testing.T) {
	delay, place, state := g.when()
	m := &member{id: strconv.Itoa(g.random.IntN(60)), place: place, state: state}
	old := g.all[m.id]
	if old != nil && old.state == rdelayedqueue.Dead {
		return
	}
	opts := append(g.terms(m, old), rdelayedqueue.WithID(m.id), rdelayedqueue.WithReplace())
	_, outcome, err := g.q.OfferNew(t.Context(), job{}, delay, opts...)
	require.NoError(t, err)
	g.numbers++
	m.number = g.numbers
	switch {
	case old == nil:
		require.Equal(t, rdelayedqueue.Added, outcome)
	case old.held != nil:
		m.number = old.number
		old.replacement = m
		return
	default:
		require.Equal(t, rdelayedqueue.Replaced, outcome)
	}
	g.all[m.id] = m
}

// flying counts the messages of a group that hold a place.
func (g *groupModel) flying(group string) (n int) {
	for _, m := range g.all {
		if m.group == group && m.held != nil {
			n++
		}
	}
	for _, m := range g.ghosts {
		if m.group == group {
			n++
		}
	}
	return n
}

// first returns the message of a group that is next.
func (g *groupModel) first(group string) (first *member) {
	for _, m := range g.all {
		waits := m.state == rdelayedqueue.Delayed || m.state == rdelayedqueue.Ready
		if m.group == group && waits && (first == nil || m.place < first.place || m.place == first.place && m.number < first.number) {
			first = m
		}
	}
	return first
}

// claimable reports whether a message may be claimed.
func (g *groupModel) claimable(m *member) bool {
	return m.state == rdelayedqueue.Ready && (m.group == "" || g.flying(m.group) < g.limit && g.first(m.group) == m)
}

func (g *groupModel) take(t *testing.T) {
	best := -1
	for _, m := range g.all {
		if g.claimable(m) {
			best = max(best, m.priority)
		}
	}
	wait := 10 * time.Second // for a reply that is lost
	if best < 0 {
		wait = 50 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	taken, err := g.q.Take(ctx)
	if best < 0 {
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return
	}
	require.NoError(t, err)
	m := g.all[taken.ID]
	require.NotNil(t, m, taken.ID)
	require.True(t, g.claimable(m), "%+v", m)
	require.Equal(t, best, m.priority)
	m.held, m.state = taken, rdelayedqueue.InFlight
}

func (g *groupModel) pick(states ...rdelayedqueue.State) *member {
	var ids []string
	for id, m := range g.all {
		if slices.Contains(states, m.state) {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	return g.all[ids[g.random.IntN(len(ids))]]
}

// again has a message wait whose attempt has ended.
func (g *groupModel) again(m *member, place int, state rdelayedqueue.State) {
	m.held, m.state = nil, state
	if g.skips {
		m.place = place
	}
	if r := m.replacement; r != nil {
		r.place = max(r.place, g.step)
		g.all[m.id] = r
	}
}

// finish ends the work on a message in one way or another.
func (g *groupModel) finish(t *testing.T) {
	if len(g.ghosts) > 0 && g.random.IntN(2) == 0 {
		require.ErrorIs(t, g.ghosts[0].held.Ack(t.Context()), rdelayedqueue.ErrNotHeld)
		g.ghosts = g.ghosts[1:]
		return
	}
	m := g.pick(rdelayedqueue.InFlight)
	if m == nil {
		return
	}
	delay, place, state := g.when()
	switch how := g.random.IntN(7); how {
	case 0:
		require.NoError(t, m.held.Nack(t.Context(), delay))
		g.again(m, place, state)
	case 1:
		require.NoError(t, m.held.Snooze(t.Context(), delay))
		g.again(m, place, state)
	case 2: // its claim runs out
		require.NoError(t, m.held.Extend(t.Context(), 10*time.Millisecond))
		time.Sleep(11 * time.Millisecond)
		g.sweep(t)
		if m.replacement != nil {
			g.all[m.id] = m.replacement
			return
		}
		g.again(m, g.step, rdelayedqueue.Ready)
	case 3:
		s := &member{id: m.id, place: place, number: m.number, state: state}
		opts := g.terms(s, nil)
		if s.group == "" {
			s.group = m.group
		}
		if s.priority == 0 {
			s.priority = m.priority
		}
		require.NoError(t, m.held.Successor(t.Context(), job{}, delay, opts...))
		g.all[m.id] = s
	case 4:
		require.NoError(t, m.held.Reject(t.Context(), "x"))
		g.again(m, 0, rdelayedqueue.Dead)
	default:
		require.NoError(t, m.held.Ack(t.Context()))
		g.again(m, 0, rdelayedqueue.Dead)
		if g.all[m.id] == m {
			delete(g.all, m.id)
		}
	}
}

// sweep has Redis see to claims that ran out, which any claim does.
func (g *groupModel) sweep(t *testing.T) {
	require.NoError(t, g.sound.Pause(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := g.sound.Take(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, g.sound.Resume(t.Context()))
}

// operate cancels, reschedules or redrives.
func (g *groupModel) operate(t *testing.T) {
	delay, place, state := g.when()
	switch g.random.IntN(3) {
	case 0:
		m := g.pick(rdelayedqueue.Delayed, rdelayedqueue.Ready, rdelayedqueue.InFlight, rdelayedqueue.Dead)
		if m == nil {
			return
		}
		ok, err := g.q.Cancel(t.Context(), m.id)
		require.NoError(t, err)
		require.True(t, ok)
		delete(g.all, m.id)
		if m.held != nil && m.group != "" {
			g.ghosts = append(g.ghosts, m)
		}
	case 1:
		if m := g.pick(rdelayedqueue.Delayed, rdelayedqueue.Ready); m != nil {
			ok, err := g.q.Reschedule(t.Context(), m.id, delay)
			require.NoError(t, err)
			require.True(t, ok)
			m.place, m.state = place, state
		}
	case 2:
		if m := g.pick(rdelayedqueue.Dead); m != nil {
			ok, err := g.q.Redrive(t.Context(), m.id)
			require.NoError(t, err)
			require.True(t, ok)
			m.place, m.state = g.step, rdelayedqueue.Ready
		}
	}
}

func (g *groupModel) stats() (s rdelayedqueue.Stats) {
	groups := map[string]int{}
	for _, m := range g.all {
		waits := false
		switch m.state {
		case rdelayedqueue.Delayed:
			s.Delayed++
			waits = true
		case rdelayedqueue.Ready:
			s.Ready++
			waits = true
		case rdelayedqueue.InFlight:
			s.InFlight++
		case rdelayedqueue.Dead:
			s.Dead++
		}
		if waits && m.priority > 0 {
			s.Priorities[m.priority]++
		}
		if waits && m.group != "" {
			groups[m.group]++
		}
	}
	for group, n := range groups {
		if n > 1 || g.flying(group) >= g.limit {
			s.Groups++
		}
	}
	return s
}

// F2, F5
func TestGroupsEqualTheirModelAfterLostReplies(t *testing.T) {
	for _, skips := range []bool{false, true} {
		for limit := 1; limit <= 2; limit++ {
			seed := rand.Uint64()
			t.Logf("skips %t, limit %d, seed %d", skips, limit, seed)
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				opts := []rdelayedqueue.QueueOption{
					rdelayedqueue.WithVisibility(7 * 24 * time.Hour), rdelayedqueue.WithMaxAttempts(0), rdelayedqueue.WithGroupLimit(limit),
				}
				if skips {
					opts = append(opts, rdelayedqueue.WithGroupSkip())
				}
				g := &groupModel{
					q: jobs(p, opts...), random: rand.New(rand.NewPCG(seed, 0)), limit: limit, skips: skips, all: map[string]*member{},
				}
				sound := jobs(b.Peer(t))
				g.sound = sound
				operations := []func(*testing.T){g.offer, g.offer, g.take, g.take, g.finish, g.finish, g.operate}
				for i := range faulttest.Rounds(t, 200, 4000) {
					if g.random.IntN(3) == 0 {
						p.LoseReplies(1 + g.random.IntN(3))
					}
					g.step++
					time.Sleep(time.Millisecond)
					operations[g.random.IntN(len(operations))](t)
					got := stats(t, sound)
					got.Oldest, got.Failed = 0, 0
					require.Equal(t, g.stats(), got, "after operation %d", i)
				}
				p.LoseReplies(0)
				for _, m := range g.ghosts {
					require.ErrorIs(t, m.held.Ack(t.Context()), rdelayedqueue.ErrNotHeld)
				}
				for _, s := range []rdelayedqueue.State{rdelayedqueue.InFlight, rdelayedqueue.Delayed, rdelayedqueue.Ready, rdelayedqueue.Dead} {
					listed := map[string]bool{}
					for e, err := range sound.All(t.Context(), s) {
						require.NoError(t, err)
						m := g.all[e.ID]
						require.NotNil(t, m, e.ID)
						require.Equal(t, m.state, e.State)
						require.Equal(t, m.group, e.Group)
						require.Equal(t, m.priority, e.Priority)
						listed[e.ID] = true
					}
					for id, m := range g.all {
						require.Equal(t, m.state == s, listed[id], id)
					}
					_, err := sound.Purge(t.Context(), s)
					require.NoError(t, err)
					for id, m := range g.all {
						if m.state != s {
							continue
						}
						if m.held != nil {
							_ = m.held.Ack(t.Context()) // frees its place
						}
						delete(g.all, id)
					}
				}
				for _, key := range b.Keys(t) {
					require.False(t, strings.HasSuffix(key, ":groups") || strings.HasSuffix(key, ":places") || strings.HasSuffix(key, ":due"), key)
				}
			})
		}
	}
}
