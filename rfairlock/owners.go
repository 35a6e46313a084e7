package rfairlock

import (
	"strings"
	"sync"

	"github.com/redlatch/redlatch/internal/core"
)

// maxSpare is how many owner ids a client keeps for later.
const maxSpare = 1024

// owners makes the owner ids of a client's fair locks. One that has waited is used again, that which was freed last
// first: its wake-up channel is likely to be subscribed still. It is safe for concurrent use.
type owners struct {
	core *core.Core

	mu     sync.Mutex   // guards the rest
	waited map[any]bool // ids that have waited -> it is free
	spare  []any        // the free ones
}

// Waits notes that an id has waited.
func (o *owners) Waits(owner any) {
	if id, _ := owner.(string); !strings.HasPrefix(id, o.core.ID+":") {
		return // the caller's own
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waited[owner] = false
}

// NewOwner returns an id under which nothing is under way.
func (o *owners) NewOwner() any {
	o.mu.Lock()
	defer o.mu.Unlock()
	last := len(o.spare) - 1
	if last < 0 {
		return o.core.NextOwner()
	}
	id := o.spare[last]
	o.spare[last] = nil
	o.spare = o.spare[:last]
	o.waited[id] = false
	return id
}

// Drop forgets an id, which is not used again.
func (o *owners) Drop(owner any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.waited, owner)
}

// Free takes an id back.
func (o *owners) Free(owner any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if free, waited := o.waited[owner]; !waited || free {
		return
	}
	if len(o.spare) == maxSpare {
		delete(o.waited, owner)
		return
	}
	o.waited[owner] = true
	o.spare = append(o.spare, owner)
}
