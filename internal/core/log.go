package core

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/script"
)

// lines are what is to be logged by a goroutine that exists while there is any: a log that stands still must hold up no lease, no
// renewal, no subscription and no Close.
type lines struct {
	plain   slog.Handler // the user's, for a line about the log itself
	mu      sync.Mutex   // guards the rest
	waiting []func()
	written chan struct{} // closed when none is left; nil while none is written
	dropped int
}

// mostLines is how many lines may wait; what comes then is counted.
const mostLines = 10_000

// queued is the handler of the client's logger. It has a line logged soon, after those before it.
type queued struct {
	*lines
	to slog.Handler // the user's, with attributes
}

// Enabled asks the user's handler.
func (q queued) Enabled(ctx context.Context, level slog.Level) bool { return q.to.Enabled(ctx, level) }

// Handle returns at once.
func (q queued) Handle(ctx context.Context, r slog.Record) error {
	q.add(func() { _ = q.to.Handle(ctx, r) }) // as for a slog.Logger, nobody can be told
	return nil
}

// WithAttrs adds attributes to the lines.
func (q queued) WithAttrs(attributes []slog.Attr) slog.Handler {
	return queued{q.lines, q.to.WithAttrs(attributes)}
}

// WithGroup puts the attributes of the lines into a group.
func (q queued) WithGroup(name string) slog.Handler { return queued{q.lines, q.to.WithGroup(name)} }

// add has a line logged.
func (l *lines) add(line func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == mostLines {
		l.dropped++
		return
	}
	l.waiting = append(l.waiting, line)
	if l.written == nil {
		l.written = make(chan struct{})
		go l.write(l.written) // ends when none waits
	}
}

// await waits until all lines are written, but not for long.
func (l *lines) await(limit time.Duration) {
	l.mu.Lock()
	written := l.written
	l.mu.Unlock()
	if written == nil {
		return
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-written:
	case <-timer.C:
	}
}

func (l *lines) write(written chan<- struct{}) {
	defer close(written)
	for {
		l.mu.Lock()
		some, dropped := l.waiting, l.dropped
		l.waiting, l.dropped = nil, 0
		if len(some) == 0 {
			l.written = nil
		}
		l.mu.Unlock()
		if len(some) == 0 {
			return
		}
		for _, line := range some {
			line()
		}
		if dropped > 0 {
			slog.New(l.plain).Warn("redlatch: the log is too slow, and lines were dropped", "lines", dropped)
		}
	}
}

// Trouble logs the first failure of something that is tried until it succeeds, and the first success after that.
type Trouble struct {
	mu    sync.Mutex // guards all
	lasts bool
	since time.Duration
}

// Note says what came of a try: the line is for the first failure, and over for the end.
func (t *Trouble) Note(c *Core, err error, line, over, kind, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lasts == (err != nil) {
		return
	}
	t.lasts = err != nil
	if t.lasts {
		t.since = c.Clock.Now()
		c.Logger.Warn(line, "kind", kind, "name", name, "cause", err)
		return
	}
	c.Logger.Info(over, "kind", kind, "name", name, "length", c.Clock.Now()-t.since)
}

// Lost says that something ended just now although nobody released it. The cause is the error for who held it.
func (c *Core) Lost(l LossInfo, cause error) {
	l.At = c.Clock.Time(c.Clock.Now())
	c.losses.add(l)
	c.HoldEnded(l.Kind, l.Name, l.Owner, l.Held, cause)
}

// LogLost logs a loss. The noun is what was lost.
func (c *Core) LogLost(noun string, l LossInfo, cause error) {
	attributes := []any{"kind", l.Kind, "name", l.Name, "owner", l.Owner, "cause", cause}
	if l.Site != "" {
		attributes = append(attributes, "site", l.Site)
	}
	c.Logger.Warn("redlatch: a "+noun+" was lost", attributes...)
}

// DeadLetter says that a message has become one.
func (c *Core) DeadLetter(kind, queue, id string, attempt int, cause string) {
	c.Logger.Warn("redlatch: a message became a dead letter",
		"kind", kind, "name", queue, "id", id, "attempt", attempt, "cause", cause)
	if f := c.Hooks.DeadLetter; f != nil {
		f(context.Background(), DeadLetter{Kind: kind, Name: queue, ID: id, Attempt: attempt, Cause: cause}) //nolint:forbidigo // nobody's
	}
}

