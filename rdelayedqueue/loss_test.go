package rdelayedqueue_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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

const (
	// toldVisibility has a margin of 20 ms: the goroutine that ends the context has that much time.
	toldVisibility = 2 * time.Second
	// toldParts says for how short a part of the visibility a machine may stand still without an effect: half the margin.
	toldParts = 200

	stoppedVisibility = 2 * time.Second
)

// cutOff are ways to cut a consumer off from Redis, and how each ends.
var cutOff = []struct {
	name string
	cut  func(p *faulttest.Proxy)
	heal func(p *faulttest.Proxy)
}{
	{
		"silence",
		func(p *faulttest.Proxy) { p.Blackhole(true) },
		func(p *faulttest.Proxy) { p.Blackhole(false) },
	},
	{
		"refusal",
		func(p *faulttest.Proxy) { p.Refuse(true); p.Cut() },
		func(p *faulttest.Proxy) { p.Refuse(false) },
	},
}

// F1
func TestHandlerIsToldBeforeAnotherConsumerHasTheMessage(t *testing.T) {
	redistest.Long(t)
	r := newRig(t)
	faulttest.Steady(t, r.server.Addr(), toldVisibility, toldParts, func(visibility time.Duration) error {
		return told(t, r, visibility)
	})
}

// told has many consumers cut off, some at a time.
func told(t *testing.T, r *rig, visibility time.Duration) error {
	t.Helper()
	const lanes = 20
	rounds := faulttest.Rounds(t, 20, 200)
	rival := r.direct(t)
	var wg sync.WaitGroup
	failed := make([]error, lanes)
	for lane := range lanes {
		proxy := faulttest.NewProxy(t, r.server.Addr())
		client := connect(t, proxy.Addr())
		wg.Go(func() {
			for run := lane; run < rounds && failed[lane] == nil; run += lanes {
				outage := cutOff[run%len(cutOff)]
				name := fmt.Sprintf("%s-%d-%v", outage.name, run, visibility)
				opts := []rdelayedqueue.QueueOption{rdelayedqueue.WithVisibility(visibility), rdelayedqueue.WithMaxAttempts(0)}
				mine := redlatch.GetDelayedQueue[job](client, name, opts...)
				other := redlatch.GetDelayedQueue[job](rival, name, opts...)
				cut := func() {
					<-time.After(rand.N(visibility)) // a random moment between two renewals
					outage.cut(proxy)
				}
				if err := toldInTime(t.Context(), mine, other, cut, func() { outage.heal(proxy) }); err != nil {
					failed[lane] = fmt.Errorf("%s: %w", name, err)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// work is a message at a handler, which goes on when the test lets it, and whatever its context says.
type work struct {
	message *message
	goOn    chan struct{} // closed by the test
	late    chan error    // 1: what its Ack returned then
}

// toldInTime cuts a consumer off while its handler runs, and requires that the handler's context has ended when another one has the
// message, and that what the handler does later has no effect.
func toldInTime(ctx context.Context, mine, other *rdelayedqueue.Queue[job], cut, heal func()) (fault error) {
	defer heal()
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	begun := make(chan work, 10)
	consuming, stop := context.WithCancel(ctx)
	consumed := make(chan error, 1)
	go func() {
		consumed <- mine.Consume(consuming, func(ctx context.Context, m *message) error {
			w := work{m, make(chan struct{}), make(chan error, 1)}
			begun <- w
			select {
			case <-w.goOn:
			case <-consuming.Done(): // the test has failed
			}
			w.late <- m.Ack(ctx)
			return nil
		}, rdelayedqueue.WithStopGrace(0))
	}()
	defer func() {
		stop()
		fault = errors.Join(fault, expect("Consume", <-consumed, nil))
	}()
	if _, err := other.Offer(ctx, job{Name: "a"}, 0); err != nil {
		return fmt.Errorf("offer: %w", err)
	}
	first, err := next(ctx, begun)
	if err != nil {
		return err
	}
	done := first.message.Context().Done()
	isCut := make(chan struct{})
	go func() {
		cut()
		close(isCut)
	}()
	defer func() { <-isCut }() // it is healed after it
	taken, err := other.Take(ctx)
	if err != nil {
		return fmt.Errorf("the other consumer: %w", err)
	}
	select {
	case <-done:
	default:
		return fmt.Errorf("the handler is not told; if it asks, its error is %w", orNone(first.message.Context().Err()))
	}
	<-isCut
	heal()
	ackedBefore := rand.N(2) == 0
	if ackedBefore {
		err = taken.Ack(ctx)
	}
	close(first.goOn)
	late := <-first.late
	if !ackedBefore {
		if stats, err := other.Stats(ctx); err != nil || stats != (rdelayedqueue.Stats{InFlight: 1, Failed: 1}) {
			return fmt.Errorf("the late Ack had an effect: %+v, %w", stats, orNone(err))
		}
		err = taken.Ack(ctx)
	}
	stats, statsErr := other.Stats(ctx)
	if stats != (rdelayedqueue.Stats{}) {
		statsErr = errors.Join(statsErr, fmt.Errorf("left: %+v", stats))
	}
	if taken.Attempt != 2 || len(begun) > 0 {
		statsErr = errors.Join(statsErr, fmt.Errorf("attempt %d, begun again %d times", taken.Attempt, len(begun)))
	}
	return errors.Join(statsErr,
		expect("cause", context.Cause(first.message.Context()), rdelayedqueue.ErrLost),
		expect("late Ack", late, rdelayedqueue.ErrNotHeld),
		expect("the other consumer's Ack", err, nil),
	)
}

// next waits for a handler to begin.
func next(ctx context.Context, begun <-chan work) (work, error) {
	select {
	case w := <-begun:
		return w, nil
	case <-ctx.Done():
		return work{}, fmt.Errorf("no handler begins: %w", ctx.Err())
	}
}

// expect returns an error unless err is want; nil for none.
func expect(what string, err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("%s: got %w, want %w", what, orNone(err), orNone(want))
}

var errNone = errors.New("no error")

func orNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

// F1
func TestStoppedConsumerLearnsOfItsLossWhenItAsks(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	r := newRig(t)
	rival := r.direct(t)
	for round := range faulttest.Rounds(t, 2, 15) {
		stopConsumers(t, r, rival, round, 3)
	}
}

// stopConsumers stops n processes while their handlers run, until another consumer has their messages.
func stopConsumers(t *testing.T, r *rig, rival *redlatch.Client, round, n int) {
	t.Helper()
	type stopped struct {
		*faulttest.Child
		queue *rdelayedqueue.Queue[job]
		taken *message
	}
	all := make([]stopped, n)
	for i := range all {
		name := fmt.Sprintf("stopped-%d-%d", round, i)
		q := redlatch.GetDelayedQueue[job](rival, name, rdelayedqueue.WithVisibility(time.Minute), rdelayedqueue.WithMaxAttempts(0))
		_, err := q.Offer(t.Context(), job{Name: name}, 0)
		require.NoError(t, err)
		all[i] = stopped{Child: faulttest.StartChild(t, "stopped consumer", r.server.Addr(), name), queue: q}
	}
	for _, s := range all {
		require.Equal(t, "has it", s.Next())
	}
	<-time.After(rand.N(2 * stoppedVisibility)) // a random moment between two renewals
	for i := range all {
		all[i].Stop()
		all[i].Send("go on") // it reads this when it runs again
	}
	for i := range all {
		m, err := all[i].queue.Take(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, m.Attempt)
		all[i].taken = m
	}
	for i, s := range all {
		ackedBefore := i%2 == 0
		if ackedBefore {
			require.NoError(t, s.taken.Ack(t.Context()))
		}
		s.Cont()
		assert.Equal(t, "context ended: true, lost: true, Ack says not held: true, again: true", s.Next())
		if !ackedBefore {
			assert.Equal(t, rdelayedqueue.Stats{InFlight: 1, Failed: 1}, stats(t, s.queue), "the late Ack has no effect")
			assert.NoError(t, s.taken.Context().Err())
			require.NoError(t, s.taken.Ack(t.Context()))
		}
		s.Send("end")
		require.Equal(t, "consumed <nil>", s.Next(), "no handler began again")
		require.NoError(t, s.Wait())
		assert.Equal(t, rdelayedqueue.Stats{}, stats(t, s.queue))
	}
}

// stoppedConsumer is a process whose handler works until it reads a line, then asks its context and acknowledges. Args: the
// address, the queue's name.
func stoppedConsumer(args []string) {
	c := childClient(args[0])
	q := redlatch.GetDelayedQueue[job](c, args[1],
		rdelayedqueue.WithVisibility(stoppedVisibility), rdelayedqueue.WithMaxAttempts(0))
	ctx, cancel := context.WithCancel(context.Background())
	in := bufio.NewScanner(os.Stdin)
	err := q.Consume(ctx, func(ctx context.Context, m *message) error {
		faulttest.Emit("has it")
		in.Scan()
		ended := ctx.Err() != nil // the first thing that it does
		lost := errors.Is(context.Cause(ctx), rdelayedqueue.ErrLost)
		late := errors.Is(m.Ack(ctx), rdelayedqueue.ErrNotHeld)
		again := errors.Is(m.Ack(ctx), rdelayedqueue.ErrNotHeld)
		faulttest.Emit("context ended: %v, lost: %v, Ack says not held: %v, again: %v", ended, lost, late, again)
		in.Scan()
		cancel()
		return nil
	})
	faulttest.Emit("consumed %v", err)
	must(c.Close())
}
