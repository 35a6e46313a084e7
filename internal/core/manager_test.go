package core_test

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/core"
)

type lockManager struct{ core *core.Core }

type queueManager struct{ core *core.Core }

// holder counts how often Close asks it.
type holder struct{ closed atomic.Int32 }

func (h *holder) Closing()           { h.closed.Add(1) }
func (h *holder) Verify()            {}
func (*holder) Open() int            { return 0 }
func (*holder) Drain(time.Duration)  {}
func (*holder) Wait(until time.Time) {}

func idle(t *testing.T) *core.Core {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	c := core.New(rdb, core.Config{Lease: 30 * time.Second, CallTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		c.Close()
		assert.NoError(t, rdb.Close())
	})
	return c
}

func TestManagerOfATypeIsMadeOnce(t *testing.T) {
	c := idle(t)
	var made atomic.Int32
	makeLocks := func(c *core.Core) *lockManager {
		made.Add(1)
		return &lockManager{c}
	}
	got := make([]*lockManager, 20)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i] = core.Manager(c, makeLocks) })
	}
	all.Wait()
	require.Equal(t, int32(1), made.Load())
	for _, m := range got {
		require.Same(t, got[0], m)
	}
	assert.Same(t, c, got[0].core)
	queues := core.Manager(c, func(c *core.Core) *queueManager { return &queueManager{c} })
	assert.Same(t, c, queues.core, "another type has a manager of its own")
	other := idle(t)
	assert.NotSame(t, got[0], core.Manager(other, makeLocks), "and so has another client")
}

func TestCloseAsksManagersThatWereMadeLate(t *testing.T) {
	c := idle(t)
	late := core.Manager(c, func(c *core.Core) *holder {
		h := &holder{}
		c.Register(h)
		return h
	})
	c.Close()
	assert.Equal(t, int32(1), late.closed.Load())
}
