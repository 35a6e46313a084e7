package rscheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/internal/script"
)

const (
	beatEvery  = 10 * time.Second
	beatAgain  = time.Second      // after one that failed
	lifetime   = 25 * time.Second // for which a process counts as running after a sign of life
	endLimit   = 10 * time.Second // of what ends an attempt
	beginLimit = 5 * time.Second  // for which a begin is repeated
	beginAgain = time.Second      // after one that failed
	waitLate   = time.Second      // for the end of what runs before a tick that runs late, unless told; jittered, as that may come each second
	tooLate    = 5 * time.Second  // after which a tick is left out if a newer one is due, as begin.lua has it
	remember   = time.Minute      // for how long the queue knows the ids of ticks that have ended
	maxText    = 4 << 10          // bytes of an error's text that are kept

	// A tick of a job that is not registered here is passed on to be claimed after this, and an eighth more than it is late.
	passLeast = 2 * time.Millisecond
	passMost  = 5 * time.Second
)

// runner is one call of Run.
type runner struct {
	*Scheduler
	process string
	written map[string]string // job -> text of its schedule that Redis had at the last beat; none before the first

	fail    context.CancelCauseFunc // ends Run with an error
	stopped <-chan struct{}         // closed when nothing more is to begin

	plans, begins, confirms events.Trouble
}

// Run runs what is due, of the jobs that are registered here, until ctx is done. Then it begins nothing more, waits for running
// handlers, ends their contexts after [WithStopGrace] with [ErrStopped], and returns nil. It waits for a handler that ignores its context.
//
// It returns redlatch.ErrClosed when the client closes, redlatch.ErrInvalid for a bad name or option, and redlatch.ErrWrongType for data
// of another type. It logs any other error, such as an outage of Redis, and goes on: while this process does not reach Redis it runs
// nothing, and when it is back it goes on by the policies of the jobs. In an outage the end of a run is sent for 10 s, or as long as its
// claim lasts: Run waits for that. At last it tells the other processes that it has stopped: if Redis does not answer, this takes up to
// 1 s.
//
// It costs a command each 10 s for every 100 jobs, and another each 10 to 15 s, while nothing is due.
func (s *Scheduler) Run(ctx context.Context) error {
	return s.wrap("run", s.serve(ctx))
}

func (s *Scheduler) serve(ctx context.Context) error {
	switch {
	case s.err != nil:
		return s.err
	case ctx == nil:
		return core.ErrNilContext
	case ctx.Err() != nil:
		return nil // its end is no error, however early
	}
	serving, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	r := &runner{Scheduler: s, process: s.core.NextOwner(), written: map[string]string{}, fail: fail, stopped: serving.Done()}
	beating, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it counts as running until the handlers have returned
	defer cancel()
	beaten := make(chan struct{})
	go func() { // ends with beating, or when the client closes
		defer close(beaten)
		r.beats(beating, serving)
	}()
	err := s.queue.Consume(serving, queue.Work{
		Terms: queue.Terms{Visibility: s.options.lease, Dedupe: remember}, Concurrency: s.options.concurrency,
		Backoff: queue.DefaultBackoff, StopGrace: s.options.stopGrace, Handle: r.handle, Due: dueOf,
	})
	if cause := context.Cause(serving); err == nil && ctx.Err() == nil && errors.Is(cause, errs.ErrWrongType) {
		err = cause
	}
	fail(nil)
	cancel()
	<-beaten
	//nolint:errcheck // it counts as running for a while longer then
	r.core.Run(context.WithoutCancel(ctx), func() *script.Call { return r.keys.beat(r.process, 0, nil) }, pipeline.SendOptions{Class: pipeline.Urgent, Limit: beatAgain})
	return err
}

// handle runs the handler of a tick that was claimed. If it returns nil the message is removed, unless it was returned to the queue.
func (r *runner) handle(ctx context.Context, m *queue.Message) error {
	var t tick
	if err := json.Unmarshal(m.Payload, &t); err != nil {
		r.core.Logger.Warn("redlatch: a tick cannot be read, and is dropped", "kind", kinds.Scheduler, "name", r.name, "id", m.ID, "cause", err)
		return nil
	}
	j := r.registered(t.Job)
	if j == nil {
		r.pass(ctx, m, &t)
		return nil
	}
	b := r.beginning(j, m, t)
	answer, other, err := r.begin(ctx, b)
	if answer == "gone" && other != "" { // the schedule was replaced by another one, which may come at the same instant
		schedule := j.scheduleOf(other)
		if at := time.UnixMicro(t.Instant); schedule != nil {
			if next, ok := nextOf(schedule, at.Add(-time.Microsecond)); ok && next.Equal(at) {
				t.Text = other
				b = r.beginning(j, m, t)
			}
		}
		b.more = false // only the last call cleans up
		answer, other, err = r.begin(ctx, b)
	}
	if err == nil && answer == "died" {
		err = json.Unmarshal([]byte(other), &b.run) // the attempt that died
	}
	r.noteBegin(ctx, err)
	if err != nil {
		m.Return(beginAgain)
		return nil
	}
	switch {
	case answer == "lost": // somebody else sees to it
	case answer == "run":
		return r.run(ctx, b)
	case answer == "wait" && b.before != "":
		m.Return(core.Jitter(waitLate))
	case answer == "wait":
		m.Return(core.Jitter(passMost))
	case answer == "died" && !r.end(ctx, b, ends, resultOf(b.run, 0, errDied)),
		answer != "died" && b.delay > 0 && !r.end(ctx, b, dropped, Result{}):
		m.Return(beginAgain)
	case answer == "left":
		m.ForgetID() // it is offered again if it turns out that it was missed; the tick of a fixed delay is gone by now
	}
	return nil
}

