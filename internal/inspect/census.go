package inspect

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/core"
)

// Census is what clients have said of themselves.
type Census struct {
	Clients []redlatch.ClientInfo            // all that listen
	Reports map[string]redlatch.ClientReport // by id; of those that answered
	Holds   []Hold                           // what was held longest first
	Waits   []Wait                           // likewise
	Losses  []Loss                           // the newest first
	Err     error                            // why nobody could be asked
}

// Hold is something that a client holds.
type Hold struct {
	Client string
	redlatch.HoldInfo
}

// Wait is a call that waits, in a client.
type Wait struct {
	Client string
	redlatch.WaitInfo
}

// Loss is something that a client has lost.
type Loss struct {
	Client string
	redlatch.LossInfo
	// Failover is the server that its client found to have failed over or restarted at about that time; "" if there was none.
	Failover string
}

// failoverNear is how long before or after a loss the failover may be noticed that was its cause: a third of a lease, and more.
const failoverNear = 15 * time.Second

// CensusOf asks clients, at most so many, until ctx ends. They must have the same name prefix.
func CensusOf(ctx context.Context, c *redlatch.Client, most int) (s Census) {
	s.Reports = map[string]redlatch.ClientReport{}
	if s.Clients, s.Err = c.Clients(ctx); s.Err != nil {
		return s
	}
	var asking sync.WaitGroup
	var mu sync.Mutex // guards the reports
	for _, one := range s.Clients[:min(most, len(s.Clients))] {
		asking.Go(func() {
			r, err := c.Ask(ctx, one.ID)
			if err != nil {
				return // it is shown as one that did not answer
			}
			mu.Lock()
			defer mu.Unlock()
			s.Reports[one.ID] = r
		})
	}
	asking.Wait()
	for id, r := range s.Reports {
		for _, h := range r.Holds {
			s.Holds = append(s.Holds, Hold{id, h})
		}
		for _, w := range r.Waits {
			s.Waits = append(s.Waits, Wait{id, w})
		}
		s.Losses = append(s.Losses, Losses(r)...)
	}
	slices.SortFunc(s.Holds, func(a, b Hold) int { return a.Since.Compare(b.Since) })
	slices.SortFunc(s.Waits, func(a, b Wait) int { return a.Since.Compare(b.Since) })
	slices.SortFunc(s.Losses, func(a, b Loss) int { return b.At.Compare(a.At) })
	return s
}

// Ages are since when something is held.
type Ages map[held]time.Time

// held is the name of an object, and the owner id or the permit that holds it.
type held struct{ name, owner string }

// Ages returns since when the clients that answered hold what they hold.
func (s *Census) Ages() Ages {
	all := Ages{}
	for _, h := range s.Holds {
		all[held{h.Name, h.Owner}] = h.Since
	}
	return all
}

// Losses returns what a client has lost, the newest first.
func Losses(r redlatch.ClientReport) (all []Loss) {
	for _, l := range r.Losses {
		loss := Loss{Client: r.ID, LossInfo: l}
		for _, f := range r.Failovers {
			if f.At.Sub(l.At).Abs() <= failoverNear {
				loss.Failover = f.Node
			}
		}
		all = append(all, loss)
	}
	return all
}

// Calls are those that wait for an object, as their clients say.
type Calls struct {
	Waits     []Wait // the longest ones
	MoreWaits int    // that are not listed
}

// WaitsFor returns the calls that wait for an object.
func (s *Census) WaitsFor(name string) (c Calls) {
	for _, w := range s.Waits {
		switch {
		case w.Name != name:
		case len(c.Waits) < core.MostListed:
			c.Waits = append(c.Waits, w)
		default:
			c.MoreWaits++
		}
	}
	return c
}
