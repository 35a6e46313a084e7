package rrwlock_test

import (
	"context"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rrwlock"
)

// counting is a reader that tells its levels.
type counting struct {
	rlock.Locker
	lock *rrwlock.Lock
}

func (c counting) HoldCount(ctx context.Context) (int, error) { return c.lock.HoldCount(ctx) }

func countingReader(c *redlatch.Client, name string) rlock.Locker {
	l := c.GetReadWriteLock(name)
	return counting{l.RLocker(), l}
}

// F9
func TestEveryClientLocksAgainAfterAFailoverToAStaleReplica(t *testing.T) {
	redistest.Long(t)
	t.Run("Writer", func(t *testing.T) { locktest.Failover(t, locktest.Env{New: writer}) })
	t.Run("Reader", func(t *testing.T) { locktest.Failover(t, locktest.Env{New: countingReader, Rival: writer}) })
}
