package inspect

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rlock"
)

// Watched is a queue of any type of payload.
type Watched interface {
	Name() string
	Stats(ctx context.Context) (rdelayedqueue.Stats, error)
}

// watchedQueue is one that is watched, or that of an executor.
type watchedQueue struct {
	Object
	stats func(ctx context.Context) (rexecutor.Stats, error)
}

// Gauges look at what clients hold and wait for, and at queues, when metrics are asked for. The zero value is ready to use. They are
// safe for concurrent use.
type Gauges struct {
	mu      sync.Mutex // guards the rest
	next    int
	clients map[int]*redlatch.Client
	queues  map[int]watchedQueue
	reading map[*redlatch.Client]*reading
	past    map[Object]CacheCounts // of clients that are watched no more
}

// reading is what a client had counted of its caches when it was first watched.
type reading struct {
	watches int
	before  map[Object]CacheCounts
}

// Watch adds a client, until the result is called. Its caches are counted meanwhile.
func (g *Gauges) Watch(c *redlatch.Client) (stop func()) {
	remove := add(g, &g.clients, c)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.reading == nil {
		g.reading, g.past = map[*redlatch.Client]*reading{}, map[Object]CacheCounts{}
	}
	r := g.reading[c]
	if r == nil {
		r = &reading{before: counted(c)}
		g.reading[c] = r
	}
	r.watches++
	return sync.OnceFunc(func() {
		remove()
		g.mu.Lock()
		defer g.mu.Unlock()
		if r.watches--; r.watches > 0 {
			return
		}
		delete(g.reading, c)
		for o, n := range counted(c) {
			g.past[o] = g.past[o].plus(n.minus(r.before[o]))
		}
	})
}

// counted returns what a client has counted of its caches.
func counted(c *redlatch.Client) map[Object]CacheCounts {
	all := map[Object]CacheCounts{}
	for _, one := range c.Caches() {
		all[Object{one.Kind, one.Name}] = countsOf(one)
	}
	return all
}

// Where hits are from, by their names in metrics.
const (
	FromNear  = "near"
	FromRedis = "redis"
)

// CacheNow are the counts of a cache, and what clients keep near of it now.
type CacheNow struct {
	CacheCounts
	Near    bool // some keep any
	Entries int
	Lost    int // how many clients do not hear of changes
}

// Caches returns what clients have counted of their caches while they were watched. Names are changed by a function, for fewer series.
func (g *Gauges) Caches(name func(string) string) map[Object]*CacheNow {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[Object]*CacheNow{}
	add := func(o Object, n CacheCounts) *CacheNow {
		o.Name = name(o.Name)
		if all[o] == nil {
			all[o] = &CacheNow{}
		}
		all[o].CacheCounts = all[o].plus(n)
		return all[o]
	}
	for o, n := range g.past {
		if of := add(o, n); n.Invalidations > 0 {
			of.Near = true
		}
	}
	for c, r := range g.reading {
		for _, one := range c.Caches() {
			o := Object{one.Kind, one.Name}
			n := add(o, countsOf(one).minus(r.before[o]))
			if one.Near == nil {
				continue
			}
			n.Near = true
			if core.Of(c).Closed() { // it has no subscription, and needs none
				continue
			}
			n.Entries += one.Near.Entries
			if !one.Near.Connected {
				n.Lost++
			}
		}
	}
	return all
}

// WatchQueue adds a queue, until the result is called.
func (g *Gauges) WatchQueue(q Watched) (stop func()) {
	return add(g, &g.queues, watchedQueue{Object{kinds.Queue, q.Name()}, func(ctx context.Context) (rexecutor.Stats, error) {
		s, err := q.Stats(ctx)
		return rexecutor.Stats{Stats: s}, err
	}})
}

// WatchExecutor adds an executor, until the result is called.
func (g *Gauges) WatchExecutor(ex *rexecutor.Executor) (stop func()) {
	return add(g, &g.queues, watchedQueue{Object{kinds.Executor, ex.Name()}, ex.Stats})
}

