package redlatch

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestErrorOfCloseIsSeenOnce(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	c, err := New(rdb)
	require.NoError(t, err)
	closed := 0
	c.close = func() error {
		closed++
		return assert.AnError
	}
	require.ErrorIs(t, c.Close(), assert.AnError)
	require.NoError(t, c.Close())
	assert.Equal(t, 1, closed)
	require.NoError(t, rdb.Close())
}

func TestEvictionPolicyIsReadFromAnyINFO(t *testing.T) {
	for info, want := range map[string]string{
		"": "noeviction",
		"# Memory\r\nmaxmemory:1024\r\nmaxmemory_policy:allkeys-lru\r\n": "allkeys-lru",
		"# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\n":    "noeviction",
		"maxmemory:1024\nmaxmemory_policy:volatile-ttl\n":                "volatile-ttl", // as a proxy may tell it
		"maxmemory:1024\r\n":            "noeviction",
		"# Memory\r\nno colon\r\n:\r\n": "noeviction",
	} {
		assert.Equal(t, want, evictionPolicy(info), "%q", info)
	}
}

func FuzzEvictionPolicy(f *testing.F) {
	for _, info := range []string{"", "# Memory\r\nmaxmemory:1024\r\nmaxmemory_policy:allkeys-lru\r\n", ":\n", "maxmemory_policy"} {
		f.Add(info)
	}
	f.Fuzz(func(t *testing.T, info string) {
		policy := evictionPolicy(info)
		if policy != "noeviction" {
			assert.Contains(t, info, "maxmemory_policy")
			assert.Contains(t, info, policy)
		}
	})
}
