package rdelayedqueue_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// F18
func TestServersClockDecides(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				q := jobs(b.Peer(t))
				server := time.Now().Add(ahead)
				b.Mini.SetTime(server) // it stands still
				handled := make(chan time.Time, 2)
				consume(t, q, func(_ context.Context, m *rdelayedqueue.Message[job]) error {
					handled <- m.DueAt
					return nil
				})
				offer(t, q, "a", time.Minute)
				time.Sleep(time.Hour)
				synctest.Wait()
				assert.Empty(t, handled, "no time has passed for the server")
				b.Mini.SetTime(server.Add(time.Minute + time.Millisecond))
				time.Sleep(time.Minute)
				synctest.Wait()
				assert.WithinDuration(t, server.Add(time.Minute), <-handled, time.Millisecond)
			})
		})
	}
}
