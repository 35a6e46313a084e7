// Rwcache shows a read-write lock before a cache of two halves that have to match. Two clients, as if they were two processes,
// read it with three goroutines each, all the time; the first one also rewrites both halves every second.
//
//	go run ./examples/rwcache
//
// Watch how many readers are inside at a time; how the refresher gets in soon although there is always a reader; and how it
// keeps reading what it wrote after it gave up the write lock, while others of its client read again. No reader ever sees halves
// that differ: the program ends with an error if one does. It takes 5 s.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rrwlock"
)

// cache is what the lock protects: in life it is somewhere in the network.
type cache struct {
	prices, index          atomic.Int64 // the version of each half
	reads, torn, now, peak atomic.Int64
}

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	server, err := embedded.Start()
	if err != nil {
		return err
	}
	defer server.Close()
	var c cache
	var lock *rrwlock.Lock
	reading, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	ended := make(chan error, 6) // one of each reader
	for i := range cap(ended) {
		if i%3 == 0 {
			client, err := redlatch.Open(ctx, server.URL())
			if err != nil {
				return err
			}
			defer client.Close()
			lock = client.GetReadWriteLock("cache")
		}
		lock := lock
		go func() { ended <- c.read(reading, lock) }()
		time.Sleep(15 * time.Millisecond) // so that they do not all begin and end together
	}
	for version := int64(1); version <= 3; version++ {
		time.Sleep(time.Second)
		if err := c.refresh(ctx, lock, version); err != nil {
			return err
		}
	}
	for range cap(ended) {
		err = errors.Join(err, <-ended)
	}
	fmt.Printf("%d reads, up to %d at a time, %d of halves that differ\n", c.reads.Load(), c.peak.Load(), c.torn.Load())
	if c.torn.Load() > 0 {
		err = errors.Join(err, errors.New("somebody read halves that differ"))
	}
	return err
}

// read reads the cache again and again, 90 ms each time, until ctx ends.
func (c *cache) read(ctx context.Context, lock *rrwlock.Lock) error {
	for {
		err := lock.RDo(ctx, func(context.Context) error {
			c.peak.Store(max(c.peak.Load(), c.now.Add(1)))
			defer c.now.Add(-1)
			prices := c.prices.Load()
			time.Sleep(90 * time.Millisecond)
			if c.index.Load() != prices {
				c.torn.Add(1)
			}
			c.reads.Add(1)
			return nil
		})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// refresh rewrites both halves, and looks at what it wrote while others read it.
func (c *cache) refresh(ctx context.Context, lock *rrwlock.Lock, version int64) error {
	start := time.Now()
	write, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	waited := time.Since(start)
	c.prices.Store(version)
	time.Sleep(50 * time.Millisecond) // a reader that was inside now would see it
	c.index.Store(version)

	read, err := lock.RLock(write.Context()) // granted at once, and kept when the write lock goes
	if err != nil {
		return errors.Join(err, write.Unlock(ctx))
	}
	if err := write.Unlock(ctx); err != nil {
		return errors.Join(err, read.Unlock(ctx)) // it would be renewed for ever
	}
	before := c.reads.Load()
	time.Sleep(300 * time.Millisecond)
	fmt.Printf("version %d: %2d ms until it could be written; then %2d reads by others beside its own, of version %d\n",
		version, waited.Milliseconds(), c.reads.Load()-before, c.prices.Load())
	return read.Unlock(ctx)
}
