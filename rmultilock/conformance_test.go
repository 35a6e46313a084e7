package rmultilock_test

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// others are the names of two more locks that go with a name; none for a name that is empty.
func others(name string) []string {
	h := fnv.New64a()
	h.Write([]byte(name))
	return []string{fmt.Sprintf("locktest:%x:y", h.Sum64()), fmt.Sprintf("locktest:%x:z", h.Sum64())}
}

func three(name string) []string { return append([]string{name}, others(name)...) }

func locks(c *redlatch.Client, names []string) []rlock.Locker {
	var all []rlock.Locker
	for _, name := range names {
		all = append(all, c.GetLock(name))
	}
	return all
}

func joined(names []string) string { return strings.Join(names, ",") }

func inOrder(names []string) string { return joined(slices.Sorted(slices.Values(names))) }

// envs are the kinds of lock of this package, on one client.
var envs = map[string]locktest.Env{
	"MultiLockOfOne": {
		New: func(c *redlatch.Client, name string) rlock.Locker { return c.GetMultiLock(c.GetLock(name)) },
	},
	"MultiLockOfThree": {
		New:  func(c *redlatch.Client, name string) rlock.Locker { return c.GetMultiLock(locks(c, three(name))...) },
		Keys: three,
		Name: func(name string) string { return inOrder(three(name)) },
		Rest: true,
	},
	"RedLockOfThree": {
		New:  func(c *redlatch.Client, name string) rlock.Locker { return c.GetRedLock(locks(c, three(name))...) },
		Keys: three,
		Name: func(name string) string { return joined(three(name)) },
		Some: true,
	},
	"MultiLockOfMultiLocks": {
		New: func(c *redlatch.Client, name string) rlock.Locker {
			names := three(name)
			return c.GetMultiLock(c.GetMultiLock(c.GetLock(names[0])), c.GetMultiLock(locks(c, names[1:])...))
		},
		Keys: three,
		Name: func(name string) string { return inOrder(three(name)) },
		Rest: true,
	},
}

func TestConformanceInMemory(t *testing.T) { conform(t, locktest.InMemory) }

func TestConformanceOnServer(t *testing.T) { conform(t, locktest.OnServer) }

func TestConformanceOnCluster(t *testing.T) {
	redistest.Long(t)
	conform(t, locktest.OnCluster)
}

// F2
func TestLostRepliesOnServer(t *testing.T) {
	redistest.Long(t)
	for name, env := range envs {
		t.Run(name, func(t *testing.T) { locktest.LoseReplies(t, env) })
	}
}

func conform(t *testing.T, where locktest.Place) {
	for name, env := range envs {
		env.Where = where
		t.Run(name, func(t *testing.T) { locktest.Run(t, env) })
	}
}
