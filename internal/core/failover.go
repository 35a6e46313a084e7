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

const (
	replicationPause = time.Second // after a server was asked
	refusedPause     = time.Minute // after it refused to answer
)

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
	run   string      // the server's id of its own, which it has from its start to its end; "" before it has answered
	key   string      // ask again after the pause, whichever server has this key then; "" if nobody has to know
	until time.Duration
}

// LookForFailover asks the server that has a key for its replication id, beside a renewal, at most once a second. If that has
// changed, every hold of the client is verified at once, and not only when its renewal is due. Without an answer it asks again,
// for a lease: the renewal may have found its lease gone, and then no other one follows.
func (c *Core) LookForFailover(key string) { c.look(key, c.Clock.Now()+c.Lease) }

func (c *Core) look(key string, until time.Duration) {
	node, server := "", c.Batch.Master(key)
	if server != nil {
		node = server.Options().Addr
	}
	f := &c.histories
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
	if q.busy {
		q.key, q.until = key, until
		return
	}
	q.busy = c.Batch.Go(server, func(ctx context.Context, rdb *redis.Client) {
		pipe := rdb.Pipeline()
		of, replication := pipe.InfoMap(ctx, "server"), pipe.InfoMap(ctx, "replication") // Redis 6.2 takes one at a time
		_, err := pipe.Exec(ctx)
		c.learn(node, q, err, answer{
			run: of.Item("Server", "run_id"), role: replication.Item("Replication", "role"),
			id: replication.Item("Replication", "master_replid"), before: replication.Item("Replication", "master_replid2"),
		}, key, until)
	})
}

// answer is what a server says of itself: its own id, its role, and the replication ids of now and before.
type answer struct{ run, role, id, before string }

// learn takes a server's answer.
func (c *Core) learn(node string, q *questions, err error, a answer, key string, until time.Duration) {
	f := &c.histories
	f.mu.Lock()
	changed, pause := false, replicationPause
	switch {
	case refused(err) || err == nil && (a.id == "" || a.run == ""):
		q.key, pause = "", refusedPause
	case err != nil || a.role != "master":
		q.key, q.until = key, max(q.until, until)
	default:
		changed = f.changed(q, a)
	}
	f.mu.Unlock()
	c.Timers.Set(&q.timer, c.Clock.Now()+pause)
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
	f := &q.core.histories
	f.mu.Lock()
	key, until := q.key, q.until
	q.busy, q.key, q.until = false, "", 0
	f.mu.Unlock()
	if key != "" && now < until {
		q.core.look(key, until)
	}
}

// changed reports whether a server goes on with another history than before: it is not the one that was at this address, or it has taken
// the place of one that the client knows. The replication id alone does not say so: a master takes a new one for its first replica.
func (f *failovers) changed(q *questions, a answer) bool {
	changed := !f.ids[a.id] && (q.run != "" && q.run != a.run || f.ids[a.before])
	q.run, f.ids[a.id] = a.run, true
	return changed
}

// verify asks for every hold.
func (c *Core) verify(node string) {
	if c.Closed() {
		return
	}
	for _, h := range c.Holders() {
		h.Verify()
	}
	c.Events.FailedOver(node) // last, as an observer may take long
}
