package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func takeSome(t *testing.T, q *rdelayedqueue.Queue[job], n int) (ids []string, messages []*rdelayedqueue.Message[job]) {
	t.Helper()
	for len(messages) < n {
		some, err := q.TakeBatch(t.Context(), n-len(messages))
		require.NoError(t, err)
		messages = append(messages, some...)
	}
	for _, m := range messages {
		ids = append(ids, m.ID)
	}
	return ids, messages
}

func TestHigherPriorityGoesFirst(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		for i, p := range []int{0, 5, 9, 1, 5, 0, 9} {
			_, err := q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithID(strconv.Itoa(10*p+i)), rdelayedqueue.WithPriority(p))
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
		_, err := q.Offer(t.Context(), job{}, time.Hour, rdelayedqueue.WithID("later"), rdelayedqueue.WithPriority(9))
		require.NoError(t, err)
		s := stats(t, q)
		assert.Equal(t, [10]int{9: 3, 5: 2, 1: 1}, s.Priorities)
		assert.Equal(t, 7, s.Ready)
		assert.Equal(t, 1, s.Delayed)
		ids, messages := takeSome(t, q, 7)
		assert.Equal(t, []string{"92", "96", "51", "54", "13", "0", "5"}, ids)
		for _, m := range messages {
			require.NoError(t, m.Ack(t.Context()))
		}
		began := time.Now()
		ids, _ = takeSome(t, q, 1)
		assert.Equal(t, []string{"later"}, ids)
		assert.InDelta(t, time.Hour, time.Since(began), float64(time.Second))
	})
}

func TestGroupIsOneAtATimeAndInOrder(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		for i := range 6 {
			group := "ab"[i%2 : i%2+1]
			_, err := q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithID(group+strconv.Itoa(i)), rdelayedqueue.WithGroup(group))
			require.NoError(t, err)
		}
		ids, messages := takeSome(t, q, 2)
		assert.Equal(t, []string{"a0", "b1"}, ids)
		assert.Equal(t, rdelayedqueue.Stats{Ready: 4, InFlight: 2, Groups: 2}, stats(t, q))
		require.NoError(t, messages[0].Ack(t.Context()))
		ids, more := takeSome(t, q, 1)
		assert.Equal(t, []string{"a2"}, ids)
		require.NoError(t, more[0].Nack(t.Context(), time.Minute))
		require.NoError(t, messages[1].Ack(t.Context()))
		ids, more = takeSome(t, q, 1)
		assert.Equal(t, []string{"b3"}, ids)
		require.NoError(t, more[0].Ack(t.Context()))
		ids, more = takeSome(t, q, 1)
		assert.Equal(t, []string{"b5"}, ids)
		require.NoError(t, more[0].Ack(t.Context()))
		began := time.Now()
		ids, more = takeSome(t, q, 1)
		assert.Equal(t, []string{"a2"}, ids, "the group waits for the retry")
		assert.InDelta(t, time.Minute, time.Since(began), float64(time.Second))
		require.NoError(t, more[0].Ack(t.Context()))
		ids, more = takeSome(t, q, 1)
		assert.Equal(t, []string{"a4"}, ids)
		require.NoError(t, more[0].Ack(t.Context()))
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
		for _, key := range b.Keys(t) {
			assert.NotContains(t, key, "groups")
			assert.NotContains(t, key, "places")
		}
	})
}

// F18: what is offered after the server's clock has stepped back does not pass the message of its group that is in flight.
func TestGroupKeepsItsLimitWhenTheClockStepsBack(t *testing.T) {
	for name, revived := range map[string]bool{"a claim that lasts": false, "a claim that ran out and was extended": true} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				now := time.Now().Add(24 * time.Hour)
				b.Mini.SetTime(now)
				q := jobs(b.Peer(t), rdelayedqueue.WithGroupSkip(), rdelayedqueue.WithVisibility(30*time.Minute))
				offer := func(id string) {
					_, err := q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithID(id), rdelayedqueue.WithGroup("g"))
					require.NoError(t, err)
				}
				refused := func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, err := q.Take(ctx)
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				offer("a")
				_, held := takeSome(t, q, 1)
				if revived {
					b.Mini.SetTime(now.Add(time.Hour))
					require.NoError(t, q.Pause(t.Context()))
					refused() // sees to the claim that ran out
					require.NoError(t, held[0].Extend(t.Context(), 4*time.Hour))
					require.NoError(t, q.Resume(t.Context()))
				}
				now = now.Add(-time.Minute)
				if revived {
					now = now.Add(11 * time.Minute) // after the claim
				}
				b.Mini.SetTime(now)
				offer("b")
				offer("c")
				offer("d")
				refused()
				_, err := q.Cancel(t.Context(), "c") // sees to the first of the group, too
				require.NoError(t, err)
				refused()
				got := stats(t, q)
				require.Equal(t, []int{2, 1, 1}, []int{got.Ready, got.InFlight, got.Groups})
				b.Mini.SetTime(now.Add(2 * time.Hour))
				require.NoError(t, held[0].Ack(t.Context()))
				for _, id := range []string{"b", "d"} {
					ids, more := takeSome(t, q, 1)
					require.Equal(t, []string{id}, ids)
					require.NoError(t, more[0].Ack(t.Context()))
				}
			})
		})
	}
}

