package lease

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/engine"
)

// The answer of a renewal may come between a look at the clock and the end of a level that has run out.
func TestErrOfARenewedHoldIsNil(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	e := engine.New(rdb, engine.Config{Lease: 30 * time.Second, Logger: slog.New(slog.DiscardHandler)})
	defer func() {
		e.Close()
		assert.NoError(t, rdb.Close())
	}()
	l := NewSpace(NewRegistry(e, NewOwned()), bare{}).newLease("orders", "a")
	l.state, l.renewAt = holding, never
	l.newHoldLocked(t.Context(), none, 0).fixed = never // a level that lasts
	over := make(chan struct{})                         // closed below
	var renewals sync.WaitGroup
	renewals.Go(func() { // ends with over
		for {
			select {
			case <-over:
				return
			default:
			}
			l.mu.Lock()
			l.end = l.now() + e.Lease
			l.mu.Unlock()
		}
	})
	defer renewals.Wait()
	defer close(over)
	for range 20_000 {
		l.mu.Lock()
		h := l.newHoldLocked(t.Context(), none, 0)
		l.end = l.now()
		l.mu.Unlock()
		err := h.Context().Err()
		l.mu.Lock()
		ended := h.over
		l.unlinkLocked(h)
		l.mu.Unlock()
		require.True(t, err == nil || ended, "%v of a live hold", err)
	}
}
