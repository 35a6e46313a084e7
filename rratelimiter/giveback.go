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

// giveBacks are some of a key, and all that began before them.
type giveBacks struct {
	// Guarded by the mutex of the shard.
	left    int        // that have not ended; those before count as one
	awaited bool       // the next to begin are no part of these: who waits would wait for ever if others always begin
	next    *giveBacks // those that began after

	over chan struct{} // closed with the last one
}

// begin counts one of a key, until end.
func (m *manager) begin(key string) *giveBacks {
	shard := m.giving.Shard(key)
	shard.Lock()
	defer shard.Unlock()
	g := shard.Of[key]
	if g == nil || g.awaited {
		last := g
		g = &giveBacks{over: make(chan struct{})}
		if last != nil {
			last.next = g
			g.left++
		}
		shard.Of[key] = g
	}
	g.left++
	return g
}

func (m *manager) end(key string, g *giveBacks) {
	shard := m.giving.Shard(key)
	shard.Lock()
	defer shard.Unlock()
	for ; g != nil; g = g.next {
		if g.left--; g.left > 0 {
			return
		}
		if g.next == nil {
			delete(shard.Of, key)
		}
		close(g.over)
	}
}

// send gives a reservation back in the background, as one of those that begin has returned. If it fails the tokens are lost, and nobody needs to know.
func (m *manager) send(giveBack *script.Call, g *giveBacks) {
	m.core.Begin()
	ended := func(*script.Call) {
		m.end(giveBack.Key(), g)
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

	giving *giveBacks // from Leave on
}

func (l *late) Leave() { l.giving = l.manager.begin(l.key) }
func (l *late) Stay()  { l.manager.end(l.key, l.giving) }

func (l *late) Late(c *script.Call) {
	if giveBack := l.of(c); giveBack != nil {
		l.manager.send(giveBack, l.giving)
		return
	}
	l.manager.end(l.key, l.giving)
}

// settle waits until what was given back of a key before it has ended, for some time: calls on other connections may
// overtake it.
func (m *manager) settle(ctx context.Context, key string) {
	shard := m.giving.Shard(key)
	shard.Lock()
	g := shard.Of[key]
	if g != nil {
		g.awaited = true
	}
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
