package rsemaphore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// limited returns a client whose user lacks one permission: a rule as ACL SETUSER takes it.
func limited(t *testing.T, server *redistest.Server, rdb *redis.Client, rule string) *redlatch.Client {
	t.Helper()
	user := "without" + rule
	args := []any{"acl", "setuser", user, "on", "nopass", "~*", "&*", "+@all", rule}
	require.NoError(t, rdb.Do(t.Context(), args...).Err())
	few := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: "x", DisableIdentity: true})
	t.Cleanup(func() { assert.NoError(t, few.Close()) })
	return hastyClient(t, few)
}

// hastyClient returns a client that leaves behind, without a word, what it cannot release.
func hastyClient(t *testing.T, rdb *redis.Client) *redlatch.Client {
	t.Helper()
	return quietClient(t, rdb, redlatch.WithCloseGrace(time.Millisecond), redlatch.WithAbandonOnClose(), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
}

// refusable are the commands of all scripts of semaphores and permits, and the right to their channels.
var refusable = []string{
	"-mget", "-get", "-exists", "-publish", "-pexpire", "-set", "-zscore", "-zcount", "-zcard", "-zrange", "-pttl", "-incrby",
	"-zadd", "-zrem", "-zremrangebyrank", "-time", "resetchannels",
}

// F25, F28
func TestSemaphoreErrorOfARefusedCommandMeansNotDone(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	for _, rule := range refusable {
		c := limited(t, server, rdb, rule)
		for verb, call := range map[string]struct {
			do    func(context.Context, *rsemaphore.Semaphore) error
			there int // permits that make a difference, from 5
		}{
			"acquire": {func(ctx context.Context, s *rsemaphore.Semaphore) error { return s.Acquire(ctx, 2) }, 3},
			"release": {func(ctx context.Context, s *rsemaphore.Semaphore) error { return s.Release(ctx, 2) }, 7},
			"add":     {func(ctx context.Context, s *rsemaphore.Semaphore) error { return s.AddPermits(ctx, 3) }, 8},
			"drain":   {func(ctx context.Context, s *rsemaphore.Semaphore) error { _, err := s.Drain(ctx); return err }, 0},
		} {
			name := fmt.Sprintf("%s with %s", verb, rule)
			require.NoError(t, rdb.Set(t.Context(), name, 5, 0).Err())
			err := call.do(t.Context(), c.GetSemaphore(name))
			if err == nil {
				require.Equal(t, call.there, counter(t, rdb, name), name)
				continue
			}
			require.NotErrorIs(t, err, redlatch.ErrUnknown, name)
			require.Equal(t, 5, counter(t, rdb, name), "%s: %v", name, err)
		}
	}
	s := limited(t, server, rdb, "resetchannels").GetSemaphore("mute")
	require.NoError(t, rdb.Set(t.Context(), "mute", 2, 0).Err())
	require.Error(t, s.Release(t.Context(), 1), "nobody would wake who waits")
}

// F25, F28
func TestPermitErrorOfARefusedCommandMeansNotDone(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	full := quietClient(t, server.Client(t))
	for _, rule := range refusable {
		c := limited(t, server, rdb, rule)
		for verb, call := range permitChanges {
			for _, expired := range []int{0, 2} {
				name := fmt.Sprintf("%s with %s and %d expired", verb, rule, expired)
				s := full.GetPermitSemaphore(name)
				givePermits(t, s, 5)
				for i := range expired {
					require.NoError(t, rdb.ZAdd(t.Context(), "{"+name+"}:timeout", redis.Z{Member: fmt.Sprint("0123456789abcde", i), Score: 1}).Err())
					require.NoError(t, rdb.Decr(t.Context(), name).Err())
				}
				held := takePermit(t, s)
				want, err := call(t, c.GetPermitSemaphore(name), held)
				require.NotErrorIs(t, err, redlatch.ErrUnknown, name)
				if err != nil {
					want = 4
				}
				got, failed := s.Available(t.Context())
				require.NoError(t, failed)
				require.Equal(t, want, got, "%s: %v", name, err)
				releasePermits(t, held)
			}
		}
	}
}

// permitChanges are calls on a semaphore of 5 of which one is held, each with what is available once it is done.
var permitChanges = map[string]func(t *testing.T, s *rsemaphore.PermitSemaphore, held *rsemaphore.Permit) (int, error){
	"acquire": func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) (int, error) {
		_, err := s.TryAcquire(t.Context(), rsemaphore.WithFixedLease(time.Minute))
		return 3, err
	},
	"acquire 3": func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) (int, error) {
		_, err := s.AcquireN(t.Context(), 3, rsemaphore.WithWait(0), rsemaphore.WithFixedLease(time.Minute))
		return 1, err
	},
	"set": func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) (int, error) {
		return 7, s.SetPermits(t.Context(), 8)
	},
	"add": func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) (int, error) {
		return 6, s.AddPermits(t.Context(), 2)
	},
	"create": func(t *testing.T, s *rsemaphore.PermitSemaphore, _ *rsemaphore.Permit) (int, error) {
		_, err := s.TrySetPermits(t.Context(), 8)
		return 4, err
	},
}

