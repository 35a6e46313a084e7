package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/backoff"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	quick        = 5 * time.Millisecond // handlers that take less may have messages claimed ahead
	prefetch     = 16                   // the least of these, where nothing else was asked for
	maxText      = 4 << 10              // bytes of an error's text that are kept
	finishPauses = 100 * time.Millisecond
	stalled      = 100 * time.Millisecond // after which what was claimed ahead is given back, of handlers of several tasks
)

// Work is how a consumer works.
type Work struct {
	Terms
	Concurrency int
	Prefetch    int // messages claimed ahead; negative for as many as suit quick handlers
	Backoff     func(m *Message) time.Duration
	Timeout     func(m *Message) time.Duration // of a handler; 0 for none
	StopGrace   time.Duration
	Handle      func(ctx context.Context, m *Message) error
	Due         func(m *Message) time.Time // for observers, when it was to be handled; nil for its DueAt
}

// consumer is one Consume.
type consumer struct {
	Work
	queue   *Queue
	client  *client
	demand  *demand
	base    context.Context //nolint:containedctx // the handlers' own, ended by the consumer
	failed  chan error      // 1: why the consumer cannot go on
	workers sync.WaitGroup

	claims, endings events.Trouble
	stall           *time.Timer // runs while something waits for a handler; nil without tasks

	mu       sync.Mutex // guards all below; before the claimer's
	buffer   []*Message // claimed ahead
	running  int
	ending   int           // messages that have left their place to the next, and whose ends are on the way to Redis
	took     time.Duration // smoothed time of a handler
	stopping bool
}

// Consume hands messages to handlers until ctx is done, which is no error, or the client closes.
func (q *Queue) Consume(ctx context.Context, w Work) error {
	if err := q.ready(ctx); err != nil {
		if ctx != nil && ctx.Err() != nil && q.err == nil {
			return nil // its end is no error, however early
		}
		return err
	}
	base, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(ErrStopped)
	c := &consumer{
		Work: w, queue: q, client: q.manager.use(q), base: base, failed: make(chan error, 1), took: quick,
	}
	defer c.client.leave()
	if w.Tasks != nil {
		c.stall = time.AfterFunc(stalled, c.unload)
		defer c.stall.Stop()
	}
	c.demand = &demand{
		terms: w.Terms, want: w.Concurrency, stay: always, site: q.manager.core.Events.Site(), deliver: c.deliver, report: c.claimed,
	}
	c.client.claimer.add(c.demand)
	var err error
	select {
	case <-ctx.Done():
	case err = <-c.failed:
	}
	c.stop(cancel)
	return err
}

// claimed notes what came of a claim.
func (c *consumer) claimed(err error) {
	c.report(&c.claims, err, "redlatch: a consumer cannot claim messages, and tries again", "redlatch: a consumer claims messages again")
}

// report notes what came of a call. Outages are waited out; what was wrong from the beginning is not.
func (c *consumer) report(t *events.Trouble, err error, line, over string) {
	if errors.Is(err, errs.ErrClosed) || errors.Is(err, ErrLayout) || errors.Is(err, errs.ErrWrongType) {
		select {
		case c.failed <- err:
		default: // the first one counts
		}
		return
	}
	t.Note(c.queue.manager.core.Events, err, line, over, c.queue.kind, c.queue.user)
}

// deliver takes messages that were claimed.
func (c *consumer) deliver(claims []Claimed, asked time.Duration) {
	c.mu.Lock()
	if c.stopping {
		c.mu.Unlock()
		c.client.claimer.arrived(c.demand, len(claims))
		c.client.giveBack(claims)
		return
	}
	for _, claim := range claims {
		c.Tasks.add(claim.own.Task)
		c.buffer = append(c.buffer, c.queue.message(c.base, claim, c.demand, asked, byTimer))
	}
	c.startLocked()
	c.watchLocked()
	c.mu.Unlock()
	c.client.claimer.arrived(c.demand, len(claims))
	c.aim()
}

// startLocked starts workers for what is there, as many as there may be.
func (c *consumer) startLocked() {
	for range min(len(c.buffer), c.Concurrency-c.running) {
		c.running++
		c.workers.Go(c.work) // ends when nothing is left to do; stop waits for it
	}
}

