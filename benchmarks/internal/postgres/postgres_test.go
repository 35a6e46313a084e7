package postgres

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNewestVersionIsTaken(t *testing.T) {
	in := func(version string) string { return "/usr/lib/postgresql/" + version + "/bin/initdb" }
	assert.Equal(t, in("15"), newest([]string{in("15"), in("9.6"), in("current")}))
	assert.Equal(t, in("17"), newest([]string{in("15"), in("17"), in("8.4")}))
}
