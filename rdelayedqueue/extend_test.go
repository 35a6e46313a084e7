package rdelayedqueue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// extender is a consumer whose handler extends its message by an hour when told, and works until its context ends.
type extender struct {
	peer     *locktest.Peer
	other    *rdelayedqueue.Queue[job]
	extend   chan struct{} // closed by the test
	extended chan struct{} // closed by the handler
	ended    chan error    // 1: the cause
}

func newExtender(t *testing.T, b *locktest.Bubble) *extender {
	t.Helper()
	e := &extender{
		peer: b.Peer(t), other: jobs(b.Peer(t)),
		extend: make(chan struct{}), extended: make(chan struct{}), ended: make(chan error, 1),
	}
	offer(t, e.other, "x", 0)
	m := take(t, e.other)
	require.NoError(t, m.Extend(t.Context(), time.Minute)) // the server knows the script
	require.NoError(t, m.Ack(t.Context()))
	consume(t, jobs(e.peer), func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
		<-e.extend
		assert.NoError(t, m.Extend(ctx, time.Hour))
		close(e.extended)
		<-ctx.Done()
		e.ended <- context.Cause(ctx)
		return nil
	}, rdelayedqueue.WithStopGrace(0))
	offer(t, e.other, "a", 0)
	synctest.Wait()
	require.Equal(t, rdelayedqueue.Stats{InFlight: 1}, stats(t, e.other))
	return e
}

// F5
func TestLateRenewalTakesNothingOffAnExtend(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		e := newExtender(t, b)
		time.Sleep(19 * time.Second) // the first renewal makes the script known
		e.peer.Withhold(1)
		time.Sleep(1500 * time.Millisecond) // a renewal is on its way
		close(e.extend)
		<-e.extended
		require.Equal(t, 1, e.peer.Deliver(t))
		e.peer.Blackhole(true) // no later one mends it
		time.Sleep(59 * time.Minute)
		assert.Equal(t, rdelayedqueue.Stats{InFlight: 1}, stats(t, e.other))
		assert.Empty(t, e.ended)
		time.Sleep(time.Minute)
		assert.ErrorIs(t, <-e.ended, rdelayedqueue.ErrLost)
		e.peer.Blackhole(false)
	})
}

func TestRenewalsGoOnAfterAnExtend(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		e := newExtender(t, b)
		close(e.extend)
		<-e.extended
		start := time.Now()
		_, err := e.other.Purge(t.Context(), rdelayedqueue.InFlight)
		require.NoError(t, err)
		assert.ErrorIs(t, <-e.ended, rdelayedqueue.ErrLost)
		assert.WithinDuration(t, start.Add(10*time.Second), time.Now(), time.Second, "a third of the visibility")
	})
}

func TestExtendMayShortenAClaimThatIsNotRenewed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "a", 0)
		m := take(t, q)
		require.NoError(t, m.Extend(t.Context(), time.Second))
		start := time.Now()
		<-m.Context().Done()
		assert.WithinDuration(t, start.Add(990*time.Millisecond), time.Now(), 2*time.Millisecond, "the margin is 1 %")
		assert.Equal(t, rdelayedqueue.Stats{InFlight: 1}, stats(t, q), "nobody else can have it")
		time.Sleep(time.Until(start.Add(time.Second + 2*time.Millisecond)))
		assert.Equal(t, rdelayedqueue.Stats{Ready: 1}, stats(t, q))
	})
}
