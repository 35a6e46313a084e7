package presence

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// Cache is what the client has counted of a cache, or of a map that keeps entries near, since it was made.
type Cache struct {
	Kind     string `json:"kind"`
	Name     string `json:"name"`
	NearHits uint64 `json:"near_hits"`
	Hits     uint64 `json:"hits"`
	Misses   uint64 `json:"misses"`
	Stale    uint64 `json:"stale"`
	Loads    uint64 `json:"loads"`
	Failures uint64 `json:"failures"`
	Near     *Near  `json:"near,omitempty"`
}

// Near is what the client keeps of an object itself.
type Near struct {
	Entries       int           `json:"entries"`
	Invalidations uint64        `json:"invalidations"`
	Connected     bool          `json:"connected"`
	Since         time.Time     `json:"since"`
	Heard         time.Time     `json:"heard,omitzero"`
	MaxStale      time.Duration `json:"max_stale"`
}

// CacheReporter is a kind of object that tells what the client has counted of it.
type CacheReporter interface{ Caches() []Cache }

// caching is what a client with caches says of them. A program without caches links nothing of it.
type caching interface {
	reads() uint64        // how many there were
	said(name string) any // a list for the answer, of all or of those with a name; nil for none
}

// cachesNow returns nil for a client without caches.
func (p *Presence) cachesNow() caching {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.caching
}

// AddCaches adds a kind of object to those that are asked by Caches.
func (p *Presence) AddCaches(r CacheReporter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, _ := p.caching.(reporters)
	p.caching = append(slices.Clip(all), r) // a copy: the list may be in use
}

// Caches returns what the client has counted of its caches, in the order of their names.
func (p *Presence) Caches() []Cache {
	all, _ := p.cachesNow().(reporters)
	return all.list()
}

// reporters are those of caches.
type reporters []CacheReporter

func (rs reporters) list() (all []Cache) {
	for _, r := range rs {
		all = append(all, r.Caches()...)
	}
	sort.Slice(all, func(i, j int) bool {
		return cmp.Or(cmp.Compare(all[i].Name, all[j].Name), cmp.Compare(all[i].Kind, all[j].Kind)) < 0
	})
	return all
}

func (rs reporters) reads() (n uint64) {
	for _, r := range rs {
		for _, c := range r.Caches() {
			n += c.NearHits + c.Hits + c.Misses
		}
	}
	return n
}

func (rs reporters) said(name string) any {
	all := rs.list()
	if name != "" {
		all = slices.DeleteFunc(all, func(c Cache) bool { return c.Name != name })
	}
	if len(all) == 0 {
		return nil
	}
	return all[:min(answerList, len(all))]
}

// Answer is a report as another client has received it.
type Answer struct {
	Report
	Caches []Cache `json:"caches"`
}

// setClock changes the times to those of a machine where it is now.
func (a *Answer) setClock(now time.Time) {
	at := func(t *time.Time) { *t = now.Add(t.Sub(a.Now)) }
	for _, c := range a.Caches {
		if c.Near == nil {
			continue
		}
		at(&c.Near.Since)
		if !c.Near.Heard.IsZero() {
			at(&c.Near.Heard)
		}
	}
	a.Report.setClock(now)
}
