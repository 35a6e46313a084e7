package rcache

import (
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/near"
	"github.com/redlatch/redlatch/internal/presence"
)

// mostCounted is how many names of caches a client counts by, until it closes. Caches of other names count for themselves.
const mostCounted = 1000

// counts are those of the caches of a name.
type counts struct{ hits, stale, misses, loads, failures atomic.Uint64 }

func (m *manager) countsOf(name string) *counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, known := m.counts[name]
	if !known {
		n = &counts{}
		if len(m.counts) < mostCounted {
			m.counts[name] = n
		}
	}
	return n
}

// Stats are the counts of all caches of a name in this client.
type Stats struct {
	Hits     uint64 // results that Redis had, misses and failures that are kept included
	NearHits uint64 // values that were near
	Stale    uint64 // those among Hits that were old, see WithRefresh
	Misses   uint64 // calls that found nothing kept: they had to load, or to wait for a load
	Loads    uint64 // calls of the loader
	Failures uint64 // loads that failed; one that found nothing has not
}

// Stats returns the current counts.
func (c *Cache[K, V]) Stats() Stats {
	s := c.counts().stats()
	if c.near != nil {
		s.NearHits = c.near.Stats().Hits
	}
	return s
}

func (n *counts) stats() Stats {
	return Stats{
		Hits: n.hits.Load(), Stale: n.stale.Load(), Misses: n.misses.Load(), Loads: n.loads.Load(), Failures: n.failures.Load(),
	}
}

// topicOf returns where changes of a cache are published for near values.
func topicOf(name string) near.Topic {
	return near.Topic{Channel: core.Prefixed("redlatch_cache_channel", name), Plain: true}
}

// Caches returns what the client has counted, for those who ask it.
func (m *manager) Caches() (all []presence.Cache) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.counts {
		s := n.stats()
		nearby, has := near.Report(m.core, topicOf(name))
		all = append(all, presence.Cache{
			Kind: kinds.Cache, Name: m.core.UserName(name), NearHits: nearby.Hits, Hits: s.Hits, Stale: s.Stale, Misses: s.Misses,
			Loads: s.Loads, Failures: s.Failures, Near: has,
		})
	}
	return all
}
