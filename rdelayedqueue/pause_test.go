package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func TestPauseHoldsForAllConsumers(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q, other := jobs(b.Peer(t)), jobs(b.Peer(t))
		require.NoError(t, q.Pause(t.Context()))
		offer(t, q, "a", 0)
		assert.True(t, stats(t, q).Paused)
		got := make(chan time.Time, 1)
		go func() {
			take(t, other)
			got <- time.Now()
		}()
		time.Sleep(time.Minute)
		assert.Empty(t, got)
		require.NoError(t, q.Resume(t.Context()))
		resumed := time.Now()
		assert.WithinDuration(t, resumed, <-got, 2*time.Millisecond)
	})
}

// orders are those in which a pause of 5 s begins, a message is offered and two clients fall asleep.
var orders = [][]string{
	{"pause", "offer", "sleep"},
	{"pause", "sleep", "offer"},
	{"offer", "pause", "sleep"},
	{"offer", "sleep", "pause"},
	{"sleep", "pause", "offer"},
	{"sleep", "offer", "pause"},
}

// earlierPauses are those that a pause of 5 s replaces.
var earlierPauses = map[string]func(ctx context.Context, q *rdelayedqueue.Queue[job]) error{
	"none":    func(context.Context, *rdelayedqueue.Queue[job]) error { return nil },
	"endless": func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { return q.Pause(ctx) },
	"longer":  func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { return q.PauseFor(ctx, time.Hour) },
	"shorter": func(ctx context.Context, q *rdelayedqueue.Queue[job]) error { return q.PauseFor(ctx, 3*time.Second) },
}

// F7
func TestSleeperHandlesAMessageAsThePauseEnds(t *testing.T) {
	for earlier, before := range earlierPauses {
		for _, order := range orders {
			for _, delay := range []time.Duration{0, 2 * time.Second, 8 * time.Second} {
				if earlier == "none" && delay == 0 && order[0] != "pause" && order[1] != "pause" {
					continue // it is handled before the pause
				}
				for _, dies := range []bool{false, true} {
					name := fmt.Sprintf("%s before, %s, due in %v, alarm dies %v", earlier, strings.Join(order, " "), delay, dies)
					t.Run(name, func(t *testing.T) { sleepThroughAPause(t, before, order, delay, dies) })
				}
			}
		}
	}
}

// sleepThroughAPause fails the test if the message is not handled when the pause is over and it is due.
func sleepThroughAPause(t *testing.T, before func(context.Context, *rdelayedqueue.Queue[job]) error, order []string, delay time.Duration, dies bool) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q, s := jobs(b.Peer(t)), &idle{handled: make(chan time.Time, 10)}
		require.NoError(t, before(t.Context(), q))
		var due, end time.Time
		steps := map[string]func(){
			"pause": func() {
				require.NoError(t, q.PauseFor(t.Context(), 5*time.Second))
				end = time.Now().Add(5 * time.Second)
			},
			"offer": func() {
				offer(t, q, "x", delay)
				due = time.Now().Add(delay)
			},
			"sleep": func() { s = sleepers(t, b, 2) },
		}
		for _, step := range order {
			steps[step]()
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		assert.Equal(t, end.UnixMilli(), stats(t, q).PausedUntil.UnixMilli())
		late := 10 * time.Millisecond
		if dies {
			dead := s.alarm(t, b)
			dead.Blackhole(true)
			defer dead.Blackhole(false)
			late = 500 * time.Millisecond
		}
		want := slices.MaxFunc([]time.Time{due, end}, time.Time.Compare)
		at := <-s.handled
		assert.False(t, at.Before(want), "%v before the end", want.Sub(at))
		assert.WithinDuration(t, want, at, late)
		assert.False(t, stats(t, q).Paused)
	})
}

// F7
func TestWhatBecomesDueInAPauseIsHandledAsItEnds(t *testing.T) {
	const pause = 5 * time.Second
	again := func(t *testing.T, q *rdelayedqueue.Queue[job]) *rdelayedqueue.Message[job] {
		t.Helper()
		offer(t, q, "x", 0)
		m := take(t, q)
		require.NoError(t, q.PauseFor(t.Context(), pause))
		return m
	}
	changes := map[string]func(t *testing.T, q *rdelayedqueue.Queue[job]) (become func() error){
		"claim that runs out": func(t *testing.T, q *rdelayedqueue.Queue[job]) func() error {
			m := again(t, q)
			return func() error { return m.Extend(t.Context(), time.Second) }
		},
		"failed attempt": func(t *testing.T, q *rdelayedqueue.Queue[job]) func() error {
			m := again(t, q)
			return func() error { return m.Nack(t.Context(), 0) }
		},
		"dead letter": func(t *testing.T, q *rdelayedqueue.Queue[job]) func() error {
			require.NoError(t, again(t, q).Reject(t.Context(), "x"))
			return func() error { return second(q.RedriveAll(t.Context())) }
		},
		"earlier time": func(t *testing.T, q *rdelayedqueue.Queue[job]) func() error {
			id := offer(t, q, "x", time.Hour)
			require.NoError(t, q.PauseFor(t.Context(), pause))
			return func() error { return second(q.Reschedule(t.Context(), id, 0)) }
		},
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				q := jobs(b.Peer(t), rdelayedqueue.WithVisibility(time.Hour))
				become := change(t, q)
				end := time.Now().Add(pause)
				s := sleepers(t, b, 2)
				require.NoError(t, become())
				assert.WithinDuration(t, end, <-s.handled, 10*time.Millisecond)
			})
		})
	}
}

