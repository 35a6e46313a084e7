package core

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/timer"
)

const replicationPause = time.Second // after a server was asked

// failovers recognises a server that goes on with another history of writes than the client knows: a replica that has taken
// its master's place, or a server that has restarted. It may lack what was granted last.
type failovers struct {
	mu    sync.Mutex
	nodes map[string]*questions // by address
	ids   map[string]bool       // replication ids that servers have told
}

// questions are those to one server, one at a time and with a pause after each.
type questions struct {
	core  *Core
	timer timer.Timer // for the end of the pause
	busy  bool        // asked, or in the pause after it
	told  bool        // it has answered
	off   bool        // it refuses to answer
	key   string      // ask again after the pause, whichever server has this key then; "" if nobody has to know
	until time.Duration
}

// LookForFailover asks the server that has a key for its replication id, beside a renewal, at most once a second. If that has
// changed, every hold of the client is verified at once, and not only when its renewal is due. Without an answer it asks again,
// for a lease: the renewal may have found its lease gone, and then no other one follows.
func (c *Core) LookForFailover(key string) { c.look(key, c.Clock.Now()+c.Lease) }

func (c *Core) look(key string, until time.Duration) {
	node := c.Batch.Node(key)
	f := &c.failovers
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.nodes[node]
	if q == nil {
		if f.nodes == nil {
			f.nodes, f.ids = map[string]*questions{}, map[string]bool{}
		}
		q = &questions{core: c}
		q.timer.Task = q
		f.nodes[node] = q
	}
	switch {
	case q.off:
	case q.busy:
		q.key, q.until = key, until
	default:
		q.busy = c.Batch.OnNode(key, func(ctx context.Context, rdb *redis.Client) {
			c.learn(node, q, key, until, rdb.InfoMap(ctx, "replication"))
		})
	}
}

// learn takes a server's answer.
func (c *Core) learn(node string, q *questions, key string, until time.Duration, answer *redis.InfoCmd) {
	f := &c.failovers
	f.mu.Lock()
	changed, err := false, answer.Err()
	id, role := answer.Item("Replication", "master_replid"), answer.Item("Replication", "role")
	switch {
	case refused(err) || err == nil && id == "":
		q.off = true
	case err != nil || role != "master":
		q.key, q.until = key, max(q.until, until)
	default:
		changed = f.changed(q, id, answer.Item("Replication", "master_replid2"))
	}
	f.mu.Unlock()
	c.Timers.Set(&q.timer, c.Clock.Now()+replicationPause)
	if changed {
		c.verify(node)
	}
}

// refused reports whether a server may not be asked, or does not know the question.
func refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && (strings.HasPrefix(reply.Error(), "NOPERM") || strings.HasPrefix(reply.Error(), "ERR"))
}

// Due ends the pause.
func (q *questions) Due(now time.Duration) {
	f := &q.core.failovers
	f.mu.Lock()
	key, until := q.key, q.until
	q.busy, q.key, q.until = false, "", 0
	f.mu.Unlock()
	if key != "" && now < until {
		q.core.look(key, until)
	}
}

// changed reports whether a server goes on with another history than before. A server that the client did not know does so if the
// client knows the id before.
func (f *failovers) changed(q *questions, id, before string) bool {
	changed := !f.ids[id] && (q.told || f.ids[before])
	q.told, f.ids[id] = true, true
	return changed
}

// verify asks for every hold.
func (c *Core) verify(node string) {
	if c.Closed() {
		return
	}
	c.warn("redlatch: Redis has failed over or restarted; all holds are verified", "node", node)
	if hook := c.Hooks.FailedOver; hook != nil {
		hook(node)
	}
	for _, h := range c.registered() {
		h.Verify()
	}
}
