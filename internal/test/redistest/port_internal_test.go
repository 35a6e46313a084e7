package redistest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPortOfAKilledServerStaysItsOwn(t *testing.T) {
	Require(t)
	var port int
	t.Run("while its test runs", func(t *testing.T) {
		s := Start(t)
		port = s.port
		s.Kill()
		assert.True(t, free(port))
		assert.Nil(t, reserve(port), "another process could take it")
	})
	token := reserve(port)
	require.NotNil(t, token, "after its test")
	release(t, token)
}
