package rsemaphore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// permitModel is what clients should have of one semaphore.
type permitModel struct {
	bubble   *locktest.Bubble
	clients  []*locktest.Peer
	observer *rsemaphore.PermitSemaphore // of a client that loses no replies: its calls take no time
	capacity int
	held     []heldPermit
	crashed  map[string]bool // ids that nobody holds any more, until their leases end
	count    map[string]int  // what was done
}

type heldPermit struct {
	client int
	permit *rsemaphore.Permit
}

// F13
func TestPermitModelAfterRandomOperationsAndCrashes(t *testing.T) {
	const round = 500 // operations in one bubble
	total := map[string]int{}
	all := faulttest.Rounds(t, 4*round, 50_000)
	for done := 0; done < all; done += round {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			m := &permitModel{bubble: b, capacity: 8, crashed: map[string]bool{}, count: total}
			for range 4 {
				m.clients = append(m.clients, m.client(t))
			}
			m.observer = m.client(t).GetPermitSemaphore("n")
			givePermits(t, m.observer, m.capacity)
			for range round {
				m.step(t)
				m.check(t)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%v", total)
}

func (m *permitModel) client(t *testing.T) *locktest.Peer {
	t.Helper()
	return m.bubble.Peer(t, redlatch.WithWatchdogTimeout(3*time.Second), redlatch.WithCloseGrace(0), redlatch.WithAbandonOnClose())
}

func (m *permitModel) semaphore(client int) *rsemaphore.PermitSemaphore {
	return m.clients[client].GetPermitSemaphore("n")
}

// step does one thing at random.
func (m *permitModel) step(t *testing.T) {
	t.Helper()
	client := rand.N(len(m.clients))
	switch n := rand.N(100); {
	case n < 25:
		m.acquire(t, "acquire", client, 1)
	case n < 35:
		m.acquire(t, "acquire n", client, 1+rand.N(4))
	case n < 40:
		m.acquire(t, "acquire with a lease", client, 1, rsemaphore.WithFixedLease(50*time.Millisecond+rand.N(3*time.Second)))
	case n < 70 && len(m.held) > 0:
		m.release(t, rand.N(len(m.held)))
	case n < 75 && len(m.held) > 0:
		m.extend(t, m.held[rand.N(len(m.held))].permit)
	case n < 85:
		m.count["time passes"]++
		time.Sleep(rand.N(time.Second))
	case n < 88:
		m.count["set"]++
		m.capacity = 1 + rand.N(12)
		require.NoError(t, m.semaphore(client).SetPermits(t.Context(), m.capacity))
	case n < 91:
		m.add(t, client)
	case n < 93:
		m.crash(t, client)
	case n < 97:
		m.count["reply lost"]++
		m.clients[client].LoseReplies(1)
	}
}

func (m *permitModel) acquire(t *testing.T, what string, client, n int, opts ...rsemaphore.PermitOption) {
	t.Helper()
	wait := rsemaphore.WithWait(time.Duration(rand.N(2)) * rand.N(time.Second))
	permits, err := m.semaphore(client).AcquireN(t.Context(), n, append(opts, wait)...)
	if err != nil {
		m.count[what+" in vain"]++
		if lost(err) {
			m.settle() // what the try may have left comes back within seconds
			return
		}
		require.ErrorIs(t, err, rsemaphore.ErrNotAcquired)
		return
	}
	m.count[what]++
	require.Len(t, permits, n)
	for _, p := range permits {
		m.held = append(m.held, heldPermit{client, p})
	}
}

func (m *permitModel) release(t *testing.T, i int) {
	t.Helper()
	p := m.held[i].permit
	live, deadline := p.Context().Err() == nil, p.ExpiresAt()
	err := p.Release(t.Context())
	live = live && (err == nil || time.Now().Before(deadline)) // it may end while replies are lost
	m.held = append(m.held[:i], m.held[i+1:]...)
	if !live {
		m.count["release of an expired one"]++
		require.ErrorIs(t, err, rsemaphore.ErrNotHeld)
		return
	}
	m.count["release"]++
	require.NoError(t, err)
	require.ErrorIs(t, p.Release(t.Context()), rsemaphore.ErrNotHeld, "a second time")
}

func (m *permitModel) extend(t *testing.T, p *rsemaphore.Permit) {
	t.Helper()
	live, deadline := p.Context().Err() == nil, p.ExpiresAt()
	lease := 50*time.Millisecond + rand.N(3*time.Second)
	if end := time.Now().Add(lease); end.Before(deadline) {
		deadline = end
	}
	err := p.Extend(t.Context(), lease)
	switch {
	case !live:
		require.ErrorIs(t, err, rsemaphore.ErrLost)
	case err != nil: // either lease may end while replies are lost
		require.True(t, errors.Is(err, rsemaphore.ErrLost) || errors.Is(err, redlatch.ErrUnknown), "%v", err)
		require.GreaterOrEqual(t, time.Now(), deadline.Add(-time.Millisecond))
		require.ErrorIs(t, context.Cause(p.Context()), rsemaphore.ErrLost)
	default:
		m.count["extend"]++
	}
}

func (m *permitModel) add(t *testing.T, client int) {
	t.Helper()
	delta := 1 + rand.N(3)
	if m.capacity > 6 {
		delta = -delta
	}
	m.count["add"]++
	m.capacity += delta
	require.NoError(t, m.semaphore(client).AddPermits(t.Context(), delta))
}

// crash ends a client with all its permits, and starts another one.
func (m *permitModel) crash(t *testing.T, client int) {
	t.Helper()
	m.count["crash"]++
	require.NoError(t, m.clients[client].Close())
	var left []heldPermit
	for _, h := range m.held {
		if h.client == client {
			m.crashed[h.permit.ID()] = true
			continue
		}
		left = append(left, h)
	}
	m.held = left
	m.clients[client] = m.client(t)
}

// settle waits until what a lost reply left behind is gone.
func (m *permitModel) settle() { time.Sleep(3 * time.Second) }

// check holds what Redis has against the model.
func (m *permitModel) check(t *testing.T) {
	t.Helper()
	synctest.Wait()
	rdb := m.bubble.Redis
	state, err := readPermits(t.Context(), rdb, "n")
	require.NoError(t, err)
	require.Equal(t, m.capacity, state.capacity(), "live + available = capacity: %v", state)
	now := time.Now().UnixMilli()
	holder := map[string]bool{}
	for _, h := range m.held {
		holder[h.permit.ID()] = h.permit.Context().Err() == nil
	}
	for id, ends := range state.ends(t) {
		if ends <= now {
			continue
		}
		_, known := holder[id]
		require.True(t, known || m.crashed[id], "nobody has permit %s, which has %d ms left", id, ends-now)
	}
	for id, holds := range holder {
		require.False(t, holds && state.out[id] == "", "the holder of %s does not have it", id)
	}
	before := m.capacity - state.live(t)
	got, err := m.observer.Available(t.Context())
	require.NoError(t, err)
	state, err = readPermits(t.Context(), rdb, "n")
	require.NoError(t, err)
	after := m.capacity - state.live(t) // what a lost reply left behind may be released meanwhile
	require.GreaterOrEqual(t, got, min(before, after), "available = capacity - live")
	require.LessOrEqual(t, got, max(before, after), "available = capacity - live")
}
