package rlock_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// anyKind are the kinds of lock that wait in different ways.
var anyKind = map[string]func(*redlatch.Client, string) rlock.Locker{
	"Lock": takeable["Lock"], "FairLock": takeable["FairLock"], "WriteLock": takeable["WriteLock"],
	"ReadLock": func(c *redlatch.Client, name string) rlock.Locker { return c.GetReadWriteLock(name).RLocker() },
}

// rival returns the lock that excludes holders of one of these kinds.
func rival(kind string, c *redlatch.Client) rlock.Locker {
	if kind == "ReadLock" {
		kind = "WriteLock"
	}
	return takeable[kind](c, "orders")
}

// eachKind runs a test for each kind of lock, on a client that has been in use.
func eachKind(t *testing.T, fn func(t *testing.T, b *locktest.Bubble, p *locktest.Peer, l rlock.Locker), opts ...redlatch.Option) {
	t.Helper()
	for name, get := range anyKind {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t, opts...)
				locktest.Free(t, get(p.Client, "others"))
				fn(t, b, p, get(p.Client, "orders"))
			})
		})
	}
}

// F16
func TestWaitForAFrozenRedisIsUnavailable(t *testing.T) {
	eachKind(t, func(t *testing.T, _ *locktest.Bubble, p *locktest.Peer, l rlock.Locker) {
		p.Blackhole(true)
		for _, limit := range []time.Duration{10 * time.Millisecond, 2 * time.Second, 5 * time.Second} {
			first := queue(t, l, rlock.WithWait(limit))
			second := queue(t, l, rlock.WithWait(limit)) // asks nobody while the first one does
			for _, waiting := range []<-chan locktest.Outcome{first, second} {
				err := locktest.Fetch(t, waiting).Err
				require.ErrorIs(t, err, rlock.ErrNotAcquired, "%v", limit)
				require.ErrorIs(t, err, redlatch.ErrUnavailable, "%v", limit)
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			_, err := l.Lock(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, redlatch.ErrUnavailable)
			require.NotErrorIs(t, err, rlock.ErrNotAcquired)
		}
		p.Blackhole(false)
		time.Sleep(time.Minute) // what was given up is settled
	})
}

// F16
func TestWaitForALockWhoseRedisDiedIsUnavailable(t *testing.T) {
	for name, get := range anyKind {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				l := get(p.Client, "orders")
				h := locktest.Acquire(t, t.Context(), rival(name, b.Peer(t).Client))
				waiting := queue(t, l, rlock.WithWait(5*time.Second))
				time.Sleep(time.Second)
				p.Refuse(true)
				p.Cut()
				err := locktest.Fetch(t, waiting).Err
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
				_, err = l.TryLock(t.Context())
				require.ErrorIs(t, err, redlatch.ErrUnavailable, "refused at once")
				_, err = l.Lock(t.Context())
				require.ErrorIs(t, err, redlatch.ErrUnavailable, "refused at once")
				p.Refuse(false)
				time.Sleep(time.Minute)
				locktest.Unlock(t, h)
			})
		})
	}
}

// Redis falls silent before the wait ends, so that its last question gets no answer.
//
// F27
func TestQuestionThatIsCutShortHidesNoRefusedConnection(t *testing.T) {
	for name, get := range anyKind {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				l := get(p.Client, "orders")
				h := locktest.Acquire(t, t.Context(), rival(name, b.Peer(t).Client))
				var waiting []<-chan locktest.Outcome
				for range 2 {
					waiting = append(waiting, queue(t, l, rlock.WithWait(6*time.Second)))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
				defer cancel()
				waiting = append(waiting, locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(ctx) }))
				time.Sleep(time.Second)
				p.Refuse(true)
				p.Cut()
				time.Sleep(3 * time.Second)
				p.Blackhole(true)
				p.Refuse(false)
				for _, one := range waiting {
					err := locktest.Fetch(t, one).Err
					require.ErrorIs(t, err, redlatch.ErrUnavailable)
					require.ErrorContains(t, err, "connection refused")
				}
				p.Blackhole(false)
				time.Sleep(time.Minute)
				locktest.Unlock(t, h)
			})
		})
	}
}

func TestWaitForABusyLockIsNotUnavailable(t *testing.T) {
	for name, get := range anyKind {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				for where, holder := range map[string]*locktest.Peer{"another client": b.Peer(t), "this client": nil} {
					p := b.Peer(t)
					if holder == nil {
						holder = p
					}
					l := get(p.Client, "orders")
					h := locktest.Acquire(t, t.Context(), rival(name, holder.Client))
					for _, limit := range []time.Duration{10 * time.Millisecond, time.Second, 5 * time.Second} {
						first, second := queue(t, l, rlock.WithWait(limit)), queue(t, l, rlock.WithWait(limit))
						for _, waiting := range []<-chan locktest.Outcome{first, second} {
							err := locktest.Fetch(t, waiting).Err
							require.ErrorIs(t, err, rlock.ErrNotAcquired, where)
							require.NotErrorIs(t, err, redlatch.ErrUnavailable, where)
						}
					}
					locktest.Unlock(t, h)
				}
			})
		})
	}
}

func TestQuestionThatTheEndOfTheCallCutOffIsNotUnavailable(t *testing.T) {
	const after = 5 * time.Millisecond
	for name, limit := range map[string]time.Duration{"limit": 3*time.Second + after, "context": time.Hour} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				b.Foreign(t, "orders", time.Hour)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				waiting := locktest.Begin(func() (*rlock.Hold, error) { return p.GetLock("orders").Lock(ctx, rlock.WithWait(limit)) })
				time.Sleep(3 * time.Second) // it was answered
				p.HangReplies(1)
				require.NoError(t, b.Redis.Publish(t.Context(), "redisson_lock__channel:{orders}", "0").Err())
				synctest.Wait() // it asks
				time.Sleep(after)
				want := rlock.ErrNotAcquired
				if name == "context" {
					cancel()
					want = context.Canceled
				}
				err := locktest.Fetch(t, waiting).Err
				require.ErrorIs(t, err, want)
				require.NotErrorIs(t, err, redlatch.ErrUnavailable)
				p.HangReplies(0)
				time.Sleep(time.Minute) // what was given up is settled
			})
		})
	}
}

