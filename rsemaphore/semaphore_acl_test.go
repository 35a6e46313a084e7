package rsemaphore_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestSemaphoreReleaseThatMayNotBeAnnouncedChangesNothing(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "mute", "on", "nopass", "~*", "+@all", "resetchannels").Err())
	limited := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "mute", Password: "x"})
	t.Cleanup(func() { assert.NoError(t, limited.Close()) })
	s := quietClient(t, limited).GetSemaphore("s")
	require.NoError(t, rdb.Set(t.Context(), "s", 2, 0).Err())
	require.Error(t, s.Release(t.Context(), 1))
	require.Equal(t, 2, counter(t, rdb, "s"), "an error says that nothing was released")
	take(t, s, 1)
	require.Equal(t, 1, counter(t, rdb, "s"))
}
