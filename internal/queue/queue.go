package queue

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
)

// Queue is the name of a queue, and the manager that knows it. It is safe for concurrent use.
type Queue struct {
	manager *Manager
	kind    string // see package kinds
	user    string // the name as it was given
	full    string // with the client's prefix
	err     error  // what is wrong with the name
	keys    atomic.Pointer[keys]
}

// Queue returns the queue of that name.
func (m *Manager) Queue(name string) *Queue {
	full := m.core.Prefix + name
	return &Queue{manager: m, kind: kinds.Queue, user: name, full: full, err: core.CheckUserName(name, full)}
}

// Derived returns the queue that belongs to an object of another kind and that name, in the slot of the object's keys. Observers, logs
// and what a client says that it holds have the kind and the name of the object.
func (m *Manager) Derived(kind, name, suffix string) *Queue {
	full := core.Suffixed(m.core.Prefix+name, suffix)
	return &Queue{manager: m, kind: kind, user: name, full: full, err: core.CheckName(full)}
}

// Places returns the names of the queue's keys.
func (q *Queue) Places() Places {
	k := q.names()
	return Places{
		Base: strings.TrimSuffix(k.meta, "meta"), Meta: k.meta, Due: k.due, Flight: k.flight, Bodies: k.bodies, Waiters: k.waiters,
		Claims: k.claims, Errors: k.errors, Channel: k.channel,
	}
}

// names returns the names of the queue's keys, made when they are first needed: a queue that is not used costs nothing.
func (q *Queue) names() *keys {
	k := q.keys.Load()
	if k == nil {
		k = keysOf(q.full)
		q.keys.Store(k)
	}
	return k
}

// Name returns the name as it was given.
func (q *Queue) Name() string { return q.user }

// noun is what it has, for errors.
func (q *Queue) noun() string {
	switch q.kind {
	case kinds.Executor:
		return "task"
	case kinds.Scheduler:
		return "run"
	}
	return "message"
}

// lost is the error of a message whose claim is gone.
func (q *Queue) lost() error { return errs.Of(q.noun(), errs.ErrLost) }

// Check says what is wrong with the name.
func (q *Queue) Check() error { return q.err }

// ready says why a call cannot even be tried.
func (q *Queue) ready(ctx context.Context) error {
	switch {
	case q.err != nil:
		return q.err
	case ctx == nil:
		return core.ErrNilContext
	case ctx.Err() != nil:
		return ctx.Err()
	case q.manager.core.Closed():
		return errs.ErrClosed
	}
	return nil
}

// Terms are those under which a consumer claims messages.
type Terms struct {
	Visibility time.Duration // how long a claim lasts
	Attempts   int           // how often a message is tried; 0 for no limit
	Dedupe     time.Duration // how long an id that a user gave is remembered after its Ack
	Rate       Rate
	Tasks      *Tasks // whose messages are claimed; nil for all messages of a queue without tasks
}

// Rate is how many messages may be claimed in a period, at once and then evenly; any number if Count is 0.
type Rate struct {
	Count  int
	Period time.Duration // whole microseconds
}

// ahead returns how far the time in Redis may be ahead, see rate.lua, if one claim is to be allowed, in µs; -1 without a rate.
func (r Rate) ahead() int64 {
	if r.Count == 0 {
		return -1
	}
	period, count := micros(r.Period), int64(r.Count)
	return period - (period+count-1)/count
}
