package inspect

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/redlatch/redlatch"
)

// CacheCounts are what was counted of a cache, or of a map that keeps entries near.
type CacheCounts struct{ NearHits, Hits, Misses, Stale, Loads, Failures, Invalidations uint64 }

func countsOf(c redlatch.CacheInfo) CacheCounts {
	n := CacheCounts{NearHits: c.NearHits, Hits: c.Hits, Misses: c.Misses, Stale: c.Stale, Loads: c.Loads, Failures: c.Failures}
	if c.Near != nil {
		n.Invalidations = c.Near.Invalidations
	}
	return n
}

func (c CacheCounts) plus(o CacheCounts) CacheCounts {
	return CacheCounts{
		c.NearHits + o.NearHits, c.Hits + o.Hits, c.Misses + o.Misses, c.Stale + o.Stale,
		c.Loads + o.Loads, c.Failures + o.Failures, c.Invalidations + o.Invalidations,
	}
}

func (c CacheCounts) minus(o CacheCounts) CacheCounts {
	return CacheCounts{
		c.NearHits - o.NearHits, c.Hits - o.Hits, c.Misses - o.Misses, c.Stale - o.Stale,
		c.Loads - o.Loads, c.Failures - o.Failures, c.Invalidations - o.Invalidations,
	}
}

// Reads are counts, and the part of the reads that were hits, from 0 to 1; nil if there were none.
type Reads struct {
	CacheCounts
	HitRate *float64
}

func readsOf(c CacheCounts) Reads {
	r := Reads{CacheCounts: c}
	if hits := float64(c.NearHits + c.Hits); hits > 0 || c.Misses > 0 {
		rate := hits / (hits + float64(c.Misses))
		r.HitRate = &rate
	}
	return r
}

// Rate says which part of the reads were hits; nothing if there were none.
func (r Reads) Rate() string {
	if r.HitRate == nil {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100**r.HitRate)
}

// Cache is what clients say of a cache, or of a map that keeps entries near.
type Cache struct {
	Kind, Name string
	Reads               // of all of them
	Near       int      // clients that keep entries themselves
	Lost       int      // those among them that do not hear of changes now
	Entries    int      // near, of all of them
	Clients    []Reader // in the order of their ids
}

// Reader is what one client says of a cache.
type Reader struct {
	Client string
	Reads
	Near *redlatch.NearInfo // nil if it keeps nothing itself
}

// countedAt is a cache of a client.
type countedAt struct {
	client string
	Object
}

// CachesOf returns what one client says of its caches, as [Census.Caches] does of all.
func CachesOf(r redlatch.ClientReport) []Cache {
	s := Census{Reports: map[string]redlatch.ClientReport{r.ID: r}}
	return s.Caches(nil)
}

// Caches returns what the clients that answered say of their caches, in the order of the names. What they have said before is not
// counted; an earlier census may be nil.
func (s *Census) Caches(before *Census) []Cache {
	earlier := map[countedAt]CacheCounts{}
	if before != nil {
		for id, r := range before.Reports {
			for _, one := range r.Caches {
				earlier[countedAt{id, Object{one.Kind, one.Name}}] = countsOf(one)
			}
		}
	}
	byName := map[Object]*Cache{}
	for id, r := range s.Reports {
		for _, one := range r.Caches {
			o := Object{one.Kind, one.Name}
			counts := countsOf(one).minus(earlier[countedAt{id, o}])
			c := byName[o]
			if c == nil {
				c = &Cache{Kind: one.Kind, Name: one.Name}
				byName[o] = c
			}
			c.Clients = append(c.Clients, Reader{id, readsOf(counts), one.Near})
			c.Reads = readsOf(c.plus(counts))
			if n := one.Near; n != nil {
				c.Near++
				c.Entries += n.Entries
				if !n.Connected {
					c.Lost++
				}
			}
		}
	}
	all := make([]Cache, 0, len(byName))
	for _, c := range byName {
		slices.SortFunc(c.Clients, func(a, b Reader) int { return cmp.Compare(a.Client, b.Client) })
		all = append(all, *c)
	}
	slices.SortFunc(all, func(a, b Cache) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind)) })
	return all
}
