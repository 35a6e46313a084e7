package counter

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/settle"
)

const (
	maxOps   = 256              // in one batch
	recorded = time.Hour        // how long Redis keeps the record of a client's last batch
	repeated = 50 * time.Minute // how long a batch is repeated: the last sending must not arrive when the record is gone
	pace     = time.Second      // between two repetitions, at most
)

// batch is what a log has sent. All but the first four fields are guarded as the log is.
type batch struct {
	log    *opLog
	number uint64
	since  time.Duration
	doubt  bool // an earlier batch may still arrive

	ops   []*Op
	state batchState
	sent  int   // sendings
	open  int   // of them without an answer
	lost  bool  // a sending ended without a certain answer: it may have been carried out, or may still be
	met   error // what the last sending met that was answered
	job   *settle.Job
}

// batchState moves forward only:
//
//	first ----> repeating ----> disowned ----> ended
//	  |             \______________|________> final, when the client closes, and then ended
//	  +---------------------------------------> ended, by an answer or a certain error
type batchState uint8

const (
	first     batchState = iota // no more than its first sending was begun
	repeating                   // the settler sends it again and again
	disowned                    // as repeating; its callers were told that the outcome is unknown
	final                       // the client closes, and the last sending was begun
	ended
)

// undoneLocked reports whether no sending was carried out or will be.
func (b *batch) undoneLocked() bool { return b.sent > 0 && b.open == 0 && !b.lost }

// desertedLocked reports whether the batch has certainly not been carried out, and nobody wants it to be any more.
func (b *batch) desertedLocked() bool {
	return b.state < disowned && b.undoneLocked() && !slices.ContainsFunc(b.ops, func(op *Op) bool { return op.Answerer != nil })
}

// start sends the batch and returns at once.
func (b *batch) start() {
	if call, class := b.call(); call != nil {
		b.log.manager.core.Batch.Start(call, class, func(c *script.Call) { b.answered(c, c.Err()) })
	}
}

// startHere sends the batch on the caller's own goroutine. The reply comes within the batcher's bound.
func (b *batch) startHere(ctx context.Context) {
	if call, class := b.call(); call != nil {
		e := b.log.manager.core
		b.answered(call, e.Batch.Do(ctx, call, pipeline.SendOptions{Class: class, Limit: e.Limit(ctx)}))
	}
}

// call makes the next sending of a batch that has not ended.
func (b *batch) call() (*script.Call, pipeline.Class) {
	l := b.log
	m := l.manager
	l.shard.Lock()
	defer l.shard.Unlock()
	if b.state == ended {
		return nil, 0
	}
	record := script.Flag(b.doubt || b.sent > 0)
	codes, class := b.codesLocked()
	b.sent++
	b.open++
	args := make([]any, 0, 8+len(codes))
	args = append(args, l.key, core.Prefixed("redlatch_ops", l.key)+":"+m.core.ID)
	if m.kind.Keys != nil {
		args = append(args, m.kind.Keys(l.key, codes)...)
	}
	if m.kind.Extra != nil && !script.Parted(b.met) {
		args = append(args, m.kind.Extra(l.key, codes)...)
	}
	keys := len(args)
	args = append(args, b.number, record, recorded.Milliseconds())
	if m.kind.Args != nil {
		args = append(args, m.kind.Args(l.key)...)
	}
	for _, code := range codes {
		args = append(args, code)
	}
	call := m.kind.Script.Call(keys, args...)
	call.Confirms = slices.ContainsFunc(b.ops, func(op *Op) bool { return op.Policy != Insist }) // releases alone need not wait
	return call, class
}

// codesLocked returns what the operations read in the next sending. A repetition leaves out what nobody waits for: if it
// was not done, it need not be.
func (b *batch) codesLocked() ([]string, pipeline.Class) {
	codes, class := make([]string, len(b.ops)), pipeline.Normal
	for i, op := range b.ops {
		codes[i] = op.Code
		if op.Policy == Grant && op.left && b.sent > 0 {
			codes[i] = Blank
		}
		if op.Policy != Grant {
			class = pipeline.Urgent
		}
	}
	return codes, class
}

// verdict is what the error of a sending means for its batch.
type verdict uint8

const (
	again   verdict = iota // send it again
	notDone                // it was not carried out, and never will be
	unknown                // nobody can say, and that will not change soon: its callers need not wait for more
)

// answered takes the answer to one sending of the batch. Others may be in flight.
func (b *batch) answered(c *script.Call, err error) {
	var replies []int64
	if err == nil {
		replies, err = c.Ints()
	}
	if err == nil {
		if len(replies) < len(b.ops) {
			b.end(nil, fmt.Errorf("%w: %w", errs.ErrUnknown, errForgotten))
			return
		}
		b.noteUnconfirmed(c.Unconfirmed)
		b.end(replies, nil)
		return
	}
	switch b.judge(err) {
	case notDone:
		b.end(nil, core.Explain(err))
	case unknown:
		b.disown(fmt.Errorf("%w: %w", errs.ErrUnknown, core.Unanswered(err)))
		b.refuseQueued(core.Unanswered(err))
		b.repeat()
	case again:
		b.repeat()
	}
}

