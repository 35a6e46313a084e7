package counter

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/names"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
)

const (
	maxOps     = 256              // in one batch
	remembered = time.Hour        // how long Redis keeps a client's last batch
	repeated   = 50 * time.Minute // how long a lost batch is repeated: the last one must not arrive when it is forgotten
	pace       = time.Second      // between two repetitions, at most
)

// lane is what a client has to do to one object. It is guarded by its part of the table.
type lane struct {
	book   *Book
	part   *names.Part[*lane]
	key    string
	queue  []*Op
	flight *flight              // under way; nil if nothing is
	doubt  bool                 // an earlier batch may still arrive: the next one must leave its number
	idle   []func(settled bool) // to be called when there is nothing to do any more
}

// flight is a batch that is under way. The fields below the blank line are guarded as its lane's are.
type flight struct {
	lane   *lane
	number uint64
	ops    []*Op
	since  time.Duration

	noted   bool // it was sent before, or an earlier one may still arrive: leave the number in any case
	again   bool // to be sent again
	unknown bool // one that was sent may have been carried out
	insists bool
	over    bool
	told    bool // nobody waits for it any more: those who did have heard that the outcome is not known
	settles bool // the settler has it
	last    bool // the last attempt of a client that closes has been made
	job     *settle.Job
}

// withdrawLocked takes an operation out of the queue.
func (l *lane) withdrawLocked(op *Op) {
	op.state = withdrawn
	if i := slices.Index(l.queue, op); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
	if len(l.queue) == 0 && l.flight == nil {
		delete(l.part.Of, l.key)
	}
}

