package rmultilock_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

const (
	tryBound = 600 * time.Millisecond // a round and the releases of a RedLock with a lease of 5 s or more
	ctxBound = 50 * time.Millisecond  // after the end of its context a call returns within this
)

// slowDown has a server answer scripts late.
func slowDown(b *locktest.Bubble, by time.Duration) {
	b.Mini.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
		if cmd == "EVALSHA" || cmd == "EVAL" {
			time.Sleep(by)
		}
		return false
	})
}

// slowClients are clients of three real servers, the last of which answers late.
func slowClients(t *testing.T, oneWay time.Duration) (clients []*redlatch.Client, servers []*redis.Client, lag *faulttest.Lag) {
	t.Helper()
	for i := range 3 {
		s := redistest.Start(t)
		proxy := faulttest.NewProxy(t, s.Addr())
		rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
		t.Cleanup(func() { require.NoError(t, rdb.Close()) })
		c, err := redlatch.New(rdb)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		clients, servers = append(clients, c), append(servers, s.Client(t))
		if i == 2 {
			proxy.Delay(oneWay)
			lag = faulttest.MeasureLag(t, s.Addr())
		}
	}
	return clients, servers, lag
}

// F14, F26
func TestTryLockWithASlowMasterIsBounded(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := newServers(t, b, 3)
		p := s.peers(t, redlatch.WithWatchdogTimeout(30*time.Second))
		locktest.Free(t, p.red("warm"))
		synctest.Wait()
		s[1].Foreign(t, "a", time.Hour)
		for _, by := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, 600 * time.Millisecond} {
			slowDown(s[2], by)
			start := time.Now()
			h, err := p.red("a").TryLock(t.Context())
			assert.LessOrEqual(t, time.Since(start), tryBound, by)
			if by < 500*time.Millisecond {
				require.NoError(t, err, by)
				locktest.Unlock(t, h)
			} else {
				require.ErrorIs(t, err, rlock.ErrNotAcquired, by)
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
		}
		s[2].Mini.Server().SetPreHook(nil)
	})
}

// F14, F26
func TestTryLockWithASlowMasterIsBoundedOnServers(t *testing.T) {
	clients, servers, lag := slowClients(t, 100*time.Millisecond)
	require.NoError(t, servers[1].HSet(t.Context(), "taken", "somebody:1", 1).Err())
	for _, name := range []string{"free", "taken"} {
		for try := range 3 {
			red := clients[0].GetRedLock(clients[0].GetLock(name), clients[1].GetLock(name), clients[2].GetLock(name))
			start := time.Now()
			h, err := red.TryLock(t.Context())
			assert.Less(t, time.Since(start), tryBound+lag.Late(), "%s: try %d", name, try)
			if err == nil {
				require.NoError(t, h.Unlock(t.Context()))
			} else {
				require.ErrorIs(t, err, rlock.ErrNotAcquired)
			}
		}
	}
}

// F26
func TestLockReturnsWithItsContext(t *testing.T) {
	for kind := range needed {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 3)
				p := s.peers(t)
				locktest.Free(t, both(p[0].Client, p.locks("warm")...)[kind])
				synctest.Wait()
				s[1].Foreign(t, "a", time.Hour)
				s[2].Foreign(t, "a", time.Hour)
				slowDown(s[0], 90*time.Millisecond)
				for limit := 5 * time.Millisecond; limit < 500*time.Millisecond; limit += 7 * time.Millisecond {
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					start := time.Now()
					_, err := both(p[0].Client, p.locks("a")...)[kind].Lock(ctx)
					assert.LessOrEqual(t, time.Since(start), limit+ctxBound, limit)
					require.ErrorIs(t, err, context.DeadlineExceeded, limit)
					cancel()
				}
				s[0].Mini.Server().SetPreHook(nil)
			})
		})
	}
}

// F26
func TestLockReturnsWithItsContextOnServers(t *testing.T) {
	redistest.Long(t)
	clients, servers, lag := slowClients(t, 40*time.Millisecond)
	require.NoError(t, servers[0].HSet(t.Context(), "b", "somebody:1", 1).Err())
	l := clients[0].GetMultiLock(clients[2].GetLock("a"), clients[0].GetLock("b"))
	for limit := 150 * time.Millisecond; limit < 400*time.Millisecond; limit += 9 * time.Millisecond {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		start := time.Now()
		_, err := l.Lock(ctx)
		assert.Less(t, time.Since(start), limit+ctxBound+lag.Late(), limit)
		require.ErrorIs(t, err, context.DeadlineExceeded, limit)
		cancel()
	}
}

