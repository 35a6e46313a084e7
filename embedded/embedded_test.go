package embedded_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
)

func TestServerTellsItsAddressAfterClose(t *testing.T) {
	s, err := embedded.Start()
	require.NoError(t, err)
	addr, url := s.Addr(), s.URL()
	s.Close()
	s.Close()
	assert.Equal(t, addr, s.Addr())
	assert.Equal(t, url, s.URL())
	_, err = redlatch.Open(t.Context(), url+"?max_retries=-1")
	require.ErrorContains(t, err, "connection refused")
}
