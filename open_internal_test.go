package redlatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

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
