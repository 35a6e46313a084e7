package scenario_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rsemaphore"
)

// contexts are the contexts of calls, each by whether it cannot end.
type contexts []bool

var (
	thatCanEnd = contexts{false}
	endlessToo = contexts{false, true}
)

// taker is a call that takes something in one script.
type taker struct {
	name string
	take func(ctx context.Context, c *redlatch.Client) error
}

// takers are the calls that may be under way when a client closes.
func takers() []taker {
	lock := func(name string, of func(c *redlatch.Client) rlock.Locker) []taker {
		return []taker{
			{name + " try", func(ctx context.Context, c *redlatch.Client) error {
				_, err := of(c).TryLock(ctx)
				return err
			}},
			{name + " wait", func(ctx context.Context, c *redlatch.Client) error {
				_, err := of(c).Lock(ctx)
				return err
			}},
		}
	}
	var all []taker
	all = append(all, lock("lock", func(c *redlatch.Client) rlock.Locker { return c.GetLock("a") })...)
	all = append(all, lock("fair", func(c *redlatch.Client) rlock.Locker { return c.GetFairLock("a") })...)
	all = append(all, lock("write", func(c *redlatch.Client) rlock.Locker { return c.GetReadWriteLock("a") })...)
	all = append(all, lock("read", func(c *redlatch.Client) rlock.Locker { return c.GetReadWriteLock("a").RLocker() })...)
	all = append(all, lock("multi", func(c *redlatch.Client) rlock.Locker { return c.GetMultiLock(c.GetLock("a"), c.GetLock("b")) })...)
	return append(all,
		taker{"permit try", func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetPermitSemaphore("p").TryAcquire(ctx)
			return err
		}},
		taker{"permits", func(ctx context.Context, c *redlatch.Client) error {
			_, err := c.GetPermitSemaphore("p").AcquireN(ctx, 2)
			return err
		}})
}

// eachTaker runs a test for each call under each context, one that can end or one that cannot. Redis knows all scripts.
func eachTaker(t *testing.T, both contexts, opts []redlatch.Option, test func(t *testing.T, b *locktest.Bubble, p *locktest.Peer, begin func() <-chan locktest.Outcome)) {
	t.Helper()
	for _, of := range takers() {
		for _, endless := range both {
			t.Run(of.name+" endless "+strconv.FormatBool(endless), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					first, other := b.Peer(t, redlatch.WithCloseGrace(0)), b.Peer(t)
					_, err := other.GetPermitSemaphore("p").TrySetPermits(t.Context(), 2)
					require.NoError(t, err)
					require.NoError(t, of.take(t.Context(), first.Client))
					require.NoError(t, first.Close())
					nothingTaken(t, b, other, "at first")

					p := b.Peer(t, opts...)
					ctx := t.Context()
					if endless {
						ctx = context.WithoutCancel(ctx)
					}
					test(t, b, p, func() <-chan locktest.Outcome {
						done := locktest.Begin(func() (*rlock.Hold, error) { return nil, of.take(ctx, p.Client) })
						synctest.Wait()
						return done
					})
					nothingTaken(t, b, other, "by the client that has closed")
				})
			})
		}
	}
}

// nothingTaken requires that all is free.
func nothingTaken(t *testing.T, b *locktest.Bubble, p *locktest.Peer, what string) {
	t.Helper()
	for _, key := range b.Keys(t) {
		require.Contains(t, key, "p", what)
	}
	free, err := p.GetPermitSemaphore("p").Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, free, what)
}

// pause has the server keep scripts waiting until the result is called.
func pause(b *locktest.Bubble) (resume func()) {
	gate := make(chan struct{}) // closed by resume
	b.Mini.Server().SetPreHook(func(_ *server.Peer, command string, _ ...string) bool {
		if strings.HasPrefix(command, "EVAL") {
			<-gate
		}
		return false
	})
	return func() { close(gate) }
}

func TestCloseReleasesWhatHasNoAnswer(t *testing.T) {
	eachTaker(t, endlessToo, nil, func(t *testing.T, _ *locktest.Bubble, p *locktest.Peer, begin func() <-chan locktest.Outcome) {
		p.HangReplies(1)
		taking := begin()
		start := time.Now()
		require.NoError(t, p.Close())
		assert.LessOrEqual(t, time.Since(start), grace+tail)
		require.Error(t, locktest.Fetch(t, taking).Err)
	})
}

func TestCloseWithoutGraceReleasesWhatHasNoAnswer(t *testing.T) {
	for name, opts := range map[string][]redlatch.Option{
		"release": {redlatch.WithCloseGrace(0)},
		"abandon": {redlatch.WithCloseGrace(0), redlatch.WithAbandonOnClose()},
	} {
		t.Run(name, func(t *testing.T) {
			// A call whose context cannot end is not given up: without a grace there is no time to wait for it.
			eachTaker(t, thatCanEnd, opts, func(t *testing.T, _ *locktest.Bubble, p *locktest.Peer, begin func() <-chan locktest.Outcome) {
				p.HangReplies(1)
				taking := begin()
				start := time.Now()
				require.NoError(t, p.Close())
				assert.LessOrEqual(t, time.Since(start), tail)
				require.Error(t, locktest.Fetch(t, taking).Err)
			})
		})
	}
}

