package rdelayedqueue_test

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// held is a message that a client has, and its queue.
type held struct {
	*rdelayedqueue.Queue[job]
	message *rdelayedqueue.Message[job]
}

// blockingCall is a method that waits for Redis, and what it returns when its context ends before Redis answers.
type blockingCall struct {
	name string
	call func(ctx context.Context, h held) error
	want error
}

// blocking is all of them.
var blocking = []blockingCall{
	{"Offer", func(ctx context.Context, h held) error { return second(h.Offer(ctx, job{}, 0)) }, context.DeadlineExceeded},
	{"OfferAt", func(ctx context.Context, h held) error { return second(h.OfferAt(ctx, job{}, time.Now())) }, context.DeadlineExceeded},
	{"OfferNew", func(ctx context.Context, h held) error {
		_, _, err := h.OfferNew(ctx, job{}, 0, rdelayedqueue.WithID("new"))
		return err
	}, context.DeadlineExceeded},
	{"OfferBatch", func(ctx context.Context, h held) error {
		return second(h.OfferBatch(ctx, make([]rdelayedqueue.Item[job], 250)))
	}, context.DeadlineExceeded},
	{"Cancel", func(ctx context.Context, h held) error { return second(h.Cancel(ctx, "id")) }, context.DeadlineExceeded},
	{"Reschedule", func(ctx context.Context, h held) error {
		return second(h.Reschedule(ctx, "id", time.Second))
	}, context.DeadlineExceeded},
	{"Take", func(ctx context.Context, h held) error { return second(h.Take(ctx)) }, context.DeadlineExceeded},
	{"TakeBatch", func(ctx context.Context, h held) error { return second(h.TakeBatch(ctx, 10)) }, context.DeadlineExceeded},
	{"Get", func(ctx context.Context, h held) error { return second(h.Get(ctx, "id")) }, context.DeadlineExceeded},
	{"All", func(ctx context.Context, h held) (failed error) {
		for _, err := range h.All(ctx, rdelayedqueue.Ready) {
			failed = err
		}
		return failed
	}, context.DeadlineExceeded},
	{"Dead", func(ctx context.Context, h held) error { return second(h.Dead(ctx, 10)) }, context.DeadlineExceeded},
	{"Stats", func(ctx context.Context, h held) error { return second(h.Stats(ctx)) }, context.DeadlineExceeded},
	{"Series", func(ctx context.Context, h held) error { return second(h.Series(ctx)) }, context.DeadlineExceeded},
	{"Redrive", func(ctx context.Context, h held) error { return second(h.Redrive(ctx, "id")) }, context.DeadlineExceeded},
	{"RedriveAll", func(ctx context.Context, h held) error { return second(h.RedriveAll(ctx)) }, context.DeadlineExceeded},
	{"Purge", func(ctx context.Context, h held) error { return second(h.Purge(ctx)) }, context.DeadlineExceeded},
	{"Pause", func(ctx context.Context, h held) error { return h.Pause(ctx) }, context.DeadlineExceeded},
	{"PauseFor", func(ctx context.Context, h held) error { return h.PauseFor(ctx, time.Second) }, context.DeadlineExceeded},
	{"Resume", func(ctx context.Context, h held) error { return h.Resume(ctx) }, context.DeadlineExceeded},
	{"Extend", func(ctx context.Context, h held) error { return h.message.Extend(ctx, time.Minute) }, context.DeadlineExceeded},
	{"Ack", func(ctx context.Context, h held) error { return h.message.Ack(ctx) }, redlatch.ErrUnknown},
	{"Nack", func(ctx context.Context, h held) error { return h.message.Nack(ctx, 0) }, redlatch.ErrUnknown},
	{"Successor", func(ctx context.Context, h held) error { return h.message.Successor(ctx, job{}, 0) }, redlatch.ErrUnknown},
	{"Snooze", func(ctx context.Context, h held) error { return h.message.Snooze(ctx, 0) }, redlatch.ErrUnknown},
	{"Reject", func(ctx context.Context, h held) error { return h.message.Reject(ctx, "") }, redlatch.ErrUnknown},
	{"Consume", func(ctx context.Context, h held) error {
		return h.Consume(ctx, func(context.Context, *rdelayedqueue.Message[job]) error { return nil })
	}, nil},
}

