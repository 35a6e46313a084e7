package scenario_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestLostHoldsAreLogged(t *testing.T) {
	for kind, get := range lockKinds {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				var log logbook
				c := b.Peer(t, log.option())
				hold := locktest.Acquire(t, t.Context(), get(c.Client, "orders"))
				time.Sleep(2 * lease)
				assert.Empty(t, log.take(), "no line for what goes well")
				b.Mini.FlushAll()
				<-hold.Context().Done()
				synctest.Wait()
				lines := log.take()
				require.Len(t, lines, 1)
				line := lines[0]
				assert.Equal(t, "WARN", line["level"])
				assert.Equal(t, "redlatch: a lock was lost", line["msg"])
				assert.Contains(t, []any{"lock", "fair_lock", "rw_lock"}, line["kind"])
				assert.Equal(t, "orders", line["name"])
				assert.Equal(t, hold.Owner(), line["owner"])
				assert.Equal(t, c.ID(), line["client"])
				assert.Equal(t, context.Cause(hold.Context()).Error(), line["cause"])
				assert.Len(t, line, 7)
			})
		})
	}
}

func TestLostPermitIsLoggedAsTheUserKnowsIt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log logbook
		c := b.Peer(t, log.option())
		require.NoError(t, c.GetPermitSemaphore("pool").SetPermits(t.Context(), 1))
		permit, err := c.GetPermitSemaphore("pool").Acquire(t.Context())
		require.NoError(t, err)
		b.Mini.FlushAll()
		<-permit.Context().Done()
		synctest.Wait()
		lines := log.take()
		require.Len(t, lines, 1)
		assert.Equal(t, "redlatch: a permit was lost", lines[0]["msg"])
		assert.Equal(t, "permits", lines[0]["kind"])
		assert.Equal(t, permit.ID(), lines[0]["owner"])
	})
}

// However many renewals fail in an outage, it is two lines.
func TestOutageIsLoggedWhenItBeginsAndEnds(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log logbook
		c := b.Peer(t, log.option())
		var holds []*rlock.Hold
		for _, name := range []string{"a", "b", "c"} {
			holds = append(holds, locktest.Acquire(t, t.Context(), c.GetLock(name)))
			time.Sleep(time.Second)
		}
		queue := redlatch.GetDelayedQueue[string](c.Client, "jobs", rdelayedqueue.WithVisibility(lease))
		_, err := queue.Offer(t.Context(), "work", 0)
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() {
			stopped <- queue.Consume(ctx, func(ctx context.Context, _ *rdelayedqueue.Message[string]) error { <-ctx.Done(); return nil },
				rdelayedqueue.WithStopGrace(0))
		}()
		time.Sleep(lease)
		log.take()
		c.Refuse(true)
		c.Cut()
		time.Sleep(lease / 2)
		c.Refuse(false)
		time.Sleep(lease)
		var begun, ended []map[string]any
		for _, line := range log.take() {
			switch line["msg"] {
			case "redlatch: renewals fail":
				begun = append(begun, line)
			case "redlatch: renewals succeed again":
				ended = append(ended, line)
			}
		}
		require.Len(t, begun, 1)
		assert.Equal(t, "WARN", begun[0]["level"])
		assert.NotEmpty(t, begun[0]["cause"])
		assert.NotEmpty(t, begun[0]["node"])
		require.Len(t, ended, 1)
		assert.Equal(t, "INFO", ended[0]["level"])
		length, _ := ended[0]["length"].(float64)
		assert.InDelta(t, lease/2, length, float64(lease/3))
		for _, h := range holds {
			locktest.Unlock(t, h)
		}
		stop()
		require.NoError(t, <-stopped)
	})
}

func TestCallThatWaitsForItsOwnClientIsLoggedOnceForEachHold(t *testing.T) {
	for kind, get := range lockKinds {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				var log logbook
				c := b.Peer(t, log.option())
				hold := locktest.Acquire(t, t.Context(), get(c.Client, "orders"))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 3)
				for range 3 {
					go func() {
						_, err := rival(kind, c.Client, "orders").Lock(ctx)
						done <- err
					}()
				}
				time.Sleep(4 * time.Second)
				assert.Empty(t, log.take())
				time.Sleep(time.Minute)
				lines := log.take()
				require.Len(t, lines, 1)
				assert.Equal(t, "WARN", lines[0]["level"])
				assert.Contains(t, lines[0]["msg"], "this client holds")
				assert.Equal(t, "orders", lines[0]["name"])
				assert.Equal(t, hold.Owner(), lines[0]["owner"])
				cancel()
				for range 3 {
					require.ErrorIs(t, <-done, context.Canceled)
				}
				locktest.Unlock(t, hold)
			})
		})
	}
}

