package counter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/names"
	"github.com/redlatch/redlatch/internal/script"
)

// Kind is a kind of counter.
//
// Its script gets the object as the first key, the client's record of its last batch as the second, and then what Keys
// returns. The first three arguments are the batch's number, 1 if it is to be remembered in any case, and for how long,
// in milliseconds; the others are the operations. It answers with an integer for each operation and then any others, or
// with nothing if the record has a higher number.
type Kind struct {
	Script *script.Script
	Keys   func(key string) []any
}

// Blank is the operation that does nothing, and is answered with any number.
const Blank = "x"

// Op is one operation. It may be used again when it has been answered or withdrawn.
type Op struct {
	// Code is the operation as the script reads it.
	Code string
	// Grants says that the operation is for its caller alone, and is not to be begun any more when the caller has left.
	Grants bool
	// Insists says that the operation goes on when its caller has left, and when no connection can be made.
	Insists bool
	// Answerer hears what came of it.
	Answerer Answerer

	// Result is the script's answer, Err is set if there is none. Late says that this answers an operation of which an
	// Answerer has heard before that nobody knows. All are for the Answerer.
	Result int64
	Err    error
	Late   bool

	state     state // guarded by the part of its lane, as is abandoned
	abandoned bool
}

// Left reports whether the caller had left. It is for the Answerer.
func (op *Op) Left() bool { return op.abandoned }

// Answerer hears of the end of an operation, on a goroutine that it must not hold up. Others are what the script
// answered beside the results; nil after an error.
//
// One that grants may be answered twice: with an error that wraps [errs.ErrUnknown], and, as another Op that is Late, when
// its outcome is known after all.
type Answerer interface {
	Answered(op *Op, others []int64)
}

type state uint8

const (
	over state = iota // also: never put
	queued
	flying
	withdrawn
)

// Book has the lanes of one kind of object of one client. It is safe for concurrent use.
type Book struct {
	core  *core.Core
	kind  Kind
	lanes *names.Table[*lane]
	calls sync.Pool // of *call; the book's own, since channels belong to one synctest bubble
}

// New returns a client's book of a kind of object. It is called while the client is made.
func New(e *core.Core, kind Kind) *Book {
	b := &Book{core: e, kind: kind, lanes: names.New[*lane]()}
	e.Register(b)
	return b
}

// Lanes returns how many names have something to be sent or answered.
func (b *Book) Lanes() int { return b.lanes.Len() }

// Put adds operations to those that go out next, and does no I/O: Go is to be called soon. It returns false, and has done
// nothing, when the client has begun to close, unless the operation insists.
func (b *Book) Put(key string, op *Op) bool {
	p := b.lanes.Part(key)
	p.Lock()
	defer p.Unlock()
	if b.core.Closed() && !op.Insists {
		return false
	}
	l := p.Of[key]
	if l == nil {
		l = &lane{book: b, part: p, key: key}
		p.Of[key] = l
	}
	op.state, op.abandoned, op.Result, op.Err = queued, false, 0, nil
	l.queue = append(l.queue, op)
	return true
}

// Go sends what was put, unless a batch is under way: then that will do it.
func (b *Book) Go(key string) {
	if f := b.take(key); f != nil {
		f.send()
	}
}

// GoAlong is Go for a caller that waits anyway, for nothing but the answer if ctx cannot end: it may send the batch itself.
func (b *Book) GoAlong(ctx context.Context, key string) {
	f := b.take(key)
	switch {
	case f == nil:
	case len(f.ops) == 1 && ctx.Done() == nil && b.core.Batch.Bounded():
		f.sendHere(ctx)
	default:
		f.send()
	}
}

func (b *Book) take(key string) *flight {
	p := b.lanes.Part(key)
	p.Lock()
	defer p.Unlock()
	if l := p.Of[key]; l != nil && l.flight == nil {
		return l.takeLocked()
	}
	return nil
}

// Fate is what became of an operation that was given up.
type Fate uint8