// noteUnconfirmed notes why what was done is not confirmed. A release counts as done even so: it cannot be taken back.
func (b *batch) noteUnconfirmed(err error) {
	b.log.shard.Lock()
	defer b.log.shard.Unlock()
	if b.state == ended {
		return
	}
	for _, op := range b.ops {
		if op.Policy != Insist {
			op.Unconfirmed = err
		}
	}
}

// judge says what the error of a sending means. As long as another sending is in flight, or was lost, no error of a
// repetition says that the batch was not carried out; but a wrong type does, since the repetition has then recorded its
// number.
func (b *batch) judge(err error) verdict {
	e, l := b.log.manager.core, b.log
	certain := script.Judge(err) == script.NotDone
	l.shard.Lock()
	defer l.shard.Unlock()
	b.open--
	b.lost = b.lost || !certain
	b.met = err
	passing, aged := script.Transient(err), e.Clock.Now()-b.since >= e.Lease
	switch {
	case script.WrongType(err):
		return notDone
	case b.lost && aged:
		return unknown
	case b.open > 0 || !certain:
		return again
	case !b.lost && !passing:
		return notDone
	case !passing:
		return unknown
	case !b.lost && script.Refused(err) && b.sent == 1 && !b.insistsLocked():
		return notDone
	case !b.lost && !script.Parted(err) && aged:
		return notDone
	}
	return again
}

func (b *batch) insistsLocked() bool {
	return slices.ContainsFunc(b.ops, func(op *Op) bool { return op.Policy == Insist })
}

// disown tells everybody that the outcome is unknown. The batch goes on with others in their places, for whom nobody
// waits: what was granted has to be given back.
func (b *batch) disown(err error) {
	l := b.log
	l.shard.Lock()
	if b.state != repeating { // a batch with a lost sending has had a repetition
		l.shard.Unlock()
		return
	}
	b.state = disowned
	told := slices.Clone(b.ops)
	for i, op := range told {
		op.state, op.Err = opAnswered, err
		b.ops[i] = &Op{Code: op.Code, Policy: op.Policy, Late: true, state: opInBatch, left: true}
		if op.Policy == Grant {
			b.ops[i].Answerer = op.Answerer
		}
	}
	l.shard.Unlock()
	for _, op := range told {
		if op.Answerer != nil {
			op.Answerer.Answered(op, nil)
		}
	}
}

// refuseQueued answers what stands behind the batch with an error that it would meet as well. It was never sent.
func (b *batch) refuseQueued(err error) {
	l := b.log
	l.shard.Lock()
	var refused []*Op
	if b.state != ended {
		refused, l.queue = l.queue, nil
	}
	for _, op := range refused {
		op.state, op.Err = opAnswered, err
	}
	l.shard.Unlock()
	for _, op := range refused {
		op.Answerer.Answered(op, nil)
	}
}

// repeat leaves the batch to the settler, which sends it again now and then until it is answered. A client that closes
// sends it once more when the settler has made its own last attempt.
func (b *batch) repeat() {
	l := b.log
	e := l.manager.core
	l.shard.Lock()
	if b.state != first {
		last := b.state < final && b.sent > b.open && e.Closed()
		if last {
			b.state = final
		}
		l.shard.Unlock()
		if last {
			b.start()
		}
		return
	}
	b.state = repeating
	l.shard.Unlock()
	job := e.Settler.AddWithin(b.attempt, b.giveUp, b.since+repeated, pace)
	l.shard.Lock()
	b.job = job
	over := b.state == ended
	l.shard.Unlock()
	if over {
		job.Settled()
	}
}

// attempt sends the batch once more, but not before its first sending has ended: that one records nothing if it changes
// nothing, so its late answer could be believed although a repetition has changed something. While the client closes,
// the attempt is reported when all of the log is done: an answer may have granted what has to be given back.
func (b *batch) attempt(report func(settled bool)) {
	l := b.log
	l.shard.Lock()
	send, idle := b.sent > b.open, l.batch == nil && len(l.queue) == 0
	if l.manager.core.Closed() && !idle {
		l.idle = append(l.idle, report)
	}
	l.shard.Unlock()
	if idle {
		report(true)
	}
	if send {
		b.start()
	}
}

// giveUp ends a batch that was not answered as long as Redis certainly has its record.
func (b *batch) giveUp() { b.end(nil, errs.ErrUnknown) }

// end tells everybody, and goes on with the next batch.
func (b *batch) end(replies []int64, err error) {
	l := b.log
	l.shard.Lock()
	if b.state == ended {
		l.shard.Unlock()
		return
	}
	b.state = ended
	l.doubt = err != nil && (b.doubt || b.lost || b.open > 0)
	for i, op := range b.ops {
		op.state = opAnswered
		if op.Err = err; err == nil {
			op.Result = replies[i]
		}
	}
	job := b.job
	l.shard.Unlock()
	var others []int64
	if err == nil {
		others = replies[len(b.ops):]
	}
	for _, op := range b.ops {
		if op.Answerer != nil {
			op.Answerer.Answered(op, others)
		}
	}
	if job != nil {
		job.Settled()
	}
	if len(b.ops) > 1 {
		runtime.Gosched() // let those who were served ask for more: the next batch is the larger
	}
	l.goOn()
}
