package rdelayedqueue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
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

// F6, F25
func TestExtendThatWasNotDoneShortensNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		offer(t, q, "a", 0)
		m := take(t, q)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, m.Extend(done, 10*time.Millisecond))

		p.Down(true)
		for range 2 { // the first time go-redis finds that its connections are closed
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, err := q.Stats(ctx)
			require.Error(t, err)
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, m.Extend(ctx, time.Second), redlatch.ErrUnavailable)
		p.Down(false)

		time.Sleep(20 * time.Second)
		require.NoError(t, m.Context().Err())
		require.NoError(t, m.Ack(t.Context()))
	})
}

// F1, F2
func TestExtendWithoutAReplyThatShortensAClaimEndsTheContextInTime(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q, other := jobs(p), jobs(b.Peer(t))
		offer(t, other, "x", 0)
		x := take(t, other)
		require.NoError(t, x.Extend(t.Context(), time.Minute)) // the server knows the script
		require.NoError(t, x.Ack(t.Context()))

		offer(t, other, "a", 0)
		m := take(t, q)
		synctest.Wait()
		p.HangReplies(1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, m.Extend(ctx, time.Second), redlatch.ErrUnknown)

		again := take(t, other)
		require.Equal(t, m.ID, again.ID, "Redis has set the visibility")
		select {
		case <-m.Context().Done():
		default:
			assert.Fail(t, "two consumers have the message, and neither was told")
		}
		assert.Error(t, m.Context().Err())
		require.NoError(t, again.Ack(t.Context()))
	})
}
