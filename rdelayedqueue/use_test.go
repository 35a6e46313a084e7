package rdelayedqueue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func TestMiddlewareWrapsTheHandlerOutermostFirst(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		var lines []string
		made := 0
		around := func(name string) func(next rdelayedqueue.Handler[job]) rdelayedqueue.Handler[job] {
			return func(next rdelayedqueue.Handler[job]) rdelayedqueue.Handler[job] {
				made++
				return func(ctx context.Context, m *rdelayedqueue.Message[job]) error {
					lines = append(lines, name+" begins")
					err := next(ctx, m)
					lines = append(lines, name+" ends")
					return err
				}
			}
		}
		consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
			lines = append(lines, "handler")
			return nil
		}, rdelayedqueue.Use(around("a"), around("b")), rdelayedqueue.Use(around("c")))
		offer(t, q, "1", 0)
		offer(t, q, "2", 0)
		time.Sleep(time.Second)
		synctest.Wait()
		once := []string{"a begins", "b begins", "c begins", "handler", "c ends", "b ends", "a ends"}
		assert.Equal(t, append(once, once...), lines)
		assert.Equal(t, 3, made, "and not for each message")
	})
}

func TestMiddlewareMayEndAMessageWithoutItsHandler(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		skip := func(rdelayedqueue.Handler[job]) rdelayedqueue.Handler[job] {
			return func(context.Context, *rdelayedqueue.Message[job]) error { return nil }
		}
		consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
			assert.Fail(t, "it was called")
			return nil
		}, rdelayedqueue.Use(skip))
		offer(t, q, "1", 0)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, q))
	})
}

func TestBadMiddlewareIsInvalid(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		q := jobs(b.Peer(t))
		for name, use := range map[string]rdelayedqueue.ConsumeOption{
			"nil":             rdelayedqueue.Use[job](nil),
			"another type":    rdelayedqueue.Use(func(next rdelayedqueue.Handler[string]) rdelayedqueue.Handler[string] { return next }),
			"of no handler":   rdelayedqueue.Use(func(rdelayedqueue.Handler[job]) rdelayedqueue.Handler[job] { return nil }),
			"a bad one later": rdelayedqueue.Use(func(next rdelayedqueue.Handler[job]) rdelayedqueue.Handler[job] { return next }, nil),
		} {
			err := q.Consume(t.Context(), func(context.Context, *rdelayedqueue.Message[job]) error { return nil }, use)
			require.ErrorIs(t, err, redlatch.ErrInvalid, name)
			assert.Contains(t, err.Error(), "middleware", name)
		}
	})
}

// F8: a handler that gives up makes its message a dead letter at once, although attempts are left.
func TestHandlerThatRejectsMakesADeadLetter(t *testing.T) {
	refused := errors.New("card refused")
	for name, c := range map[string]struct {
		err  error
		text string
	}{
		"an error": {rdelayedqueue.Reject(refused), "card refused"},
		"wrapped":  {fmt.Errorf("charge: %w", rdelayedqueue.Reject(refused)), "charge: card refused"},
		"joined":   {errors.Join(errors.New("rolled back"), rdelayedqueue.Reject(refused)), "rolled back\ncard refused"},
		"no error": {rdelayedqueue.Reject(nil), "rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				var seen error
				q := jobs(b.Peer(t, redlatch.WithObserver(redlatch.Observer{HandleEnd: func(_ context.Context, e redlatch.HandleEndEvent) { seen = e.Err }})))
				attempts := 0
				consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
					attempts++
					return c.err
				})
				id := offer(t, q, "1", 0)
				time.Sleep(time.Hour)
				synctest.Wait()
				assert.Equal(t, 1, attempts)
				assert.Equal(t, rdelayedqueue.Stats{Dead: 1}, stats(t, q))
				e, err := q.Get(t.Context(), id)
				require.NoError(t, err)
				assert.Equal(t, c.text, e.Error)
				assert.Equal(t, c.err, seen)
			})
		})
	}
	assert.ErrorIs(t, rdelayedqueue.Reject(refused), refused)
}

// F8: also in an outage that begins beside it.
func TestRejectionOutlivesAnOutage(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		q, attempts := jobs(p), 0
		consume(t, q, func(context.Context, *rdelayedqueue.Message[job]) error {
			attempts++
			p.Down(true)
			time.AfterFunc(10*time.Second, func() { p.Down(false) })
			return rdelayedqueue.Reject(errors.New("card refused"))
		})
		offer(t, q, "1", time.Second) // the outage must not begin before the offer is answered
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, attempts)
		assert.Equal(t, rdelayedqueue.Stats{Dead: 1}, stats(t, q))
	})
}