func TestDeadLettersAndPanicsAreLogged(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log logbook
		c := b.Peer(t, log.option())
		queue := redlatch.GetDelayedQueue[string](c.Client, "jobs", rdelayedqueue.WithVisibility(lease), rdelayedqueue.WithMaxAttempts(2))
		for _, id := range []string{"fails", "panics", "rejected", "done"} {
			_, err := queue.Offer(t.Context(), id, 0, rdelayedqueue.WithID(id))
			require.NoError(t, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() {
			stopped <- queue.Consume(ctx, func(ctx context.Context, m *rdelayedqueue.Message[string]) error {
				switch m.ID {
				case "fails":
					return errors.New("no luck")
				case "panics":
					panic("no hope\nbecause")
				case "rejected":
					return m.Reject(ctx, "no use")
				}
				return nil
			})
		}()
		time.Sleep(time.Minute)
		stop()
		require.NoError(t, <-stopped)
		dead, panics := map[any]map[string]any{}, 0
		for _, line := range log.take() {
			assert.Equal(t, "WARN", line["level"])
			assert.Equal(t, "queue", line["kind"])
			assert.Equal(t, "jobs", line["name"])
			switch line["msg"] {
			case "redlatch: a message became a dead letter":
				assert.NotContains(t, dead, line["id"])
				dead[line["id"]] = line
			case "redlatch: a handler panicked":
				panics++
				assert.Equal(t, "panics", line["id"])
				assert.EqualValues(t, 1, line["attempt"])
				assert.Regexp(t, `^panic: no hope at scenario_test\.\S+ \(.*log_test\.go:\d+\)$`, line["cause"])
				assert.Contains(t, line["stack"], "no hope\nbecause")
				assert.Contains(t, line["stack"], "TestDeadLettersAndPanicsAreLogged")
			default:
				t.Errorf("unexpected: %v", line)
			}
		}
		assert.Equal(t, 1, panics, "once, however often the message is tried")
		require.Len(t, dead, 3)
		assert.Equal(t, "no luck", dead["fails"]["cause"])
		assert.EqualValues(t, 2, dead["fails"]["attempt"])
		assert.Regexp(t, `^panic: no hope at \S+ \(.*log_test\.go:\d+\)$`, dead["panics"]["cause"])
		assert.Equal(t, "no use", dead["rejected"]["cause"])
		assert.EqualValues(t, 1, dead["rejected"]["attempt"])
	})
}

// In a bug that each message meets the log would be all stacks.
func TestStackOfAPanicIsLoggedOnceForEachPlace(t *testing.T) {
	const messages = 50
	onPanic := []func(){
		func() { panic("here") },
		func() { panic("there") },
	}
	count := func(t *testing.T, log *logbook) {
		t.Helper()
		ids, stacks := map[any]bool{}, 0
		for _, line := range log.take() {
			if line["msg"] != "redlatch: a handler panicked" {
				continue
			}
			ids[line["id"]] = true
			if stack, ok := line["stack"]; ok {
				stacks++
				assert.Contains(t, stack, "log_test.go")
			}
		}
		assert.Len(t, ids, messages)
		assert.Equal(t, len(onPanic), stacks)
	}
	work := func(t *testing.T, c *redlatch.Client) {
		t.Helper()
		queue := redlatch.GetDelayedQueue[int](c, "jobs", rdelayedqueue.WithMaxAttempts(2))
		var panicked sync.WaitGroup
		panicked.Add(2 * messages)
		for i := range messages {
			_, err := queue.Offer(t.Context(), i, 0)
			require.NoError(t, err)
		}
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error, 1)
		go func() {
			stopped <- queue.Consume(ctx, func(_ context.Context, m *rdelayedqueue.Message[int]) error {
				defer panicked.Done()
				onPanic[m.Value%len(onPanic)]()
				return nil
			}, rdelayedqueue.WithBackoff(func(int) time.Duration { return 0 }))
		}()
		panicked.Wait()
		stop()
		require.NoError(t, <-stopped)
		require.NoError(t, c.Close())
	}
	t.Run("in memory", func(t *testing.T) {
		locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
			var log logbook
			work(t, b.Peer(t, log.option()).Client)
			count(t, &log)
		})
	})
	t.Run("on a server", func(t *testing.T) {
		var log logbook
		c, err := redlatch.New(redistest.Start(t).Client(t), log.option())
		require.NoError(t, err)
		work(t, c)
		count(t, &log)
	})
}

