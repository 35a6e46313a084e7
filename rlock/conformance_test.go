package rlock_test

import (
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

// kinds are the locks of this package.
var kinds = map[string]func(*redlatch.Client, string) rlock.Locker{
	"Lock":       func(c *redlatch.Client, name string) rlock.Locker { return c.GetLock(name) },
	"FencedLock": func(c *redlatch.Client, name string) rlock.Locker { return c.GetFencedLock(name) },
}

func TestConformanceInMemory(t *testing.T) { conform(t, locktest.InMemory) }

func TestConformanceOnServer(t *testing.T) {
	t.Parallel()
	conform(t, locktest.OnServer)
}

func TestConformanceOnCluster(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	conform(t, locktest.OnCluster)
}

// F2
func TestLostRepliesOnServer(t *testing.T) {
	t.Parallel()
	for name, get := range kinds {
		t.Run(name, func(t *testing.T) { locktest.LoseReplies(t, locktest.Env{New: get}) })
	}
}

func conform(t *testing.T, where locktest.Place) {
	for name, get := range kinds {
		t.Run(name, func(t *testing.T) { locktest.Run(t, locktest.Env{Where: where, New: get, TakesOver: true}) })
	}
}
