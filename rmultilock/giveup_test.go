package rmultilock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// F14
func TestTryThatHangsIsReleasedOnceItIsGivenUp(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		mine, others := s.peers(t), s.peers(t)
		var held []*rlock.Hold
		for _, l := range others[1:].locks("a") {
			held = append(held, locktest.Acquire(t, t.Context(), l))
		}
		mine[0].HangReplies(1)
		_, err := mine.red("a").TryLock(t.Context())
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		s[:1].empty(t, 100*time.Millisecond)
		for _, h := range held {
			locktest.Unlock(t, h)
		}

		mine[1].HangReplies(1)
		h := locktest.Acquire(t, t.Context(), mine.red("a"))
		synctest.Wait()
		require.Equal(t, 3, s.have(t, "a"), "one of them has not said so")
		locktest.Unlock(t, h)
		s.empty(t, 100*time.Millisecond)

		l := mine[2].GetMultiLock(mine[2].GetLock("a"), mine[2].GetLock("b"))
		mine[2].HangReplies(1)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err = l.Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		s.empty(t, 100*time.Millisecond)
		mine[2].HangReplies(1)
		_, err = l.Lock(t.Context(), rlock.WithWait(50*time.Millisecond))
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		s.empty(t, 100*time.Millisecond)
	})
}

func TestClosedMemberKeepsNothingOfATryThatHangs(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		mine := s.peers(t, redlatch.WithCloseGrace(0))
		locktest.Free(t, mine.red("a"))
		synctest.Wait() // an Unlock waits for a majority only
		mine[1].HangReplies(1)
		h := locktest.Acquire(t, t.Context(), mine.red("a"))
		synctest.Wait()
		require.Equal(t, 3, s.have(t, "a"), "one of them has not said so")
		require.NoError(t, mine[1].Close())
		require.Equal(t, 2, s.have(t, "a"))
		locktest.Unlock(t, h)
		s.empty(t, 100*time.Millisecond)
	})
}
