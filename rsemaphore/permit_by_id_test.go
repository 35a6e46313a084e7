package rsemaphore_test

import (
	"context"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rsemaphore"
)

func TestPermitIsReleasedByItsID(t *testing.T) {
	eachPermitClaim(t, locktest.InMemory, map[string]func(*testing.T, *permitPlace){
		"of another client": func(t *testing.T, p *permitPlace) {
			s, other := p.permits(t, 1), p.semaphore(t)
			permit := takePermit(t, s)
			waiting := make(chan error, 1)
			third := p.semaphore(t)
			go func() {
				_, err := third.Acquire(t.Context())
				waiting <- err
			}()
			time.Sleep(10 * time.Millisecond)
			start := time.Now()
			require.NoError(t, other.ReleaseID(t.Context(), permit.ID()))
			require.NoError(t, <-waiting)
			assert.Less(t, time.Since(start), 100*time.Millisecond, "it wakes who waits")
			require.ErrorIs(t, other.ReleaseID(t.Context(), permit.ID()), rsemaphore.ErrNotHeld)
			locktest.Ended(t, permit.Context(), rsemaphore.ErrLost)
			require.ErrorIs(t, permit.Release(t.Context()), rsemaphore.ErrNotHeld)
		},
		"as Java keeps it, without an end": func(t *testing.T, p *permitPlace) {
			s := p.permits(t, 1)
			takePermit(t, s, rsemaphore.WithFixedLease(time.Second))
			time.Sleep(2 * time.Second)
			id := strings.Repeat("\x07\xff", 8)
			out := "{" + p.name + "}:timeout"
			require.NoError(t, p.Redis.ZAdd(t.Context(), out, redis.Z{Score: 922337203685477, Member: id}).Err())
			require.NoError(t, s.ExtendID(t.Context(), hex.EncodeToString([]byte(id)), time.Minute))
			end := p.Redis.ZScore(t.Context(), out, id).Val()
			assert.InDelta(t, float64(time.Now().Add(time.Minute).UnixMilli()), end, 1000)
			require.NoError(t, s.ReleaseID(t.Context(), strings.ToUpper(hex.EncodeToString([]byte(id)))))
			require.ErrorIs(t, p.Redis.ZScore(t.Context(), out, id).Err(), redis.Nil)
		},
		"not after its lease": func(t *testing.T, p *permitPlace) {
			s := p.permits(t, 1)
			permit := takePermit(t, s, rsemaphore.WithFixedLease(time.Second))
			require.NoError(t, s.ExtendID(t.Context(), permit.ID(), 100*time.Millisecond))
			time.Sleep(200 * time.Millisecond)
			require.ErrorIs(t, s.ExtendID(t.Context(), permit.ID(), time.Second), rsemaphore.ErrNotHeld)
			require.ErrorIs(t, s.ReleaseID(t.Context(), permit.ID()), rsemaphore.ErrNotHeld)
			n, err := s.Available(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 1, n)
		},
		"bad input": func(t *testing.T, p *permitPlace) {
			s := p.permits(t, 1)
			for _, id := range []string{"", "x", strings.Repeat("0", 30), strings.Repeat("0", 34), strings.Repeat("g", 32)} {
				require.ErrorIs(t, s.ReleaseID(t.Context(), id), redlatch.ErrInvalid)
				require.ErrorIs(t, s.ExtendID(t.Context(), id, time.Second), redlatch.ErrInvalid)
			}
			good := strings.Repeat("0", 32)
			require.ErrorIs(t, s.ExtendID(t.Context(), good, time.Millisecond), redlatch.ErrInvalid)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			require.ErrorIs(t, s.ReleaseID(ended, good), context.Canceled)
		},
	})
}

// F2
func TestLostReplyOfAReleaseByIDIsRepeated(t *testing.T) {
	t.Parallel()
	r := newPermitRig(t)
	s := r.semaphore(t, "slots")
	givePermits(t, s, 2)
	first, second := takePermit(t, s), takePermit(t, s)
	r.proxy.DropReplies(faulttest.Script, 2)
	require.NoError(t, s.ReleaseID(t.Context(), first.ID()))
	r.becomes(t, "slots", 1, 1, permitsSettle)
	r.proxy.DropReplies(faulttest.Script, 1)
	require.NoError(t, s.ExtendID(t.Context(), second.ID(), time.Minute))
	releasePermits(t, second)
	r.becomes(t, "slots", 2, 0, permitsSettle)
}

// Extend sets a lease that ends sooner than the one that somebody else has set by the permit's id.
func TestExtendShortensALeaseThatWasSetByID(t *testing.T) {
	eachPermitClaim(t, locktest.InMemory, map[string]func(*testing.T, *permitPlace){
		"as it does any other": func(t *testing.T, p *permitPlace) {
			s := p.permits(t, 1)
			permit := takePermit(t, s)
			require.NoError(t, permit.Extend(t.Context(), 20*time.Second))
			require.NoError(t, permit.Extend(t.Context(), 10*time.Second))
			require.NoError(t, p.semaphore(t).ExtendID(t.Context(), permit.ID(), time.Hour))
			require.NoError(t, permit.Extend(t.Context(), 10*time.Second))
			info, err := s.Info(t.Context())
			require.NoError(t, err)
			require.Len(t, info.Holders, 1)
			assert.LessOrEqual(t, info.Holders[0].Left, 10*time.Second, "what is left of the lease in Redis")
		},
	})
}
