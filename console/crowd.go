package console

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
)

const (
	crowdFor  = 2 * time.Second // answers are shown for so long: a client answers ten questions a second
	crowdWait = time.Second
	crowdMost = 50 // clients that are asked
)

// crowd is what clients say of themselves, for all who look at the console.
type crowd struct {
	client *redlatch.Client

	mu   sync.Mutex // guards the rest, and is held while clients are asked
	at   time.Time
	last census
}

// census is what clients have said.
type census struct {
	Clients []redlatch.ClientInfo
	Reports map[string]redlatch.ClientReport // by id; of those that answered
	Holds   []hold                           // what was held longest first
	Waits   []wait                           // likewise
	losses  []loss                           // the newest first
	Err     error                            // why nobody could be asked
}

type hold struct {
	Client string
	redlatch.HoldInfo
}

type wait struct {
	Client string
	redlatch.WaitInfo
}

type loss struct {
	Client string
	redlatch.LossInfo
}

// look returns what the clients say; what they have said if that is not long ago.
func (c *crowd) look(ctx context.Context) census {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < crowdFor {
		return c.last
	}
	c.last, c.at = c.ask(context.WithoutCancel(ctx)), time.Now() // others may wait for the same
	return c.last
}

func (c *crowd) ask(ctx context.Context) (all census) {
	ctx, cancel := context.WithTimeout(ctx, crowdWait)
	defer cancel()
	all.Reports = map[string]redlatch.ClientReport{}
	if all.Clients, all.Err = c.client.Clients(ctx); all.Err != nil {
		return all
	}
	var asking sync.WaitGroup
	var mu sync.Mutex // guards the reports
	for _, one := range first(all.Clients, crowdMost) {
		asking.Go(func() {
			r, err := c.client.Ask(ctx, one.ID)
			if err != nil {
				return // it is shown as one that did not answer
			}
			mu.Lock()
			defer mu.Unlock()
			all.Reports[one.ID] = r
		})
	}
	asking.Wait()
	for id, r := range all.Reports {
		for _, h := range r.Holds {
			all.Holds = append(all.Holds, hold{id, h})
		}
		for _, w := range r.Waits {
			all.Waits = append(all.Waits, wait{id, w})
		}
		for _, l := range r.Losses {
			all.losses = append(all.losses, loss{id, l})
		}
	}
	slices.SortFunc(all.Holds, func(a, b hold) int { return a.Since.Compare(b.Since) })
	slices.SortFunc(all.Waits, func(a, b wait) int { return a.Since.Compare(b.Since) })
	slices.SortFunc(all.losses, func(a, b loss) int { return b.At.Compare(a.At) })
	return all
}

// waitsFor returns who waits for an object.
func (c census) waitsFor(name string) (some []wait) {
	for _, w := range c.Waits {
		if w.Name == name {
			some = append(some, w)
		}
	}
	return some
}