func (r *runner) stops() bool {
	select {
	case <-r.stopped:
		return true
	default:
		return false
	}
}

func (r *runner) noteBegin(ctx context.Context, err error) {
	switch {
	case errors.Is(err, errs.ErrWrongType):
		r.fail(err)
	case !errors.Is(err, errs.ErrClosed) && ctx.Err() == nil:
		r.begins.Note(r.core.Events, err, "redlatch: runs cannot begin, and are tried again", "redlatch: runs begin again", kinds.Scheduler, r.name)
	}
}

// beginning returns what begin.lua has to know of a tick that was claimed.
func (r *runner) beginning(j *job, m *queue.Message, t tick) *beginning {
	at, claimed, o := time.UnixMicro(t.Instant), time.UnixMicro(m.Token()), &j.options
	b := &beginning{process: r.process, job: j, message: m, tick: t, more: true, run: Run{
		Job: t.Job, Scheduled: at, Started: claimed, Where: r.core.ID, Attempt: m.Attempt, Manual: t.Kind == manually,
	}}
	schedule := j.scheduleOf(t.Text)
	fixed, _ := schedule.(fixedDelay)
	switch {
	case t.Kind == manually || schedule == nil:
		return b
	case fixed.delay > 0:
		b.delay, b.window = fixed.delay, maxPeriod // it is never missed
		return b
	case t.Kind == regular:
		newest, newer := latest(schedule, at, claimed)
		if o.backfill || !newer {
			b.window = o.catchUp
			break
		}
		b.newer = newest.UnixMicro()
		if older, ok := latest(schedule, claimed.Add(-time.Minute), claimed.Add(-tooLate)); ok && o.jitter == 0 { // jitter has it wait
			b.older = idOf(t.Job, older.UnixMicro())
		}
	}
	if o.backfill && o.overlap != Allow && o.jitter == 0 { // jitter gives them another order
		if before, ok := latest(schedule, at.Add(-o.catchUp), at.Add(-time.Microsecond)); ok {
			b.before = idOf(t.Job, before.UnixMicro())
		}
		if after, ok := nextOf(schedule, at); ok && !after.After(claimed) {
			b.after = idOf(t.Job, after.UnixMicro())
		}
	}
	return b
}

// begin returns what begin.lua does, and notes when the attempt began and its token. In an outage it goes on for beginLimit, as the next
// claim may come too late for the tick; not for longer, since what b says of other ticks grows old.
func (r *runner) begin(ctx context.Context, b *beginning) (answer, other string, err error) {
	var call *script.Call
	trying, cancel := context.WithTimeout(ctx, beginLimit)
	defer cancel()
	for try := 0; ; try++ {
		call, _, err = r.core.Query(ctx, func() *script.Call { return r.keys.begin(b) })
		if !unanswered(err) {
			break
		}
		r.noteBegin(ctx, err)
		if core.Pause(trying, try) != nil || r.stops() {
			break
		}
	}
	if err != nil {
		return "", "", err
	}
	row := call.Row()
	answer, b.run.Started = row.Text(), time.UnixMicro(row.Int())
	switch {
	case answer == "run":
		b.run.Token = row.Int()
	case row.More():
		other = row.Text()
	}
	return answer, other, row.Err()
}

// pass has another process run a tick whose job is not registered here. If there is none that has, a tick that was not claimed before is
// dropped, and the mark goes back for it. A run that has to be repeated stays in the queue: ticks after it may have run, and would run
// again.
func (r *runner) pass(ctx context.Context, m *queue.Message, t *tick) {
	repeats, verb := m.Attempt > 1, "drop"
	if repeats || t.Kind == manually {
		verb = "look"
	}
	found, err := r.operate(ctx, t.Job, verb, t.Instant)
	switch {
	case err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, errs.ErrInvalid):
		m.Return(beginAgain) // somebody else will find out
	case err != nil || !found.had && !repeats:
		m.ForgetID() // it is offered again once somebody has the job
	default:
		m.PassOn(min(passLeast+found.now.Sub(time.UnixMicro(t.due()))/8, passMost))
	}
}

