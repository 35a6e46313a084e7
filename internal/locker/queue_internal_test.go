package locker

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// bare is a kind that releases and does nothing else.
func bare() *Kind {
	return &Kind{Kind: lease.Kind{
		Name:    "bare",
		Channel: func(key string) string { return key },
		Release: func(key, _ any) *script.Call { return script.New("test", "return 1").Call(1, key) },
	}}
}

// nobody is an address where no server is.
const nobody = "127.0.0.1:1"

// managerOf returns a manager of a client of its own, which the end of the test closes.
func managerOf(t *testing.T, k *Kind, addr string, c core.Config) *Manager {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	c.Logger = slog.New(slog.DiscardHandler)
	e := core.New(rdb, c)
	t.Cleanup(func() {
		e.Close()
		assert.NoError(t, rdb.Close())
	})
	return NewManager(NewNamespace(e), k)
}

func TestGrantAdmitsThoseWhoShare(t *testing.T) {
	k := bare()
	k.Sharing, k.Permits = Readers, func(string) int { return 1 }
	s := managerOf(t, k, nobody, core.Config{Lease: 30 * time.Second})
	n := s.Name("orders")
	sh := s.shard("orders")
	join := func() *Waiter {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		return n.joinLocked(t.Context(), sh, none)
	}
	first := join()
	admitted := func(w *Waiter) bool { return w.AdmittedAt <= w.queue.now() }
	assert.True(t, admitted(first), "nobody was refused yet")
	first.queue.Refused = true
	second := join()
	assert.False(t, admitted(second), "it waits behind one that was refused")
	assert.True(t, n.TakenHere())

	l := s.leases.New("orders", "a")
	l.Register(t.Context(), none.Term, s.mode, s.core.Clock.Now())
	require.True(t, n.enter(l, nil, first))
	assert.True(t, admitted(second))
	assert.True(t, admitted(join()))
	assert.False(t, n.TakenHere())
	l.Unregister()
	s.Lost(l)
}

// Of two that wait one has come after the question was sent: the answer may be older than its call.
func TestAnswerEndsTheWaitsThatBeganBeforeItsQuestion(t *testing.T) {
	k := bare()
	k.Sharing, k.Permits = Pool, func(string) int { return 1 }
	s := managerOf(t, k, nobody, core.Config{Lease: 30 * time.Second})
	n := s.Name("orders")
	sh := s.shard("orders")
	join := func(since time.Duration) *Waiter {
		sh.mu.Lock()
		defer sh.mu.Unlock()
		w := n.joinLocked(t.Context(), sh, none)
		w.since, w.queue.Refused, w.AdmittedAt = since, true, waitqueue.Never
		return w
	}
	asks, before, after := join(1), join(9), join(10)
	asks.asked = 10
	asks.endTogether(errs.ErrNotAcquired)
	next, _ := before.nextStep()
	assert.Equal(t, stepFail, next)
	require.ErrorIs(t, before.failure(), errs.ErrNotAcquired)
	next, _ = after.nextStep()
	assert.Equal(t, stepAsk, next)
}

// enrolled is an upkeep that does nothing.
type enrolled struct{ Upkeep }

func (enrolled) Refused(*Waiter, time.Duration) {}

// lookedAfter returns a waiter of a kind with an upkeep, and its name.
func lookedAfter(t *testing.T) (*Name, *Waiter) {
	t.Helper()
	k := bare()
	k.Upkeep = enrolled{}
	s := managerOf(t, k, nobody, core.Config{Lease: 30 * time.Second})
	n := s.Name("orders")
	sh := s.shard("orders")
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return &n, n.joinLocked(t.Context(), sh, none)
}

// A waiter that was refused joins its channel next, on which the release may have been announced already. The question that looks for
// that may be sent before the waiter has returned from its attempt.
func TestUpkeepResumesAWaiterThatWasJustRefused(t *testing.T) {
	_, w := lookedAfter(t)
	w.queue.shard.mu.Lock()
	wakeups := w.queue.Asking(&w.Waiter, w.queue.now())
	w.queue.shard.mu.Unlock()
	assert.Zero(t, w.Questions(), "its own reply will say more")
	w.queue.joining = true
	refused := attemptResult{ttl: time.Minute}
	w.answered(refused)
	w.busy(wakeups, refused)
	next, _ := w.nextStep()
	assert.Equal(t, stepWait, next)
	w.Resume(w.Questions())
	next, _ = w.nextStep()
	assert.Equal(t, stepAsk, next)
}

// The upkeep's next sweep may succeed before the waiter's call has looked.
func TestWaitThatFailedHasItsError(t *testing.T) {
	n, w := lookedAfter(t)
	w.Swept(io.EOF)
	w.Fail(io.EOF)
	w.Swept(nil)
	hold, err := (&call{name: n, waiter: w}).run(t.Context(), none)
	assert.Nil(t, hold)
	assert.ErrorIs(t, err, errs.ErrUnknown)
}
