package locktest

import (
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
	// Rival gets the lock that excludes holders of this one, if holders of this one share it. Nil for a lock that one has alone.
	Rival func(c *redlatch.Client, name string) rlock.Locker
	// Downgraded gets the lock with which a holder of this one may go on, if there is one.
	Downgraded func(c *redlatch.Client, name string) rlock.Locker
	// TakesOver says that rlock.WithTakeOver applies to the lock.
	TakesOver bool
	// Name returns what a lock of this name calls itself. Defaults to the name itself.
	Name func(name string) string
	// Some says that the lock is made of several of which some are enough, so that the last keys may be set and freed a moment
	// after a call has returned, and one that is spoilt does no harm.
	Some bool
	// Rest says that the lock is made of several, so that after the loss of one the rest is free a moment later.
	Rest bool
}

// Run tests all that a lock of any kind promises.
func Run(t *testing.T, env Env) {
	t.Helper()
	if env.Keys == nil {
		env.Keys = func(name string) []string { return []string{name} }
	}
	if env.Name == nil {
		env.Name = func(name string) string { return name }
	}
	for _, claims := range [][]claim{exclusion, nesting, endings, closing, input} {
		for _, c := range claims {
			if c.alone && env.Rival != nil {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				env.Where(t, func(t *testing.T, s *Server) {
					c.test(t, &rig{env: env, Server: s, name: "locktest:" + uuid.NewString()})
				})
			})
		}
	}
}

// claim is something that every lock promises, or every one that is not shared.
type claim struct {
	name  string
	test  func(t *testing.T, r *rig)
	alone bool // only of a lock that one has alone
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

// rival returns a lock of a new client that excludes holders of the one under test.
func (r *rig) rival(t *testing.T) rlock.Locker {
	t.Helper()
	return r.rivalOf(r.Client(t), r.name)
}

func (r *rig) rivalOf(c *redlatch.Client, name string) rlock.Locker {
	if r.env.Rival != nil {
		return r.env.Rival(c, name)
	}
	return r.env.New(c, name)
}

// wipe takes the lock away from whoever holds it, without a word to anybody.
func (r *rig) wipe(t *testing.T) {
	t.Helper()
	for _, key := range r.env.Keys(r.name) {
		require.NoError(t, r.Redis.Del(t.Context(), key).Err())
	}
}
