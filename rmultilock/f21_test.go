package rmultilock_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/locktest"
)

func TestF21_LocalWaitersEnterOnceEachForFewCommands(t *testing.T) {
	// To queue, to have one's turn, to release: three for each of its locks, if nothing were shared.
	assert.LessOrEqual(t, locktest.Crowd(t, envs["MultiLockOfThree"], 300), 9.0)
}
