package rsemaphore

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/presence"
	"github.com/redlatch/redlatch/internal/script"
)

// SemaphoreInfo is the state of a counting semaphore in Redis at one moment. Nobody knows who has its permits.
type SemaphoreInfo struct {
	// Name is the semaphore's name.
	Name string
	// Available is what [Semaphore.Available] returns.
	Available int
	// Waiting is the number of clients that wait, however many goroutines of each. A client that stopped to wait may
	// count for a second more. It is -1 if it is not known: the user may not run PUBSUB, or a node did not answer.
	Waiting int
}

// Info returns how many permits are available and how many clients wait. It blocks and fails as [Semaphore.Available]
// does, and costs two round trips, on a cluster three, one of them to all nodes at once.
func (s *Semaphore) Info(ctx context.Context) (SemaphoreInfo, error) {
	ctx, end := s.manager.core.Bound(ctx)
	defer end()
	n, err := s.available(ctx)
	if err != nil {
		return SemaphoreInfo{}, s.wrap("info", err)
	}
	return SemaphoreInfo{s.Name(), n, presence.Listening(ctx, s.manager.core, semaphoreChannel(s.key))}, nil
}

// PermitSemaphoreInfo is the state of a semaphore of leased permits in Redis at one moment.
type PermitSemaphoreInfo struct {
	// Name is the semaphore's name.
	Name string
	// Permits is the total number of permits, held ones included. Permits - Available are held, however many there are.
	Permits int
	// Available is what [PermitSemaphore.Available] returns.
	Available int
	// Waiting is the number of clients that wait, however many goroutines of each. A client that stopped to wait may
	// count for a second more. It is -1 if it is not known: the user may not run PUBSUB, or a node did not answer.
	Waiting int
	// Holders are the permits that are held, the first 100 of them. Those that end first, unless they are renewed, come first.
	Holders []Holder
}

// Holder is a permit that is held.
type Holder struct {
	// ID is the permit's id, see [Permit.ID].
	ID string
	// Client are the 16 hexadecimal digits with which the id of the permit's client ends, see redlatch.Client.ID. The
	// ids of Java's permits tell nothing of their client.
	Client string
	// Left is the rest of the lease: negative for one without end, which only Java gives.
	Left time.Duration
}

// Info returns who holds permits and how many clients wait. It blocks and fails as [PermitSemaphore.Available] does, and
// costs two round trips, on a cluster three, one of them to all nodes at once, and time in Redis in proportion to what it
// lists, which is bounded: less than a millisecond.
func (s *PermitSemaphore) Info(ctx context.Context) (PermitSemaphoreInfo, error) {
	ctx, end := s.manager.core.Bound(ctx)
	defer end()
	info, err := s.info(ctx)
	return info, s.wrap("info", err)
}

func (s *PermitSemaphore) info(ctx context.Context) (PermitSemaphoreInfo, error) {
	if err := s.check(); err != nil {
		return PermitSemaphoreInfo{}, err
	}
	key := s.name.Key()
	c, err := s.manager.core.Read(ctx, func() *script.Call { return permitInspectScript.Call(2, key, outKey(key), core.MostListed) })
	if err != nil {
		return PermitSemaphoreInfo{}, err
	}
	info, err := permitsInspected(s.Name(), c)
	if err == nil {
		info.Waiting = presence.Listening(ctx, s.manager.core, semaphoreChannel(key))
	}
	return info, err
}

// permitsInspected reads the reply of permit_inspect.lua.
func permitsInspected(name string, c *script.Call) (PermitSemaphoreInfo, error) {
	row := c.Row()
	free, expired, held := int(row.Int()), int(row.Int()), int(row.Int())
	info := PermitSemaphoreInfo{Name: name, Permits: free + expired + held, Available: free + expired}
	for row.More() {
		h := Holder{ID: idOf(row.Text()), Left: core.Left(row.Int())}
		h.Client = h.ID[:min(len(h.ID), 2*core.UniqueSize)]
		info.Holders = append(info.Holders, h)
	}
	return info, row.Err()
}