// aim says how many more messages there is room for.
func (c *consumer) aim() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopping {
		return
	}
	ahead := c.ahead()
	if len(c.buffer) > ahead/2 {
		return // enough for now: claims are cheaper together
	}
	c.client.claimer.aim(c.demand, max(0, c.Concurrency+ahead-c.running-c.ending-len(c.buffer)))
}

// ahead returns how many messages may be claimed before handlers are free for them. It is called with mu held.
func (c *consumer) ahead() int {
	switch {
	case c.Prefetch >= 0:
		return c.Prefetch
	case c.Rate.Count > 0:
		return 0 // what is claimed ahead begins later than its rate says
	case c.took < quick:
		return min(max(4*c.Concurrency, prefetch), maxBatch)
	}
	return 0
}

// work handles messages while there are some.
func (c *consumer) work() {
	place := &c.running // where it is counted
	defer func() {      // here for a handler that ended its goroutine
		c.mu.Lock()
		*place--
		c.startLocked()
		c.mu.Unlock()
		c.aim()
	}()
	for {
		c.mu.Lock()
		if len(c.buffer) == 0 {
			c.mu.Unlock()
			return
		}
		m := c.buffer[0]
		c.buffer[0] = nil
		c.buffer = c.buffer[1:]
		c.watchLocked()
		c.mu.Unlock()
		c.aim()
		if m.Context().Err() != nil {
			m.giveBack() // lost before its turn, or the end has come
			c.free(m)
			continue
		}
		c.serve(m, &place)
		if place != &c.running {
			return
		}
	}
}

// watchLocked has what was claimed ahead given back unless a handler is free for the next of it soon.
func (c *consumer) watchLocked() {
	switch {
	case c.stall == nil:
	case len(c.buffer) == 0:
		c.stall.Stop()
	default:
		c.stall.Reset(stalled)
	}
}

// unload gives back what was claimed ahead: another consumer may have room for it.
func (c *consumer) unload() {
	c.mu.Lock()
	if c.stopping || len(c.buffer) == 0 {
		c.mu.Unlock()
		return
	}
	buffer := c.buffer
	c.buffer = nil
	c.took = max(c.took, stalled) // so that nothing is claimed ahead again before some handlers were quick
	c.mu.Unlock()
	c.aim()
	for _, m := range buffer {
		m.giveBack()
		c.free(m)
	}
}

// serve works on a message. Its place may go to the next one before its end is known: see leavePlace. It frees what it has also if the handler
// ends its goroutine.
func (c *consumer) serve(m *Message, place **int) {
	defer c.free(m)
	start := time.Now()
	err := c.handle(m)
	c.measure(time.Since(start))
	c.leavePlace(place)
	c.settle(m, err)
}

// leavePlace has the next message begin while the end of this one is on the way, as long as no more are claimed than handlers and ahead of
// them: so more ends are sent in a call.
func (c *consumer) leavePlace(place **int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending >= c.ahead() {
		return
	}
	*place = &c.ending
	c.running--
	c.ending++
	c.startLocked()
}

// free has another message of the task claimed if this one was in its way.
func (c *consumer) free(m *Message) {
	if c.Tasks.drop(m.own.Task) {
		c.client.claimer.freed()
	}
}

// measure smooths the time that messages take.
func (c *consumer) measure(d time.Duration) {
	c.mu.Lock()
	c.took += (d - c.took) / 8
	c.mu.Unlock()
}