// takeLocked makes the next batch of what stands in the queue. It returns nil if there is nothing, and then the lane is no
// more.
func (l *lane) takeLocked() *flight {
	var ops []*Op
	taken := 0
	insists, closed := false, l.book.core.Closed()
	for _, op := range l.queue {
		if len(ops) == maxOps {
			break
		}
		taken++
		if closed && !op.Insists { // nobody waits any more
			op.state = withdrawn
			continue
		}
		op.state = flying
		insists = insists || op.Insists
		if ops == nil {
			ops = make([]*Op, 0, min(len(l.queue), maxOps))
		}
		ops = append(ops, op)
	}
	rest := copy(l.queue, l.queue[taken:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	if ops == nil {
		delete(l.part.Of, l.key)
		return nil
	}
	e := l.book.core
	l.flight = &flight{lane: l, number: e.NextNumber(), ops: ops, since: e.Clock.Now(), noted: l.doubt, insists: insists}
	return l.flight
}

// send sends the batch and returns at once.
func (f *flight) send() {
	if call, class := f.call(); call != nil {
		f.lane.book.core.Batch.Start(call, class, func(c *script.Call) { f.answered(c, c.Err()) })
	}
}

// sendHere sends the batch on the caller's own goroutine. The reply comes within the batcher's bound.
func (f *flight) sendHere(ctx context.Context) {
	if call, class := f.call(); call != nil {
		f.answered(call, f.lane.book.core.Batch.Do(ctx, call, pipeline.Ask{Class: class}))
	}
}

// call makes the script call of a batch that is not over. One that was sent before leaves out what nobody waits for: if
// it was not done, it need not be.
func (f *flight) call() (*script.Call, pipeline.Class) {
	l := f.lane
	b := l.book
	keys := b.kind.Keys(l.key)
	args := make([]any, 0, 5+len(keys)+len(f.ops))
	args = append(args, l.key, core.Prefixed("redlatch_ops", l.key)+":"+b.core.ID)
	args = append(args, keys...)
	l.part.Lock()
	defer l.part.Unlock()
	if f.over {
		return nil, 0
	}
	noted := 0
	if f.noted {
		noted = 1
	}
	args = append(args, f.number, noted, remembered.Milliseconds())
	class := pipeline.Normal
	for _, op := range f.ops {
		code := op.Code
		if f.noted && op.abandoned && op.Grants {
			code = Blank
		}
		if !op.Grants {
			class = pipeline.Urgent
		}
		args = append(args, code)
	}
	return b.kind.Script.Call(2+len(keys), args...), class
}

// answered hears of one run of the batch. More than one may have been sent.
func (f *flight) answered(c *script.Call, err error) {
	var replies []int64
	if err == nil {
		replies, err = c.Ints()
	}
	if err == nil {
		if len(replies) < len(f.ops) {
			f.end(nil, fmt.Errorf("%w: %w", errs.ErrUnknown, errForgotten))
			return
		}
		f.end(replies, nil)
		return
	}
	e := f.lane.book.core
	f.lane.part.Lock()
	resent := f.again
	f.unknown = f.unknown || script.Judge(err) == script.Unknown
	f.again, f.noted = true, true
	unknown := f.unknown
	f.lane.part.Unlock()
	switch passing := script.Transient(err); {
	case script.WrongType(err): // a repeated one has left its number
		f.end(nil, core.Explain(err))
	case script.Judge(err) == script.NotDone && !passing && unknown:
		f.tell(fmt.Errorf("%w: %w", errs.ErrUnknown, err))
		f.refuse(err)
		f.repeat()
	case script.Judge(err) == script.NotDone && !passing:
		f.end(nil, err)
	case !unknown && script.Refused(err) && !resent && !f.insists:
		f.end(nil, err)
	case !unknown && e.Clock.Now()-f.since >= e.Lease:
		f.end(nil, err)
	default:
		f.repeat()
	}
}

// tell tells everybody that the outcome is not known. The batch goes on with others in their places, for whom nobody waits:
// what was granted has to be given back.
func (f *flight) tell(err error) {
	l := f.lane
	l.part.Lock()
	if f.over || f.told {
		l.part.Unlock()
		return
	}
	f.told = true
	told := slices.Clone(f.ops)
	for i, op := range told {
		op.state, op.Err = over, err
		f.ops[i] = &Op{Code: op.Code, Grants: op.Grants, Late: true, state: flying, abandoned: true}
		if op.Grants {
			f.ops[i].Answerer = op.Answerer
		}
	}
	l.part.Unlock()
	for _, op := range told {
		op.Answerer.Answered(op, nil)
	}
}

// refuse tells those behind the batch of an error that it has met, and that they would meet. They were never sent.
func (f *flight) refuse(err error) {
	l := f.lane
	l.part.Lock()
	var refused []*Op
	if !f.over {
		refused, l.queue = l.queue, nil
	}
	for _, op := range refused {
		op.state, op.Err = over, err
	}
	l.part.Unlock()
	for _, op := range refused {
		op.Answerer.Answered(op, nil)
	}
}

// repeat leaves the batch to the settler, which sends it again now and then until it is answered.
func (f *flight) repeat() {
	l := f.lane
	e := l.book.core
	l.part.Lock()
	if f.over || f.settles {
		last := !f.over && f.again && !f.last && e.Closed() // the settler has made its attempts
		f.last = f.last || last
		l.part.Unlock()
		if last {
			f.send()
		}
		return
	}
	f.settles = true
	l.part.Unlock()
	job := e.Settler.AddWithin(f.attempt, f.giveUp, f.since+repeated, pace)
	l.part.Lock()
	f.job = job
	ended := f.over
	l.part.Unlock()
	if ended {
		job.Settled()
	}
}

// attempt sends the batch once more, but not before the first one has ended without an answer: of two that are under way
// the one might change nothing and be believed, and the other something. While the client closes, it is reported when all
// of the lane is done: an answer may have brought something that has to be given back.
func (f *flight) attempt(report func(settled bool)) {
	l := f.lane
	l.part.Lock()
	again, idle := f.again, l.flight == nil && len(l.queue) == 0
	if l.book.core.Closed() && !idle {
		l.idle = append(l.idle, report)
	}
	l.part.Unlock()
	if idle {
		report(true)
	}
	if again {
		f.send()
	}
}

// giveUp ends a batch that was not answered as long as Redis certainly knew it.
func (f *flight) giveUp() { f.end(nil, errs.ErrUnknown) }

// end tells everybody, and goes on with the next batch.
func (f *flight) end(replies []int64, err error) {
	l := f.lane
	l.part.Lock()
	if f.over {
		l.part.Unlock()
		return
	}
	f.over = true
	l.doubt = err != nil && (l.doubt || f.unknown)
	for i, op := range f.ops {
		op.state = over
		if op.Err = err; err == nil {
			op.Result = replies[i]
		}
	}
	job := f.job
	l.part.Unlock()
	var others []int64
	if err == nil {
		others = replies[len(f.ops):]
	}
	for _, op := range f.ops {
		if op.Answerer != nil {
			op.Answerer.Answered(op, others)
		}
	}
	if job != nil {
		job.Settled()
	}
	if len(f.ops) > 1 {
		runtime.Gosched() // let those who were served ask for more: the next batch is the larger
	}
	l.goOn()
}

// goOn sends the next batch after the last one has ended.
func (l *lane) goOn() {
	l.part.Lock()
	l.flight = nil
	next := l.takeLocked()
	var idle []func(bool)
	if next == nil {
		idle, l.idle = l.idle, nil
	}
	l.part.Unlock()
	for _, report := range idle {
		report(true)
	}
	if next != nil {
		next.send()
	}
}