func second[T any](_ T, err error) error { return err }

// F16
func TestCallsEndWithTheirContexts(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	// A call that does not heed its context returns after 3 s; the slack is that of a machine on which 21 clients work at a time.
	const limit, slack = 300 * time.Millisecond, 500 * time.Millisecond
	for name, fail := range map[string]func(*faulttest.Proxy){
		"silent": func(p *faulttest.Proxy) { p.Blackhole(true) },
		"deaf":   func(p *faulttest.Proxy) { p.HalfOpen(); p.Refuse(true) },
		"gone":   func(p *faulttest.Proxy) { p.Refuse(true); p.Cut() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			lag := faulttest.MeasureLag(t, r.server.Addr())
			clients, holds := make([]*redlatch.Client, len(blocking)), make([]held, len(blocking))
			for i := range blocking {
				clients[i] = r.client(t)
				q := queue(clients[i])
				_, err := q.Offer(t.Context(), job{}, 0)
				require.NoError(t, err)
				m, err := q.Take(t.Context())
				require.NoError(t, err)
				holds[i] = held{q, m}
			}
			fail(r.proxy)
			var calls sync.WaitGroup // all at a time: each takes seconds to close
			for i, b := range blocking {
				calls.Go(func() {
					start := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					ended := make(chan time.Time, 1) // as another goroutine sees it: a machine that stalls is late for both
					context.AfterFunc(ctx, func() { ended <- time.Now() })
					err := b.call(ctx, holds[i])
					returned := time.Now()
					assert.ErrorIs(t, err, b.want, b.name)
					assert.Greater(t, returned.Sub(start), limit-slack/10, "%s gave up early", b.name)
					cancel()
					assert.Less(t, returned.Sub(<-ended), slack+lag.Worst(), b.name)
					start = time.Now()
					assert.NoError(t, clients[i].Close(), b.name)
					assert.Less(t, time.Since(start), 100*time.Millisecond+3*time.Second+slack+lag.Late(), "%s: grace + 3 s", b.name)
				})
			}
			calls.Wait()
		})
	}
}

// TestTableOfCallsIsComplete keeps the table up with the methods that take a context.
//
// F16
func TestTableOfCallsIsComplete(t *testing.T) {
	var missing []string
	for _, methods := range []reflect.Type{
		reflect.TypeFor[*rdelayedqueue.Queue[job]](), reflect.TypeFor[*rdelayedqueue.Message[job]](),
	} {
		for i := range methods.NumMethod() {
			m := methods.Method(i)
			waits := m.Type.NumIn() > 1 && m.Type.In(1) == reflect.TypeFor[context.Context]()
			if waits && !slices.ContainsFunc(blocking, func(b blockingCall) bool { return b.name == m.Name }) {
				missing = append(missing, m.Name)
			}
		}
	}
	assert.Empty(t, missing)
}

// F16
func TestConsumerOutlivesARestart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	handled := make(chan string, 10)
	q := queue(r.direct(t))
	stop := consume(t, q, func(_ context.Context, m *rdelayedqueue.Message[job]) error {
		handled <- m.Value.Name
		return nil
	})
	for _, name := range []string{"before", "after"} {
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); {
			if _, err = q.Offer(t.Context(), job{Name: name}, 0); err == nil {
				break
			}
		}
		require.NoError(t, err)
		assert.Equal(t, name, <-handled)
		if name == "before" {
			r.server.Restart()
		}
	}
	assert.NoError(t, stop())
}
