package rfairlock_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
)

// F9
func TestEveryClientLocksAgainAfterAFailoverToAStaleReplica(t *testing.T) {
	locktest.Failover(t, locktest.Env{New: fairLock})
}