func TestCloseReleasesWhatIsGrantedMeanwhile(t *testing.T) {
	for name, opts := range map[string][]redlatch.Option{
		"release": {redlatch.WithCloseGrace(0)},
		"abandon": {redlatch.WithCloseGrace(0), redlatch.WithAbandonOnClose()},
	} {
		t.Run(name, func(t *testing.T) {
			eachTaker(t, endlessToo, opts, func(t *testing.T, b *locktest.Bubble, p *locktest.Peer, begin func() <-chan locktest.Outcome) {
				resume := pause(b)
				taking := begin()
				closed := locktest.Begin(func() (*rlock.Hold, error) { return nil, p.Close() })
				synctest.Wait()
				resume()
				require.NoError(t, locktest.Fetch(t, closed).Err)
				require.ErrorIs(t, locktest.Fetch(t, taking).Err, redlatch.ErrClosed)
			})
		})
	}
}

func TestCloseWaitsForTriesThatWereGivenUp(t *testing.T) {
	for _, of := range takers() {
		t.Run(of.name, func(t *testing.T) {
			for range 10 { // the server runs what waited in any order
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					other := b.Peer(t)
					_, err := other.GetPermitSemaphore("p").TrySetPermits(t.Context(), 2)
					require.NoError(t, err)
					p := b.Peer(t, redlatch.WithCloseGrace(0), redlatch.WithAbandonOnClose())
					resume := pause(b)
					ctx, cancel := context.WithCancel(t.Context())
					taking := locktest.Begin(func() (*rlock.Hold, error) { return nil, of.take(ctx, p.Client) })
					synctest.Wait()
					cancel()
					locktest.Failed(t, taking, context.Canceled)
					closed := locktest.Begin(func() (*rlock.Hold, error) { return nil, p.Close() })
					time.Sleep(100 * time.Millisecond)
					resume()
					o := locktest.Fetch(t, closed)
					require.NoError(t, o.Err)
					assert.LessOrEqual(t, o.After, 101*time.Millisecond, "it goes on with the answer")
					nothingTaken(t, b, other, "by the client that has closed")
				})
			}
		})
	}
}

func TestCloseWithoutGraceWaitsForUnlocks(t *testing.T) {
	for name, under := range map[string]func(p *locktest.Peer) (then func()){
		"behind a renewal": func(p *locktest.Peer) func() {
			p.HangReplies(1)
			for sent := p.Scripts(); p.Scripts() == sent; time.Sleep(time.Millisecond) {
			}
			return func() {}
		},
		"on its way": func(p *locktest.Peer) func() {
			p.Blackhole(true)
			return func() {
				time.Sleep(time.Second / 2)
				p.Blackhole(false)
			}
		},
		"without an answer": func(p *locktest.Peer) func() {
			p.HangReplies(1)
			return func() {}
		},
		"lost": func(p *locktest.Peer) func() {
			p.Withhold(1)
			return func() {}
		},
	} {
		for _, opts := range [][]redlatch.Option{nil, {redlatch.WithAbandonOnClose()}} {
			t.Run(name+" abandon "+strconv.Itoa(len(opts)), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					lost := redlatch.WithObserver(redlatch.Observer{HoldEnd: func(_ context.Context, e redlatch.HoldEndEvent) { assert.NoError(t, e.Err) }})
					p := b.Peer(t, append(opts, redlatch.WithCloseGrace(0), redlatch.WithWatchdogTimeout(9*time.Second), lost)...)
					locktest.Free(t, p.GetLock("orders"))
					h := locktest.Acquire(t, t.Context(), p.GetLock("orders"))
					then := under(p)
					unlocking := locktest.Begin(func() (*rlock.Hold, error) { return nil, h.Unlock(t.Context()) })
					synctest.Wait()
					closed := locktest.Begin(func() (*rlock.Hold, error) { return nil, p.Close() })
					then()
					o := locktest.Fetch(t, closed)
					require.NoError(t, o.Err)
					assert.LessOrEqual(t, o.After, tail)
					assert.Empty(t, b.Keys(t))
					require.NotErrorIs(t, locktest.Fetch(t, unlocking).Err, rlock.ErrNotHeld)
				})
			})
		}
	}
}

func TestCloseIsBoundedWhileEverythingIsUnderWay(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t, redlatch.WithCloseGrace(0))
		var calls []<-chan locktest.Outcome
		for i := range 100 {
			h := locktest.Acquire(t, t.Context(), p.GetLock("orders"+strconv.Itoa(i)))
			calls = append(calls, locktest.Begin(func() (*rlock.Hold, error) {
				<-h.Context().Done()
				return nil, h.Unlock(t.Context())
			}))
		}
		p.Blackhole(true)
		for i := range 100 {
			for _, l := range []rlock.Locker{p.GetLock("invoices" + strconv.Itoa(i)), p.GetFairLock("letters" + strconv.Itoa(i))} {
				calls = append(calls, locktest.Begin(func() (*rlock.Hold, error) { return l.TryLock(t.Context()) }),
					locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(context.WithoutCancel(t.Context())) }))
			}
		}
		synctest.Wait()
		start := time.Now()
		require.NoError(t, p.Close())
		assert.LessOrEqual(t, time.Since(start), tail)
		for _, call := range calls {
			require.Error(t, locktest.Fetch(t, call).Err)
		}
		_, err := p.GetPermitSemaphore("p").TryAcquire(t.Context(), rsemaphore.WithWait(time.Second))
		require.ErrorIs(t, err, redlatch.ErrClosed)
	})
}
