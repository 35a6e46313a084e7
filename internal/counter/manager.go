package counter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// Kind is a kind of counter.
type Kind struct {
	// Name is that of the kind of object, see package kinds.
	Name string
	// Script gets the object as the first key, the client's record of its last batch as the second, and then what Keys
	// returns. The first arguments are the batch's number, 1 if it is to be recorded in any case, and for how long, in
	// milliseconds; then come those that Args returns, and then the operations. It answers with an integer for each
	// operation and then any others, or with nothing if the record has a higher number.
	Script *script.Script
	// Keys returns the further keys that the operations need; nil if they never need any.
	Keys func(key string, codes []string) []any
	// Extra returns the keys after those that the operations can do without; nil if there are none. They are left out where
	// some of the keys have moved to another node, for Redis then refuses a call with a key that is not there.
	Extra func(key string, codes []string) []any
	// Args returns the further arguments of each call; nil if there are none.
	Args func(key string) []any
}

// Blank is the operation that does nothing, and is answered with any number.
const Blank = "x"

// Policy says what becomes of an operation whose caller leaves.
type Policy uint8

const (
	// Change is dropped if it was not sent; otherwise it goes on.
	Change Policy = iota
	// Grant is for its caller alone: it is dropped also where it is sent again.
	Grant
	// Insist goes on in any case, also if no connection can be made.
	Insist
)

// Op is one operation. It may be used again when it has been answered or withdrawn.
type Op struct {
	// Code is the operation as the script reads it.
	Code string
	// Policy says what becomes of the operation when its caller leaves.
	Policy Policy
	// Answerer gets the answer.
	Answerer Answerer

	// Result is the script's answer, Err is set if there is none. Late says that this answers an operation whose Answerer
	// was told earlier that the outcome is unknown. All are for the Answerer.
	Result int64
	Err    error
	Late   bool
	// Unconfirmed is why an operation that was done is not confirmed as the client asks for; nil if it is.
	Unconfirmed error

	state opState // guarded by the shard of its log, as is left
	left  bool    // its caller does not wait any more
}

// Left reports whether the caller had left. It is for the Answerer.
func (op *Op) Left() bool { return op.left }

// Answerer gets the answer to an operation, on a goroutine that it must not hold up. Others are what the script answered
// beside the results; nil after an error.
//
// A Grant may be answered twice: with an error that wraps [errs.ErrUnknown], and, as another Op that is Late, when its
// outcome is known after all.
type Answerer interface {
	Answered(op *Op, others []int64)
}

type opState uint8

const (
	opAnswered opState = iota // also: never put
	opQueued
	opInBatch
	opWithdrawn
)

// Manager has the operation logs of one kind of object of one client. It is safe for concurrent use.
type Manager struct {
	core  *core.Core
	kind  Kind
	logs  *core.Table[*opLog]
	calls sync.Pool // of *call; the manager's own, since channels belong to one synctest bubble
}

// New returns a client's manager of a kind of object. It is called while the client is made.
func New(e *core.Core, kind Kind) *Manager {
	m := &Manager{core: e, kind: kind, logs: core.NewTable[*opLog]()}
	e.Register(m)
	return m
}

// Logs returns how many names have something to be sent or answered.
func (m *Manager) Logs() int { return m.logs.Len() }

// Put adds an operation to those that go out next, and does no I/O: Go is to be called soon. It returns false, and has
// done nothing, when the client has begun to close, unless the operation insists.
func (m *Manager) Put(key string, op *Op) bool {
	p := m.logs.Shard(key)
	p.Lock()
	defer p.Unlock()
	if m.core.Closed() && op.Policy != Insist {
		return false
	}
	l := p.Of[key]
	if l == nil {
		l = &opLog{manager: m, shard: p, key: key}
		p.Of[key] = l
	}
	op.state, op.left, op.Result, op.Err, op.Unconfirmed = opQueued, false, 0, nil, nil
	l.queue = append(l.queue, op)
	return true
}

// Go sends what was put, unless a batch is in flight: then its answer will do it. It is also to be called after Leave.
func (m *Manager) Go(key string) {
	if b := m.next(key); b != nil {
		b.start()
	}
}

// GoAlong is Go for a caller that waits for nothing but the answer. If ctx cannot end, it may send the batch itself.
func (m *Manager) GoAlong(ctx context.Context, key string) {
	b := m.next(key)
	switch {
	case b == nil:
	case len(b.ops) == 1 && ctx.Done() == nil && m.core.Batch.Bounded():
		b.startHere(ctx)
	default:
		b.start()
	}
}

