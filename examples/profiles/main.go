// Profiles is a cache of user profiles over a slow database, in three processes.
//
//	go run ./examples/profiles
//
// Watch that 1,000 callers in three processes who miss the same profile at once cause one query; that a user who does not
// exist is asked for once; that a profile is fresh in every process after its change and Invalidate; and that an old one is
// served at once while one process refreshes it. The program ends with an error if a query too many was made, or if an old
// profile was served after Invalidate.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rcache"
)

const (
	callers = 1000
	fresh   = 300 * time.Millisecond // a profile that is older is refreshed
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal("profiles: ", err) //nolint:gocritic // the context ends with the process
	}
}

type profile struct {
	Name string
	City string
}

// database is a slow table of profiles that counts its queries.
type database struct {
	mu      sync.Mutex // guards the rest
	rows    map[int64]profile
	queries int
}

func (d *database) load(ctx context.Context, id int64) (profile, error) {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return profile{}, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queries++
	p, ok := d.rows[id]
	if !ok {
		return profile{}, rcache.ErrNotFound
	}
	return p, nil
}

func (d *database) move(id int64, city string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.rows[id]
	p.City = city
	d.rows[id] = p
}

// made returns how many queries were made since the last call.
func (d *database) made() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.queries
	d.queries = 0
	return n
}

func run(ctx context.Context) error {
	redis, err := embedded.Start() // in production: the Redis that all processes have
	if err != nil {
		return err
	}
	defer redis.Close()
	db := &database{rows: map[int64]profile{42: {"Ann", "Oslo"}}}
	var caches []*rcache.Cache[int64, profile]
	for range 3 { // as if they were processes: each has a client of its own
		client, err := redlatch.Open(ctx, redis.URL())
		if err != nil {
			return err
		}
		defer client.Close()
		caches = append(caches, rcache.New[int64, profile](client, "profiles", db.load,
			rcache.WithTTL(10*time.Minute), rcache.WithRefresh(fresh), rcache.WithNear(10_000)))
	}

	start := time.Now()
	if err := stampede(ctx, caches); err != nil {
		return err
	}
	queries := db.made()
	fmt.Printf("1. %d callers missed a profile at once: %d query, %v\n", callers, queries, time.Since(start).Round(time.Millisecond))
	if queries != 1 {
		return errors.New("the database was asked more than once")
	}

	for _, c := range caches {
		if _, err := c.Get(ctx, 43); !errors.Is(err, rcache.ErrNotFound) {
			return fmt.Errorf("a user who does not exist: %w", err)
		}
	}
	fmt.Printf("2. three processes asked for a user who does not exist: %d query\n", db.made())

	db.move(42, "Rome")
	if err := caches[0].Invalidate(ctx, 42); err != nil {
		return err
	}
	p, err := caches[0].Get(ctx, 42)
	if err != nil {
		return err
	}
	fmt.Printf("3. after the change and Invalidate: %+v, %d query\n", p, db.made())
	if p.City != "Rome" {
		return errors.New("an old profile was served after Invalidate")
	}
	return refresh(ctx, db, caches)
}

// stampede has all callers ask for the same profile.
func stampede(ctx context.Context, caches []*rcache.Cache[int64, profile]) error {
	failed := make(chan error, callers)
	var all sync.WaitGroup
	for n := range callers {
		all.Go(func() {
			if _, err := caches[n%len(caches)].Get(ctx, 42); err != nil {
				failed <- err
			}
		})
	}
	all.Wait()
	close(failed)
	return <-failed
}

// refresh shows that a profile older than WithRefresh is served at once.
func refresh(ctx context.Context, db *database, caches []*rcache.Cache[int64, profile]) error {
	db.move(42, "Lima") // and nobody calls Invalidate
	time.Sleep(fresh)
	start := time.Now()
	p, err := caches[1].Get(ctx, 42)
	if err != nil {
		return err
	}
	fmt.Printf("4. an old profile, served while it is refreshed: %+v, %v\n", p, time.Since(start).Round(time.Millisecond))
	for p.City != "Lima" {
		time.Sleep(10 * time.Millisecond)
		if p, err = caches[2].Get(ctx, 42); err != nil {
			return err
		}
	}
	fmt.Printf("   another process has the new one after %v, %d query\n", time.Since(start).Round(time.Millisecond), db.made())
	return nil
}
