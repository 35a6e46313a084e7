package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rbarrier"
	"github.com/redlatch/redlatch/relection"
	"github.com/redlatch/redlatch/rid"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rratelimiter"
	"github.com/redlatch/redlatch/rscheduler"
)

// F25, F28
func TestRefusedCommandsLeaveLocksDoneOrNotDone(t *testing.T) {
	p := newPartial(t)
	for kind, get := range lockKinds {
		for verb, s := range steps {
			for _, refusal := range rightsRefused(t, "internal/reentrant", "internal/fair", "rrwlock") {
				t.Run(kind+" "+verb+" "+refusal, func(t *testing.T) { p.refused(t, refusal, get, s) })
			}
		}
	}
}

// F25, F28
func TestRefusedCommandsLeaveAllPartsOrNone(t *testing.T) {
	t.Parallel()
	p := newPartial(t)
	for _, kind := range []string{"multi", "RedLock"} {
		for _, refusal := range rightsRefused(t, "internal/reentrant", "internal/fair", "rrwlock") {
			t.Run(kind+" "+refusal, func(t *testing.T) {
				require.NoError(t, p.admin.FlushAll(t.Context()).Err())
				p.rules(t, refusal)
				_, err := allKinds()[kind](p.client, t.Name()).TryLock(t.Context())
				p.rules(t, "&*", "+@all")
				want := 3
				if err != nil {
					want = 0
				}
				redistest.Eventually(t, 10*time.Second, "all parts or none", func() error { // some come, or go, in the background
					n := 0
					for _, part := range []string{"", "-2", "-3"} {
						n += levels(t, p.admin, t.Name()+part)
					}
					if n != want {
						return fmt.Errorf("%d parts after %w", n, err)
					}
					return nil
				})
			})
		}
	}
}

// F25, F28
func TestRefusedCommandsLeaveNoTraceOfAWait(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	p := newPartial(t)
	for kind := range lockKinds {
		for _, command := range luaCommands(t, "internal/reentrant", "internal/fair", "rrwlock") {
			t.Run(fmt.Sprint(kind, " -", command), func(t *testing.T) {
				require.NoError(t, p.admin.FlushAll(t.Context()).Err())
				held := held(t, lockKinds[kind](p.other, t.Name()))
				p.rules(t, "-"+command)
				_, err := rival(kind, p.client, t.Name()).Lock(t.Context(), rlock.WithWait(30*time.Millisecond))
				p.rules(t, "+@all")
				p.settled(t, t.Name(), step{before: 1}, err)
				locktest.Unlock(t, held)
			})
		}
	}
}

// F25, F28
func TestRefusedCommandsLeaveATakeOverDoneOrNotDone(t *testing.T) {
	p := newPartial(t)
	for kind, get := range lockKinds {
		if kind == "reader" {
			continue // a reader takes nothing over
		}
		for _, command := range luaCommands(t, "internal/reentrant", "internal/fair", "rrwlock") {
			t.Run(kind+" -"+command, func(t *testing.T) {
				require.NoError(t, p.admin.FlushAll(t.Context()).Err())
				l := get(p.client, t.Name())
				earlier := held(t, l)
				p.rules(t, "-"+command)
				hold, err := l.TryLock(t.Context(), rlock.WithTakeOver(earlier.Owner()))
				p.rules(t, "+@all")
				p.settled(t, t.Name(), step{before: 1, after: 1}, err)
				holder := earlier
				if err == nil {
					holder = hold
				}
				if !errors.Is(err, redlatch.ErrUnknown) {
					fields := strings.Join(p.admin.HKeys(t.Context(), t.Name()).Val(), " ")
					assert.Contains(t, fields+" ", holder.Owner(), "after %v", err)
				}
			})
		}
	}
}