// F2: calls about one message at a time count it once.
func TestGroupKeepsItsLimitWhenAMessageIsRescheduledOften(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithGroupLimit(2), rdelayedqueue.WithVisibility(time.Second))
		for _, id := range []string{"a", "b", "c", "d"} {
			_, err := q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithID(id), rdelayedqueue.WithGroup("g"))
			require.NoError(t, err)
		}
		ids, held := takeSome(t, q, 2)
		require.Equal(t, []string{"a", "b"}, ids)
		require.NoError(t, held[1].Extend(t.Context(), time.Hour))
		time.Sleep(2 * time.Second) // the claim of a runs out, and nobody sees it
		release, calls := make(chan struct{}), sync.WaitGroup{}
		b.Mini.Server().SetPreHook(func(*server.Peer, string, ...string) bool {
			<-release // the calls behind the first one are sent together
			return false
		})
		reschedule := func(id string) {
			calls.Go(func() {
				_, err := q.Reschedule(t.Context(), id, 0)
				assert.NoError(t, err)
			})
			synctest.Wait()
		}
		for _, id := range []string{"none", "a", "a"} {
			reschedule(id)
		}
		close(release)
		calls.Wait()
		ids, _ = takeSome(t, q, 1)
		require.Equal(t, []string{"c"}, ids, "a has taken a new place")
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := q.Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// F8: a message that became a dead letter while its handler ran is again one of its group when the handler puts it off.
func TestSnoozedDeadLetterIsBackInItsGroup(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t), rdelayedqueue.WithVisibility(time.Second), rdelayedqueue.WithMaxAttempts(1))
		for _, id := range []string{"a", "b"} {
			_, err := q.Offer(t.Context(), job{}, 0, rdelayedqueue.WithID(id), rdelayedqueue.WithGroup("g"))
			require.NoError(t, err)
		}
		_, held := takeSome(t, q, 1)
		time.Sleep(2 * time.Second)
		ids, other := takeSome(t, q, 1)
		require.Equal(t, []string{"b"}, ids)
		require.Equal(t, 1, stats(t, q).Dead)
		require.NoError(t, held[0].Snooze(t.Context(), 0))
		require.Equal(t, 1, stats(t, q).Groups)
		require.NoError(t, other[0].Ack(t.Context()))
		ids, _ = takeSome(t, q, 1)
		require.Equal(t, []string{"a"}, ids)
	})
}

// F5: whatever frees a place of a group has a client look in that sleeps.
func TestNextOfAGroupIsNotLate(t *testing.T) {
	type held = *rdelayedqueue.Message[job]
	for name, end := range map[string]func(t *testing.T, q *rdelayedqueue.Queue[job], m held) error{
		"ack":    func(t *testing.T, _ *rdelayedqueue.Queue[job], m held) error { return m.Ack(t.Context()) },
		"reject": func(t *testing.T, _ *rdelayedqueue.Queue[job], m held) error { return m.Reject(t.Context(), "x") },
		"successor": func(t *testing.T, _ *rdelayedqueue.Queue[job], m held) error {
			return m.Successor(t.Context(), job{}, time.Hour)
		},
		"another group": func(t *testing.T, _ *rdelayedqueue.Queue[job], m held) error {
			return m.Successor(t.Context(), job{}, time.Hour, rdelayedqueue.WithGroup("other"))
		},
		"cancel": func(t *testing.T, q *rdelayedqueue.Queue[job], m held) error {
			if ok, err := q.Cancel(t.Context(), m.ID); !ok || err != nil {
				return errors.Join(err, errors.New("not cancelled"))
			}
			if err := m.Ack(t.Context()); !errors.Is(err, rdelayedqueue.ErrNotHeld) {
				return errors.Join(err, errors.New("it was removed"))
			}
			return nil
		},
		"purge": func(t *testing.T, q *rdelayedqueue.Queue[job], m held) error {
			if n, err := q.Purge(t.Context(), rdelayedqueue.InFlight); n != 1 || err != nil {
				return errors.Join(err, fmt.Errorf("%d are purged", n))
			}
			if err := m.Ack(t.Context()); !errors.Is(err, rdelayedqueue.ErrNotHeld) {
				return errors.Join(err, errors.New("it was removed"))
			}
			return nil
		},
		"end of the visibility": func(t *testing.T, q *rdelayedqueue.Queue[job], m held) error {
			if _, err := q.Cancel(t.Context(), m.ID); err != nil {
				return err
			}
			time.Sleep(28*time.Second - time.Millisecond) // 2 s have passed
			return nil
		},
		"dead": func(t *testing.T, q *rdelayedqueue.Queue[job], m held) error {
			if err := m.Nack(t.Context(), time.Hour); err != nil { // it is the first of its group, and waits
				return err
			}
			_, err := q.Cancel(t.Context(), m.ID)
			return err
		},
		"put off": func(t *testing.T, q *rdelayedqueue.Queue[job], m held) error {
			if err := m.Snooze(t.Context(), time.Hour); err != nil {
				return err
			}
			_, err := q.Reschedule(t.Context(), m.ID, time.Hour)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				q := jobs(b.Peer(t))
				offer(t, q, "first", 0, rdelayedqueue.WithGroup("g"))
				m := take(t, q)
				offer(t, q, "second", 0, rdelayedqueue.WithGroup("g"), rdelayedqueue.WithPriority(3))
				s := sleepers(t, b, 2)
				time.Sleep(time.Second)
				require.Empty(t, s.handled)
				require.NoError(t, end(t, q, m))
				start := time.Now()
				assert.WithinDuration(t, start, <-s.handled, time.Second/10)
			})
		})
	}
}

