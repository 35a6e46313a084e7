package interop_test

import "testing"

func TestRedLockPassesBetweenGoAndJava(t *testing.T) {
	onThreeServers(t, func(t *testing.T, p *place) { passes(t, p, red, red) })
}

func TestRedLockLosesNoUpdate(t *testing.T) {
	onThreeServers(t, func(t *testing.T, p *place) { counts(t, p, red, 25) })
}
