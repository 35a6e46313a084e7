package inspect

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/redlatch/redlatch"
)

// Reads are what was counted of a cache, or of a map that keeps entries near.
type Reads struct {
	NearHits, Hits, Misses, Stale, Loads, Failures uint64
	// HitRate is the part of the reads that were hits, from 0 to 1; nil if there were none.
	HitRate *float64
}

// readsSince returns what was counted since an earlier answer of the same client.
func readsSince(c, earlier redlatch.CacheInfo) Reads {
	r := Reads{
		NearHits: c.NearHits - earlier.NearHits, Hits: c.Hits - earlier.Hits, Misses: c.Misses - earlier.Misses,
		Stale: c.Stale - earlier.Stale, Loads: c.Loads - earlier.Loads, Failures: c.Failures - earlier.Failures,
	}
	r.rate()
	return r
}

// Rate says which part of the reads were hits; nothing if there were none.
func (r *Reads) Rate() string {
	if r.HitRate == nil {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100**r.HitRate)
}

func (r *Reads) add(o Reads) {
	r.NearHits += o.NearHits
	r.Hits += o.Hits
	r.Misses += o.Misses
	r.Stale += o.Stale
	r.Loads += o.Loads
	r.Failures += o.Failures
	r.rate()
}

func (r *Reads) rate() {
	if hits := float64(r.NearHits + r.Hits); hits > 0 || r.Misses > 0 {
		rate := hits / (hits + float64(r.Misses))
		r.HitRate = &rate
	}
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

// Caches returns what the clients that answered say of their caches, in the order of the names. What they have said before is not
// counted; an earlier census may be nil.
func (s *Census) Caches(before *Census) []Cache {
	earlier := map[countedAt]redlatch.CacheInfo{}
	if before != nil {
		for id, r := range before.Reports {
			for _, one := range r.Caches {
				earlier[countedAt{id, Object{one.Kind, one.Name}}] = one
			}
		}
	}
	byName := map[Object]*Cache{}
	for id, r := range s.Reports {
		for _, one := range r.Caches {
			o := Object{one.Kind, one.Name}
			reads := readsSince(one, earlier[countedAt{id, o}])
			c := byName[o]
			if c == nil {
				c = &Cache{Kind: one.Kind, Name: one.Name}
				byName[o] = c
			}
			c.Clients = append(c.Clients, Reader{id, reads, one.Near})
			c.add(reads)
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
