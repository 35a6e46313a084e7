package inspect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
)

// said is a census of clients that say how their caches do.
func said(byClient map[string][]redlatch.CacheInfo) *inspect.Census {
	s := &inspect.Census{Reports: map[string]redlatch.ClientReport{}}
	for id, caches := range byClient {
		s.Reports[id] = redlatch.ClientReport{ID: id, Caches: caches}
	}
	return s
}

func TestCachesAreAddedUpOverClients(t *testing.T) {
	near := &redlatch.NearInfo{Entries: 3, Connected: true, MaxStale: time.Second}
	lost := &redlatch.NearInfo{Entries: 2}
	first := said(map[string][]redlatch.CacheInfo{
		"a": {{Kind: "cache", Name: "users", NearHits: 60, Hits: 20, Misses: 10, Stale: 5, Loads: 9, Failures: 1, Near: near}, {Kind: "map", Name: "prices", Misses: 1, Near: lost}},
		"b": {{Kind: "cache", Name: "users", Misses: 10, Loads: 10}},
	})
	all := first.Caches(nil)
	require.Len(t, all, 2)
	assert.Equal(t, []any{"map", "prices", 1, 1, 2}, []any{all[0].Kind, all[0].Name, all[0].Near, all[0].Lost, all[0].Entries})
	assert.Equal(t, "0.0 %", all[0].Rate())
	users := all[1]
	assert.Equal(t, "80.0 %", users.Rate())
	assert.Equal(t, []uint64{60, 20, 20, 5, 19, 1}, []uint64{users.NearHits, users.Hits, users.Misses, users.Stale, users.Loads, users.Failures})
	assert.Equal(t, []int{1, 0, 3}, []int{users.Near, users.Lost, users.Entries})
	require.Len(t, users.Clients, 2)
	assert.Equal(t, []string{"a", "88.9 %", "b", "0.0 %"}, []string{users.Clients[0].Client, users.Clients[0].Rate(), users.Clients[1].Client, users.Clients[1].Rate()})
	assert.Equal(t, near, users.Clients[0].Near)

	later := said(map[string][]redlatch.CacheInfo{
		"a": {{Kind: "cache", Name: "users", NearHits: 61, Hits: 20, Misses: 13}, {Kind: "map", Name: "prices", Misses: 1}},
		"c": {{Kind: "map", Name: "users", NearHits: 1}},
	})
	all = later.Caches(first)
	require.Len(t, all, 3)
	assert.Nil(t, all[0].HitRate, "nobody has read it meanwhile")
	assert.Empty(t, all[0].Rate())
	assert.Equal(t, []any{"cache", "25.0 %", uint64(1), uint64(3)}, []any{all[1].Kind, all[1].Rate(), all[1].NearHits, all[1].Misses})
	assert.Equal(t, []any{"map", "100.0 %"}, []any{all[2].Kind, all[2].Rate()})
}