// F27
func TestBusyAndDownAreToldApart(t *testing.T) {
	for kind, n := range needed {
		for how, fault := range faults {
			t.Run(fmt.Sprint(kind, ", ", how), func(t *testing.T) {
				locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
					s := newServers(t, b, 3)
					p := s.peers(t)
					l := both(p[0].Client, p.locks("a")...)[kind]
					locktest.Free(t, l)
					synctest.Wait()
					calls := map[string]func() error{
						"a wait":    func() error { return second(l.TryLock(t.Context(), rlock.WithWait(time.Second))) },
						"a context": func() error { return second(lockFor(t, l, time.Second)) },
					}
					wants := map[string]error{"a wait": rlock.ErrNotAcquired, "a context": context.DeadlineExceeded}
					for what, call := range calls {
						fault(p[:n], true)
						err := call()
						if kind == "RedLock" || how == "silent" { // a plain lock returns a refused connection at once
							require.ErrorIs(t, err, wants[what], what)
						}
						require.ErrorIs(t, err, redlatch.ErrUnavailable, what)
						fault(p[:n], false)
						time.Sleep(3 * lease)

						for _, server := range s[:n] {
							server.Foreign(t, "a", time.Hour)
						}
						err = call()
						require.ErrorIs(t, err, wants[what], what)
						require.NotErrorIs(t, err, redlatch.ErrUnavailable, what)
						for _, server := range s[:n] {
							server.Delete(t, "a")
						}
					}
				})
			})
		}
	}
}

// F27
func TestWaitForAFrozenRedLockIsUnavailable(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := newServers(t, b, 3).peers(t)
		locktest.Free(t, p.red("a"))
		synctest.Wait()
		faults["silent"](p, true)
		for _, limit := range []time.Duration{10 * time.Millisecond, time.Second, lease * 2 / 3} {
			for _, waiting := range p.line(t.Context(), 2, rlock.WithWait(limit)) { // the second one has asked nobody
				err := locktest.Fetch(t, waiting).Err
				require.ErrorIs(t, err, rlock.ErrNotAcquired, limit)
				require.ErrorIs(t, err, redlatch.ErrUnavailable, limit)
			}
			_, err := lockFor(t, p.red("a"), limit)
			require.ErrorIs(t, err, context.DeadlineExceeded, limit)
			require.ErrorIs(t, err, redlatch.ErrUnavailable, limit)
		}
		faults["silent"](p, false)
	})
}

// F27
func TestWaitForAFrozenMultiLockIsUnavailable(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := newServers(t, b, 2).peers(t)
		l := both(p[0].Client, p.locks("a")...)["MultiLock"]
		locktest.Free(t, l)
		synctest.Wait()
		faults["silent"](p, true)
		first := locktest.Begin(func() (*rlock.Hold, error) { return p[0].GetLock("a").Lock(t.Context(), rlock.WithWait(lease/2)) })
		synctest.Wait()
		_, err := l.Lock(t.Context(), rlock.WithWait(lease/10)) // it knows that somebody waits here
		require.ErrorIs(t, err, rlock.ErrNotAcquired)
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		locktest.Failed(t, first, redlatch.ErrUnavailable)
		faults["silent"](p, false)
	})
}

// The servers fall silent before the wait ends, so that its last round gets no answer.
//
// F27
func TestRoundThatIsCutShortHidesNoRefusedConnection(t *testing.T) {
	for kind := range needed {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := newServers(t, b, 3).peers(t)
				l := both(p[0].Client, p.locks("a")...)[kind]
				locktest.Free(t, l)
				synctest.Wait()
				limit := rlock.WithWait(lease * 2 / 3)
				for range 20 {
					p.down(true)
					waiting := inLine(2, func() (*rlock.Hold, error) { return l.Lock(t.Context(), limit) })
					waiting = append(waiting, inLine(2, func() (*rlock.Hold, error) { return lockFor(t, l, lease*2/3) })...)
					time.Sleep(lease / 3)
					faults["silent"](p, true)
					p.down(false)
					for i, one := range waiting {
						err := locktest.Fetch(t, one).Err
						require.ErrorIs(t, err, redlatch.ErrUnavailable)
						require.Regexp(t, "connection refused|closed pipe", err.Error()) // by how long this go-redis goes on dialling
						require.NotContains(t, err.Error(), "no answer in time")
						want, not := rlock.ErrNotAcquired, context.DeadlineExceeded
						if i >= 2 {
							want, not = not, want
						}
						require.ErrorIs(t, err, want)
						require.NotErrorIs(t, err, not)
					}
					faults["silent"](p, false)
					time.Sleep(2 * lease)
				}
			})
		})
	}
}

