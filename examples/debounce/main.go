// Debounce keeps a search index up to date without indexing each keystroke: of many edits of a document the last one is indexed, once the
// author has paused.
//
//	go run ./examples/debounce
//	go run ./examples/debounce -redis redis://localhost:6379
//
// Three authors edit a document each, ten times a second for a while, with a pause in between. Each edit offers the document to a queue
// under its own id, due in 500 ms, in the place of the one that waits. An edit that comes while the document is being indexed is indexed
// after that. It takes about 6 s; the program ends with an error if the index is not what was written last.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

const (
	quiet    = 500 * time.Millisecond // without an edit, until a document is indexed
	indexing = 300 * time.Millisecond
	edits    = 12 // before the pause, and after it
)

// document is a version of a text.
type document struct {
	Title   string
	Version int
}

func main() {
	url := flag.String("redis", os.Getenv("REDIS_URL"), "`URL` of a Redis; default $REDIS_URL, and without that a server of its own")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := run(ctx, *url); err != nil {
		log.Fatal("debounce: ", err)
	}
}

func run(ctx context.Context, url string) error {
	if url == "" {
		server, err := embedded.Start()
		if err != nil {
			return err
		}
		defer server.Close()
		url = server.URL()
	}
	client, err := redlatch.Open(ctx, url)
	if err != nil {
		return err
	}
	defer client.Close()
	queue := redlatch.GetDelayedQueue[document](client, "index-"+uuid.NewString()[:8])

	s := &search{start: time.Now(), index: map[string]int{}}
	consuming, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- queue.Consume(consuming, s.add, rdelayedqueue.WithConcurrency(3)) }()
	defer stop()

	var authors sync.WaitGroup
	failed := make(chan error, 3)
	for i, title := range []string{"minutes", "novel", "recipe"} {
		authors.Go(func() { failed <- write(ctx, queue, title, time.Duration(i)*100*time.Millisecond) })
	}
	authors.Wait()
	for range 3 {
		if err := <-failed; err != nil {
			return err
		}
	}
	err = s.check(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// write edits a document, pauses until it is about to be indexed, and edits it again.
func write(ctx context.Context, queue *rdelayedqueue.Queue[document], title string, more time.Duration) error {
	for version := 1; version <= 2*edits; version++ {
		_, err := queue.Offer(ctx, document{title, version}, quiet, rdelayedqueue.WithID(title), rdelayedqueue.WithReplace())
		if err != nil {
			return err
		}
		pause := 100 * time.Millisecond
		if version == edits {
			pause = quiet + more // the first author comes back while the document is being indexed
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// search is an index: the version of each document that it knows.
type search struct {
	start time.Time

	mu    sync.Mutex
	index map[string]int
	runs  int
}

// add indexes a document, which takes a while.
func (s *search) add(ctx context.Context, m *rdelayedqueue.Message[document]) error {
	select {
	case <-time.After(indexing):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index[m.Value.Title] = m.Value.Version
	s.runs++
	fmt.Printf("%5d ms  indexed version %2d of %s\n", time.Since(s.start).Milliseconds(), m.Value.Version, m.Value.Title)
	return nil
}

// check waits until the index has the last version of each document.
func (s *search) check(ctx context.Context) error {
	for {
		s.mu.Lock()
		done, runs := 0, s.runs
		for _, version := range s.index {
			if version == 2*edits {
				done++
			}
		}
		s.mu.Unlock()
		if done == 3 {
			fmt.Printf("%d edits, indexed %d times\n", 3*2*edits, runs)
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("the index has not the last versions: %w", ctx.Err())
		}
	}
}
