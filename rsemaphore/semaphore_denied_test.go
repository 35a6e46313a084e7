package rsemaphore_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// denyScripts has the server refuse calls of scripts as long as denied says so of a call, counted from 1.
func denyScripts(b *locktest.Bubble, denied func(call int64) bool) {
	refuseScripts(b, denied, "NOPERM no permission")
}

// refuseScripts does so with one of these errors at random.
func refuseScripts(b *locktest.Bubble, denied func(call int64) bool, with ...string) {
	var calls atomic.Int64
	b.Mini.Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
		if !strings.HasPrefix(cmd, "EVAL") || !denied(calls.Add(1)) {
			return false
		}
		p.WriteError(with[rand.N(len(with))])
		return true
	})
}

// granted is a call that is granted permits, and how many it leaves.
type granted struct {
	call func(ctx context.Context) error
	left int
}

// eachGrant tests the calls that are granted permits, of a semaphore that has 5.
func eachGrant(t *testing.T, test func(t *testing.T, b *locktest.Bubble, p *locktest.Peer, grant granted)) {
	t.Helper()
	for verb, left := range map[string]int{"Acquire": 4, "Drain": 0} {
		t.Run(verb, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				s := p.GetSemaphore("s")
				give(t, s, 5)
				test(t, b, p, granted{func(ctx context.Context) error { return semaphoreCalls[verb](ctx, s) }, left})
			})
		})
	}
}

// F2
func TestSemaphoreUnansweredGrantIsReleasedAfterARefusal(t *testing.T) {
	eachGrant(t, func(t *testing.T, b *locktest.Bubble, p *locktest.Peer, grant granted) {
		p.LoseReplies(1)
		denyScripts(b, func(call int64) bool { return call == 2 })
		err := grant.call(t.Context())
		require.ErrorIs(t, err, redlatch.ErrUnknown)
		require.ErrorContains(t, err, "NOPERM")
		time.Sleep(time.Minute)
		require.Equal(t, 5, counter(t, b.Redis, "s"))
		take(t, p.GetSemaphore("s"), 5)
	})
}

// F2
func TestSemaphoreCloseReleasesAnUnansweredGrant(t *testing.T) {
	eachGrant(t, func(t *testing.T, b *locktest.Bubble, p *locktest.Peer, grant granted) {
		p.LoseReplies(1)
		denyScripts(b, func(call int64) bool { return call == 2 })
		require.ErrorIs(t, grant.call(t.Context()), redlatch.ErrUnknown)
		require.NoError(t, p.Close())
		require.Equal(t, 5, counter(t, b.Redis, "s"))
	})
}

// F3
func TestSemaphoreAbandonedGrantIsReleasedAfterARefusal(t *testing.T) {
	eachGrant(t, func(t *testing.T, b *locktest.Bubble, p *locktest.Peer, grant granted) {
		p.HangReplies(1)
		denyScripts(b, func(call int64) bool { return call == 2 })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, grant.call(ctx), context.DeadlineExceeded)
		require.Equal(t, grant.left, counter(t, b.Redis, "s"), "it was carried out")
		time.Sleep(time.Minute)
		require.Equal(t, 5, counter(t, b.Redis, "s"))
	})
}

// F3
func TestSemaphoreCloseReleasesAnAbandonedGrant(t *testing.T) {
	eachGrant(t, func(t *testing.T, b *locktest.Bubble, p *locktest.Peer, grant granted) {
		p.HangReplies(1)
		calls := make(chan error, 1) // room for the result
		go func() { calls <- grant.call(t.Context()) }()
		synctest.Wait()
		require.NoError(t, p.Close())
		require.ErrorIs(t, ended(t, calls), redlatch.ErrClosed)
		require.Equal(t, 5, counter(t, b.Redis, "s"))
	})
}

// F3
func TestSemaphoreRefusedReleaseOfAGrantIsRepeated(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetSemaphore("s")
		give(t, s, 5)
		p.HangReplies(1)
		start := time.Now()
		denyScripts(b, func(call int64) bool { return call > 2 && time.Since(start) < time.Minute })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.Acquire(ctx, 1), context.DeadlineExceeded)
		time.Sleep(30 * time.Second)
		_, err := s.Drain(t.Context())
		require.ErrorContains(t, err, "NOPERM", "nobody waits for what is to be given back")
		require.Equal(t, 4, counter(t, b.Redis, "s"))
		time.Sleep(2 * time.Minute)
		require.Equal(t, 5, counter(t, b.Redis, "s"), "once")
	})
}

// F2
func TestSemaphoreCallsBehindARefusedBatchGetItsError(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetSemaphore("s")
		give(t, s, 5)
		start := time.Now()
		p.LoseReplies(1)
		denyScripts(b, func(call int64) bool { return call > 1 && time.Since(start) < time.Minute })
		require.ErrorIs(t, s.Release(t.Context(), 1), redlatch.ErrUnknown)
		for verb, call := range semaphoreCalls {
			began := time.Now()
			err := call(t.Context(), s)
			require.ErrorContains(t, err, "NOPERM", verb)
			require.NotErrorIs(t, err, redlatch.ErrUnknown, "%s: it was not sent", verb)
			require.LessOrEqual(t, time.Since(began), time.Second+semaphoreMoment, verb)
		}
		time.Sleep(2 * time.Minute)
		require.Equal(t, 6, counter(t, b.Redis, "s"), "the release counts once, and nothing else")
		take(t, s, 6)
	})
}

// F2, F25
func TestSemaphoreRandomRefusalsAgreeWithAModel(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetSemaphore("s")
		give(t, s, 10)
		var sick atomic.Bool
		refuseScripts(b, func(int64) bool { return sick.Load() && rand.N(3) == 0 },
			"NOPERM no permission", "READONLY You can't write against a read only replica.", "NOAUTH Authentication required.",
			"OOM command not allowed when used memory > 'maxmemory'.")
		var there atomic.Int64
		there.Store(10)
		for range faulttest.Rounds(t, 30, 100) {
			sick.Store(true)
			p.LoseReplies(rand.N(6))
			var workers sync.WaitGroup
			for range 5 {
				workers.Go(func() {
					for range 10 {
						there.Add(int64(refusedStep(t, s)))
					}
				})
			}
			workers.Wait()
			sick.Store(false)
			p.LoseReplies(0)
			time.Sleep(10 * time.Second) // what was given up is settled
			require.EqualValues(t, there.Load(), counter(t, b.Redis, "s"), "permits available")
		}
	})
}

// refusedStep does one thing at random, and returns how many permits that will have made available in the end: what nobody
// knows is given back if it took some, and carried out if it adds some.
func refusedStep(t *testing.T, s *rsemaphore.Semaphore) int {
	ctx, cancel := context.WithTimeout(t.Context(), rand.N(50*time.Millisecond))
	defer cancel()
	if rand.N(2) == 0 {
		if s.Acquire(ctx, 1) == nil {
			return -1
		}
		return 0
	}
	if err := s.Release(ctx, 1); err == nil || errors.Is(err, redlatch.ErrUnknown) {
		return 1
	}
	return 0
}