// handle runs the handler for one message. A panic is an error, and so is a handler that ends its goroutine.
func (c *consumer) handle(m *Message) (err error) {
	ctx := m.Context()
	if timeout := c.Timeout(m); timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, errs.ErrTimeout)
		defer cancel()
		m.enter(ctx)
		ctx = m.Context()
	}
	hooks, started := &c.queue.manager.core.Events.Hooks, time.Now()
	if hooks.HandleStart != nil {
		due := m.DueAt
		if c.Due != nil {
			due = c.Due(m)
		}
		m.enter(c.queue.manager.core.Events.BeginHandle(ctx, events.HandleStart{
			Kind: c.queue.kind, Name: c.queue.user, ID: m.ID, Task: m.Task(), Attempt: m.Attempt, Late: m.late(due), Headers: m.Headers,
		}))
		ctx = m.Context()
	}
	if f := hooks.HandleEnd; f != nil {
		defer func() {
			f(ctx, events.HandleEnd{
				Kind: c.queue.kind, Name: c.queue.user, ID: m.ID, Task: m.Task(), Attempt: m.Attempt, Took: time.Since(started),
				Err: cmp.Or(err, m.Failure), Snoozed: m.snoozed(),
			})
		}()
	}
	returned := false
	defer func() {
		p := recover()
		switch {
		case p != nil:
			err = c.queue.manager.core.Events.Panicked(p, c.queue.kind, c.queue.user, m.ID, m.Attempt)
		case !returned:
			err = errors.New("the handler ended its goroutine")
			c.settle(m, err)
		}
	}()
	err = c.Handle(ctx, m)
	returned = true
	if errors.Is(context.Cause(ctx), errs.ErrTimeout) && (err == nil || errors.Is(err, ctx.Err())) {
		err = errs.ErrTimeout
	}
	return err
}

// settle acknowledges a message, or ends its attempt as failed, or as its handler has tried to. It goes on while the message is renewed,
// and in an outage until the visibility has been over for as long again, as somebody else has the message then. It gives up after one
// visibility if Redis refuses the end for a reason that stays, and when a consumer that stops has no grace left. What it gives up is not
// renewed any more, so that it is due again.
func (c *consumer) settle(m *Message, failure error) {
	end := func() error { return m.Ack(c.base) }
	if failure != nil {
		text := fmt.Sprint(failure) // which bears an Error that panics, as that of a nil pointer may
		delay := c.delay(m)
		end = func() error { return m.Nack(c.base, delay, text[:min(len(text), maxText)]) }
	}
	clock := c.queue.manager.core.Clock
	until := clock.Now() + c.Visibility
	for !m.Finished() {
		err := m.endAgain(c.base, end)
		if errors.Is(err, ErrNotHeld) {
			err = nil // Redis has answered: somebody else has it
		}
		switch now := clock.Now(); {
		case err == nil:
		case m.isHeld() && !script.Final(err):
			until = now + c.Visibility
		case now > until:
			m.lose("Redis has refused its end")
			return
		}
		c.report(&c.endings, err, "redlatch: a consumer cannot end an attempt, and tries again", "redlatch: a consumer ends attempts again")
		if err == nil {
			return
		}
		if c.queue.manager.core.Closed() {
			return // Drain and the visibility do the rest
		}
		if core.Sleep(c.base, core.Jitter(finishPauses)) != nil {
			m.lose("its consumer has stopped, and Redis was not told of its end")
			return
		}
	}
}

// delay asks for the pause after a failed attempt, [MaxDelay] at most. What a user's function does wrong costs a second.
func (c *consumer) delay(m *Message) (d time.Duration) {
	defer func() {
		if recover() != nil || d < 0 {
			d = time.Second
		}
	}()
	return min(c.Backoff(m), MaxDelay)
}

// stop claims no more, returns what was not begun, and waits for the handlers: for the grace under their own contexts,
// then under contexts that have ended.
func (c *consumer) stop(cancel context.CancelCauseFunc) {
	c.mu.Lock()
	c.stopping = true
	buffer := c.buffer
	c.buffer = nil
	c.mu.Unlock()
	c.client.claimer.remove(c.demand)
	back := make([]*entry[Claimed], len(buffer))
	for i, m := range buffer {
		back[i] = m.giveBack()
	}
	ctx, done := c.client.endContext(c.base)
	defer done()
	timer := time.AfterFunc(c.StopGrace, func() { cancel(ErrStopped) })
	defer timer.Stop()
	c.workers.Wait()
	for _, e := range back {
		_, _ = e.settled(ctx) // what fails is left to its visibility
	}
}

// DefaultBackoff is the pause after a failed attempt where no other is set: a second, twice as long after each further
// attempt, a quarter of an hour at most, and a quarter more or less.
func DefaultBackoff(attempt int) time.Duration {
	return backoff.Pause(attempt-1, time.Second, 15*time.Minute)
}