// A round takes a tenth of the lease at most. Go-redis may dial for longer than that before it says that it is refused.
//
// F27
func TestErrorThatComesAfterItsRoundIsHeardOf(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := newServers(t, b, 3).peers(t)
		locktest.Free(t, p.red("a"))
		synctest.Wait()
		faults["silent"](p, true)
		waiting := p.line(t.Context(), 2, rlock.WithWait(lease/2))
		time.Sleep(lease/10 + time.Millisecond)
		for _, peer := range p {
			peer.Cut()
		}
		for _, one := range waiting {
			err := locktest.Fetch(t, one).Err
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			require.ErrorIs(t, err, redlatch.ErrUnavailable)
			require.ErrorContains(t, err, "3 of 3 locks failed: ")
			require.NotContains(t, err.Error(), "no answer in time")
		}
		faults["silent"](p, false)
	})
}

// F27
func TestWaitForDeadServersSaysSoOnServers(t *testing.T) {
	for kind := range needed {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var all []rlock.Locker
			var first *redlatch.Client
			var servers []*redistest.Server
			for range 2 {
				s := redistest.Start(t)
				rdb := redis.NewClient(&redis.Options{Addr: s.Addr()})
				t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
				c, err := redlatch.New(rdb, redlatch.WithWatchdogTimeout(lease), redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() }) // a dead server answers no more
				all, servers = append(all, c.GetLock("a")), append(servers, s)
				if first == nil {
					first = c
				}
			}
			l := both(first, all...)[kind]
			locktest.Free(t, l)
			for _, s := range servers {
				s.Kill()
			}
			// Go-redis dials for about 0.4 s before it says that it is refused; a round of a RedLock with this lease takes 0.3 s.
			_, err := l.Lock(t.Context(), rlock.WithWait(1200*time.Millisecond))
			require.ErrorIs(t, err, rlock.ErrNotAcquired)
			require.ErrorIs(t, err, redlatch.ErrUnavailable)
			require.ErrorContains(t, err, "connection refused")
		})
	}
}

// Each limit ends in another part of a round or a pause.
//
// F27
func TestWaitForABusyLockIsNotUnavailable(t *testing.T) {
	for kind := range needed {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 5)
				p := s.peers(t)
				l := both(p[0].Client, p.locks("a")...)[kind]
				locktest.Free(t, l)
				synctest.Wait()
				for _, one := range s {
					one.Foreign(t, "a", time.Hour)
					slowDown(one, 3*time.Millisecond)
				}
				n := faulttest.Rounds(t, 40, 200)
				for i := range n {
					limit := 300*time.Millisecond + time.Duration(i)*20*time.Millisecond/time.Duration(n)
					asks := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(t.Context(), rlock.WithWait(limit)) })
					synctest.Wait()
					late := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(t.Context(), rlock.WithWait(limit+time.Millisecond)) })
					for _, waiting := range []<-chan locktest.Outcome{asks, late} {
						err := locktest.Fetch(t, waiting).Err
						require.ErrorIs(t, err, rlock.ErrNotAcquired, limit)
						require.NotErrorIs(t, err, redlatch.ErrUnavailable, limit)
					}
					_, err := lockFor(t, l, limit)
					require.ErrorIs(t, err, context.DeadlineExceeded, limit)
					require.NotErrorIs(t, err, redlatch.ErrUnavailable, limit)
				}
				for _, one := range s {
					one.Mini.Server().SetPreHook(nil)
				}
			})
		})
	}
}