func add[T any](g *Gauges, all *map[int]T, one T) func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if *all == nil {
		*all = map[int]T{}
	}
	id := g.next
	g.next++
	(*all)[id] = one
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(*all, id)
	}
}

// Object is what holds and waits are counted by.
type Object struct{ Kind, Name string }

// Crowd is how many there are of an object.
type Crowd struct {
	Count int
	since time.Time // of the first
}

// Longest is for how long the first of them has lasted.
func (c *Crowd) Longest() time.Duration { return max(0, time.Since(c.since)) }

// Crowds returns how much is held, and how many calls wait. Names are changed by a function, for fewer series.
func (g *Gauges) Crowds(name func(string) string) (holds, waits map[Object]*Crowd) {
	g.mu.Lock()
	clients := map[*redlatch.Client]bool{} // one that is watched twice is in it once
	for _, c := range g.clients {
		clients[c] = true
	}
	g.mu.Unlock()
	holds, waits = map[Object]*Crowd{}, map[Object]*Crowd{}
	count := func(to map[Object]*Crowd, o Object, since time.Time) {
		c := to[o]
		if c == nil {
			c = &Crowd{since: since}
			to[o] = c
		}
		c.Count++
		if since.Before(c.since) {
			c.since = since
		}
	}
	for c := range clients {
		for _, h := range c.Holds() {
			count(holds, Object{h.Kind, name(h.Name)}, h.Since)
		}
		for _, w := range c.Waits() {
			count(waits, Object{w.Kind, name(w.Name)}, w.Since)
		}
	}
	return holds, waits
}

// Queues asks for the states of all queues and executors at the same time, and returns when each has answered or ctx has ended. It calls
// found for one after the other; a queue has no tasks. Of several of one kind and name the one that was watched first is asked.
func (g *Gauges) Queues(ctx context.Context, found func(o Object, stats rexecutor.Stats, err error)) {
	all := map[Object]watchedQueue{}
	g.mu.Lock()
	for _, id := range slices.Sorted(maps.Keys(g.queues)) {
		q := g.queues[id]
		q.Name = strings.ToValidUTF8(q.Name, "\uFFFD") // metrics take no other text; such a queue has an error
		if _, known := all[q.Object]; !known {
			all[q.Object] = q
		}
	}
	g.mu.Unlock()
	var asking sync.WaitGroup
	var finding sync.Mutex // held while found is called
	for o, q := range all {
		asking.Go(func() {
			stats, err := q.stats(ctx)
			finding.Lock()
			defer finding.Unlock()
			found(o, stats, err)
		})
	}
	asking.Wait()
}

// StateCounts returns how many messages are in each state, by its name in metrics.
func StateCounts(delayed, ready, inFlight, dead int) map[string]int {
	return map[string]int{"delayed": delayed, "ready": ready, "in flight": inFlight, "dead": dead}
}

// Snoozed is what came of a handler that has put its message off, by its name in metrics.
const Snoozed = "snoozed"

// Handled returns what came of a handler, by its name in metrics: [Snoozed], or that of its error.
func Handled(e redlatch.HandleEndEvent) string {
	if e.Snoozed && e.Err == nil {
		return Snoozed
	}
	return Result(e.Err)
}

// Result returns what came of a call, by its name in metrics:
//
//	ok
//	refused      somebody else has it
//	unavailable  Redis did not answer, or nobody knows what it did, or it is a replica or lacks replicas
//	unwritable   Redis refuses writes: it is full, or cannot save
//	full         the queue has reached its capacity
//	cancelled    the context ended
//	failed       anything else
func Result(err error) string {
	switch {
	case err == nil:
		return "ok"
	case script.Unwritable(err) && script.Final(err):
		return "unwritable"
	case errors.Is(err, redlatch.ErrUnavailable), errors.Is(err, redlatch.ErrUnknown), script.Unwritable(err):
		return "unavailable"
	case errors.Is(err, rlock.ErrNotAcquired):
		return "refused"
	case errors.Is(err, rdelayedqueue.ErrFull):
		return "full"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "cancelled"
	}
	return "failed"
}