func TestResumeEndsAPauseForATime(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		require.NoError(t, q.PauseFor(t.Context(), time.Hour))
		offer(t, q, "x", 0)
		s := sleepers(t, b, 2)
		start := time.Now()
		require.NoError(t, q.Resume(t.Context()))
		assert.WithinDuration(t, start, <-s.handled, 10*time.Millisecond)
		assert.False(t, stats(t, q).Paused)
	})
}

func TestPauseReplacesOneForATime(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		require.NoError(t, q.PauseFor(t.Context(), time.Second))
		require.NoError(t, q.Pause(t.Context()))
		offer(t, q, "x", 0)
		s := sleepers(t, b, 2)
		time.Sleep(time.Minute)
		assert.Empty(t, s.handled)
		assert.Equal(t, rdelayedqueue.Stats{Ready: 1, Paused: true}, stats(t, q))
	})
}

// F19
func TestPauseOfAnEmptyQueueIsRememberedUntilItsEnd(t *testing.T) {
	const pause = time.Minute
	empty := map[string]func(ctx context.Context, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) error{
		"Ack": func(ctx context.Context, _ *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) error {
			return m.Ack(ctx)
		},
		"Cancel": func(ctx context.Context, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) error {
			return errors.Join(m.Nack(ctx, 0), second(q.Cancel(ctx, m.ID)))
		},
		"Purge": func(ctx context.Context, q *rdelayedqueue.Queue[job], m *rdelayedqueue.Message[job]) error {
			return errors.Join(m.Reject(ctx, "x"), second(q.Purge(ctx)))
		},
	}
	for name, end := range empty {
		for when, order := range map[string][2]int{"before": {1, 0}, "in it": {0, 1}} {
			t.Run(name+" "+when, func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					q := jobs(b.Peer(t))
					offer(t, q, "a", 0)
					m := take(t, q)
					steps := [2]func() error{
						func() error { return q.PauseFor(t.Context(), pause) },
						func() error { return end(t.Context(), q, m) },
					}
					for _, step := range order {
						require.NoError(t, steps[step]())
					}
					const meta = "redlatch_dq:{jobs}:meta"
					assert.InDelta(t, (pause + 24*time.Hour).Seconds(), b.TTL(t, meta).Seconds(), 1)
					time.Sleep(pause - time.Second)
					assert.True(t, stats(t, q).Paused)
					time.Sleep(2 * time.Second)
					assert.False(t, stats(t, q).Paused)

					require.NoError(t, q.Pause(t.Context()))
					offer(t, q, "b", 0)
					require.NoError(t, second(q.Purge(t.Context(), rdelayedqueue.Ready)))
					assert.Negative(t, b.TTL(t, meta), "one without an end")
					require.NoError(t, q.Resume(t.Context()))
					assert.InDelta(t, (24 * time.Hour).Seconds(), b.TTL(t, meta).Seconds(), 1)
				})
			})
		}
	}
}

func TestPauseOfABadLengthIsRefused(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		for _, d := range []time.Duration{-1, 0, time.Millisecond - 1, 100*365*24*time.Hour + 1} {
			require.ErrorIs(t, jobs(p).PauseFor(t.Context(), d), redlatch.ErrInvalid, "%v", d)
		}
		assert.Empty(t, p.Sent())
		require.NoError(t, jobs(p).PauseFor(t.Context(), 100*365*24*time.Hour))
		assert.WithinDuration(t, time.Now().Add(100*365*24*time.Hour), stats(t, jobs(p)).PausedUntil, time.Millisecond)
	})
}

// F7
func TestPauseOnARealServerEndsByItself(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	q := redlatch.GetDelayedQueue[job](connect(t, server.Addr()), "jobs")
	handled := make(chan time.Time, 1)
	consume(t, redlatch.GetDelayedQueue[job](connect(t, server.Addr()), "jobs"), func(context.Context, *rdelayedqueue.Message[job]) error {
		handled <- time.Now()
		return nil
	})
	lag := faulttest.MeasureLag(t, server.Addr())
	require.NoError(t, q.PauseFor(t.Context(), time.Second))
	s := stats(t, q)
	assert.True(t, s.Paused)
	offer(t, q, "x", 0)
	at := <-handled
	assert.WithinRange(t, at, s.PausedUntil.Add(-time.Millisecond), s.PausedUntil.Add(time.Second+lag.Late()))
	assert.False(t, stats(t, q).Paused)
}
