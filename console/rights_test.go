package console

import (
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestWaitersThatTheUserMayNotCountAreNotKnown(t *testing.T) {
	server := redistest.Start(t)
	require.NoError(t, server.Client(t).Do(t.Context(), "acl", "setuser", "worker", "on", ">secret", "~*", "&*", "+@all", "-pubsub").Err())
	quiet := slog.New(slog.DiscardHandler)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "worker", Password: "secret"})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	client, err := redlatch.New(rdb, redlatch.WithoutPresence(), redlatch.WithCloseGrace(0), redlatch.WithLogger(quiet))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	_, err = client.GetPermitSemaphore("uploads").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	s := httptest.NewServer(Handler(client, WithLogger(quiet)))
	t.Cleanup(s.Close)
	_, text := get(t, s.URL+"/semaphores")
	assert.Contains(t, text, `<td class="n">?</td>`)
}
