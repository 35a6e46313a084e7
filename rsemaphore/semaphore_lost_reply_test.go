package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// semaphoreLife is what may happen to a semaphore, step by step. Each step leaves so many permits.
var semaphoreLife = []struct {
	name  string
	there int
	do    func(t *testing.T, s *rsemaphore.Semaphore)
}{
	{"TrySetPermits", 9, func(t *testing.T, s *rsemaphore.Semaphore) { give(t, s, 9) }},
	{"Acquire", 6, func(t *testing.T, s *rsemaphore.Semaphore) { take(t, s, 3) }},
	{"TryAcquire", 4, func(t *testing.T, s *rsemaphore.Semaphore) { require.True(t, tried(t, s, 2)) }},
	{"a refused TryAcquire", 4, func(t *testing.T, s *rsemaphore.Semaphore) { require.False(t, tried(t, s, 5)) }},
	{"Release", 5, func(t *testing.T, s *rsemaphore.Semaphore) { release(t, s, 1) }},
	{"an over-release", 5, func(t *testing.T, s *rsemaphore.Semaphore) {
		require.ErrorIs(t, s.Release(t.Context(), 5), rsemaphore.ErrOverRelease)
	}},
	{"AddPermits", 7, func(t *testing.T, s *rsemaphore.Semaphore) { require.NoError(t, s.AddPermits(t.Context(), 2)) }},
	{"Available", 7, func(t *testing.T, s *rsemaphore.Semaphore) { requireThere(t, s, 7) }},
	{"Drain", 0, func(t *testing.T, s *rsemaphore.Semaphore) {
		n, err := s.Drain(t.Context())
		require.NoError(t, err)
		require.Equal(t, 7, n)
	}},
}

// F2
func TestSemaphoreLostReplyChangesNoOutcome(t *testing.T) {
	for sick, step := range semaphoreLife {
		for n := 1; n <= 4; n++ {
			t.Run(fmt.Sprintf("%s, %d lost", step.name, n), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					p := b.Peer(t)
					s := p.GetSemaphore("s", rsemaphore.WithMax(9))
					for i, step := range semaphoreLife {
						if i == sick {
							p.LoseReplies(n)
						}
						step.do(t, s)
						require.Equal(t, step.there, counter(t, b.Redis, "s"), step.name)
					}
					p.LoseReplies(0)
				})
			})
		}
	}
}

// semaphoreModel is what a server should have of one semaphore that several goroutines of a client use.
type semaphoreModel struct {
	mu    sync.Mutex // guards there, held
	there int
	held  int
}

func (m *semaphoreModel) add(there, held int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.there += there
	m.held += held
}

// takeBack returns permits that somebody holds, up to most; 0 if there are none.
func (m *semaphoreModel) takeBack(most int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := min(most, m.held)
	m.held -= n
	return n
}

// step does one thing at random. What it does with a context that ends may have any outcome but a half one.
func (m *semaphoreModel) step(t *testing.T, s *rsemaphore.Semaphore) {
	n := 1 + rand.N(3)
	switch rand.N(8) {
	case 0, 1:
		ok, err := s.TryAcquire(t.Context(), n)
		if assert.NoError(t, err) && ok {
			m.add(-n, n)
		}
	case 2, 3:
		ok, err := s.TryAcquire(t.Context(), n, rsemaphore.WithWait(rand.N(300*time.Millisecond)))
		if errors.Is(err, redlatch.ErrUnavailable) {
			return // the last reply was lost
		}
		if assert.NoError(t, err) && ok {
			m.add(-n, n)
		}
	case 4:
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(30*time.Millisecond))
		defer cancel()
		if err := s.Acquire(ctx, n); err == nil {
			m.add(-n, n)
		} else {
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		}
	case 5:
		if assert.NoError(t, s.AddPermits(t.Context(), n)) {
			m.add(n, 0)
		}
	default:
		if n = m.takeBack(n); n > 0 && assert.NoError(t, s.Release(t.Context(), n)) {
			m.add(n, 0)
		}
	}
}