// Nobody ended its attempts: a claim finds it, and that is told once too.
func TestMessageWithoutAttemptsLeftIsLoggedByWhoFindsIt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log logbook
		c := b.Peer(t, log.option())
		queue := redlatch.GetDelayedQueue[string](c.Client, "jobs", rdelayedqueue.WithVisibility(time.Second), rdelayedqueue.WithMaxAttempts(1))
		_, err := queue.Offer(t.Context(), "work", 0, rdelayedqueue.WithID("forgotten"))
		require.NoError(t, err)
		_, err = queue.Take(t.Context())
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			_, err = queue.Take(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		lines := log.take()
		require.Len(t, lines, 1)
		assert.Equal(t, "redlatch: a message became a dead letter", lines[0]["msg"])
		assert.Equal(t, "forgotten", lines[0]["id"])
		assert.NotContains(t, lines[0], "task")
		assert.EqualValues(t, 1, lines[0]["attempt"])
		assert.Equal(t, "no attempt ended within the visibility", lines[0]["cause"])
	})
}

func TestPayloadThatCannotBeDecodedIsLogged(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log logbook
		c := b.Peer(t, log.option())
		_, err := redlatch.GetDelayedQueue[string](c.Client, "jobs").Offer(t.Context(), "no number", 0, rdelayedqueue.WithID("odd"))
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = redlatch.GetDelayedQueue[int](c.Client, "jobs").Take(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		lines := log.take()
		require.Len(t, lines, 1)
		assert.Equal(t, "odd", lines[0]["id"])
		assert.Contains(t, lines[0]["cause"], "decode")
	})
}

// consume has a consumer handle messages until the returned function stops it.
func consume(t *testing.T, q *rdelayedqueue.Queue[string], handle func(), opts ...rdelayedqueue.ConsumeOption) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	consumed := make(chan error, 1)
	go func() {
		consumed <- q.Consume(ctx, func(context.Context, *rdelayedqueue.Message[string]) error {
			handle()
			return nil
		}, opts...)
	}()
	return func() {
		cancel()
		require.NoError(t, <-consumed)
	}
}

func TestOutageOfAConsumerIsLoggedOnce(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log logbook
		c := b.Peer(t, log.option())
		q := redlatch.GetDelayedQueue[string](c.Client, "jobs")
		stop := consume(t, q, func() { c.Down(true) }, rdelayedqueue.WithVisibility(time.Hour))
		of := func(began, ended string) {
			t.Helper()
			counts := map[any]int{}
			for _, line := range log.take() {
				counts[line["msg"]]++
				if line["msg"] == ended {
					assert.InDelta(t, time.Minute, line["length"], float64(20*time.Second))
				}
			}
			assert.Equal(t, []int{1, 1}, []int{counts[began], counts[ended]}, "%v", counts)
		}
		time.Sleep(time.Minute)
		c.Down(true)
		time.Sleep(time.Minute)
		c.Down(false)
		time.Sleep(time.Minute)
		of("redlatch: a consumer cannot claim messages, and tries again", "redlatch: a consumer claims messages again")

		_, err := redlatch.GetDelayedQueue[string](b.Peer(t).Client, "jobs").Offer(t.Context(), "a", 0)
		require.NoError(t, err)
		time.Sleep(time.Minute) // its handler ends in an outage
		c.Down(false)
		time.Sleep(time.Minute)
		of("redlatch: a consumer cannot end an attempt, and tries again", "redlatch: a consumer ends attempts again")
		stop()
	})
}

