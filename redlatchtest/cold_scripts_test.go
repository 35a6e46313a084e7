package redlatchtest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rratelimiter"
)

// carriesOutWithoutReply drops the reply to a call of the client, and requires that another client sees what it did.
func carriesOutWithoutReply(t *testing.T, s *redlatchtest.Server, c *redlatch.Client) {
	t.Helper()
	rate := rratelimiter.Per(5, time.Minute)
	other := s.Client().GetRateLimiter("api", rate)
	s.DropReplies(c, 1)
	_, err := c.GetRateLimiter("api", rate).Allow(t.Context(), "ann", 1)
	require.ErrorIs(t, err, redlatch.ErrUnknown)
	left, err := other.Info(t.Context(), "ann", 1)
	require.NoError(t, err)
	assert.Equal(t, 4, left.Remaining, "the server has carried it out")
}

// The first call of its kind too: what a new server answers to that is only that it does not know the script.
//
// F2
func TestCallWhoseReplyIsDroppedIsCarriedOut(t *testing.T) {
	bubble(t, func(t *testing.T, s *redlatchtest.Server) {
		carriesOutWithoutReply(t, s, s.Client())
	})
}

// A server that was restarted knows no script either.
//
// F2
func TestCallWhoseReplyIsDroppedAfterARestartIsCarriedOut(t *testing.T) {
	bubble(t, func(t *testing.T, s *redlatchtest.Server) {
		c := s.Client()
		l := c.GetRateLimiter("api", rratelimiter.Per(5, time.Minute))
		_, err := l.Allow(t.Context(), "bob", 1) // the server knows the script
		require.NoError(t, err)
		s.Restart(redlatchtest.Kept)
		_, err = c.GetIDGenerator("order").Next(t.Context()) // by another script: the connections are new
		require.NoError(t, err)
		carriesOutWithoutReply(t, s, c)
	})
}

// A name may be a hash tag and nothing else.
func TestLostPermitOfATaggedNameIsAvailableAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *redlatchtest.Server) {
		pool := s.Client().GetPermitSemaphore("{pool}")
		require.NoError(t, pool.SetPermits(t.Context(), 1))
		permit, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		s.Lose(permit)
		n, err := pool.Available(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	})
}
