package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/timer"
)

// ownKeep is how long an id of the library's own is remembered after its message was acknowledged: an offer that was not
// answered is not sent again for longer.
const ownKeep = time.Minute

// Message is a message under a claim of this client. It is safe for concurrent use.
type Message struct {
	Claimed
	queue   *Queue
	hub     *hub
	terms   Terms
	renewed bool // the watchdog renews the visibility
	end     context.CancelCauseFunc
	timer   timer.Timer

	mu       sync.Mutex      // guards all below
	ctx      context.Context //nolint:containedctx // a message has one by contract
	deadline time.Duration   // by the client's clock: when the visibility is over
	extends  int             // answered calls of Extend
	state    state
	lost     bool         // the context has ended for a loss
	acking   *entry[ack]  // the last Ack, which may be under way
	nacking  *entry[nack] // the last Nack or Reject, as well
}

type state int

const (
	held state = iota
	acked
	ended // by Nack or Reject, or by an operation that found another claim
)

// message makes a message of a claim that was asked for at the given time. Its context descends from ctx.
func (q *Queue) message(ctx context.Context, c Claimed, terms Terms, asked time.Duration, renewed bool) *Message {
	r := q.registry
	m := &Message{Claimed: c, queue: q, hub: r.use(q), terms: terms, renewed: renewed, deadline: asked + terms.Visibility}
	m.ctx, m.end = context.WithCancelCause(ctx)
	m.timer.Task = m
	r.mu.Lock()
	r.live[m] = struct{}{}
	closed := r.core.Closed()
	r.mu.Unlock()
	if closed {
		m.end(errs.ErrClosed)
	}
	r.core.Timers.Set(&m.timer, m.next(asked))
	return m
}

// next returns when the timer has to fire: at the end of the visibility; for one that is renewed after a third of it, and by a third
// before less than that is left.
func (m *Message) next(now time.Duration) time.Duration {
	if !m.renewed {
		return m.deadline
	}
	return min(m.deadline, max(now+time.Millisecond, min(now+m.terms.Visibility/3, m.deadline-m.terms.Visibility*2/3)))
}

// Context returns the context of the work on the message.
func (m *Message) Context() context.Context {
	if m == nil {
		return core.EndedContext(ErrNotHeld)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ctx
}

// within has the message's context be ctx, one that descends from it.
func (m *Message) within(ctx context.Context) {
	m.mu.Lock()
	m.ctx = ctx
	m.mu.Unlock()
}

func (m *Message) cancel(cause error) { m.end(cause) }

// forget ends the message for this client, with a cause for its context.
func (m *Message) forget(s state, cause error) {
	r := m.queue.registry
	m.mu.Lock()
	m.state = s
	m.mu.Unlock()
	r.core.Timers.Stop(&m.timer)
	m.drop()
	m.end(cause)
}

// giveBack returns the claim of a message that nobody began to work on, should it have it still. It is added before the message is
// forgotten, so that a Close that waits for the message waits for this too.
func (m *Message) giveBack() *entry[Claimed] {
	back := m.hub.backs.add(m.Claimed)
	m.forget(ended, ErrFinished)
	return back
}

// drop takes the message from those that are live.
func (m *Message) drop() {
	r := m.queue.registry
	r.mu.Lock()
	_, live := r.live[m]
	delete(r.live, m)
	r.mu.Unlock()
	if live {
		m.hub.leave()
		r.core.Freed()
	}
}

// lose ends the message's context: somebody else may have the message.
func (m *Message) lose(why string) {
	m.mu.Lock()
	over := m.state != held || m.lost
	m.lost = true
	m.mu.Unlock()
	if over {
		return
	}
	m.queue.registry.core.Timers.Stop(&m.timer)
	m.drop()
	m.end(fmt.Errorf("rdelayedqueue: message of %q: %w: %s", m.queue.user, ErrLost, why))
}

// Due has the visibility renewed, or ends the message.
func (m *Message) Due(now time.Duration) {
	m.mu.Lock()
	over, left := m.state != held || m.lost, m.deadline-now
	m.mu.Unlock()
	switch {
	case over:
		return
	case left <= 0:
		m.queue.registry.core.Workers.Go(func() { m.lose("the visibility is over") })
		return
	case !m.renewed:
		m.queue.registry.core.Timers.Set(&m.timer, now+left+time.Millisecond) // a tick: it fired early
		return
	}
	m.queue.registry.core.Timers.Set(&m.timer, now+min(left, max(m.terms.Visibility/10, time.Millisecond))) // should no answer come
	m.hub.due.Add(m)
}

// Ack removes the message: its work is done.
func (m *Message) Ack(ctx context.Context) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	s := m.state
	m.mu.Unlock()
	switch s {
	case acked:
		return nil
	case ended:
		return ErrNotHeld
	}
	keep := ownKeep
	if m.Given {
		keep = m.terms.Dedupe
	}
	ctx, cancel := patience(ctx)
	defer cancel()
	h := m.queue.registry.use(m.queue)
	defer h.leave()
	ok, err := m.ack(h, keep).settled(ctx)
	switch {
	case err != nil:
		return err
	case ok == 0:
		m.forget(ended, fmt.Errorf("%w: another consumer has it", ErrLost))
		return ErrNotHeld
	}
	m.forget(acked, ErrFinished)
	return nil
}