// F25, F28
func TestRefusedCommandsLeaveADowngradeDoneOrNotDone(t *testing.T) {
	p := newPartial(t)
	for _, command := range luaCommands(t, "rrwlock") {
		writer := func(t *testing.T) (rlock.Locker, *rlock.Hold) {
			t.Helper()
			require.NoError(t, p.admin.FlushAll(t.Context()).Err())
			l := p.client.GetReadWriteLock(t.Name())
			return l.RLocker(), held(t, l)
		}
		t.Run("take -"+command, func(t *testing.T) {
			l, h := writer(t)
			p.rules(t, "-"+command)
			_, err := l.Lock(h.Context())
			p.rules(t, "+@all")
			p.settled(t, t.Name(), step{before: 1, after: 2}, err)
		})
		t.Run("unlock the writer -"+command, func(t *testing.T) {
			l, h := writer(t)
			locktest.Acquire(t, h.Context(), l)
			p.rules(t, "-"+command)
			err := h.Unlock(t.Context())
			p.rules(t, "+@all")
			p.settled(t, t.Name(), step{before: 2, after: 1}, err)
			mode := map[bool]string{true: "read", false: "write"}[err == nil]
			assert.Equal(t, mode, p.admin.HGet(t.Context(), t.Name(), "mode").Val(), "after %v", err)
		})
	}
}

// F28
func TestRefusedCommandsLeaveForceUnlockDoneOrNotDone(t *testing.T) {
	p := newPartial(t)
	for kind, get := range lockKinds {
		for _, refusal := range rightsRefused(t, "internal/reentrant", "internal/fair", "rrwlock") {
			t.Run(kind+" "+refusal, func(t *testing.T) {
				p.refused(t, refusal, get, step{1, 0, held, func(t *testing.T, _ rlock.Locker, _ *rlock.Hold) error {
					t.Helper()
					force := map[string]func() (bool, error){
						"plain": func() (bool, error) { return p.client.GetLock(t.Name()).ForceUnlock(t.Context()) },
						"fair":  func() (bool, error) { return p.client.GetFairLock(t.Name()).ForceUnlock(t.Context()) },
						"rw":    func() (bool, error) { return p.client.GetReadWriteLock(t.Name()).ForceUnlock(t.Context()) },
					}[map[string]string{"plain": "plain", "fenced": "plain", "fair": "fair", "writer": "rw", "reader": "rw"}[kind]]
					forced, err := force()
					assert.Equal(t, err == nil, forced)
					return err
				}})
			})
		}
	}
}

// F25, F28
func TestRefusedCommandsLeaveARunKeptOrNotKept(t *testing.T) {
	t.Parallel()
	p := newPartial(t)
	for _, refusal := range rightsRefused(t, "ronce") {
		for _, when := range []string{"claim", "keep"} {
			t.Run(when+" "+refusal, func(t *testing.T) {
				require.NoError(t, p.admin.FlushAll(t.Context()).Err())
				if when == "claim" {
					p.rules(t, refusal)
				}
				ran := false
				_, shared, err := redlatch.GetOnce[string](p.client, "o").Do(t.Context(), "k", func(context.Context) (string, error) {
					ran = true
					if when == "keep" {
						p.rules(t, refusal)
					}
					return "made", nil
				})
				p.rules(t, "&*", "+@all")
				assert.False(t, shared)
				require.NotErrorIs(t, err, redlatch.ErrUnknown)
				value, ok, peekErr := redlatch.GetOnce[string](p.other, "o").Peek(t.Context(), "k")
				require.NoError(t, peekErr)
				assert.Equal(t, err == nil, ok, "after %v", err)
				if err == nil {
					assert.True(t, ran)
					assert.Equal(t, "made", value)
					return
				}
				redistest.Eventually(t, 10*time.Second, "the key is free", func() error {
					if keys := p.admin.Keys(t.Context(), "*").Val(); len(keys) > 0 {
						return fmt.Errorf("%v", keys)
					}
					return nil
				})
			})
		}
	}
}

