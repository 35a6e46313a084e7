package rfairlock_test

import (
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func fairLock(c *redlatch.Client, name string) rlock.Locker { return c.GetFairLock(name) }

func TestConformanceInMemory(t *testing.T) { conform(t, locktest.InMemory) }

func TestConformanceOnServer(t *testing.T) { conform(t, locktest.OnServer) }

func TestConformanceOnCluster(t *testing.T) {
	redistest.Long(t)
	conform(t, locktest.OnCluster)
}

// F2
func TestLostRepliesOnServer(t *testing.T) { locktest.LoseReplies(t, locktest.Env{New: fairLock}) }

func conform(t *testing.T, where locktest.Place) {
	t.Helper()
	locktest.Run(t, locktest.Env{Where: where, New: fairLock, TakesOver: true})
}