// A message whose attempt nobody could end, for as long as it was the consumer's, is no reason to be silent about the next outage.
func TestEachOutageOfAConsumerIsLogged(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log logbook
		c := b.Peer(t, log.option())
		q := redlatch.GetDelayedQueue[string](c.Client, "jobs")
		handled := 0
		stop := consume(t, q, func() {
			handled++
			c.Down(handled%2 == 1) // it comes again after the outage
		}, rdelayedqueue.WithVisibility(time.Second), rdelayedqueue.WithConcurrency(1))
		producer := redlatch.GetDelayedQueue[string](b.Peer(t).Client, "jobs")
		for range 2 {
			_, err := producer.Offer(t.Context(), "a", 0)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			c.Down(false)
			time.Sleep(time.Minute)
		}
		counts := map[any]int{}
		for _, line := range log.take() {
			counts[line["msg"]]++
		}
		assert.Equal(t, 2, counts["redlatch: a consumer cannot end an attempt, and tries again"], "%v", counts)
		assert.Equal(t, 2, counts["redlatch: a consumer ends attempts again"], "%v", counts)
		stop()
	})
}

func TestSlowLogNamesWhatTookLong(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log logbook
		seen := 0
		observer := redlatch.Observer{
			AcquireEnd: func(context.Context, redlatch.AcquireEndEvent) { seen++ },
			HoldEnd:    func(context.Context, redlatch.HoldEndEvent) { seen++ },
		}
		other := b.Peer(t)
		c := b.Peer(t, log.option(), redlatch.WithSlowLog(2*time.Second, 10*time.Second), redlatch.WithObserver(observer))
		quick := locktest.Acquire(t, t.Context(), c.GetLock("orders"))
		time.Sleep(time.Second)
		locktest.Unlock(t, quick)
		assert.Empty(t, log.take())

		busy := locktest.Acquire(t, t.Context(), other.GetLock("orders"))
		time.AfterFunc(3*time.Second, func() { locktest.Unlock(t, busy) })
		slow := locktest.Acquire(t, t.Context(), c.GetLock("orders"))
		synctest.Wait()
		lines := log.take()
		require.Len(t, lines, 1)
		assert.Equal(t, "redlatch: a call waited long", lines[0]["msg"])
		assert.InDelta(t, 3*time.Second, lines[0]["waited"], float64(100*time.Millisecond))
		assert.Equal(t, slow.Owner(), lines[0]["owner"])
		assert.NotContains(t, lines[0], "cause")
		time.Sleep(11 * time.Second)
		locktest.Unlock(t, slow)
		synctest.Wait()
		lines = log.take()
		require.Len(t, lines, 1)
		assert.Equal(t, "redlatch: a hold lasted long", lines[0]["msg"])
		assert.Equal(t, "lock", lines[0]["kind"])
		assert.Equal(t, "orders", lines[0]["name"])
		assert.Equal(t, slow.Owner(), lines[0]["owner"])
		assert.InDelta(t, 11*time.Second, lines[0]["held"], float64(100*time.Millisecond))
		assert.Equal(t, 4, seen, "the observer hears all as before")
	})
}

func TestSlowLogNamesCallsThatWaitedInVain(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		var log logbook
		p := b.Peer(t, log.option(), redlatch.WithSlowLog(2*time.Second, 0))
		locktest.Acquire(t, t.Context(), b.Peer(t).GetLock("orders"))
		for what, wait := range map[string]func() error{
			"its limit": func() error {
				_, err := p.GetLock("orders").TryLock(t.Context(), rlock.WithWait(3*time.Second))
				return err
			},
			"its context": func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				_, err := p.GetLock("orders").Lock(ctx)
				return err
			},
			"a semaphore": func() error {
				acquired, err := p.GetSemaphore("seats").TryAcquire(t.Context(), 1, rsemaphore.WithWait(3*time.Second))
				assert.False(t, acquired)
				return err
			},
		} {
			err := wait()
			synctest.Wait()
			lines := log.take()
			require.Len(t, lines, 1, what)
			assert.Equal(t, "redlatch: a call waited long", lines[0]["msg"], what)
			assert.InDelta(t, 3*time.Second, lines[0]["waited"], float64(100*time.Millisecond), what)
			if err == nil {
				err = rlock.ErrNotAcquired
			}
			assert.Contains(t, err.Error(), lines[0]["cause"], what)
		}
	})
}
