package rfairlock

import (
	"strings"
	"sync"

	"github.com/redlatch/redlatch/internal/engine"
)

// maxSpare is how many owner ids a client keeps for later.
const maxSpare = 1024

// owners makes the owner ids of a client's waiters. The one that was freed last is used first: its wake-up channel is
// likely to be subscribed still. It is safe for concurrent use.
type owners struct {
	engine *engine.Engine

	mu    sync.Mutex // guards spare
	spare []any
}

// NewOwner returns an id under which nothing is under way.
func (o *owners) NewOwner() any {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := len(o.spare) - 1
	if last < 0 {
		return o.engine.NextOwner()
	}
	id := o.spare[last]
	o.spare[last] = nil
	o.spare = o.spare[:last]
	return id
}

// Free takes an id back. One of the caller's own is not kept.
func (o *owners) Free(owner any) {
	if id, _ := owner.(string); !strings.HasPrefix(id, o.engine.ID+":") {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.spare) < maxSpare {
		o.spare = append(o.spare, owner)
	}
}