// F2
func TestSemaphoreRandomLostRepliesAgreeWithAModel(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, other := b.Peer(t), b.Peer(t)
		m := &semaphoreModel{there: 10}
		give(t, p.GetSemaphore("s"), 10)
		const workers = 5
		for range faulttest.Rounds(t, 30, 100) {
			p.LoseReplies(rand.N(4))
			other.LoseReplies(rand.N(3))
			var wg sync.WaitGroup
			for i := range workers {
				s := []*rsemaphore.Semaphore{p.GetSemaphore("s"), other.GetSemaphore("s")}[i%2]
				wg.Go(func() {
					for range 20 {
						m.step(t, s)
					}
				})
			}
			wg.Wait()
			p.LoseReplies(0)
			other.LoseReplies(0)
			time.Sleep(10 * time.Second) // what was given up is settled
			require.Equal(t, m.there, counter(t, b.Redis, "s"), "permits available")
			require.False(t, t.Failed())
		}
	})
}

// F2
func TestSemaphoreLostRepliesOnServer(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	server := redistest.Start(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	c := clientThrough(t, proxy.Addr())
	rdb := server.Client(t)
	for i := range semaphoreLife {
		for n := 1; n <= 4; n++ {
			s := c.GetSemaphore(fmt.Sprintf("s-%d-%d", i, n), rsemaphore.WithMax(9))
			for j, step := range semaphoreLife {
				if j == i {
					proxy.DropReplies(faulttest.Script, n)
				}
				step.do(t, s)
				require.Equal(t, step.there, counter(t, rdb, s.Name()), "%s after %d lost", step.name, n)
			}
		}
	}
	require.Positive(t, proxy.Dropped())
}

// F2
func TestSemaphoreLostRepliesHideNoWrongType(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		require.NoError(t, b.Redis.Set(t.Context(), "word", "word", 0).Err())
		require.NoError(t, b.Redis.HSet(t.Context(), "hash", "a", "b").Err())
		for n := 1; n <= 4; n++ {
			for _, name := range []string{"word", "hash"} {
				for verb, call := range semaphoreCalls {
					p.LoseReplies(n)
					require.ErrorIs(t, call(t.Context(), p.GetSemaphore(name)), redlatch.ErrWrongType, "%s of a %s, %d lost", verb, name, n)
				}
				p.LoseReplies(n)
				require.ErrorIs(t, p.GetPermitSemaphore(name).AddPermits(t.Context(), 1), redlatch.ErrWrongType, "a %s, %d lost", name, n)
				p.LoseReplies(0)
			}
		}
	})
}

// F2
func TestSemaphoreLateOriginalDoesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetSemaphore("s")
		give(t, s, 5)
		take(t, s, 1)
		p.LoseReplies(1)
		require.False(t, tried(t, s, 9), "repeated, and it changed nothing")
		record, err := b.Redis.Keys(t.Context(), "redlatch_ops:*").Result()
		require.NoError(t, err)
		require.Len(t, record, 1)
		left, err := b.Redis.Get(t.Context(), record[0]).Result()
		require.NoError(t, err)
		var number int
		_, err = fmt.Sscan(left, &number)
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("%d 0 4 0 semaphore", number), left, "the repeated one left its number")
		// What the lost one would do, had it been delayed: the same call once more, and an older one.
		source := sourceOfSemaphore(t)
		for late, want := range map[int][]any{number: {int64(0), int64(4), int64(0)}, number - 1: {}} {
			reply, err := b.Redis.Eval(t.Context(), source, []string{"s", record[0], "c"}, late, 0, 1000, "t1").Slice()
			require.NoError(t, err)
			require.Equal(t, want, reply)
		}
		require.Equal(t, 4, counter(t, b.Redis, "s"))
	})
}
