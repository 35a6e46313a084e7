package rrwlock_test

import (
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
)

func writer(c *redlatch.Client, name string) rlock.Locker { return c.GetReadWriteLock(name) }

func reader(c *redlatch.Client, name string) rlock.Locker { return c.GetReadWriteLock(name).RLocker() }

func TestConformanceInMemory(t *testing.T) { conform(t, locktest.InMemory) }

func TestConformanceOnServer(t *testing.T) { conform(t, locktest.OnServer) }

func TestConformanceOnCluster(t *testing.T) {
	redistest.Long(t)
	conform(t, locktest.OnCluster)
}

// F2
func TestLostRepliesOnServer(t *testing.T) {
	t.Run("Writer", func(t *testing.T) { locktest.LoseReplies(t, locktest.Env{New: writer, Downgraded: reader}) })
	t.Run("Reader", func(t *testing.T) { locktest.LoseReplies(t, locktest.Env{New: reader, Rival: writer}) })
}

func conform(t *testing.T, where locktest.Place) {
	t.Run("Writer", func(t *testing.T) { locktest.Run(t, locktest.Env{Where: where, New: writer, TakesOver: true}) })
	t.Run("Reader", func(t *testing.T) { locktest.Run(t, locktest.Env{Where: where, New: reader, Rival: writer}) })
}
