package rmultilock_test

import (
	"testing"

	"github.com/redlatch/redlatch/internal/locktest"
)

func TestF09_EveryClientLocksAgainAfterAFailoverToAStaleReplica(t *testing.T) {
	locktest.Failover(t, envs["MultiLockOfThree"])
}
