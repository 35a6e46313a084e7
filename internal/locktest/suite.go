package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/rlock"
)

// Env is a kind of lock, and where it is to be tested.
type Env struct {
	// Where is [InMemory], [OnServer] or [OnCluster].
	Where Place
	// New gets the lock.
	New func(c *redlatch.Client, name string) rlock.Locker
	// Keys returns the keys that hold a lock of this name. Defaults to the name itself.
	Keys func(name string) []string
}

// Run tests all that a lock of any kind promises.
func Run(t *testing.T, env Env) {
	t.Helper()
	if env.Keys == nil {
		env.Keys = func(name string) []string { return []string{name} }
	}
	for _, claims := range [][]claim{exclusion, nesting, endings, closing, input} {
		for _, c := range claims {
			t.Run(c.name, func(t *testing.T) {
				env.Where(t, func(t *testing.T, s *Server) {
					c.test(t, &rig{env: env, Server: s, name: "locktest:" + uuid.NewString()})
				})
			})
		}
	}
}

// claim is something that every lock promises.
type claim struct {
	name string
	test func(t *testing.T, r *rig)
}

// rig is where one claim is tested, with a name that nobody used before.
type rig struct {
	*Server
	env  Env
	name string
}

// limit bounds every wait for what has to come.
const limit = 20 * time.Second

// lock returns the lock of a new client.
func (r *rig) lock(t *testing.T, opts ...redlatch.Option) rlock.Locker {
	t.Helper()
	return r.env.New(r.Client(t, opts...), r.name)
}

// wipe takes the lock away from whoever holds it, without a word to anybody.
func (r *rig) wipe(t *testing.T) {
	t.Helper()
	for _, key := range r.env.Keys(r.name) {
		require.NoError(t, r.Redis.Del(t.Context(), key).Err())
	}
}

func acquire(t *testing.T, ctx context.Context, l rlock.Locker, opts ...rlock.Option) *rlock.Hold { //nolint:revive // t first, as everywhere in tests
	t.Helper()
	h, err := l.Lock(ctx, opts...)
	require.NoError(t, err)
	return h
}

func unlock(t *testing.T, h *rlock.Hold) {
	t.Helper()
	require.NoError(t, h.Unlock(t.Context()))
}

// refused requires that the lock is taken, as a stranger sees it.
func refused(t *testing.T, l rlock.Locker) {
	t.Helper()
	_, err := l.TryLock(t.Context())
	require.ErrorIs(t, err, rlock.ErrNotAcquired, "the lock is held")
}

// free requires that the lock is free.
func free(t *testing.T, l rlock.Locker) {
	t.Helper()
	h, err := l.TryLock(t.Context())
	require.NoError(t, err, "the lock is free")
	unlock(t, h)
}

// ended waits until a context has ended, and requires the cause.
func ended(t *testing.T, ctx context.Context, cause error) { //nolint:revive // t first, as everywhere in tests
	t.Helper()
	select {
	case <-ctx.Done():
		require.ErrorIs(t, context.Cause(ctx), cause)
		require.Error(t, ctx.Err())
	case <-time.After(limit):
		require.Fail(t, "the context has not ended", "waiting for %v", cause)
	}
}

// live requires that a context has not ended.
func live(t *testing.T, ctx context.Context) { //nolint:revive // t first, as everywhere in tests
	t.Helper()
	require.NoError(t, ctx.Err())
	select {
	case <-ctx.Done():
		require.Fail(t, "the context has ended", "%v", context.Cause(ctx))
	default:
	}
}

// outcome is what an acquiring call returned.
type outcome struct {
	hold *rlock.Hold
	err  error
}

// begin calls fn on a goroutine of its own.
func begin(fn func() (*rlock.Hold, error)) <-chan outcome {
	done := make(chan outcome, 1) // room for the result, so that the goroutine ends whether or not it is fetched
	go func() {
		h, err := fn()
		done <- outcome{h, err}
	}()
	return done
}

// fetch waits for what begin has begun.
func fetch(t *testing.T, done <-chan outcome) (*rlock.Hold, error) {
	t.Helper()
	select {
	case o := <-done:
		return o.hold, o.err
	case <-time.After(limit):
		require.Fail(t, "the call has not returned")
		return nil, errors.New("no result")
	}
}
