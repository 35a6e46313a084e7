package rfairlock_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/locktest"
)

func TestF21_ThousandLocalWaitersEnterOnceEachForFewCommands(t *testing.T) {
	// To queue, to have one's turn, to release: three. On a busy machine unsubscriptions come one by one, and not in
	// groups; and what goes by time, such as upkeep, is more there.
	assert.LessOrEqual(t, locktest.Crowd(t, locktest.Env{New: fairLock}, 1000), 4.25)
}