// F25, F28: the last participant of a round completes it for all, or for nobody.
func TestRefusedCommandsLeaveARoundCompleteOrNot(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	p := newPartial(t)
	for _, when := range []string{"await", "enter", "leave", "leave without the number"} {
		for _, refusal := range rightsRefused(t, "rbarrier") {
			t.Run(when+" "+refusal, func(t *testing.T) {
				require.NoError(t, p.admin.FlushAll(t.Context()).Err())
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // that of a round that nobody completes
				defer cancel()
				leaves := strings.HasPrefix(when, "leave")
				newcomer := pairs["double"]
				if when == "await" {
					newcomer = pairs["barrier"]
				}
				call, places := participant.Enter, "redlatch_*_arrived:*"
				first, last := newcomer(p.other), newcomer(p.client)
				passed := make(chan error, 1)
				if leaves {
					go func() { passed <- first.Enter(ctx) }()
					require.NoError(t, errors.Join(last.Enter(ctx), <-passed))
					call, places = participant.Leave, "redlatch_*_leaving:*"
				}
				go func() { passed <- call(first, ctx) }()
				redistest.Eventually(t, 10*time.Second, "one waits", func() error {
					if keys := p.admin.Keys(t.Context(), places).Val(); len(keys) != 1 {
						return fmt.Errorf("%q", keys)
					}
					return nil
				})
				if when == "leave without the number" { // which Redis has lost
					require.NoError(t, p.admin.Del(t.Context(), p.admin.Keys(t.Context(), "redlatch_double:*").Val()...).Err())
				}
				p.rules(t, refusal)
				err := call(last, ctx)
				p.rules(t, "&*", "+@all")
				for _, key := range p.admin.Keys(t.Context(), "*").Val() {
					assert.NotEqual(t, time.Duration(-1), p.admin.PTTL(t.Context(), key).Val(), "%s expires", key)
				}
				switch {
				case err == nil:
					require.NoError(t, <-passed)
				case leaves: // it has given up
					require.ErrorIs(t, <-passed, rbarrier.ErrBroken)
				default: // it has never come
					require.NotErrorIs(t, err, rbarrier.ErrBroken)
					require.NoError(t, call(newcomer(p.other), ctx))
					require.NoError(t, <-passed)
				}
			})
		}
	}
}

// F25, F28
func TestRefusedCommandsLeaveALeaderKnownOrNot(t *testing.T) {
	t.Parallel()
	p := newPartial(t)
	for _, verb := range []string{"campaign", "proclaim", "resign"} {
		for _, refusal := range rightsRefused(t, "relection", "internal/fair") {
			t.Run(verb+" "+refusal, func(t *testing.T) {
				require.NoError(t, p.admin.FlushAll(t.Context()).Err())
				campaign := func() (*relection.Leadership, error) {
					return p.client.GetElection("e").Campaign(t.Context(), relection.WithValue("old"))
				}
				var l *relection.Leadership
				if verb != "campaign" {
					var err error
					l, err = campaign()
					require.NoError(t, err)
				}
				p.rules(t, refusal)
				leads, value := true, "old" // if it is done
				var err error
				switch verb {
				case "campaign":
					l, err = campaign()
				case "proclaim":
					value = "new"
					err = l.Proclaim(t.Context(), value)
				case "resign":
					err = l.Resign(t.Context())
				}
				p.rules(t, "&*", "+@all")
				require.NotErrorIs(t, err, redlatch.ErrUnknown)
				if err != nil {
					leads, value = verb != "campaign", "old"
				}
				if verb == "resign" { // it leads no more, whatever happened to the lock
					assert.Equal(t, err != nil, p.admin.Exists(t.Context(), "e").Val() == 1, "after %v", err)
					return
				}
				leader, leaderErr := p.other.GetElection("e").Leader(t.Context())
				if !leads {
					require.ErrorIs(t, leaderErr, relection.ErrNoLeader, "after %v", err)
					redistest.Eventually(t, 10*time.Second, "the lock is free", func() error {
						if p.admin.Exists(t.Context(), "e").Val() == 1 {
							return fmt.Errorf("it is held after %w", err)
						}
						return nil
					})
					return
				}
				require.NoError(t, leaderErr, "after %v", err)
				assert.Equal(t, value, leader.Value, "after %v", err)
				assert.Equal(t, l.Term(), leader.Term)
			})
		}
	}
}

