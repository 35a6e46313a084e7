package rmultilock_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/locktest"
)

func TestF21_LocalWaitersEnterOnceEachForFewCommands(t *testing.T) {
	// Three for each of its locks, as for one alone.
	assert.LessOrEqual(t, locktest.Crowd(t, envs["MultiLockOfThree"], 300), 9.0)
}