// selfWait is how long a call waits for a hold of its own client until that is logged.
const selfWait = 5 * time.Second

// WaitsForItself reports whether a call that began to wait at one time for a hold of its own client of another time is to be logged.
func WaitsForItself(now, waits, held time.Duration) bool {
	return waits > 0 && now-max(waits, held) >= selfWait
}

// SelfWait says that a call of this client waits for a hold of this client.
func (c *Core) SelfWait(kind, name, owner string, waited time.Duration) {
	c.Logger.Warn("redlatch: a call waits for a lock that this client holds; only a call under the hold's context nests",
		"kind", kind, "name", name, "owner", owner, "waited", waited)
}

// slow adds the lines of a slow log to what is observed.
func (c *Core) slow() {
	if limit := c.SlowWait; limit > 0 {
		c.Hooks.AcquireEnd = two(func(_ context.Context, e AcquireEnd) {
			if e.Waited < limit || errors.Is(e.Err, context.Canceled) {
				return
			}
			attributes := []any{"kind", e.Kind, "name", e.Name, "owner", e.Owner, "waited", e.Waited}
			if e.Err != nil {
				attributes = append(attributes, "cause", e.Err)
			}
			c.Logger.Warn("redlatch: a call waited long", attributes...)
		}, c.Hooks.AcquireEnd)
	}
	if limit := c.SlowHold; limit > 0 {
		c.Hooks.HoldEnd = two(func(_ context.Context, e HoldEnd) {
			if e.Held >= limit && e.Err == nil { // a loss is logged anyway
				c.Logger.Warn("redlatch: a hold lasted long", "kind", e.Kind, "name", e.Name, "owner", e.Owner, "held", e.Held)
			}
		}, c.Hooks.HoldEnd)
	}
}

// outages are those of nodes on which renewals fail. The first failure is logged, and the first success after it.
type outages struct {
	open atomic.Int32 // length of all
	mu   sync.Mutex   // guards all
	all  []outage
}

// outage is that of the node that has the key: another one after a failover.
type outage struct {
	key   string
	since time.Duration
}

// Renewed says what came of a call that renewed leases or messages, among them that of the key: how many were renewed and how many
// were lost.
func (c *Core) Renewed(key string, renewed, lost int, err error) {
	o := &c.outages
	switch {
	case err != nil && script.Parted(err): // of a slot on the move: what it names is renewed in parts
	case err != nil:
		if o.begins(key, c.Clock.Now(), c.Batch.Node) {
			c.Logger.Warn("redlatch: renewals fail", "node", c.Batch.Node(key), "cause", err)
		}
	case o.open.Load() > 0:
		if since, ended := o.ended(key, c.Batch.Node); ended {
			node, length := c.Batch.Node(key), c.Clock.Now()-since
			c.Logger.Info("redlatch: renewals succeed again", "node", node, "length", length)
		}
	}
	if err != nil {
		renewed, lost = 0, 0
	}
	if f := c.Hooks.Renewed; f != nil {
		f(renewed, lost, err)
	}
}

// begins notes that the renewal of a key failed, and reports whether it is the first one on its node.
func (o *outages) begins(key string, now time.Duration, nodeOf func(key string) string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ofLocked(nodeOf(key), nodeOf) >= 0 {
		return false
	}
	o.all = append(o.all, outage{key, now})
	o.open.Add(1)
	return true
}

// ended notes that the renewal of a key succeeded, and returns since when they had failed on its node, if they had.
func (o *outages) ended(key string, nodeOf func(key string) string) (since time.Duration, was bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.ofLocked(nodeOf(key), nodeOf)
	if i < 0 {
		return 0, false
	}
	since = o.all[i].since
	o.all = slices.Delete(o.all, i, i+1)
	o.open.Add(-1)
	return since, true
}

func (o *outages) ofLocked(node string, nodeOf func(key string) string) int {
	return slices.IndexFunc(o.all, func(one outage) bool { return nodeOf(one.key) == node })
}