// F26
func TestNothingIsSentAfterTheEndOfAWait(t *testing.T) {
	for kind := range needed {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 3)
				p := s.peers(t)
				for _, one := range s {
					one.Foreign(t, "a", time.Hour)
				}
				late := 0
				for range 50 {
					sent := 0
					time.AfterFunc(2*time.Millisecond-1, func() { sent = p.scripts() })
					_, err := both(p[0].Client, p.locks("a")...)[kind].Lock(t.Context(), rlock.WithWait(2*time.Millisecond))
					require.ErrorIs(t, err, rlock.ErrNotAcquired)
					synctest.Wait()
					late += p.scripts() - sent
					time.Sleep(time.Second)
				}
				assert.Zero(t, late)
			})
		})
	}
}

func lockFor(t *testing.T, l rlock.Locker, limit time.Duration) (*rlock.Hold, error) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return l.Lock(ctx)
}

// F27
func TestBusyLockBesideASlowOneIsNotAcquired(t *testing.T) {
	for _, busy := range []string{"a", "c"} { // before the slow one, and after it
		t.Run(busy, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				p := b.Peer(t)
				b.Foreign(t, busy, time.Hour)
				for range 3 {
					l := p.GetMultiLock(p.GetLock(busy), slow{Locker: p.GetLock("b"), by: 200 * time.Millisecond})
					_, err := l.TryLock(t.Context())
					require.ErrorIs(t, err, rlock.ErrNotAcquired)
					require.NotErrorIs(t, err, redlatch.ErrUnknown)
				}
				b.Delete(t, busy)
				servers{b}.empty(t, time.Second)
			})
		})
	}
}

// F2, F26
func TestTryLockEndsWithTheCallTimeout(t *testing.T) {
	const limit = 200 * time.Millisecond
	wants := map[string]error{"MultiLock": redlatch.ErrUnknown, "RedLock": redlatch.ErrUnavailable}
	for kind, n := range needed {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 3)
				p := s.peers(t, redlatch.WithWatchdogTimeout(30*time.Second), redlatch.WithCallTimeout(limit))
				l := both(p[0].Client, p.locks("a")...)[kind]
				nested := both(p[0].Client, p.locks("outer")...)[kind]
				outer := locktest.Acquire(t, t.Context(), nested)
				locktest.Free(t, l)
				synctest.Wait()
				faults["silent"](p[:n], true)
				for what, call := range map[string]func() error{
					"TryLock": func() error { return second(l.TryLock(t.Context())) },
					"Lock":    func() error { return second(l.Lock(t.Context(), rlock.WithWait(0))) },
					"nested":  func() error { return second(nested.TryLock(outer.Context())) },
				} {
					start := time.Now()
					require.ErrorIs(t, call(), wants[kind], what)
					assert.LessOrEqual(t, time.Since(start), limit+5*time.Millisecond, what)
				}
				faults["silent"](p[:n], false)
				locktest.Unlock(t, outer)
				s.empty(t, time.Minute)
			})
		})
	}
}

// F2, F26
func TestExtendAndUnlockEndWithTheCallTimeout(t *testing.T) {
	const limit = 200 * time.Millisecond
	for kind, n := range needed {
		t.Run(kind, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				s := newServers(t, b, 3)
				p := s.peers(t, redlatch.WithWatchdogTimeout(30*time.Second), redlatch.WithCallTimeout(limit))
				h := locktest.Acquire(t, t.Context(), both(p[0].Client, p.locks("a")...)[kind])
				synctest.Wait()
				faults["silent"](p[:n], true)
				within(t, limit, redlatch.ErrUnknown, func() error { return h.Extend(t.Context(), time.Minute) })
				within(t, limit, redlatch.ErrUnknown, func() error { return h.Unlock(t.Context()) })
				faults["silent"](p[:n], false)
				s.empty(t, time.Minute)
			})
		})
	}
}

// F27, F29
func TestLockGoesOnAfterConnectionsWereRefused(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		l := p.GetMultiLock(p.GetLock("a"), p.GetFairLock("b"))
		p.Refuse(true)
		p.Cut()
		waiter := locktest.Begin(func() (*rlock.Hold, error) { return l.Lock(t.Context()) })
		time.Sleep(3 * time.Second)
		p.Refuse(false)
		locktest.Unlock(t, locktest.Next(t, waiter))

		p.Refuse(true)
		p.Cut()
		start := time.Now()
		_, err := l.Lock(t.Context())
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		assert.InDelta(t, 30, time.Since(start).Seconds(), 5, "for one lease in a row")
		p.Refuse(false)
	})
}
