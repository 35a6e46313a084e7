package interop_test

import "testing"

func TestLockPassesBetweenGoAndJava(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { passes(t, p, plain, plain) })
}

func TestLockIsForcedFromEitherSide(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { forced(t, p, plain) })
}

func TestLockLosesNoUpdate(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) { counts(t, p, plain, 250) })
}