// F25, F28: an end that is refused leaves no result, and the run is repeated.
func TestRefusedCommandsLeaveARunEndedOrNot(t *testing.T) {
	t.Parallel()
	ends := make(chan error, 99) // of the scripts that end runs, while something is refused
	var p *partial
	p = newPartial(t, redlatch.WithObserver(redlatch.Observer{ScriptEnd: func(_ context.Context, e redlatch.ScriptEndEvent) {
		if e.Name == "rscheduler.end" {
			p.rules(t, "&*", "+@all")
			ends <- e.Err
		}
	}}))
	for _, opts := range [][]rscheduler.JobOption{nil, {rscheduler.WithHistory(0)}} {
		for _, refusal := range rightsRefused(t, "rscheduler", "internal/queue") {
			t.Run(fmt.Sprint(len(opts), " ", refusal), func(t *testing.T) {
				s := p.client.GetScheduler(t.Name())
				runs := make(chan int, 99) // their attempts
				require.NoError(t, s.Register("job", rscheduler.At(time.Now()), func(_ context.Context, run rscheduler.Run) error {
					if runs <- run.Attempt; run.Attempt == 1 {
						p.rules(t, refusal)
					}
					return nil
				}, append(opts, rscheduler.WithCatchUp(time.Minute))...))
				ctx, stop := context.WithCancel(t.Context())
				stopped := make(chan error, 1)
				go func() { stopped <- s.Run(ctx) }()
				want := 1
				if err := <-ends; err != nil {
					want++
					require.NoError(t, <-ends)
				}
				redistest.Eventually(t, 10*time.Second, "the tick is acknowledged", func() error {
					if keys := p.admin.Keys(t.Context(), "*:bodies").Val(); len(keys) > 0 {
						return fmt.Errorf("%q", keys)
					}
					return nil
				})
				stop()
				require.NoError(t, <-stopped)
				assert.Len(t, runs, want)
				results, err := p.other.GetScheduler(t.Name()).Runs(t.Context(), "job", 10)
				require.NoError(t, err)
				assert.Len(t, results, 1-len(opts))
			})
		}
	}
}

// F25, F28
func TestRefusedCommandsLeaveAJobRemovedOrNot(t *testing.T) {
	t.Parallel()
	p := newPartial(t)
	for _, refusal := range rightsRefused(t, "rscheduler") {
		t.Run(refusal, func(t *testing.T) {
			s := p.other.GetScheduler(t.Name())
			ctx, stop := context.WithCancel(t.Context())
			require.NoError(t, s.Register("job", rscheduler.At(time.Now()), func(context.Context, rscheduler.Run) error {
				stop()
				return nil
			}, rscheduler.WithCatchUp(time.Minute)))
			require.NoError(t, s.Run(ctx))
			p.rules(t, refusal)
			_, err := p.client.GetScheduler(t.Name()).Remove(t.Context(), "job")
			p.rules(t, "&*", "+@all")
			results, runsErr := s.Runs(t.Context(), "job", 10)
			if err == nil {
				require.ErrorIs(t, runsErr, rscheduler.ErrNotFound)
				return
			}
			require.NoError(t, runsErr)
			assert.Len(t, results, 1, "after %v", err)
		})
	}
}

// F25, F28
func TestRefusedCommandsLeaveTokensTakenOrNot(t *testing.T) {
	t.Parallel()
	p := newPartial(t)
	limiter := func(c *redlatch.Client) *rratelimiter.Limiter {
		return c.GetRateLimiter("l", rratelimiter.Per(3, time.Hour))
	}
	window := func(c *redlatch.Client) *rratelimiter.Limiter {
		return c.GetRateLimiter("l", rratelimiter.Window(3, time.Hour))
	}
	for verb, take := range map[string]func(ctx context.Context) error{
		"allow":             func(ctx context.Context) error { _, err := limiter(p.client).Allow(ctx, "k", 1); return err },
		"wait":              func(ctx context.Context) error { return limiter(p.client).Wait(ctx, "k", 1) },
		"allow of a window": func(ctx context.Context) error { _, err := window(p.client).Allow(ctx, "k", 1); return err },
	} {
		for _, refusal := range rightsRefused(t, "rratelimiter") {
			t.Run(verb+" "+refusal, func(t *testing.T) {
				require.NoError(t, p.admin.FlushAll(t.Context()).Err())
				p.rules(t, refusal)
				err := take(t.Context())
				p.rules(t, "&*", "+@all")
				require.NotErrorIs(t, err, redlatch.ErrUnknown)
				var left int
				for _, l := range []*rratelimiter.Limiter{limiter(p.other), window(p.other)} {
					res, infoErr := l.Info(t.Context(), "k", 3)
					require.NoError(t, infoErr)
					left += res.Remaining
				}
				assert.Equal(t, err != nil, left == 6, "after %v", err)
			})
		}
	}
}

