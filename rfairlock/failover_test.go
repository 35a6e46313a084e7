package rfairlock_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// F9
func TestEveryClientLocksAgainAfterAFailoverToAStaleReplica(t *testing.T) {
	redistest.Long(t)
	locktest.Failover(t, locktest.Env{New: fairLock})
}