// F1, by a witness outside: never more of a group in flight than its limit; with a limit of 1 they end in the order of offering, retries
// too.
func TestGroupsOfRacingConsumersKeepTheirLimitAndOrder(t *testing.T) {
	for limit := 1; limit <= 3; limit += 2 {
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			server := redistest.Start(t)
			const groups, each = 7, 40
			var mu sync.Mutex
			var items []rdelayedqueue.Item[job]
			running, ended, most := map[string]int{}, map[string][]string{}, 0
			for i := range each {
				for g := range groups {
					items = append(items, rdelayedqueue.Item[job]{Value: job{Name: fmt.Sprintf("%d:%02d", g, i)}, Group: strconv.Itoa(g), Priority: i % 3})
				}
			}
			done := make(chan struct{}, len(items))
			for range 3 {
				client, err := redlatch.New(server.Client(t))
				require.NoError(t, err)
				t.Cleanup(func() { assert.NoError(t, client.Close()) })
				q := redlatch.GetDelayedQueue[job](client, "jobs", rdelayedqueue.WithGroupLimit(limit), rdelayedqueue.WithMaxAttempts(0),
					rdelayedqueue.WithBackoff(func(int) time.Duration { return time.Duration(rand.N(3)) * time.Millisecond }))
				if len(items) > 0 {
					_, err = q.OfferBatch(t.Context(), items)
					require.NoError(t, err)
					items = nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				stopped := make(chan error, 1)
				t.Cleanup(func() {
					cancel()
					assert.NoError(t, <-stopped)
				})
				go func() {
					stopped <- q.Consume(ctx, func(_ context.Context, m *rdelayedqueue.Message[job]) error {
						group, _, _ := strings.Cut(m.Value.Name, ":")
						mu.Lock()
						running[group]++
						most = max(most, running[group])
						mu.Unlock()
						runtime.Gosched()
						mu.Lock()
						defer mu.Unlock()
						running[group]--
						if rand.N(4) == 0 {
							return errors.New("again")
						}
						ended[group] = append(ended[group], m.Value.Name)
						done <- struct{}{}
						return nil
					}, rdelayedqueue.WithConcurrency(8))
				}()
			}
			for range groups * each {
				select {
				case <-done:
				case <-time.After(20 * time.Second):
					t.Fatal("a job is lost")
				}
			}
			mu.Lock()
			defer mu.Unlock()
			assert.LessOrEqual(t, most, limit)
			for g, names := range ended {
				if limit == 1 {
					assert.True(t, slices.IsSorted(names), "%s: %v", g, names)
				}
				assert.Len(t, names, each)
			}
		})
	}
}

// A late end of a claim that somebody else has taken over does not free the place of that one.
func TestPlaceOfACancelledMessageIsKeptForItsLastHandler(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		id := offer(t, q, "first", 0, rdelayedqueue.WithGroup("g"))
		offer(t, q, "second", 0, rdelayedqueue.WithGroup("g"))
		stale := take(t, q)
		time.Sleep(31 * time.Second)
		last := take(t, q)
		require.Equal(t, id, last.ID)
		ok, err := q.Cancel(t.Context(), id)
		require.NoError(t, err)
		require.True(t, ok)
		require.ErrorIs(t, stale.Ack(t.Context()), rdelayedqueue.ErrNotHeld)
		nothing(t, q)
		require.ErrorIs(t, last.Ack(t.Context()), rdelayedqueue.ErrNotHeld)
		assert.Equal(t, "second", take(t, q).Value.Name)
	})
}

func TestReplacementInFlightStaysInTheGroup(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		offer(t, q, "first", 0, rdelayedqueue.WithID("x"), rdelayedqueue.WithGroup("g"))
		m := take(t, q)
		headers := map[string]string{"a": "g1:b"}
		offer(t, q, "second", 0, rdelayedqueue.WithID("x"), rdelayedqueue.WithReplace(), rdelayedqueue.WithMaxAttempts(3), rdelayedqueue.WithHeaders(headers))
		require.NoError(t, m.Ack(t.Context()))
		m = take(t, q)
		assert.Equal(t, "second", m.Value.Name)
		assert.Equal(t, headers, m.Headers)
		require.NoError(t, m.Reject(t.Context(), "x"))
		e, err := q.Get(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, "g", e.Group)
		_, err = q.Redrive(t.Context(), "x")
		require.NoError(t, err)
		assert.Equal(t, "x", take(t, q).ID)
	})
}
