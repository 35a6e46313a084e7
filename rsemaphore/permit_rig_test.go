package rsemaphore_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rsemaphore"
)

// permitPlace is where a claim about permits is tested, with a name that nobody used before.
type permitPlace struct {
	*locktest.Server
	name string
}

// semaphore returns the semaphore of a new client.
func (p *permitPlace) semaphore(t *testing.T, opts ...redlatch.Option) *rsemaphore.PermitSemaphore {
	t.Helper()
	return p.Client(t, opts...).GetPermitSemaphore(p.name)
}

// permits returns the semaphore of a new client, after it was given n permits.
func (p *permitPlace) permits(t *testing.T, n int, opts ...redlatch.Option) *rsemaphore.PermitSemaphore {
	t.Helper()
	s := p.semaphore(t, opts...)
	givePermits(t, s, n)
	return s
}

// eachPermitClaim runs claims on one kind of server.
func eachPermitClaim(t *testing.T, where locktest.Place, claims map[string]func(*testing.T, *permitPlace)) {
	for name, claim := range claims {
		t.Run(name, func(t *testing.T) {
			where(t, func(t *testing.T, s *locktest.Server) {
				claim(t, &permitPlace{Server: s, name: "permits:" + uuid.NewString()})
			})
		})
	}
}

// permitLimit bounds every wait for what has to come.
const permitLimit = 20 * time.Second

func givePermits(t *testing.T, s *rsemaphore.PermitSemaphore, n int) {
	t.Helper()
	set, err := s.TrySetPermits(t.Context(), n)
	require.NoError(t, err)
	require.True(t, set, "the semaphore is new")
}

func takePermit(t *testing.T, s *rsemaphore.PermitSemaphore, opts ...rsemaphore.PermitOption) *rsemaphore.Permit {
	t.Helper()
	p, err := s.Acquire(t.Context(), append([]rsemaphore.PermitOption{rsemaphore.WithWait(permitLimit)}, opts...)...)
	require.NoError(t, err)
	return p
}

func takePermits(t *testing.T, s *rsemaphore.PermitSemaphore, n int, opts ...rsemaphore.PermitOption) []*rsemaphore.Permit {
	t.Helper()
	all, err := s.AcquireN(t.Context(), n, append([]rsemaphore.PermitOption{rsemaphore.WithWait(permitLimit)}, opts...)...)
	require.NoError(t, err)
	require.Len(t, all, n)
	return all
}

func releasePermits(t *testing.T, permits ...*rsemaphore.Permit) {
	t.Helper()
	for _, p := range permits {
		require.NoError(t, p.Release(t.Context()))
	}
}

func requireNoPermit(t *testing.T, s *rsemaphore.PermitSemaphore) {
	t.Helper()
	_, err := s.TryAcquire(t.Context())
	require.ErrorIs(t, err, rsemaphore.ErrNotAcquired)
}

func requireAvailable(t *testing.T, s *rsemaphore.PermitSemaphore, n int) {
	t.Helper()
	got, err := s.Available(t.Context())
	require.NoError(t, err)
	require.Equal(t, n, got, "available")
}

// permitOutcome is what an acquiring call returned.
type permitOutcome struct {
	permits []*rsemaphore.Permit
	err     error
}

// beginPermits acquires on a goroutine of its own.
func beginPermits(ctx context.Context, s *rsemaphore.PermitSemaphore, n int, opts ...rsemaphore.PermitOption) <-chan permitOutcome {
	done := make(chan permitOutcome, 1) // room for the result, so that the goroutine ends whether or not it is fetched
	go func() {
		permits, err := s.AcquireN(ctx, n, opts...)
		done <- permitOutcome{permits, err}
	}()
	return done
}

func fetchPermits(t *testing.T, done <-chan permitOutcome) permitOutcome {
	t.Helper()
	select {
	case o := <-done:
		return o
	case <-time.After(permitLimit):
		require.Fail(t, "the call has not returned")
		return permitOutcome{}
	}
}

func nextPermits(t *testing.T, done <-chan permitOutcome) []*rsemaphore.Permit {
	t.Helper()
	o := fetchPermits(t, done)
	require.NoError(t, o.err)
	return o.permits
}

// permitState is what Redis has of a semaphore.
type permitState struct {
	free int               // permits available, those that have expired not included
	out  map[string]string // id in hexadecimal -> score, with all digits
}

// readPermits reads both at the same instant: settlements may be under way.
func readPermits(ctx context.Context, rdb redis.UniversalClient, name string) (permitState, error) {
	tx := rdb.TxPipeline()
	available, timeout := tx.Get(ctx, name), tx.ZRangeWithScores(ctx, "{"+name+"}:timeout", 0, -1)
	_, _ = tx.Exec(ctx) // each has its own error
	free, err := available.Int()
	if err != nil && err != redis.Nil { //nolint:errorlint // the very value, as go-redis documents it
		return permitState{}, err
	}
	s := permitState{free: free, out: map[string]string{}}
	members, err := timeout.Result()
	for _, z := range members {
		id, _ := z.Member.(string)
		s.out[hex.EncodeToString([]byte(id))] = strconv.FormatFloat(z.Score, 'f', -1, 64)
	}
	return s, err
}

// ends returns when the leases of the permits that are out end, in ms of the epoch.
func (s permitState) ends(t *testing.T) map[string]int64 {
	t.Helper()
	all := map[string]int64{}
	for id, score := range s.out {
		end, err := strconv.ParseInt(score, 10, 64)
		require.NoError(t, err)
		all[id] = end
	}
	return all
}

// live returns how many of the leases have not ended.
func (s permitState) live(t *testing.T) int {
	t.Helper()
	n := 0
	for _, end := range s.ends(t) {
		if end > time.Now().UnixMilli() {
			n++
		}
	}
	return n
}

// capacity is what may be out and what is, together.
func (s permitState) capacity() int { return s.free + len(s.out) }

// requireCapacity requires that Redis has n permits in all.
func requireCapacity(t *testing.T, rdb redis.UniversalClient, name string, n int) {
	t.Helper()
	s, err := readPermits(t.Context(), rdb, name)
	require.NoError(t, err)
	require.Equal(t, n, s.capacity(), "available and out: %v", s)
}

func permitsAre(ctx context.Context, rdb redis.UniversalClient, name string, free, out int) error {
	s, err := readPermits(ctx, rdb, name)
	if err == nil && (s.free != free || len(s.out) != out) {
		err = fmt.Errorf("%d available and %d out, not %d and %d", s.free, len(s.out), free, out)
	}
	return err
}

// rawID is a permit's id as Redis has it.
func rawID(t *testing.T, p *rsemaphore.Permit) string {
	t.Helper()
	id, err := hex.DecodeString(p.ID())
	require.NoError(t, err)
	require.Len(t, id, 16)
	return string(id)
}

// lost reports whether an error says that a call had an outcome which is not known.
func lost(err error) bool { return errors.Is(err, redlatch.ErrUnknown) }
