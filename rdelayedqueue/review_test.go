package rdelayedqueue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// An Ack or Nack of a message that was replaced, whose second call lost its reply, makes no dead letter, and tells none.
func TestEndOfAReplacedMessageWhoseReplyIsLostTellsOfNoDeadLetter(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, p *locktest.Peer, m *rdelayedqueue.Message[job]) error{
		"nack": func(t *testing.T, p *locktest.Peer, m *rdelayedqueue.Message[job]) error {
			p.LoseReplies(1)
			return m.Nack(t.Context(), 0)
		},
		"reject": func(t *testing.T, p *locktest.Peer, m *rdelayedqueue.Message[job]) error {
			p.LoseReplies(1)
			return m.Reject(t.Context(), "no")
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				var died []redlatch.DeadLetterEvent
				p := b.Peer(t, redlatch.WithObserver(redlatch.Observer{DeadLetter: func(_ context.Context, e redlatch.DeadLetterEvent) { died = append(died, e) }}))
				q := jobs(p, rdelayedqueue.WithMaxAttempts(1))
				offer(t, q, "0", 0, rdelayedqueue.WithID("warm")) // the script is known
				require.NoError(t, take(t, q).Snooze(t.Context(), time.Hour))
				offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
				m := take(t, q)
				replace(t, q, "2", 0)
				require.NoError(t, end(t, p, m))
				assert.Empty(t, died)
				assert.Equal(t, rdelayedqueue.Stats{Delayed: 1, Ready: 1}, stats(t, q))
			})
		})
	}
}

func TestReplacementOfAMessageInFlightHasNoErrorOfTheOldOne(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		stop := consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error { return errors.New("old error") })
		time.Sleep(100 * time.Millisecond)
		require.NoError(t, stop())
		m := take(t, q)
		assert.Equal(t, 2, m.Attempt)
		replace(t, q, "2", time.Hour)
		require.NoError(t, m.Ack(t.Context()))
		e, err := q.Get(t.Context(), "id")
		require.NoError(t, err)
		assert.Empty(t, e.Error)
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 1}, stats(t, q))
	})
}

func TestSnoozedMessageThatIsGivenBackDoesNotExpire(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "b", 0, rdelayedqueue.WithID("b"), rdelayedqueue.WithExpiry(time.Minute))
		require.NoError(t, take(t, q).Snooze(t.Context(), time.Second)) // its first attempt has begun
		offer(t, q, "a", 0, rdelayedqueue.WithID("a"))
		time.Sleep(2 * time.Second)
		stop := consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error { // b is claimed ahead, and given back
			time.Sleep(3 * time.Second)
			return nil
		}, rdelayedqueue.WithPrefetch(5))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, rdelayedqueue.Stats{InFlight: 2}, stats(t, q))
		require.NoError(t, stop())
		require.Equal(t, rdelayedqueue.Stats{Ready: 1}, stats(t, q))
		time.Sleep(2 * time.Minute)
		stop = consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error { return nil })
		time.Sleep(time.Second)
		require.NoError(t, stop())
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q), "it was handled")
	})
}

// An Ack whose second call is not answered in time is repeated: the outcome is that it was acknowledged.
func TestRepeatedAckOfAReplacedMessageSaysThatItIsDone(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q := jobs(p)
		offer(t, q, "0", 0, rdelayedqueue.WithID("warm")) // the scripts are known
		require.NoError(t, take(t, q).Nack(t.Context(), time.Hour))
		offer(t, q, "", 0)
		require.NoError(t, take(t, q).Ack(t.Context()))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		m := take(t, q)
		replace(t, q, "2", time.Hour)
		p.HangReply(2) // that of the call that makes the new one due
		done := make(chan error, 1)
		go func() { done <- m.Ack(t.Context()) }()
		time.Sleep(time.Millisecond)
		p.Blackhole(true)
		err := <-done
		p.Blackhole(false)
		require.ErrorIs(t, err, redlatch.ErrUnknown)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.NoError(t, m.Ack(t.Context()))
		require.NoError(t, m.Ack(t.Context()))
		assert.Equal(t, rdelayedqueue.Stats{Delayed: 2}, stats(t, q))
	})
}

// F25
func TestCancelThatIsRefusedEndsNoHandler(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q, operator := jobs(b.Peer(t)), jobs(b.Peer(t))
		ended := false
		consume(t, q, func(ctx context.Context, _ *rdelayedqueue.Message[job]) error {
			select {
			case <-ctx.Done():
				ended = true
			case <-time.After(5 * time.Second):
			}
			return nil
		})
		time.Sleep(time.Second)
		offer(t, operator, "1", 0, rdelayedqueue.WithID("id"))
		time.Sleep(time.Second)
		require.NoError(t, b.Redis.Set(t.Context(), "redlatch_dq:{jobs}:errors", "x", 0).Err()) // HDEL is refused, as by an ACL
		_, err := operator.Cancel(t.Context(), "id")
		require.ErrorIs(t, err, redlatch.ErrWrongType)
		time.Sleep(time.Second)
		assert.False(t, ended)
		require.NoError(t, b.Redis.Del(t.Context(), "redlatch_dq:{jobs}:errors").Err())
	})
}

// F25: an unconfirmed offer is there; this one is not.
func TestOfferUnderTheIDOfADeadLetterIsNotCalledUnconfirmed(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "1", 0, rdelayedqueue.WithID("id"))
		require.NoError(t, take(t, q).Reject(t.Context(), "no"))
		confirmed := jobs(b.Peer(t, redlatch.WithReplicas(1, 10*time.Millisecond)))
		_, err := confirmed.Offer(t.Context(), job{Name: "2"}, 0, rdelayedqueue.WithID("id"))
		assert.ErrorIs(t, err, rdelayedqueue.ErrDead)
	})
}

func TestHeadersThatAreNotTextAreNotChanged(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		headers := map[string]string{"a": "\xff"}
		_, err := q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithHeaders(headers))
		if err == nil {
			assert.Equal(t, headers, take(t, q).Headers)
		} else {
			assert.ErrorIs(t, err, redlatch.ErrInvalid)
		}
	})
}
