package rmultilock_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/locktest"
)

// F21
func TestLocalWaitersEnterOnceEachForFewCommands(t *testing.T) {
	// Three for each of its locks, as for one alone.
	assert.LessOrEqual(t, locktest.Crowd(t, envs["MultiLockOfThree"], 300), 9.0)
}
