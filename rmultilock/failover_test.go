package rmultilock_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
)

// F9
func TestEveryClientLocksAgainAfterAFailoverToAStaleReplica(t *testing.T) {
	locktest.Failover(t, envs["MultiLockOfThree"])
}
