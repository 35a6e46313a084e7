package rsemaphore_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// permitCalls are all calls of a semaphore, on good arguments.
var permitCalls = map[string]func(ctx context.Context, s *rsemaphore.PermitSemaphore) error{
	"TrySetPermits": func(ctx context.Context, s *rsemaphore.PermitSemaphore) error {
		_, err := s.TrySetPermits(ctx, 1)
		return err
	},
	"SetPermits": func(ctx context.Context, s *rsemaphore.PermitSemaphore) error { return s.SetPermits(ctx, 1) },
	"AddPermits": func(ctx context.Context, s *rsemaphore.PermitSemaphore) error { return s.AddPermits(ctx, 1) },
	"Available": func(ctx context.Context, s *rsemaphore.PermitSemaphore) error {
		_, err := s.Available(ctx)
		return err
	},
	"Acquire": func(ctx context.Context, s *rsemaphore.PermitSemaphore) error {
		_, err := s.Acquire(ctx)
		return err
	},
	"TryAcquire": func(ctx context.Context, s *rsemaphore.PermitSemaphore) error {
		_, err := s.TryAcquire(ctx)
		return err
	},
	"AcquireN": func(ctx context.Context, s *rsemaphore.PermitSemaphore) error {
		_, err := s.AcquireN(ctx, 2)
		return err
	},
	"ReleaseID": func(ctx context.Context, s *rsemaphore.PermitSemaphore) error { return s.ReleaseID(ctx, someID) },
	"ExtendID": func(ctx context.Context, s *rsemaphore.PermitSemaphore) error {
		return s.ExtendID(ctx, someID, time.Second)
	},
}

const someID = "000102030405060708090a0b0c0d0e0f"

func TestPermitBadInputIsErrInvalidBeforeAnyIO(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		good := p.GetPermitSemaphore("n")
		invalid := func(what string, err error) {
			t.Helper()
			assert.ErrorIs(t, err, redlatch.ErrInvalid, what)
			assert.NotErrorIs(t, err, context.Canceled, what)
		}
		for verb, call := range permitCalls {
			for _, name := range []string{"", "a}b", "{", "{}x", strings.Repeat("n", 513), "a\nb"} {
				invalid(verb+" of "+name, call(done, p.GetPermitSemaphore(name)))
			}
			var none context.Context
			invalid(verb+" without a context", call(none, good))
			invalid(verb+" with a bad setting", call(done, p.GetPermitSemaphore("n", rsemaphore.WithMax(0))))
			assert.ErrorIs(t, call(done, good), context.Canceled, verb)
		}
		for _, n := range []int{0, -1, math.MaxInt32 + 1, math.MinInt} {
			_, err := good.TrySetPermits(done, n)
			invalid("try set permits", err)
			invalid("set permits", good.SetPermits(done, n))
			_, err = good.AcquireN(done, n)
			invalid("acquire n", err)
		}
		for _, n := range []int{0, math.MaxInt32 + 1, math.MinInt32} {
			invalid("add permits", good.AddPermits(done, n))
		}
		for _, opt := range []rsemaphore.PermitOption{
			nil, rsemaphore.WithWait(-1), rsemaphore.WithFixedLease(9 * time.Millisecond), rsemaphore.WithFixedLease(25 * time.Hour),
		} {
			_, err := good.Acquire(done, opt)
			invalid("acquire", err)
			_, err = good.TryAcquire(done, opt)
			invalid("try acquire", err)
			_, err = good.AcquireN(done, 2, opt)
			invalid("acquire n", err)
		}
		small := p.GetPermitSemaphore("n", rsemaphore.WithMax(3))
		_, err := small.AcquireN(done, 4)
		invalid("more than the limit", err)
		invalid("more than the limit", small.SetPermits(done, 4))
		assert.Empty(t, p.Sent(), "no command was sent")
	})
}

func TestPermitHandlesRefuseBadInput(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		s := b.Peer(t).GetPermitSemaphore("n")
		givePermits(t, s, 1)
		permit := takePermit(t, s)
		var none context.Context
		require.ErrorIs(t, permit.Release(none), redlatch.ErrInvalid)
		require.ErrorIs(t, permit.Extend(none, time.Second), redlatch.ErrInvalid)
		require.ErrorIs(t, permit.Extend(t.Context(), time.Millisecond), redlatch.ErrInvalid)
		locktest.Live(t, permit.Context())
		releasePermits(t, permit)
	})
}

