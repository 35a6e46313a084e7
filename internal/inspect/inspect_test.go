package inspect_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/internal/inspect"
)

func TestNumberThatMayBeASemaphoreOrALatchHasAState(t *testing.T) {
	c, err := embedded.Open()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	_, err = c.GetSemaphore("uploads").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	var seen []inspect.Summary
	for o, err := range c.Objects(t.Context(), "", redlatch.WithKinds("counter")) {
		require.NoError(t, err)
		seen = append(seen, inspect.SummaryOf(o))
	}
	assert.Equal(t, []inspect.Summary{{Kind: "counter", Name: "uploads", State: "is 3"}}, seen)
}