func (m *Manager) next(key string) *batch {
	p := m.logs.Shard(key)
	p.Lock()
	l := p.Of[key]
	if l != nil && l.batch == nil {
		defer p.Unlock()
		return l.nextLocked()
	}
	var deserted *batch
	var met error
	if l != nil && l.batch.desertedLocked() {
		deserted, met = l.batch, l.batch.met
	}
	p.Unlock()
	if deserted != nil {
		deserted.end(nil, met)
	}
	return nil
}

// Fate is what becomes of an operation whose caller has left.
type Fate uint8

const (
	// Withdrawn says that it is not carried out, and that nobody will be told.
	Withdrawn Fate = iota
	// InFlight says that it may be carried out. Its Answerer will be told.
	InFlight
	// Answered says that its Answerer has been told, or is being told.
	Answered
)

// Leave says that nobody waits for an operation any more. The error is what its last sending met, if it was sent; nil if
// that was not answered.
func (m *Manager) Leave(key string, op *Op) (Fate, error) {
	p := m.logs.Shard(key)
	p.Lock()
	defer p.Unlock()
	return p.Of[key].leaveLocked(op)
}

// Met returns what the last sending of the batch in flight met; nil if there is none, or if it was not answered.
func (m *Manager) Met(key string) error {
	p := m.logs.Shard(key)
	p.Lock()
	defer p.Unlock()
	if l := p.Of[key]; l != nil && l.batch != nil {
		return l.batch.met
	}
	return nil
}

// Do has an operation carried out and waits for its answer, for ctx, or for Close; if ctx has no deadline, for the client's
// call timeout at most.
//
// An error that wraps [errs.ErrUnknown] says that the operation may have taken effect, or may still take effect; one that
// wraps [errs.ErrNotConfirmed], that it has. After any other error it has not, and will not.
func (m *Manager) Do(ctx context.Context, key string, ask Request) (int64, error) {
	c := m.call(ask)
	put := ask.Put
	if put == nil {
		put = func(op *Op) bool { return m.Put(key, op) }
	}
	if m.core.Closed() || !put(&c.op) {
		return 0, errs.ErrClosed
	}
	began := m.core.Clock.Now()
	m.GoAlong(ctx, key)
	select {
	case <-c.done: // as after a batch on this goroutine, which needs no timer
		return m.answer(c)
	default:
	}
	select {
	case <-c.done:
		c.stop()
		return m.answer(c)
	case <-ctx.Done():
	case <-c.limit(m.core.Limit(ctx), m.core.Clock.Now()-began):
	case <-m.core.Closing():
	}
	c.stop()
	fate, met := m.Leave(key, &c.op)
	if fate == Answered {
		<-c.done // at once
		return m.answer(c)
	}
	if fate == Withdrawn {
		if ask.Withdrawn != nil {
			ask.Withdrawn()
		}
		m.Go(key)
	}
	return 0, m.unanswered(ctx, fate, met)
}

// unanswered returns the error of a call that has got no answer. It met an error if its operation was sent and refused.
func (m *Manager) unanswered(ctx context.Context, fate Fate, met error) error {
	switch {
	case m.core.Closed() && ctx.Err() == nil && fate == Withdrawn:
		return errs.ErrClosed
	case m.core.Closed() && ctx.Err() == nil:
		return fmt.Errorf("%w: %w", errs.ErrUnknown, errs.ErrClosed)
	case met == nil:
		met = script.ErrNoAnswer
	}
	if fate == Withdrawn {
		return core.Conclude(ctx, script.NotDone, fmt.Errorf("%w: %w", script.ErrNotSent, met))
	}
	return core.Conclude(ctx, script.Unknown, met)
}

// Request is an operation for Do.
type Request struct {
	// Code is the operation as the script reads it.
	Code string
	// Policy says what becomes of the operation when its caller leaves.
	Policy Policy
	// Then, if set, gets the answer before Do returns, or when it comes after that.
	Then Answerer
	// Put, if set, is called instead of the manager's own Put.
	Put func(*Op) bool
	// Withdrawn, if set, is called in place of Then when the caller has left in time.
	Withdrawn func()
}

// call is an operation that a goroutine waits for.
type call struct {
	op    Op
	done  chan struct{} // 1: a token when the operation has been answered
	then  Answerer
	timer *time.Timer // stopped; nil until it is first needed
}

// limit returns a channel that has something after what is left of a limit, until stop is called; nil for 0, which is none.
func (c *call) limit(limit, spent time.Duration) <-chan time.Time {
	d := max(limit-spent, 0)
	switch {
	case limit == 0:
		return nil
	case c.timer == nil:
		c.timer = time.NewTimer(d)
	default:
		c.timer.Reset(d)
	}
	return c.timer.C
}

