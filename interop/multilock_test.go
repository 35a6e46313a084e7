package interop_test

import "testing"

func TestMultiLockPassesBetweenGoAndJava(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { passes(t, p, multi, multi) })
}

func TestMultiLockWaitsForOneMemberOfTheOtherSide(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { passes(t, p, member, multi) })
}

func TestMultiLockLosesNoUpdate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { counts(t, p, multi, 100) })
}

// Each side may then hold what the other one needs: this is slower.
func TestMultiLockWithMembersInAnotherOrderLosesNoUpdate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { counts(t, p, multiInReverse, 25) })
}
