package console

import (
	"context"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
)

const (
	crowdFor  = sharedFor // how long answers are shown: a client answers ten questions a second
	crowdWait = time.Second
	crowdMost = 50 // clients that are asked
)

// crowd is what clients say of themselves, for all who look at the console.
type crowd struct {
	client *redlatch.Client

	mu   sync.Mutex // guards at and last, and is held while clients are asked
	at   time.Time
	last inspect.Census

	asked shared[redlatch.ClientReport] // by the id of the client
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
	return c.asked.get(ctx, id, func(ctx context.Context) (redlatch.ClientReport, error) { return c.client.Ask(ctx, id) })
}
