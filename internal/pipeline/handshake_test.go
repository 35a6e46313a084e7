package pipeline_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// F25, F28: no call is sent on a connection that ends with its greeting, whatever else the greeting says.
func TestCallsOfAConnectionThatIsTurnedAwayAreNotDone(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	require.NoError(t, admin.Ping(t.Context()).Err())
	proxy := faulttest.NewProxy(t, server.Addr())
	for name, begin := range map[string]func() (addr string, end func()){
		"no connection is free": func() (string, func()) {
			require.NoError(t, admin.ConfigSet(t.Context(), "maxclients", "1").Err())
			return server.Addr(), func() { require.NoError(t, admin.ConfigSet(t.Context(), "maxclients", "1000").Err()) }
		},
		"it is reset": func() (string, func()) {
			proxy.Refuse(true)
			return proxy.Addr(), func() { proxy.Refuse(false) }
		},
	} {
		for _, o := range []*redis.Options{{}, {ClientName: "app"}, {DB: 1}, {Protocol: 2}} {
			addr, end := begin()
			o.Addr = addr
			rdb := redis.NewClient(o)
			t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
			b := pipeline.New(rdb, time.Minute)
			t.Cleanup(b.Close)
			err := b.Do(t.Context(), add().Call(1, "k", 1), pipeline.SendOptions{})
			assert.Equal(t, script.NotDone, script.Judge(err), "%s: %v", name, err)
			assert.True(t, script.Crowded(err) || script.Refused(err), "%s: %v", name, err)
			end()
			assert.NoError(t, b.Do(t.Context(), add().Call(1, "k", 1), pipeline.SendOptions{}), name)
		}
	}
	n, err := admin.Get(t.Context(), "k").Int()
	require.NoError(t, err)
	assert.Equal(t, 6, n, "DB 1 has the others")
}
