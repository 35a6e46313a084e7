package rratelimiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rratelimiter"
)

func TestWindowHasExactlyItsTokens(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetRateLimiter("api", rratelimiter.Window(3, time.Second))
		assert.Equal(t, 3, l.Burst())
		const tenth = time.Second / 10
		assert.Equal(t, rratelimiter.Result{Allowed: true, Remaining: 3}, look(t, l, "a", 3))
		assert.Empty(t, b.Keys(t))
		assert.Equal(t, rratelimiter.Result{Allowed: true, Remaining: 2, ResetAfter: time.Second}, allow(t, l, "a", 1))
		time.Sleep(tenth)
		assert.Equal(t, rratelimiter.Result{Allowed: true, Remaining: 0, ResetAfter: time.Second}, allow(t, l, "a", 2))
		time.Sleep(tenth)
		trips := p.Trips()
		assert.Equal(t, rratelimiter.Result{RetryAfter: 8 * tenth, ResetAfter: 9 * tenth}, allow(t, l, "a", 1))
		assert.Equal(t, 1, p.Trips()-trips)
		assert.Equal(t, rratelimiter.Result{RetryAfter: 9 * tenth, ResetAfter: 9 * tenth}, look(t, l, "a", 2))
		assert.True(t, allow(t, l, "b", 3).Allowed, "each key has its own")
		time.Sleep(8*tenth - time.Microsecond)
		assert.Equal(t, time.Microsecond, allow(t, l, "a", 1).RetryAfter)
		time.Sleep(time.Microsecond)
		assert.Equal(t, rratelimiter.Result{Allowed: true, Remaining: 1, ResetAfter: tenth}, look(t, l, "a", 1))
		assert.True(t, allow(t, l, "a", 1).Allowed)
		assert.Equal(t, rratelimiter.Result{RetryAfter: tenth, ResetAfter: time.Second}, allow(t, l, "a", 2))
		assert.Equal(t, []string{"redlatch_window:3:{api:a}", "redlatch_window:3:{api:b}"}, b.Keys(t))
		time.Sleep(time.Second + time.Millisecond)
		assert.Empty(t, b.Keys(t), "what is full again is no key")
	})
}

func TestClockThatStepsBackGivesNoTokenOfAWindowTwice(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetRateLimiter("api", rratelimiter.Window(3, time.Second))
		now := time.Date(2026, time.November, 23, 12, 0, 0, 0, time.UTC)
		b.Mini.SetTime(now)
		require.True(t, allow(t, l, "a", 2).Allowed)
		b.Mini.SetTime(now.Add(-time.Hour))
		assert.Equal(t, rratelimiter.Result{Allowed: true, ResetAfter: time.Hour + time.Second}, allow(t, l, "a", 1))
		time.Sleep(1100 * time.Millisecond)
		b.Mini.SetTime(now.Add(-time.Hour + 1100*time.Millisecond))
		assert.Equal(t, time.Hour-100*time.Millisecond, allow(t, l, "a", 1).RetryAfter)
		b.Mini.SetTime(now.Add(time.Second))
		assert.True(t, allow(t, l, "a", 3).Allowed)
	})
}

// logged is a take of the model: from when so many tokens are in use for the length of a window.
type logged struct {
	from time.Time
	n    int
}

// windowModel is a window by its definition.
type windowModel struct {
	all    int
	length time.Duration
	takes  []*logged
}

// used returns how many tokens are in use at a time, those that are reserved included.
func (m *windowModel) used(at time.Time) int {
	n := 0
	for _, e := range m.takes {
		if e.from.After(at.Add(-m.length)) {
			n += e.n
		}
	}
	return n
}

// earliest returns from when on n more tokens are there.
func (m *windowModel) earliest(now time.Time, n int) time.Time {
	times := []time.Time{now}
	for _, e := range m.takes {
		times = append(times, e.from.Add(m.length))
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[slices.IndexFunc(times, func(at time.Time) bool { return !at.Before(now) && m.used(at)+n <= m.all })]
}

// result returns the answer of Allow, and takes the tokens, or of Info.
func (m *windowModel) result(now time.Time, n int, take bool) rratelimiter.Result {
	r := rratelimiter.Result{RetryAfter: m.earliest(now, n).Sub(now)}
	if r.Allowed = r.RetryAfter == 0; r.Allowed && take {
		m.takes = append(m.takes, &logged{now, n})
	}
	r.Remaining = max(m.all-m.used(now), 0)
	for _, e := range m.takes {
		r.ResetAfter = max(r.ResetAfter, e.from.Add(m.length).Sub(now))
	}
	return r
}

// giveUp gives back what is reserved, if that is not over and nobody has come later.
func (m *windowModel) giveUp(now time.Time, e *logged) {
	if last := len(m.takes) - 1; last >= 0 && m.takes[last] == e && e.from.After(now) {
		m.takes = m.takes[:last]
	}
}

func TestWindowEqualsItsModel(t *testing.T) {
	for _, window := range []struct {
		all    int
		length time.Duration
	}{{1, time.Second}, {3, time.Second}, {20, 2 * time.Second}, {100, time.Millisecond}, {1000, time.Hour}} {
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				l := b.Peer(t).GetRateLimiter("api", rratelimiter.Window(window.all, window.length))
				random := rand.New(rand.NewPCG(1, uint64(window.all)))
				m := &windowModel{all: window.all, length: window.length}
				type wait struct {
					*logged
					over time.Time
				}
				var waits []wait
				var all sync.WaitGroup
				passed, refused := 0, 0
				var gaveUp atomic.Int64
				for range faulttest.Rounds(t, 1000, 10000) {
					now := time.Now()
					slices.SortFunc(waits, func(a, b wait) int { return a.over.Compare(b.over) })
					for len(waits) > 0 && !waits[0].over.After(now) {
						m.giveUp(waits[0].over, waits[0].logged)
						waits = waits[1:]
					}
					n := 1 + random.IntN(1+random.IntN(window.all))
					switch random.IntN(5) {
					case 0:
						require.Equal(t, m.result(now, n, false), look(t, l, "a", n))
					case 1:
						e, patience := &logged{m.earliest(now, n), n}, time.Duration(random.Int64N(int64(window.length))).Truncate(time.Microsecond)+time.Nanosecond
						m.takes = append(m.takes, e)
						waits = append(waits, wait{e, now.Add(patience)})
						ctx, cancel := context.WithCancel(t.Context())
						time.AfterFunc(patience, cancel)
						all.Go(func() {
							if err := l.Wait(ctx, "a", n); err != nil {
								assert.ErrorIs(t, err, context.Canceled)
								assert.Equal(t, now.Add(patience), time.Now())
								gaveUp.Add(1)
								return
							}
							assert.Equal(t, e.from, time.Now())
						})
						synctest.Wait()
					default:
						r := allow(t, l, "a", n)
						require.Equal(t, m.result(now, n, true), r)
						if r.Allowed {
							passed++
						} else {
							refused++
						}
					}
					time.Sleep(time.Duration(random.Int64N(int64(window.length) / int64(1+random.IntN(window.all)))).Truncate(time.Microsecond))
				}
				all.Wait()
				require.Positive(t, passed)
				require.Positive(t, refused)
				require.Positive(t, gaveUp.Load())
			})
		})
	}
}