// F25, F28
func TestPermitReleaseThatIsRefusedGivesNothingBack(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	for i, rule := range refusable {
		name := fmt.Sprint("permits", i)
		user := fmt.Sprint("user", i)
		require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", user, "on", "nopass", "~*", "&*", "+@all").Err())
		few := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: "x", DisableIdentity: true})
		t.Cleanup(func() { assert.NoError(t, few.Close()) })
		s := hastyClient(t, few).GetPermitSemaphore(name)
		givePermits(t, s, 5)
		held, kept := takePermit(t, s), takePermit(t, s)
		require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", user, rule).Err())
		extended := kept.Extend(t.Context(), time.Minute)
		require.NotErrorIs(t, extended, rsemaphore.ErrLost, rule)
		err := held.Release(t.Context())
		state, failed := readPermits(t.Context(), rdb, name)
		require.NoError(t, failed)
		require.Equal(t, 5, state.capacity(), rule)
		if err == nil {
			require.Equal(t, 4, state.free, rule)
		} else {
			require.NotErrorIs(t, err, redlatch.ErrUnknown, rule)
			require.Equal(t, 3, state.free, "%s: %v", rule, err)
		}
	}
}

// fill has a server refuse what needs memory.
func fill(t *testing.T, rdb *redis.Client) {
	t.Helper()
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	require.ErrorContains(t, rdb.Set(t.Context(), "more", "more", 0).Err(), "OOM")
}

// F28
func TestHeldPermitsOutliveFullMemoryAndCanBeReleased(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	const lease = 2 * time.Second
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := quietClient(t, server.Client(t), redlatch.WithWatchdogTimeout(lease)).GetPermitSemaphore("slots")
	givePermits(t, s, 5)
	held := takePermits(t, s, 4)
	fill(t, rdb)
	for _, p := range held {
		select {
		case <-p.Context().Done():
			require.NoError(t, context.Cause(p.Context()))
		case <-time.After(lease / 2): // the wait is what is tested: two leases in all
		}
	}
	require.NoError(t, held[0].Extend(t.Context(), time.Minute))
	releasePermits(t, held...)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err()) // MULTI is refused too
	require.NoError(t, permitsAre(t.Context(), rdb, "slots", 5, 0))
}

// F25, F28
func TestSemaphoreReleasesAndRefusesWhileMemoryIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := quietClient(t, server.Client(t)).GetSemaphore("slots")
	give(t, s, 5)
	take(t, s, 3)
	fill(t, rdb)
	for verb, call := range map[string]error{
		"acquire": s.Acquire(t.Context(), 1), "add": s.AddPermits(t.Context(), 1),
	} {
		require.ErrorIs(t, call, redlatch.ErrUnwritable, verb)
		require.NotErrorIs(t, call, redlatch.ErrUnknown, verb)
	}
	require.Equal(t, 2, counter(t, rdb, "slots"))
	release(t, s, 3)
	require.Equal(t, 5, counter(t, rdb, "slots"))
	p := quietClient(t, server.Client(t)).GetPermitSemaphore("new")
	_, err := p.TrySetPermits(t.Context(), 1)
	require.ErrorIs(t, err, redlatch.ErrUnwritable)
	require.False(t, errors.Is(err, redlatch.ErrUnknown))
}

// F2, F28
func TestSemaphoreReleasesAfterALostReplyWhileMemoryIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	rdb := server.Client(t)
	s := clientThrough(t, proxy.Addr()).GetSemaphore("slots")
	give(t, s, 2)
	take(t, s, 2)
	fill(t, rdb)
	proxy.DropReplies(faulttest.Script, 1)
	require.False(t, tried(t, s, 1))
	require.Equal(t, 1, proxy.Dropped())
	release(t, s, 2)
	require.Equal(t, 2, counter(t, rdb, "slots"))
}