// F25, F28: a reservation that cannot be given back stays.
func TestRefusedCommandsLeaveTokensGivenBackOrNot(t *testing.T) {
	t.Parallel()
	reserved, ended := make(chan struct{}, 99), make(chan error, 99)
	p := newPartial(t, redlatch.WithObserver(redlatch.Observer{ScriptEnd: func(_ context.Context, e redlatch.ScriptEndEvent) {
		switch e.Name {
		case "rratelimiter.take":
			reserved <- struct{}{}
		case "rratelimiter.giveback":
			ended <- e.Err
		}
	}}))
	l := p.client.GetRateLimiter("l", rratelimiter.Per(3, time.Hour))
	for _, refusal := range rightsRefused(t, "rratelimiter") {
		t.Run(refusal, func(t *testing.T) {
			require.NoError(t, p.admin.FlushAll(t.Context()).Err())
			require.NoError(t, l.Wait(t.Context(), "k", 3))
			<-reserved
			before := p.values(t)
			ctx, giveUp := context.WithCancel(t.Context())
			waited := make(chan error, 1)
			go func() { waited <- l.Wait(ctx, "k", 3) }()
			<-reserved
			want := p.values(t)
			p.rules(t, refusal)
			giveUp()
			require.ErrorIs(t, <-waited, context.Canceled)
			err := <-ended // also if it gave up before it had the answer
			p.rules(t, "&*", "+@all")
			if err == nil {
				want = before
			}
			assert.Equal(t, want, p.values(t), "after %v", err)
		})
	}
}

// F25, F28
func TestRefusedCommandsLeaveIDsTakenOrNot(t *testing.T) {
	t.Parallel()
	p := newPartial(t)
	for form, opts := range map[string][]rid.Option{"plain": nil, "timed": {rid.WithTimePrefix(32)}} {
		opts = append(opts, rid.WithBlock(1))
		for _, refusal := range rightsRefused(t, "rid") {
			t.Run(form+" "+refusal, func(t *testing.T) {
				ids := p.client.GetIDGenerator(form, opts...)
				newest, err := ids.Next(t.Context())
				require.NoError(t, err)
				before := p.values(t)
				p.rules(t, refusal)
				id, err := ids.Next(t.Context())
				p.rules(t, "&*", "+@all")
				if err == nil {
					assert.Greater(t, id, newest)
					newest = id
				} else {
					require.NotErrorIs(t, err, redlatch.ErrUnknown)
					assert.Equal(t, before, p.values(t), "after %v", err)
				}
				id, err = p.other.GetIDGenerator(form, opts...).Next(t.Context())
				require.NoError(t, err)
				assert.Greater(t, id, newest)
			})
		}
	}
}

// F25, F28
func TestRefusedCommandsLeaveAMessagePublishedOrNot(t *testing.T) {
	t.Parallel()
	p := newPartial(t)
	sub, err := redlatch.GetTopic[string](p.other, "t").Subscribe(t.Context())
	require.NoError(t, err)
	for _, refusal := range rightsRefused(t, "rtopic") {
		t.Run(refusal, func(t *testing.T) {
			p.rules(t, refusal)
			_, err := redlatch.GetTopic[string](p.client, "t").Publish(t.Context(), "first")
			p.rules(t, "&*", "+@all")
			require.NotErrorIs(t, err, redlatch.ErrUnknown)
			want := []string{"first", "last"}
			if err != nil {
				want = want[1:]
			}
			_, err = redlatch.GetTopic[string](p.client, "t").Publish(t.Context(), "last")
			require.NoError(t, err)
			var got []string
			for value, err := range sub.All() {
				require.NoError(t, err)
				if got = append(got, value); value == "last" {
					break
				}
			}
			assert.Equal(t, want, got)
		})
	}
}