const (
	// Never says that it is not carried out, and nobody will be told.
	Never Fate = iota
	// Flying says that it is under way. Its Answerer will be told.
	Flying
	// Over says that its Answerer has been told, or is being told.
	Over
)

// Leave says that nobody waits for an operation any more.
func (b *Book) Leave(key string, op *Op) Fate {
	p := b.lanes.Part(key)
	p.Lock()
	defer p.Unlock()
	switch {
	case op.state == queued && !op.Insists:
		p.Of[key].withdrawLocked(op)
		return Never
	case op.state == withdrawn:
		return Never
	case op.state == over:
		return Over
	}
	op.abandoned = true
	return Flying
}

// call is an operation that a goroutine waits for.
type call struct {
	op   Op
	done chan struct{} // 1: a token when the operation has been answered
	then Answerer
}

// Answered lets the caller go on.
func (c *call) Answered(op *Op, others []int64) {
	if c.then != nil {
		c.then.Answered(op, others)
	}
	c.done <- struct{}{} // never blocks: one token a use
}

// Ask is an operation for Do.
type Ask struct {
	// Code is the operation as the script reads it.
	Code string
	// Insists says that the operation goes on when its caller has left.
	Insists bool
	// Then, if set, hears of the answer before Do returns.
	Then Answerer
	// Put, if set, is called instead of the book's own Put.
	Put func(*Op) bool
	// Withdrawn, if set, is called in place of Then when the caller has left in time.
	Withdrawn func()
}

// Do has an operation carried out and waits for its answer, for ctx, or for Close.
//
// An error that wraps [errs.ErrUnknown] says that the operation may take effect yet. After ctx's own error or
// [errs.ErrClosed] alone it has not, and will not.
func (b *Book) Do(ctx context.Context, key string, ask Ask) (int64, error) {
	c := b.call(ask)
	put := ask.Put
	if put == nil {
		put = func(op *Op) bool { return b.Put(key, op) }
	}
	if b.core.Closed() || !put(&c.op) {
		return 0, errs.ErrClosed
	}
	b.GoAlong(ctx, key)
	var why error
	select {
	case <-c.done:
		return b.answer(c)
	case <-ctx.Done():
		why = ctx.Err()
	case <-b.core.Closing():
		why = errs.ErrClosed
	}
	switch b.Leave(key, &c.op) {
	case Never:
		if ask.Withdrawn != nil {
			ask.Withdrawn()
		}
		return 0, why
	case Over:
		<-c.done // at once
		return b.answer(c)
	}
	return 0, fmt.Errorf("%w: %w", errs.ErrUnknown, why)
}

func (b *Book) call(ask Ask) *call {
	c, _ := b.calls.Get().(*call)
	if c == nil {
		c = &call{done: make(chan struct{}, 1)}
	}
	c.op = Op{Code: ask.Code, Insists: ask.Insists, Answerer: c}
	c.then = ask.Then
	return c
}

func (b *Book) answer(c *call) (int64, error) {
	result, err := c.op.Result, c.op.Err
	c.then, c.op.Answerer, c.op.Err = nil, nil, nil
	b.calls.Put(c)
	return result, err
}

// Open returns 0: Close waits for nobody who has permits.
func (b *Book) Open() int { return 0 }

// Closing has everything under way repeated, so that the settler's last attempts include it: what it gave to callers that
// have left is given back before Close returns.
func (b *Book) Closing() {
	var flights []*flight
	b.lanes.Each(func(l *lane) {
		if l.flight != nil {
			flights = append(flights, l.flight)
		}
	})
	for _, f := range flights {
		f.repeat()
	}
}

// Drain does nothing: the settler has it all.
func (b *Book) Drain(time.Duration) {}

// Wait does nothing: a book has no goroutines of its own.
func (b *Book) Wait(time.Time) {}

// errForgotten is the error of a batch whose number the record has passed.
var errForgotten = errors.New("the reply is not remembered any more")
