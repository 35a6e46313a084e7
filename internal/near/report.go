package near

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/presence"
)

// reads count those of the caches of an object, in one shard.
type reads struct {
	hits, misses atomic.Uint64
	_            [48]byte // apart from the next one's cache line
}

// kept is what a cache has.
type kept struct {
	entries  int
	maxStale time.Duration
}

// know adds a cache to those whose entries are counted.
func (t *tracker) know(cache func() (kept, bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.caches = append(slices.DeleteFunc(t.caches, func(known func() (kept, bool)) bool {
		_, alive := known()
		return !alive
	}), cache)
}

// stats returns the counts of all caches of the object, without their entries.
func (t *tracker) stats() Stats {
	s := Stats{Invalidations: t.counted.Load()}
	for i := range t.reads {
		s.Hits += t.reads[i].hits.Load()
		s.Misses += t.reads[i].misses.Load()
	}
	return s
}

// report returns what there is to say of the caches of the object.
func (t *tracker) report() *presence.Near {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := &presence.Near{
		Invalidations: t.counted.Load(), Connected: t.gate.Load()%2 == 0, Since: t.core.Clock.Time(t.since),
	}
	if heard := t.heard.Load(); heard > 0 {
		n.Heard = t.core.Clock.Time(time.Duration(heard))
	}
	for _, cache := range t.caches {
		if k, alive := cache(); alive {
			n.Entries += k.entries
			n.MaxStale = max(n.MaxStale, k.maxStale)
		}
	}
	return n
}

// Report returns the counts of a client's caches of an object, without their entries, and what else there is to say of them; nil if
// none was used.
func Report(c *core.Core, topic Topic) (Stats, *presence.Near) {
	t := trackersOf(c).find(topic)
	if t == nil {
		return Stats{}, nil
	}
	return t.stats(), t.report()
}

// Caches returns those of maps. Others report what is near together with what is not.
func (ts *trackers) Caches() (all []presence.Cache) {
	for _, one := range ts.all.Range {
		if t, ok := one.(*tracker); ok && t.topic.Map != "" {
			s := t.stats()
			all = append(all, presence.Cache{
				Kind: kinds.Map, Name: ts.core.UserName(t.topic.Map), NearHits: s.Hits, Misses: s.Misses, Near: t.report(),
			})
		}
	}
	return all
}
