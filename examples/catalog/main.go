// Catalog is the catalogue of a shop: three processes read it from memory, and one changes prices.
//
//	go run ./examples/catalog
//
// Watch how many reads are answered from memory, and for how long a reader sees a price that has been changed already. The
// program ends with an error if that is longer than WithMaxStale allows.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/grid/rmap"
)

const (
	products = 100
	changes  = 300 // of prices
	maxStale = 2 * time.Second
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := run(ctx); err != nil {
		log.Fatal("catalog: ", err) //nolint:gocritic // the context ends with the process
	}
}

// witness knows when each version of a price was in Redis.
type witness struct {
	mu      sync.Mutex // guards written
	written [products][]time.Time
	worst   atomic.Int64 // ns
	stale   atomic.Int64 // reads of a price that had been changed
}

// saw notes that a reader that asked at a time was given a version.
func (w *witness) saw(product, version int, asked time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if next := version + 1; next < len(w.written[product]) {
		if age := asked.Sub(w.written[product][next]); age > 0 {
			w.stale.Add(1)
			w.worst.Store(max(w.worst.Load(), int64(age)))
		}
	}
}

func run(ctx context.Context) error {
	redis, err := embedded.Start() // in production: the Redis that all processes have
	if err != nil {
		return err
	}
	defer redis.Close()
	var maps []*rmap.Map[string, int]
	for range 4 { // as if they were processes: each has a client of its own
		client, err := redlatch.Open(ctx, redis.URL())
		if err != nil {
			return err
		}
		defer client.Close()
		maps = append(maps, rmap.New[string, int](client, "prices", rmap.WithNear(10_000), rmap.WithMaxStale(maxStale)))
	}
	writer, readers := maps[0], maps[1:]

	w := &witness{}
	for product := range products {
		if err := w.write(ctx, writer, product); err != nil {
			return err
		}
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	reads := make(chan error, len(readers))
	for _, m := range readers {
		go func() { reads <- w.read(reading, m) }()
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n := range changes {
		<-tick.C
		if err := w.write(ctx, writer, n%products); err != nil {
			return err
		}
	}
	stop()
	for range readers {
		if err := <-reads; err != nil {
			return err
		}
	}

	for n, m := range readers {
		s := m.NearStats()
		fmt.Printf("process %d: %d reads from memory, %d from Redis, %d prices dropped\n", n+1, s.Hits, s.Misses, s.Invalidations)
	}
	worst := time.Duration(w.worst.Load())
	fmt.Printf("%d reads saw a price after its change, at most %v after it\n", w.stale.Load(), worst.Round(time.Microsecond))
	if worst > maxStale {
		return errors.New("that is longer than the bound")
	}
	return nil
}

// write sets the next version of a price.
func (w *witness) write(ctx context.Context, m *rmap.Map[string, int], product int) error {
	w.mu.Lock()
	version := len(w.written[product])
	w.mu.Unlock()
	err := m.Set(ctx, strconv.Itoa(product), version)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.written[product] = append(w.written[product], time.Now())
	return err
}

// read reads all prices every millisecond, until ctx is done.
func (w *witness) read(ctx context.Context, m *rmap.Map[string, int]) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		for product := range products {
			asked := time.Now()
			version, ok, err := m.Get(ctx, strconv.Itoa(product))
			switch {
			case ctx.Err() != nil:
				return nil
			case err != nil || !ok:
				return errors.Join(err, fmt.Errorf("product %d is there: %v", product, ok))
			}
			w.saw(product, version, asked)
		}
		<-tick.C
	}
}