// run calls the handler, and ends the attempt.
func (r *runner) run(ctx context.Context, b *beginning) error {
	m, o := b.message, &b.job.options
	began := r.core.Clock.Now()
	finish := func(err error) error {
		m.Failure = err
		result := resultOf(b.run, r.core.Clock.Now()-began, err)
		cause := context.Cause(ctx)
		interrupted := err != nil && (errors.Is(cause, ErrStopped) || errors.Is(cause, ErrLost) || errors.Is(cause, errs.ErrClosed))
		retry := err != nil && m.Attempt < o.attempts && !interrupted
		how, pause := ends, time.Duration(0)
		if retry {
			how, pause = waits, o.pause(m.Attempt)
		}
		asIfDead := interrupted && !o.atMostOnce || !r.end(ctx, b, how, result)
		if !asIfDead && !retry {
			return nil
		}
		for try := 0; ; try++ { // with this pause: the consumer would take another
			err = m.Nack(context.WithoutCancel(ctx), pause, result.Err)
			if !unanswered(err) || core.Pause(ctx, try) != nil {
				break
			}
		}
		if errors.Is(err, queue.ErrNotHeld) {
			return nil // the end has arrived after all, or somebody else has the tick
		}
		return err
	}
	return finish(r.call(ctx, b, func(failure error) {
		if finish(failure) == nil {
			_ = m.Ack(context.WithoutCancel(ctx)) // which has nothing to send, and cannot fail
		}
	}))
}

// call calls the handler. A panic is an error. If the handler ends its goroutine, call does not return: ended is called instead.
func (r *runner) call(ctx context.Context, b *beginning, ended func(error)) (err error) {
	if limit := b.job.options.timeout; limit != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, *limit, ErrTimeout)
		defer cancel()
	}
	returned := false
	defer func() {
		p := recover()
		switch {
		case p != nil:
			err = r.core.Events.Panicked(p, kinds.Scheduler, r.name, b.message.ID, b.run.Attempt)
		case !returned:
			ended(errors.New("the handler ended its goroutine"))
		}
	}()
	err = b.job.run(ctx, b.run)
	returned = true
	if errors.Is(context.Cause(ctx), ErrTimeout) {
		err = ErrTimeout
	}
	return err
}

func resultOf(run Run, took time.Duration, err error) Result {
	text := ""
	if err != nil {
		text = fmt.Sprint(err) // which bears an Error that panics
		text = text[:min(len(text), maxText)]
	}
	return Result{
		Scheduled: run.Scheduled, Started: run.Started, Took: took, Attempt: run.Attempt, Where: run.Where, Err: text, Manual: run.Manual,
	}
}

// end ends an attempt, acknowledges its message unless another attempt follows, and offers what is to run after it. It works while the
// client closes, as an Ack does. In an outage it goes on for endLimit or as long as the claim lasts, whichever is longer, and then returns
// false: perhaps nobody knows that the attempt has ended, as if the process had died.
func (r *runner) end(claim context.Context, b *beginning, how ending, result Result) bool {
	text, _ := json.Marshal(result) // it has nothing that could fail
	var call *script.Call
	var err error
	least, cancel := context.WithTimeout(context.WithoutCancel(claim), endLimit)
	defer cancel()
	for try := 0; ; try++ {
		send := pipeline.SendOptions{Class: pipeline.Urgent, Limit: endLimit}
		call, err = r.core.Run(context.WithoutCancel(claim), func() *script.Call { return r.keys.end(b, how, text) }, send)
		err = core.Judged(err)
		if !unanswered(err) || core.Pause(claim, try) != nil && core.Pause(least, try) != nil {
			break
		}
	}
	var now time.Time
	var waiting string
	next := standing{job: b.job, text: b.tick.Text}
	if err == nil {
		row := call.Row()
		now, waiting, next.mark = time.UnixMicro(row.Int()), row.Text(), row.Text()
		err = row.Err()
	}
	if err != nil {
		r.core.Logger.Warn("redlatch: the result of a run may not be kept", "kind", kinds.Scheduler, "name", r.name, "id", b.message.ID, "cause", err)
		return false
	}
	if how != waits {
		b.message.Acknowledged()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(claim), endLimit)
	defer cancel()
	for _, id := range []string{b.after, waiting} {
		if id == "" {
			continue
		}
		if woken, _ := r.queue.Reschedule(ctx, id, 0); woken { // else it looks in by itself
			break
		}
	}
	if next.mark != "" {
		_ = r.advance(ctx, now, time.Now().Add(endLimit), []standing{next}) // what fails is left to the next heartbeat
	}
	return true
}

// unanswered reports whether Redis did not answer, or refused the call for now.
func unanswered(err error) bool {
	return errors.Is(err, errs.ErrUnavailable) || errors.Is(err, errs.ErrUnknown)
}