func (c *call) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// Answered lets the caller go on.
func (c *call) Answered(op *Op, others []int64) {
	if c.then != nil {
		c.then.Answered(op, others)
	}
	if !op.Late {
		c.done <- struct{}{} // never blocks: one token a use
	}
}

func (m *Manager) call(ask Request) *call {
	c, _ := m.calls.Get().(*call)
	if c == nil {
		c = &call{done: make(chan struct{}, 1)}
	}
	c.op = Op{Code: ask.Code, Policy: ask.Policy, Answerer: c}
	c.then = ask.Then
	return c
}

func (m *Manager) answer(c *call) (int64, error) {
	result, err := c.op.Result, cmp.Or(c.op.Err, c.op.Unconfirmed)
	if c.op.Policy == Grant { // it may be answered once more
		return result, err
	}
	c.then, c.op.Answerer, c.op.Err = nil, nil, nil
	m.calls.Put(c)
	return result, err
}

// Open returns 0: Close waits for nobody who has permits.
func (m *Manager) Open() int { return 0 }

// Verify does nothing: permits belong to nobody.
func (m *Manager) Verify() {}

// Closing has every batch in flight repeated, so that the settler's last attempts include it: what it grants to callers
// that have left is given back before Close returns.
func (m *Manager) Closing() {
	var batches []*batch
	m.logs.Each(func(l *opLog) {
		if l.batch != nil {
			batches = append(batches, l.batch)
		}
	})
	for _, b := range batches {
		b.repeat()
	}
}

// Drain does nothing: the settler has it all.
func (m *Manager) Drain(time.Duration) {}

// Wait does nothing: a manager has no goroutines of its own.
func (m *Manager) Wait(time.Time) {}

// opLog is what a client has to do to one object. It is guarded by its shard of the table.
type opLog struct {
	manager *Manager
	shard   *core.Shard[*opLog]
	key     string
	queue   []*Op
	batch   *batch               // in flight; nil if none is
	doubt   bool                 // an earlier batch may still arrive: the next one must record its number
	idle    []func(settled bool) // called when there is nothing to do any more
}

// leaveLocked takes out an operation whose caller has left, if it certainly is not carried out. The log is nil if it has
// ended.
func (l *opLog) leaveLocked(op *Op) (fate Fate, met error) {
	switch op.state {
	case opAnswered:
		return Answered, nil
	case opWithdrawn:
		return Withdrawn, nil
	}
	b := l.batch
	if b != nil {
		met = b.met
	}
	switch {
	case op.Policy == Insist:
	case op.state == opQueued:
		l.withdrawLocked(op)
		return Withdrawn, met
	case b.undoneLocked():
		op.state = opWithdrawn
		b.ops[slices.Index(b.ops, op)] = &Op{Code: Blank, state: opInBatch}
		return Withdrawn, met
	}
	op.left = true
	return InFlight, met
}

// withdrawLocked takes an operation out of the queue.
func (l *opLog) withdrawLocked(op *Op) {
	op.state = opWithdrawn
	if i := slices.Index(l.queue, op); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	if len(l.queue) == 0 && l.batch == nil {
		delete(l.shard.Of, l.key)
	}
}

// nextLocked makes the next batch of what stands in the queue. It returns nil if there is nothing, and then the log has
// ended.
func (l *opLog) nextLocked() *batch {
	var ops []*Op
	taken, closed := 0, l.manager.core.Closed()
	for _, op := range l.queue {
		if len(ops) == maxOps {
			break
		}
		taken++
		if closed && op.Policy != Insist { // nobody waits any more
			op.state = opWithdrawn
			continue
		}
		op.state = opInBatch
		if ops == nil {
			ops = make([]*Op, 0, min(len(l.queue), maxOps))
		}
		ops = append(ops, op)
	}
	rest := copy(l.queue, l.queue[taken:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	if ops == nil {
		delete(l.shard.Of, l.key)
		return nil
	}
	e := l.manager.core
	l.batch = &batch{log: l, number: e.NextNumber(), ops: ops, since: e.Clock.Now(), doubt: l.doubt}
	return l.batch
}

// goOn sends the next batch after the last one has ended.
func (l *opLog) goOn() {
	l.shard.Lock()
	l.batch = nil
	next := l.nextLocked()
	var idle []func(bool)
	if next == nil {
		idle, l.idle = l.idle, nil
	}
	l.shard.Unlock()
	for _, report := range idle {
		report(true)
	}
	if next != nil {
		next.start()
	}
}

// errForgotten is the error of a batch whose number the record has passed.
var errForgotten = errors.New("the reply is no longer recorded")