func TestPermitOtherDataIsErrWrongTypeAndStays(t *testing.T) {
	for _, where := range []locktest.Place{locktest.InMemory, locktest.OnServer} {
		wreck := map[string]func(t *testing.T, p *permitPlace) error{
			"a hash": func(t *testing.T, p *permitPlace) error { return p.Redis.HSet(t.Context(), p.name, "a", 1).Err() },
			"a text": func(t *testing.T, p *permitPlace) error { return p.Redis.Set(t.Context(), p.name, "text", 0).Err() },
			"permits of a list": func(t *testing.T, p *permitPlace) error {
				return p.Redis.LPush(t.Context(), "{"+p.name+"}:timeout", 1).Err()
			},
		}
		claims := map[string]func(*testing.T, *permitPlace){}
		for what, write := range wreck {
			claims[what] = func(t *testing.T, p *permitPlace) {
				require.NoError(t, write(t, p))
				before := dumpPermits(t, p)
				for verb, call := range permitCalls {
					want := redlatch.ErrWrongType
					if (verb == "ReleaseID" || verb == "ExtendID") && what != "permits of a list" {
						want = rsemaphore.ErrNotHeld // the number of permits does not matter: none has the id
					}
					assert.ErrorIs(t, call(t.Context(), p.semaphore(t)), want, verb)
				}
				assert.Equal(t, before, dumpPermits(t, p))
			}
		}
		eachPermitClaim(t, where, claims)
	}
}

func dumpPermits(t *testing.T, p *permitPlace) []string {
	t.Helper()
	var all []string
	for _, key := range []string{p.name, "{" + p.name + "}:timeout"} {
		kind, err := p.Redis.Type(t.Context(), key).Result()
		require.NoError(t, err)
		all = append(all, kind, p.Redis.Get(t.Context(), key).Val())
	}
	return all
}

// The texts of errors: what was being done, to what, and why it failed, in words of permits.
func TestPermitErrorTexts(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetPermitSemaphore("slots")
		givePermits(t, s, 1)
		permit := takePermit(t, s)
		_, busy := s.TryAcquire(t.Context())
		_, few := s.AcquireN(t.Context(), 0)
		_, late := s.Acquire(t.Context(), rsemaphore.WithWait(time.Second))
		releasePermits(t, permit)
		lost := takePermit(t, s, rsemaphore.WithFixedLease(time.Second))
		<-lost.Context().Done()
		_, bad := p.GetPermitSemaphore("").Available(t.Context())
		require.NoError(t, p.Close())
		_, closed := s.Acquire(t.Context())
		for want, err := range map[string]error{
			`rsemaphore: try acquire "slots": permit not acquired`:                            busy,
			`rsemaphore: acquire "slots": permit not acquired`:                                late,
			`rsemaphore: acquire n "slots": invalid argument: n 0 is not between 1 and 10000`: few,
			`rsemaphore: release "slots": permit not held`:                                    permit.Release(t.Context()),
			`rsemaphore: extend "slots": permit not held`:                                     permit.Extend(t.Context(), time.Minute),
			`rsemaphore: extend "slots": permit lost`:                                         lost.Extend(t.Context(), time.Minute),
			`rsemaphore: permit "slots": permit lost: the lease ended`:                        context.Cause(lost.Context()),
			`rsemaphore: permit "slots": ended by its holder`:                                 context.Cause(permit.Context()),
			`rsemaphore: available "": invalid argument: the name is empty`:                   bad,
			`rsemaphore: acquire "slots": client closed`:                                      closed,
		} {
			assert.EqualError(t, err, want)
		}
		assert.True(t, errors.Is(busy, rsemaphore.ErrNotAcquired) && errors.Is(late, rsemaphore.ErrNotAcquired))
		require.ErrorIs(t, context.Cause(lost.Context()), rsemaphore.ErrLost)
	})
}
