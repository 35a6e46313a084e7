package rfairlock_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
)

func TestF09_EveryClientLocksAgainAfterAFailoverToAStaleReplica(t *testing.T) {
	locktest.Failover(t, locktest.Env{New: fairLock})
}
