package rmultilock_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/test/locktest"
)

// F21
func TestLocalWaitersEnterOnceEachForFewCommands(t *testing.T) {
	// One lock is handed on. The others are acquired and released, and asked for twice where that overtakes the release before it.
	assert.LessOrEqual(t, locktest.Crowd(t, envs["MultiLockOfThree"], 300), 8.0)
}
