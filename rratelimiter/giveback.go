package rratelimiter

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// patience is how long a call waits for what was given back before it. Redis may be silent.
const patience = 250 * time.Millisecond

// manager is a client's state for its limiters: the keys of which reservations are being given back.
type manager struct {
	core   *core.Core
	giving *core.Table[*giveBacks]
}

func newManager(c *core.Core) *manager { return &manager{c, core.NewTable[*giveBacks]()} }

// giveBacks are those of a key that have not ended.
type giveBacks struct {
	left int           // guarded by the mutex of the shard
	over chan struct{} // closed with the last one
}

// begin counts one of a key, until end.
func (m *manager) begin(key string) {
	shard := m.giving.Shard(key)
	shard.Lock()
	defer shard.Unlock()
	g := shard.Of[key]
	if g == nil {
		g = &giveBacks{over: make(chan struct{})}
		shard.Of[key] = g
	}
	g.left++
}

func (m *manager) end(key string) {
	shard := m.giving.Shard(key)
	shard.Lock()
	defer shard.Unlock()
	g := shard.Of[key]
	if g.left--; g.left == 0 {
		delete(shard.Of, key)
		close(g.over)
	}
}

// send gives a reservation back in the background, after begin. If it fails the tokens are lost, and nobody needs to know.
func (m *manager) send(giveBack *script.Call) {
	m.core.Begin()
	ended := func(*script.Call) {
		m.end(giveBack.Key())
		m.core.End()
	}
	if !m.core.Batch.Start(giveBack, pipeline.Urgent, ended) {
		ended(giveBack)
	}
}

// late gives back what a call has reserved whose caller has left before the answer.
type late struct {
	manager *manager
	key     string
	// of returns what gives back the reservation of a call, nil if it has made none.
	of func(*script.Call) *script.Call
}

func (l *late) Leave() { l.manager.begin(l.key) }
func (l *late) Stay()  { l.manager.end(l.key) }

func (l *late) Late(c *script.Call) {
	if giveBack := l.of(c); giveBack != nil {
		l.manager.send(giveBack)
		return
	}
	l.manager.end(l.key)
}

// settle waits until what was given back of a key has ended, for some time: calls on other connections may overtake it.
func (m *manager) settle(ctx context.Context, key string) {
	shard := m.giving.Shard(key)
	shard.Lock()
	g := shard.Of[key]
	shard.Unlock()
	if g == nil {
		return
	}
	timer := time.NewTimer(min(patience, m.core.CallTimeout))
	defer timer.Stop()
	select {
	case <-g.over:
	case <-timer.C:
	case <-ctx.Done():
	case <-m.core.Closing():
	}
}