// ack sends an Ack, unless one is under way: in an outage those that are repeated would pile up.
func (m *Message) ack(h *hub, keep time.Duration) *entry[ack] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.acking == nil || m.acking.settledYet() {
		m.acking = h.acks.add(ack{m.member, m.claim, keep})
	}
	return m.acking
}

// endWait bounds the wait for the answer to what ends a message.
const (
	endWait  = 3 * time.Second
	endFloor = 100 * time.Millisecond
)

// patience returns a context that bounds the wait of Ack and its like: they work although ctx is done, and heed a deadline
// that is still ahead.
func patience(ctx context.Context) (context.Context, context.CancelFunc) {
	d := endWait
	if deadline, ok := ctx.Deadline(); ok && ctx.Err() == nil {
		d = min(d, max(time.Until(deadline), endFloor))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), d)
}

// ack is a message whose work is done.
type ack struct {
	member, claim string
	keep          time.Duration
}

func (h *hub) sendAcks(batch []*entry[ack]) {
	c, err := h.registry.end(func() *script.Call { return h.keys.ack(batch) })
	var results []int64
	if err == nil {
		results, err = c.Ints()
	}
	answer(batch, results, err)
}

// check judges a call. A nil message is nobody's.
func (m *Message) check(ctx context.Context) error {
	switch {
	case ctx == nil:
		return core.ErrNilContext
	case m == nil:
		return ErrNotHeld
	}
	return nil
}

// Nack ends the attempt as failed: the message is due again after the delay, or a dead letter.
func (m *Message) Nack(ctx context.Context, delay time.Duration, text string) error {
	return m.finish(ctx, delay, false, text)
}

// Reject makes the message a dead letter.
func (m *Message) Reject(ctx context.Context, reason string) error {
	return m.finish(ctx, 0, true, reason)
}

func (m *Message) finish(ctx context.Context, delay time.Duration, reject bool, text string) error {
	if err := m.check(ctx); err != nil {
		return err
	}
	ctx, cancel := patience(ctx)
	defer cancel()
	h := m.queue.registry.use(m.queue)
	defer h.leave()
	return m.finished(ctx, m.nack(h, delay, reject, text))
}

// nack sends the end of an attempt, unless just that is under way. It returns nil for a message that has ended.
func (m *Message) nack(h *hub, delay time.Duration, reject bool, text string) *entry[nack] {
	n := nack{m.member, m.claim, delay, reject, m.terms.Attempts, text}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.state != held {
		return nil
	}
	if m.nacking == nil || m.nacking.settledYet() || m.nacking.value != n {
		m.nacking = h.nacks.add(n)
	}
	return m.nacking
}

// finished waits for what nack has sent.
func (m *Message) finished(ctx context.Context, sent *entry[nack]) error {
	if sent == nil {
		return ErrNotHeld
	}
	ok, err := sent.settled(ctx)
	switch {
	case err != nil:
		return err
	case ok == 0:
		m.forget(ended, fmt.Errorf("%w: another consumer has it", ErrLost))
		return ErrNotHeld
	}
	m.forget(ended, ErrFinished)
	return nil
}

// RejectAll makes dead letters of messages, whose reasons are given in their order. They are sent together; it waits for all until
// they are answered, for 3 s, or until ctx is done, and returns the first error.
func RejectAll(ctx context.Context, messages []*Message, reasons []string) error {
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	sent := make([]*entry[nack], len(messages))
	for i, m := range messages {
		sent[i] = m.nack(m.hub, 0, true, reasons[i])
	}
	err := finishedAll(ctx, messages, sent)
	for _, m := range messages { // nobody else will: what is not answered yet is on its way
		m.forget(ended, ErrFinished)
	}
	return err
}

// nackAll ends the attempts of messages that are due again at once. What fails is left to their visibility.
func nackAll(ctx context.Context, messages []*Message) {
	sent := make([]*entry[nack], len(messages))
	for i, m := range messages {
		sent[i] = m.nack(m.hub, 0, false, "")
	}
	_ = finishedAll(ctx, messages, sent) // as said above
}

func finishedAll(ctx context.Context, messages []*Message, sent []*entry[nack]) (first error) {
	for i, m := range messages {
		if err := m.finished(ctx, sent[i]); first == nil && !errors.Is(err, ErrNotHeld) { // one that is gone needs no end
			first = err
		}
	}
	return first
}

// nack is an attempt that failed.
type nack struct {
	member, claim string
	delay         time.Duration
	reject        bool
	attempts      int
	text          string
}

func (h *hub) sendNacks(batch []*entry[nack]) {
	c, err := h.registry.end(func() *script.Call { return h.keys.nack(batch) })
	var results []int64
	if err == nil {
		results, err = c.Ints()
	}
	if err != nil || len(results) == 0 {
		answer(batch, nil, err)
		return
	}
	if results[0] == 1 {
		h.wake()
	}
	answer(batch, results[1:], nil)
}

// Finished reports whether Ack, Nack or Reject has ended the message.
func (m *Message) Finished() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state != held
}
