package waitqueue_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// filled returns a queue of so many waiters.
func filled(n int) (*waitqueue.Queue, []*waitqueue.Waiter) {
	q := &waitqueue.Queue{}
	var all []*waitqueue.Waiter
	for range n {
		w := &waitqueue.Waiter{Wants: 1}
		q.Join(w)
		all = append(all, w)
	}
	return q, all
}

func asks(w *waitqueue.Waiter, now time.Duration) bool {
	step, _ := w.Next(now)
	return step == waitqueue.Ask
}

func woken(w *waitqueue.Waiter) bool {
	c := w.Woken()
	if c == nil {
		return true
	}
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestOnlyTheHeadAsks(t *testing.T) {
	q, w := filled(3)
	assert.True(t, asks(w[0], 0))
	assert.False(t, asks(w[1], 0))
	q.Leave(w[0])
	assert.True(t, woken(w[1]))
	assert.True(t, asks(w[1], 0))
	q.Leave(w[2])
	assert.Same(t, w[1], q.Head())
	q.Leave(w[1])
	assert.True(t, q.Empty())
}

func TestHeadThatLeavesWhileItAsksHasTheNextOneAsk(t *testing.T) {
	q, w := filled(2)
	q.Asking(w[0], 1)
	assert.False(t, asks(w[0], 1), "its question is in flight")
	q.Leave(w[0])
	assert.True(t, asks(w[1], 1))
}

func TestRefusedHeadAsksAgainInTime(t *testing.T) {
	q, w := filled(1)
	assert.True(t, q.Busy(w[0], q.Asking(w[0], 1), time.Second))
	step, left := w[0].Next(0)
	assert.Equal(t, waitqueue.Wait, step)
	assert.Equal(t, time.Second, left)
	assert.True(t, asks(w[0], time.Second))
	q.AskBy(time.Millisecond)
	q.AskBy(time.Minute)
	assert.True(t, asks(w[0], time.Millisecond))
}

func TestWakeUpDuringAQuestionStays(t *testing.T) {
	q, w := filled(1)
	wakeups := q.Asking(w[0], 1)
	q.Notify(2, 1)
	assert.False(t, q.Busy(w[0], wakeups, time.Second))
	assert.True(t, asks(w[0], 2))
}

func TestUnusedWakeUpIsTheNextOnes(t *testing.T) {
	q, w := filled(2)
	q.Busy(w[0], q.Asking(w[0], 1), time.Minute)
	q.Notify(2, 1)
	q.Leave(w[0])
	assert.True(t, asks(w[1], 2))
	assert.True(t, woken(w[1]))
}

func TestMessageAdmitsAsManyAsThereArePermits(t *testing.T) {
	q, w := filled(4)
	w[1].Wants = 2
	q.Busy(w[0], q.Asking(w[0], 1), time.Minute)
	q.Shared = true
	q.Notify(2, 2)
	for i, want := range []bool{true, true, false, false} {
		assert.Equal(t, want, asks(w[i], 2), i)
	}
	q.Admit(3)
	assert.True(t, asks(w[3], 3))
}

func TestClientThatHadItsTenureRests(t *testing.T) {
	const length = 2 * time.Millisecond
	at := func(ms int) time.Duration { return time.Second + time.Duration(ms)*time.Millisecond }
	q, w := filled(1)
	q.Listening = true
	q.Granted(at(0))
	q.Released(at(1), 3, length)
	assert.True(t, asks(w[0], at(1)), "within its tenure")
	q.Asking(w[0], at(1))
	q.Released(at(2), 3, length)
	q.Notify(at(2), 1)
	assert.False(t, asks(w[0], at(5)), "two others have a tenure each")
	assert.True(t, asks(w[0], at(6)))

	q.Granted(at(10))
	q.Released(at(20), 1, length)
	assert.True(t, asks(w[0], at(20)), "nobody else was notified")
	q.Granted(at(30))
	q.Asking(w[0], at(30))
	q.Released(at(40), 1000, length)
	assert.True(t, asks(w[0], at(60)), "a rest is at most 20 ms")
}

func TestRepliesTellSilenceFromBusy(t *testing.T) {
	q, w := filled(1)
	assert.NoError(t, q.Unanswered(1))
	q.Asking(w[0], 1)
	assert.ErrorIs(t, q.Unanswered(2), script.ErrNoAnswer, "nothing was ever answered")
	q.Answered(3, nil)
	assert.NoError(t, q.Unanswered(3))
	q.Asking(w[0], 4)
	assert.NoError(t, q.Unanswered(5), "too early to say")
	assert.ErrorIs(t, q.Unanswered(time.Second), script.ErrNoAnswer)
	q.Answered(5, script.ErrNoAnswer)
	assert.NoError(t, q.Unanswered(6), "cut off by its own call")
	q.Asking(w[0], 7)
	q.Answered(8, io.EOF)
	assert.ErrorIs(t, q.Unanswered(9), io.EOF)
	q.Asking(w[0], 10)
	q.Answered(time.Minute, context.DeadlineExceeded)
	assert.ErrorIs(t, q.Unanswered(time.Hour), io.EOF, "cut off, however late, by its own call")
}

func TestPauseGrowsWithTheWaiters(t *testing.T) {
	for range 100 {
		assert.InDelta(t, time.Second, waitqueue.Pause(time.Second, 1), float64(time.Second/4)+1)
		assert.InDelta(t, 4*time.Second, waitqueue.Pause(time.Second, 2000), float64(time.Second)+1)
	}
}
