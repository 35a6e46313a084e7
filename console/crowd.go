package console

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
)

const (
	crowdFor  = 2 * time.Second // answers are shown for so long: a client answers ten questions a second
	crowdWait = time.Second
	crowdMost = 50 // clients that are asked, and answers that are kept of pages of one client
)

// crowd is what clients say of themselves, for all who look at the console.
type crowd struct {
	client *redlatch.Client

	mu   sync.Mutex // guards at and last, and is held while clients are asked
	at   time.Time
	last inspect.Census

	asking sync.Mutex         // guards the answers' map
	asked  map[string]*answer // by the id of the client
}

// answer is what a client says. The one who asks sets it.
type answer struct {
	at     time.Time     // when it was asked
	there  chan struct{} // closed when the rest is set
	report redlatch.ClientReport
	err    error
}

// look returns what the clients say; what they have said if that is not long ago.
func (c *crowd) look(ctx context.Context) inspect.Census {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < crowdFor {
		return c.last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), crowdWait) // others may wait for the same
	defer cancel()
	c.last, c.at = inspect.CensusOf(ctx, c.client, crowdMost), time.Now()
	return c.last
}

// waitsFor returns the calls that wait for an object.
func (c *crowd) waitsFor(ctx context.Context, name string) inspect.Calls {
	said := c.look(ctx)
	return said.WaitsFor(name)
}

// ask returns what a client says; what it has said if that is not long ago.
func (c *crowd) ask(ctx context.Context, id string) (redlatch.ClientReport, error) {
	c.asking.Lock()
	maps.DeleteFunc(c.asked, func(_ string, a *answer) bool { return time.Since(a.at) >= crowdFor })
	a, known := c.asked[id]
	if !known {
		a = &answer{at: time.Now(), there: make(chan struct{})}
		if len(c.asked) < crowdMost {
			c.asked[id] = a
		}
	}
	c.asking.Unlock()
	if !known {
		a.report, a.err = c.client.Ask(context.WithoutCancel(ctx), id) // others may wait for the same
		close(a.there)
	}
	select {
	case <-a.there:
		return a.report, a.err
	case <-ctx.Done():
		return redlatch.ClientReport{}, ctx.Err()
	}
}
