package interop_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMultiLockPassesBetweenGoAndJava(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { passes(t, p, multi, multi) })
}

func TestMultiLockWaitsForOneMemberOfTheOtherSide(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { passes(t, p, member, multi) })
}

// With members in another order each side may hold what the other one needs. They have to yield, and not to each other for ever.
func TestMultiLockLosesNoUpdate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		same := counts(t, p, multi, 50)
		assert.Greater(t, counts(t, p, multiInReverse, 50), same/20)
	})
}
