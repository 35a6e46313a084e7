package core

import (
	_ "embed"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

//go:embed replication.lua
var replicationSource string

var replication = script.New(replicationSource) //nolint:gochecknoglobals // a constant in all but name

const replicationPause = time.Second // after a server was asked

// failovers recognises a server that goes on with another history of writes than the client knows: a replica that has taken
// its master's place, or a server that has restarted. It may lack what was granted last.
type failovers struct {
	mu    sync.Mutex
	off   bool                     // a server does not tell its replication id
	nodes map[string]time.Duration // when each was asked, by address
	told  map[string]bool          // the nodes that have answered
	ids   map[string]bool          // their replication ids
}

// LookForFailover asks the server that has a key for its replication id, beside a renewal, at most once a second. If that has
// changed, every hold of the client is verified at once, and not only when its renewal is due. Without an answer it asks again,
// for a lease: the renewal may have found its lease gone, and then no other one follows.
func (c *Core) LookForFailover(key string) { c.lookForFailover(key, c.Clock.Now()+c.Lease) }

func (c *Core) lookForFailover(key string, until time.Duration) {
	node, now := c.Batch.Node(key), c.Clock.Now()
	if node == "" || now >= until {
		return
	}
	f := &c.failovers
	f.mu.Lock()
	asked, known := f.nodes[node]
	skip := f.off || known && now-asked < replicationPause
	if !skip {
		if f.nodes == nil {
			f.nodes, f.told, f.ids = map[string]time.Duration{}, map[string]bool{}, map[string]bool{}
		}
		f.nodes[node] = now
	}
	f.mu.Unlock()
	if skip {
		return
	}
	c.Batch.Start(replication.Call(1, key), pipeline.Normal, func(call *script.Call) {
		ids, err := call.StringSlice()
		if err != nil {
			f.mu.Lock()
			delete(f.nodes, node)
			f.mu.Unlock()
			time.AfterFunc(replicationPause, func() { c.lookForFailover(key, until) })
			return
		}
		if f.changed(node, ids) {
			c.Workers.Go(func() { c.verify(node) })
		}
	})
}

// changed takes a server's answer, and reports whether it goes on with another history. A node that the client did not know does so
// if its id before is known.
func (f *failovers) changed(node string, ids []string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(ids) < 2 {
		f.off = true
		return false
	}
	id, before := ids[0], ids[1]
	changed := !f.ids[id] && (f.told[node] || f.ids[before])
	f.told[node], f.ids[id] = true, true
	return changed
}

// verify asks for every hold.
func (c *Core) verify(node string) {
	if c.Closed() {
		return
	}
	c.Logger.Warn("redlatch: Redis has failed over or restarted; all holds are verified", "node", node)
	if hook := c.Hooks.FailedOver; hook != nil {
		hook(node)
	}
	for _, h := range c.registered() {
		h.Verify()
	}
}
