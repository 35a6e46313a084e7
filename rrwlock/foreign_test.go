package rrwlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// subscribe listens to the lock's channel until stop is called.
func subscribe(t *testing.T, b *locktest.Bubble) (heard <-chan struct{}, stop func()) {
	t.Helper()
	sub := b.Redis.Subscribe(t.Context(), "redisson_rwlock:{n}")
	_, err := sub.Receive(t.Context())
	require.NoError(t, err)
	messages, token := sub.Channel(), make(chan struct{}, 1)
	go func() { // ends with the subscription; whoever does not receive holds up the server
		for range messages {
			select {
			case token <- struct{}{}:
			default:
			}
		}
	}()
	return token, func() { assert.NoError(t, sub.Close()) }
}

// redisson does what a writer of Redisson does: it subscribes, tries, and tries again when it hears that the last reader has left. It
// has the lock for a moment, and returns how long it waited.
func redisson(t *testing.T, b *locktest.Bubble, patience time.Duration) time.Duration {
	t.Helper()
	const acquire = `if redis.call('exists', KEYS[1]) == 1 then return 0 end
		redis.call('hset', KEYS[1], 'mode', 'write', 'java:1:write', 1)
		redis.call('pexpire', KEYS[1], 30000)
		return 1`
	start := time.Now()
	messages, stop := subscribe(t, b)
	defer stop()
	for {
		got, err := b.Redis.Eval(t.Context(), acquire, []string{"n"}).Int()
		require.NoError(t, err)
		if got == 1 {
			break
		}
		select {
		case <-messages:
		case <-time.After(patience - time.Since(start)):
			require.Fail(t, "the writer starved")
		}
		time.Sleep(2 * time.Millisecond) // Java is slow
	}
	waited := time.Since(start)
	time.Sleep(moment)
	b.Delete(t, "n")
	require.NoError(t, b.Redis.Publish(t.Context(), "redisson_rwlock:{n}", "1").Err())
	return waited
}

// readers has so many readers of each of so many clients follow one another without a gap, each with a pause after it, until the result
// is called. It counts how often they read.
func readers(t *testing.T, b *locktest.Bubble, clients, each int, hold, pause time.Duration) (reads *atomic.Int64, stop func()) {
	t.Helper()
	var users sync.WaitGroup
	over := make(chan struct{})
	reads = &atomic.Int64{}
	for c := range clients {
		l := b.Peer(t).GetReadWriteLock("n")
		for i := range each {
			users.Go(func() {
				next := time.Duration(c*each+i) * (hold + pause) / time.Duration(clients*each)
				for {
					time.Sleep(next) // many time.After(0) at once in a bubble crash the race detector of Go 1.26
					select {
					case <-over:
						return
					default:
					}
					next = pause
					if err := l.RDo(t.Context(), func(context.Context) error { time.Sleep(hold); return nil }); !assert.NoError(t, err) {
						return
					}
					reads.Add(1)
				}
			})
		}
	}
	time.Sleep(2 * (hold + pause))
	return reads, sync.OnceFunc(func() { close(over); users.Wait() })
}

// F12
func TestReadersDoNotStarveAWriterOfRedisson(t *testing.T) {
	redistest.Long(t)
	for _, tc := range []struct {
		clients, each int
		hold, pause   time.Duration
	}{
		{2, 5, 200 * time.Millisecond, 0},
		{1, 4, 50 * time.Millisecond, 0},
		{1, 1, 50 * time.Millisecond, 0},
		{40, 1, time.Second, 15 * time.Second},
		{2, 5, 3 * time.Second, 0},
	} {
		t.Run(fmt.Sprintf("%d of %d clients for %v", tc.each, tc.clients, tc.hold), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				reads, stop := readers(t, b, tc.clients, tc.each, tc.hold, tc.pause)
				defer stop()
				for range 3 {
					before := reads.Load()
					waited := redisson(t, b, 8*time.Second)
					t.Logf("after %v and %d readers", waited, reads.Load()-before)
					time.Sleep(4 * time.Second)
				}
				stop()
				time.Sleep(5 * time.Second)
				assert.Empty(t, b.Keys(t))
			})
		})
	}
}

// F12
func TestListenerThatNeverComesHardlyHoldsReadersUp(t *testing.T) {
	redistest.Long(t)
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		const hold, long = 200 * time.Millisecond, 30 * time.Second
		reads, stop := readers(t, b, 2, 3, hold, 0)
		defer stop()
		count := func() float64 {
			before := reads.Load()
			time.Sleep(long)
			return float64(reads.Load() - before)
		}
		alone := count()
		_, leave := subscribe(t, b)
		heard := count()
		t.Logf("%.0f reads, %.0f beside it", alone, heard)
		assert.Greater(t, heard, 0.9*alone)
		leave()
		time.Sleep(5 * time.Second)
		assert.InDelta(t, alone, count(), 0.01*alone, "nobody listens any more")
		stop()
		assert.Empty(t, b.Keys(t))
	})
}

// F12
func TestWritersOfThisLibraryAreNotTakenForRedissons(t *testing.T) {
	redistest.Long(t)
	for _, pause := range []time.Duration{0, 300 * time.Millisecond, 1100 * time.Millisecond, 2500 * time.Millisecond} {
		t.Run(pause.String(), func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				_, stop := readers(t, b, 3, 2, 200*time.Millisecond, 0)
				defer stop()
				over, writer := make(chan struct{}), b.Peer(t).GetReadWriteLock("n")
				var writers sync.WaitGroup
				writers.Go(func() {
					for {
						time.Sleep(pause)
						select {
						case <-over:
							return
						default:
						}
						if err := writer.Do(t.Context(), func(context.Context) error { return nil }); !assert.NoError(t, err) {
							return
						}
					}
				})
				for range 150 {
					time.Sleep(97 * time.Millisecond)
					good, err := b.Redis.ZScore(t.Context(), "redlatch_rwlock_writers:{n}", "redisson").Result()
					if errors.Is(err, redis.Nil) {
						continue
					}
					require.NoError(t, err)
					if !assert.LessOrEqual(t, good, float64(time.Now().UnixMilli()), "a note, and no mark") {
						break
					}
				}
				close(over)
				writers.Wait()
				stop()
			})
		})
	}
}
