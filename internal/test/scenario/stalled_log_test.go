package scenario_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rlock"
)

// stalled is a log whose lines are not taken until it is let go on.
type stalled struct {
	slog.Handler
	goOn chan struct{}
}

func (s stalled) Handle(context.Context, slog.Record) error { <-s.goOn; return nil }

func (s stalled) WithAttrs([]slog.Attr) slog.Handler { return s }

// F1
func TestStalledLogHoldsUpNoLossAndNoRenewal(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		log := stalled{slog.DiscardHandler, make(chan struct{})}
		c := b.Peer(t, redlatch.WithLogger(slog.New(enabled{log})), redlatch.WithSlowLog(time.Nanosecond, time.Nanosecond))
		var holds []*rlock.Hold
		for i := range 20 {
			holds = append(holds, locktest.Acquire(t, t.Context(), c.GetLock(fmt.Sprint("orders", i))))
		}
		b.Delete(t, "orders0")
		b.Delete(t, "orders1")
		<-holds[0].Context().Done()
		<-holds[1].Context().Done()
		time.Sleep(2 * lease)
		for _, h := range holds[2:] {
			require.NoError(t, h.Context().Err(), "it is renewed on")
			locktest.Unlock(t, h)
		}
		close(log.goOn)
		synctest.Wait()
		assert.ErrorIs(t, context.Cause(holds[0].Context()), rlock.ErrLost)
	})
}

// F16
func TestStalledLogHoldsUpNoClose(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		log := stalled{slog.DiscardHandler, make(chan struct{})}
		c := b.Peer(t, redlatch.WithLogger(slog.New(enabled{log})), redlatch.WithCloseGrace(0))
		locktest.Acquire(t, t.Context(), c.GetLock("orders"))
		c.Blackhole(true)
		closed := locktest.Begin(func() (*rlock.Hold, error) { return nil, c.Close() })
		time.Sleep(4 * time.Second)
		select {
		case o := <-closed:
			assert.NoError(t, o.Err)
		default:
			t.Error("Close has not returned after the grace and 3 s")
		}
		close(log.goOn)
		time.Sleep(4 * time.Second)
	})
}

// F4
func TestStalledLogHoldsUpNoMessage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		log := stalled{slog.DiscardHandler, make(chan struct{})}
		reader, writer := b.Peer(t, redlatch.WithLogger(slog.New(enabled{log}))), b.Peer(t)
		sub, err := redlatch.GetTopic[int](reader.Client, "t").Subscribe(t.Context())
		require.NoError(t, err)
		reader.Cut()
		time.Sleep(5 * time.Second) // in which it subscribes again
		got := make(chan int, 1)
		go func() { // ends with the subscription
			for value, err := range sub.All() {
				if err == nil { // else it is the gap
					got <- value
					return
				}
			}
		}()
		_, err = redlatch.GetTopic[int](writer.Client, "t").Publish(t.Context(), 1)
		require.NoError(t, err)
		synctest.Wait()
		select {
		case value := <-got:
			assert.Equal(t, 1, value)
		default:
			t.Error("nothing is heard while the log stands still")
		}
		close(log.goOn)
		sub.Close()
	})
}

// enabled is a handler that takes every line.
type enabled struct{ slog.Handler }

func (enabled) Enabled(context.Context, slog.Level) bool { return true }

func (e enabled) WithAttrs(a []slog.Attr) slog.Handler { return enabled{e.Handler.WithAttrs(a)} }
