package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/script"
)

// reloadPause is the least time between two reloads of a cluster's layout, and up to half of it more.
const reloadPause = 300 * time.Millisecond

// layout has a cluster client load its layout anew when a node does not answer. Go-redis does so when a node redirects a
// call, which a dead one does not, or after a minute.
type layout struct {
	cluster *redis.ClusterClient // nil for a client that is not one
	life    context.Context      //nolint:containedctx // the batcher's own

	mu    sync.Mutex // guards what follows
	state reload
}

// reload says where the layout is between two reloads.
type reload int

const (
	reloadIdle   reload = iota
	reloadPaused        // one has begun lately
	reloadAsked         // as before, and another one is to follow
)

// doubt asks for a new layout if the error of a call says that its node is gone or silent.
func (l *layout) doubt(err error) {
	if l.cluster == nil || err == nil {
		return
	}
	if script.Refused(err) || errors.Is(err, script.ErrTurnedAway) || script.Judge(err) == script.Unknown {
		l.reload()
	}
}

// reload asks for a new layout now, or when the pause after the last one is over.
func (l *layout) reload() {
	if l.cluster == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != reloadIdle {
		l.state = reloadAsked // a replica may have taken over since the last one
		return
	}
	l.startLocked()
}

func (l *layout) startLocked() {
	if l.life.Err() != nil {
		return
	}
	l.state = reloadPaused
	l.cluster.ReloadState(l.life) // it returns at once
	time.AfterFunc(reloadPause+rand.N(reloadPause/2), l.rested)
}

func (l *layout) rested() {
	l.mu.Lock()
	defer l.mu.Unlock()
	again := l.state == reloadAsked
	l.state = reloadIdle
	if again {
		l.startLocked()
	}
}