// doneOnceHeld is a context that is done from when somebody has the lock.
type doneOnceHeld struct {
	context.Context
	redis *redis.Client
	done  atomic.Bool
}

func (c *doneOnceHeld) Err() error {
	if !c.done.Load() && c.redis.Exists(context.WithoutCancel(c.Context), "orders").Val() == 0 {
		return nil
	}
	c.done.Store(true)
	return context.Canceled
}

func TestCancellationAfterAnAnswerIsNotUnavailable(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		l := b.Peer(t).GetLock("orders")
		for name, lock := range map[string]func(context.Context, ...rlock.Option) (*rlock.Hold, error){"TryLock": l.TryLock, "Lock": l.Lock} {
			_, err := lock(&doneOnceHeld{Context: t.Context(), redis: b.Redis})
			require.ErrorIs(t, err, context.Canceled, name)
			require.NotErrorIs(t, err, redlatch.ErrUnavailable, name)
			synctest.Wait() // it is released in the background
			require.Empty(t, b.Keys(t))
		}
	})
}

// F2
func TestTryLockEndsWithTheCallTimeout(t *testing.T) {
	for name, get := range anyKind {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t, redlatch.WithCallTimeout(500*time.Millisecond))
				l := get(p.Client, "orders")
				locktest.Free(t, l)
				p.Blackhole(true)
				start := time.Now()
				_, err := l.TryLock(t.Context())
				require.ErrorIs(t, err, redlatch.ErrUnknown)
				assert.Less(t, time.Since(start), 600*time.Millisecond)
				p.Blackhole(false)
				time.Sleep(time.Minute)
			})
		})
	}
}

// lines are what is told, by any goroutine.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, line...)
	return len(line), nil
}

// take returns what was told since it was last called.
func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := string(l.text)
	l.text = nil
	return text
}

// F2
func TestDoReturnsWhatItsFunctionReturnedWhenTheReleaseIsNotAnswered(t *testing.T) {
	var told lines
	logged := redlatch.WithLogger(slog.New(slog.NewTextHandler(&told, nil)))
	observed := redlatch.WithObserver(redlatch.Observer{ScriptEnd: func(_ context.Context, e redlatch.ScriptEndEvent) {
		if e.Err != nil {
			_, _ = fmt.Fprintln(&told, "failed:", e.Name)
		}
	}})
	eachKind(t, func(t *testing.T, b *locktest.Bubble, p *locktest.Peer, l rlock.Locker) {
		for _, want := range []error{nil, assert.AnError} {
			told.take()
			var held []redlatch.HoldInfo
			err := l.Do(t.Context(), func(context.Context) error {
				held = p.Holds()
				p.Blackhole(true)
				return want
			})
			assert.Equal(t, want, err)
			require.Len(t, held, 1)
			synctest.Wait() // the log is written by another goroutine
			text := told.take()
			assert.Contains(t, text, fmt.Sprintf("level=WARN msg=\"redlatch: a lock was not released\" client=%s kind=%s name=orders owner=%s cause=",
				p.ID(), held[0].Kind, held[0].Owner))
			assert.Regexp(t, `failed: r\w*lock\.release\n`, text)
			p.Blackhole(false)
			time.Sleep(10 * time.Second)
			assert.Empty(t, b.Hash(t, "orders"), "the release goes on")
		}
	}, logged, observed)
}

// F2
func TestReleaseThatWasLostAndThenRefusedGoesOn(t *testing.T) {
	eachKind(t, func(t *testing.T, b *locktest.Bubble, p *locktest.Peer, l rlock.Locker) {
		h := locktest.Acquire(t, t.Context(), l)
		p.Blackhole(true)
		unlocked := make(chan error, 1) // one answer
		go func() { unlocked <- h.Unlock(t.Context()) }()
		synctest.Wait()
		b.Mini.SetError("NOPERM this user has no permissions to run the 'evalsha' command")
		p.Blackhole(false) // cuts what is under way: the reply is lost, and the next one is a refusal
		require.ErrorIs(t, <-unlocked, redlatch.ErrUnknown)
		b.Mini.SetError("")
		time.Sleep(10 * time.Second)
		assert.Empty(t, b.Hash(t, "orders"), "the release was repeated")
	})
}

// F16. Nothing but the library bounds a call on a cluster whose client reads without a time-out.
func TestLockOnASilentClusterEnds(t *testing.T) {
	redistest.Long(t)
	t.Parallel() // go-redis waits for the silent node under a mutex, which a bubble does not know
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: "10.0.0.1:1"}}}}, nil
		},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			server, client := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, server) }() // ends with the test
			t.Cleanup(func() { _ = server.Close() })
			return client, nil
		},
		ReadTimeout: -1, WriteTimeout: -1, MaxRedirects: -1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
	})
	c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(time.Second))
	require.NoError(t, err)
	began := time.Now()
	_, err = c.GetLock("orders").Lock(context.WithoutCancel(t.Context()))
	assert.ErrorIs(t, err, redlatch.ErrUnknown)
	assert.Less(t, time.Since(began), 10*time.Second, "a lease without an answer, and the last attempt")
	assert.NoError(t, c.Close())
	assert.NoError(t, rdb.Close())
}
