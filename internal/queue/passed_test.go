package queue_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

// F7: a client looks in for what it has returned, also if it passes on something else at the same time.
func TestReturnedMessageIsNotLateBesideOneThatIsPassedOn(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		c := core.New(b.Redis, core.Config{
			ID: "me", Lease: 30 * time.Second, CloseGrace: time.Second, CallTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
		})
		q := queue.New(c).Queue("jobs")
		claimed := make(chan *queue.Message, 3)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- q.Consume(ctx, queue.Work{
				Terms: queue.Terms{Visibility: 30 * time.Second}, Concurrency: 10, Backoff: func(m *queue.Message) time.Duration { return queue.DefaultBackoff(m.Attempt) }, Timeout: func(*queue.Message) time.Duration { return 0 }, StopGrace: time.Second,
				Handle: func(ctx context.Context, m *queue.Message) error {
					claimed <- m
					<-ctx.Done()
					return nil
				},
			})
		}()
		time.Sleep(time.Second)
		_, _, err := q.Offer(t.Context(), []queue.Item{{Payload: []byte("first")}, {Payload: []byte("passed on")}, {Payload: []byte("returned")}}, queue.Room{})
		require.NoError(t, err)
		all := map[string]*queue.Message{}
		for range 3 {
			m := <-claimed
			all[string(m.Payload)] = m
		}
		start := time.Now()
		all["first"].Return(time.Hour) // while this is in flight the others wait for the next call
		all["passed on"].PassOn(1500 * time.Millisecond)
		all["returned"].Return(time.Second)
		m := <-claimed
		assert.Equal(t, "returned", string(m.Payload))
		assert.WithinDuration(t, start.Add(time.Second), time.Now(), time.Second/10)
		stop()
		require.NoError(t, <-done)
		c.Close()
	})
}
