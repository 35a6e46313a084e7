package rdelayedqueue_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// F8
func TestSleepingConsumerTakesOverFromADeadOneInTime(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		const visibility = 2 * time.Second
		type start struct {
			peer int
			at   time.Time
		}
		starts := make(chan start, 10)
		var peers []*locktest.Peer
		for i := range 2 {
			p := b.Peer(t)
			peers = append(peers, p)
			q := jobs(p, rdelayedqueue.WithVisibility(visibility))
			consume(t, q, func(ctx context.Context, _ *rdelayedqueue.Message[job]) error {
				starts <- start{i, time.Now()}
				if len(starts) == 1 {
					<-ctx.Done() // the first one works until its end
				}
				return nil
			}, rdelayedqueue.WithConcurrency(8), rdelayedqueue.WithStopGrace(0))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		offer(t, jobs(b.Peer(t)), "a", 0)
		synctest.Wait()
		require.Len(t, starts, 1)
		dead := <-starts
		starts <- dead
		peers[dead.peer].Blackhole(true)
		time.Sleep(visibility + time.Second)
		synctest.Wait()
		assert.Len(t, starts, 2, "the other one has it a second after its visibility")
		peers[dead.peer].Blackhole(false)
	})
}

// F2
func TestOfferIsNotSentAgainAfterItsIDIsForgotten(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q, other := jobs(p), jobs(b.Peer(t))
		offer(t, q, "b", time.Hour) // Redis knows the script after it
		p.LoseReplies(2)
		failed := make(chan error, 1)
		go func() {
			_, err := q.Offer(t.Context(), job{Name: "a"}, 0)
			failed <- err
		}()
		synctest.Wait() // until the offer is to be sent again
		p.Blackhole(true)
		m := take(t, other)
		require.NoError(t, m.Ack(t.Context()))
		time.Sleep(3 * time.Minute)
		p.Blackhole(false)
		assert.ErrorIs(t, <-failed, redlatch.ErrUnknown)
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1}, stats(t, other))
	})
}

// hollow is an error whose text cannot be had.
type hollow struct{ text string }

func (h *hollow) Error() string { return h.text }

func TestErrorThatPanicsIsAFailedAttempt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(1))
		stop := consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
			var none *hollow
			return none
		})
		offer(t, q, "a", 0)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, 1, stats(t, q).Dead)
		assert.NoError(t, stop())
	})
}

func TestForeignKeysLoseNoMessage(t *testing.T) {
	for _, key := range []string{"dead", "waiters", "errors"} {
		t.Run(key, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				q := jobs(b.Peer(t), rdelayedqueue.WithMaxAttempts(1), rdelayedqueue.WithVisibility(time.Second))
				offer(t, q, "a", 0)
				if key != "waiters" {
					take(t, q)
					time.Sleep(2 * time.Second)
				}
				name := fmt.Sprintf("redlatch_dq:{jobs}:%s", key)
				require.NoError(t, b.Redis.Set(t.Context(), name, "x", 0).Err())
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := q.Take(ctx)
				require.ErrorIs(t, err, redlatch.ErrWrongType)
				require.NoError(t, b.Redis.Del(t.Context(), name).Err())
				s := stats(t, q)
				assert.Equal(t, 1, s.Ready+s.Dead, "%+v", s)
				assert.Zero(t, s.InFlight)
			})
		})
	}
}

func TestWokenHookMayUseTheQueue(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var q *rdelayedqueue.Queue[job]
		woken := 0
		q = jobs(b.Peer(t, redlatch.WithObserver(redlatch.Observer{Woken: func(string, string) {
			woken++
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := q.Take(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}})))
		got := make(chan struct{})
		go func() {
			take(t, q)
			close(got)
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		offer(t, jobs(b.Peer(t)), "a", 0)
		<-got
		assert.Equal(t, 1, woken)
	})
}

func TestRepeatedAcksOfAnOutageAreSentOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p, rdelayedqueue.WithVisibility(time.Hour))
		for range 2 { // the first one makes the script known
			offer(t, q, "a", 0)
			require.NoError(t, take(t, q).Ack(t.Context()))
		}
		offer(t, q, "b", 0)
		m := take(t, q)
		p.Blackhole(true)
		for range 5 {
			require.ErrorIs(t, m.Ack(t.Context()), redlatch.ErrUnknown)
		}
		p.Blackhole(false)
		before := p.Scripts()
		require.NoError(t, m.Ack(t.Context()))
		synctest.Wait()
		assert.LessOrEqual(t, p.Scripts()-before, 1)
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
	})
}

// F2: a message that was acknowledged is not lost, although Redis does not know it any more, and the Ack has no answer yet.
func TestUnansweredAckIsNoLoss(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		renewals, lost := 0, 0
		p := b.Peer(t, redlatch.WithObserver(redlatch.Observer{Renewed: func(renewed, gone int, _ error) {
			renewals, lost = renewals+renewed, lost+gone
		}}))
		q := jobs(p, rdelayedqueue.WithVisibility(6*time.Second))
		offer(t, q, "a", 0)
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Ack(t.Context())) // Redis knows the scripts after it
		var worked *rdelayedqueue.Message[job]
		consume(t, q, func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
			worked = m
			time.Sleep(3 * time.Second)
			p.HangReplies(1)
			ended := make(chan error)
			go func() { ended <- m.Ack(ctx) }()
			time.Sleep(2500 * time.Millisecond) // the next renewals do not find the message
			assert.NoError(t, ctx.Err())
			assert.ErrorIs(t, <-ended, redlatch.ErrUnknown)
			assert.NoError(t, m.Ack(ctx))
			return nil
		}, rdelayedqueue.WithConcurrency(1))
		offer(t, q, "b", 0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.Equal(t, []int{1, 0}, []int{renewals, lost})
		assert.ErrorIs(t, context.Cause(worked.Context()), rdelayedqueue.ErrFinished)
	})
}
