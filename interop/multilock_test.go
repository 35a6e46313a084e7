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

func TestMultiLockWithMembersInAnotherOrderGoesOn(t *testing.T) {
	known(t, "members in another order in Java: each side gives way to the other one again and again")
	everywhere(t, func(t *testing.T, p *place) { counts(t, p, multiInReverse, 100) })
}
