package rscheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
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
	waitAgain  = 5 * time.Second  // for the end of another run, whose script has the tick come at once
	tooLate    = 5 * time.Second  // after which a newer tick that is due runs instead, as begin.lua has it
	maxText    = 4 << 10          // bytes of an error's text that are kept

	// A tick of a job that is not registered here is passed on to be claimed after this, and an eighth of the time for which it could be
	// claimed.
	passLeast = 2 * time.Millisecond
	passMost  = 5 * time.Second
)

// runner is one call of Run.
type runner struct {
	*Scheduler
	process string
	changed int64 // when a definition was changed last, as far as this process has seen to it
	beaten  int64 // when its last heartbeat was answered, by Redis's clock; both are used by beats alone

	writing sync.Mutex       // guards written
	written map[string]known // by job, at the last heartbeat; none before the first

	fail    context.CancelCauseFunc // ends Run with an error
	stopped <-chan struct{}         // closed when nothing more is to begin

	plans, begins, confirms events.Trouble
}

// Run runs what is due, of the jobs that are registered here, until ctx is done. Then it begins nothing more, waits for running
// handlers, ends their contexts after [WithStopGrace] with [ErrStopped], and returns nil. It waits for a handler that ignores its context.
//
// It returns redlatch.ErrClosed when the client closes, redlatch.ErrInvalid for a bad name or option, [ErrLayout] for keys of
// another version, and redlatch.ErrWrongType for data of another type. It logs any other error, such as an outage of Redis, and goes on: while this process does not reach Redis it runs
// nothing, and when it is back it goes on by the policies of the jobs. In an outage the end of a run is sent for 10 s, or as long as its
// claim lasts: Run waits for that. At last it tells the other processes that it has stopped: if Redis does not answer, this takes up to
// 1 s.
//
// It costs a command each 10 s, and another each 10 to 15 s, while nothing is due, whatever the number of jobs.
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
	r := &runner{Scheduler: s, process: s.core.NextOwner(), written: map[string]known{}, fail: fail, stopped: serving.Done()}
	beating, cancel := context.WithCancel(context.WithoutCancel(ctx)) // it counts as running until the handlers have returned
	defer cancel()
	beaten := make(chan struct{})
	go func() { // ends with beating, or when the client closes
		defer close(beaten)
		r.beats(beating, serving)
	}()
	err := s.queue.Consume(serving, queue.Work{
		Terms: queue.Terms{Visibility: s.options.lease}, Concurrency: s.options.concurrency,
		Backoff: func(m *queue.Message) time.Duration { return queue.DefaultBackoff(m.Attempt) },
		Timeout: func(*queue.Message) time.Duration { return 0 }, StopGrace: s.options.stopGrace, Handle: r.handle, Due: dueOf,
	})
	if cause := context.Cause(serving); err == nil && ctx.Err() == nil && fatal(cause) {
		err = cause
	}
	fail(nil)
	cancel()
	<-beaten
	//nolint:errcheck // it counts as running for a while longer then
	r.core.Run(context.WithoutCancel(ctx), func() *script.Call { return r.keys.beat(r.process, -lifetime) }, pipeline.SendOptions{Class: pipeline.Urgent, Limit: beatAgain})
	return err
}

// handle sees to a tick that was claimed. If it returns nil the message is removed, unless it was returned to the queue.
func (r *runner) handle(ctx context.Context, m *queue.Message) error {
	t, ok := dueTick(m)
	if !ok {
		r.core.Logger.Warn("redlatch: a tick cannot be read, and is dropped", "kind", kinds.Scheduler, "name", r.name, "id", m.ID)
		return nil
	}
	c := r.claimed(m, t)
	if c == nil {
		r.pass(ctx, m, &t)
		return nil
	}
	answer, least, err := r.begin(ctx, c)
	r.noteBegin(ctx, err)
	switch {
	case err != nil:
		m.Return(beginAgain)
	case answer == "run":
		return r.run(ctx, c)
	case answer == "wait":
		m.Return(core.Jitter(waitAgain))
	case answer == "other": // which this process cannot follow
		r.pass(ctx, m, &t)
	case answer == "died":
		if !r.end(ctx, c, ends, resultOf(c.run, 0, errDied), c.after) {
			m.Return(beginAgain)
		}
	case !t.manual && (answer == "late" || answer == "paused" || answer == "left"):
		instead := func(now int64) int64 { return c.job.options.instead(c.schedule, answer, t.instant, least, now) }
		if !r.end(ctx, c, dropped, Result{}, instead) {
			m.Return(beginAgain)
		}
	}
	return nil // lost, gone, or a manual run that is left out
}

// claimed returns what is known of a tick that was claimed; nil if this process does not run its job.
func (r *runner) claimed(m *queue.Message, t tick) *claimed {
	j := r.registered(t.name)
	if j == nil {
		return nil
	}
	c := &claimed{tick: t, job: j, message: m, run: Run{
		Job: t.name, Scheduled: time.UnixMicro(t.instant), Where: r.core.ID, Attempt: m.Attempt, Manual: t.manual,
	}}
	if !c.follow(cmp.Or(r.writtenOf(t.name).text, j.text)) {
		return nil
	}
	return c
}

// follow has a tick go by the schedule of that text, and reports whether this process can read it.
func (c *claimed) follow(text string) bool {
	c.text, c.schedule = text, c.job.scheduleOf(text)
	return c.schedule != nil
}

// window returns how old the tick may be to run although it was missed.
func (c *claimed) window() time.Duration {
	if _, fixed := c.schedule.(fixedDelay); fixed {
		return maxPeriod // it is never missed
	}
	return c.job.options.catchUp
}

// plan says whether another tick runs in the place of this one if it is late, and where runs may overlap, which tick comes after it.
func (c *claimed) plan(now int64) (replaced bool, after int64) {
	o := &c.job.options
	_, fixed := c.schedule.(fixedDelay)
	switch {
	case fixed || c.manual:
		return false, never
	case o.overlap == Allow:
		return false, next(c.schedule, c.instant)
	case o.overlap == QueueAll:
		return len(newestOf(c.schedule, c.instant, now, o.backlog+1)) > o.backlog, never
	}
	newer := next(c.schedule, c.instant)
	return newer != never && newer <= now, never
}

// after returns the tick that comes after the run.
func (c *claimed) after(now int64) int64 {
	return c.job.options.after(c.schedule, c.instant, c.free, now)
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
	case fatal(err):
		r.fail(err)
	case !errors.Is(err, errs.ErrClosed) && ctx.Err() == nil:
		r.begins.Note(r.core.Events, err, "redlatch: runs cannot begin, and are tried again", "redlatch: runs begin again", kinds.Scheduler, r.name)
	}
}

// begin returns what begin.lua does, with the time from which on ticks may run instead of one that is late or was paused, and notes what
// it says of the run. In an outage it goes on for beginLimit, as the next claim may come too late for the tick.
func (r *runner) begin(ctx context.Context, c *claimed) (answer string, least int64, err error) {
	var call *script.Call
	trying, cancel := context.WithTimeout(ctx, beginLimit)
	defer cancel()
	for try := 0; ; try++ {
		call, _, err = r.core.Query(ctx, func() *script.Call { return r.keys.begin(c) })
		if !unanswered(err) {
			break
		}
		r.noteBegin(ctx, err)
		if core.Pause(trying, try) != nil || r.stops() {
			break
		}
	}
	if err != nil {
		return "", 0, err
	}
	row := call.Row()
	answer = row.Text()
	if c.now, err = r.keys.timeOf(row); err != nil {
		return "", 0, err
	}
	c.began = r.core.Clock.Now()
	switch answer {
	case "run":
		c.run.Token, c.free, c.run.Started = row.Int(), row.Int(), time.UnixMicro(row.Int())
		if call.Confirms {
			r.noteConfirmed(call)
		}
	case "died":
		c.run.Attempt, c.run.Started, c.run.Where, c.free = int(row.Int()), time.UnixMicro(row.Int()), row.Text(), row.Int()
	case "late", "paused":
		least = row.Int()
	case "other":
		if c.follow(row.Text()) && row.Err() == nil {
			return r.begin(ctx, c)
		}
	}
	return answer, least, row.Err()
}

// pass has another process run a tick whose job is not registered here, or follows a schedule that is not known here. If there is none, a
// tick of the schedule that was not claimed before is dropped: the next process that has the job puts it back.
func (r *runner) pass(ctx context.Context, m *queue.Message, t *tick) {
	verb := "look"
	if m.Attempt == 1 && !t.manual {
		verb = "drop"
	}
	member := m.Share()
	found, err := r.operate(ctx, t.name, verb, m.Claim(), member)
	switch {
	case err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, errs.ErrInvalid):
		m.Return(beginAgain) // somebody else will find out
	case err == nil && !found.had && verb == "drop":
		m.Acknowledged()
	case err == nil:
		offered := instantOf(member[:min(len(member), 16)]) // by its number, which is when it was put into the queue
		m.PassOn(min(passLeast+time.Duration(found.now-max(t.due, offered))*time.Microsecond/8, passMost))
	}
}

// run calls the handler, and ends the attempt.
func (r *runner) run(ctx context.Context, c *claimed) error {
	m, o := c.message, &c.job.options
	finish := func(err error) error {
		m.Failure = err
		result := resultOf(c.run, r.core.Clock.Now()-c.began, err)
		cause := context.Cause(ctx)
		interrupted := err != nil && (errors.Is(cause, ErrStopped) || errors.Is(cause, ErrLost) || errors.Is(cause, errs.ErrClosed))
		retry := err != nil && m.Attempt < o.attempts && !interrupted
		how, pause := ends, time.Duration(0)
		if retry {
			how, pause = waits, o.pause(m.Attempt)
		}
		asIfDead := interrupted && !o.atMostOnce
		if !asIfDead && !r.end(ctx, c, how, result, c.after) {
			asIfDead, pause = true, max(pause, beginAgain)
		}
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
	return finish(r.call(ctx, c, func(failure error) {
		if finish(failure) == nil {
			_ = m.Ack(context.WithoutCancel(ctx)) // which has nothing to send, and cannot fail
		}
	}))
}

// call calls the handler. A panic is an error. If the handler ends its goroutine, call does not return: ended is called instead.
func (r *runner) call(ctx context.Context, c *claimed, ended func(error)) (err error) {
	if limit := c.job.options.timeout; limit != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, *limit, ErrTimeout)
		defer cancel()
	}
	returned := false
	defer func() {
		p := recover()
		switch {
		case p != nil:
			err = r.core.Events.Panicked(p, kinds.Scheduler, r.name, c.message.ID, c.run.Attempt)
		case !returned:
			ended(errors.New("the handler ended its goroutine"))
		}
	}()
	err = c.job.run(ctx, c.run)
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

// end ends an attempt, or a tick that does not run, removes its message unless another attempt follows, and plans the next tick of the
// job, which follow returns. It works while the client closes, as an Ack does. In an outage it goes on for endLimit or as long as the claim
// lasts, whichever is longer, and then returns false: perhaps nobody knows that the attempt has ended, as if the process had died.
func (r *runner) end(claim context.Context, c *claimed, how ending, result Result, follow func(now int64) int64) bool {
	least, cancel := context.WithTimeout(context.WithoutCancel(claim), endLimit)
	defer cancel()
	send := pipeline.SendOptions{Class: pipeline.Urgent, Limit: endLimit}
	for try := 0; ; {
		call, err := r.core.Run(context.WithoutCancel(claim), func() *script.Call {
			following, second := text(unknown), ""
			switch s := c.schedule.(type) {
			case nil:
			case fixedDelay:
				following = "+" + text(s.delay.Microseconds())
			default:
				if c.manual {
					break
				}
				now := c.now + (r.core.Clock.Now() - c.began).Microseconds() // or a little less
				tick := follow(now)
				following = text(tick)
				if how == ends && c.job.options.overlap == Skip && tick > now {
					second = text(next(s, tick))
				}
			}
			return r.keys.end(c, how, result, following, second)
		}, send)
		err = core.Judged(err)
		if err == nil {
			row := call.Row()
			if row.Text() == "other" {
				c.follow(row.Text()) // if it is not known here, those who know it see to the next tick
				continue
			}
			if err = row.Err(); err == nil {
				r.noteConfirmed(call)
				break
			}
		}
		if fatal(err) {
			r.fail(err)
		}
		if !unanswered(err) || core.Pause(claim, try) != nil && core.Pause(least, try) != nil {
			r.core.Logger.Warn("redlatch: the result of a run may not be kept", "kind", kinds.Scheduler, "name", r.name, "id", c.message.ID, "cause", err)
			return false
		}
		try++
	}
	if how != waits {
		c.message.Acknowledged()
	}
	return true
}

// unanswered reports whether Redis did not answer, or refused the call for now.
func unanswered(err error) bool {
	return errors.Is(err, errs.ErrUnavailable) || errors.Is(err, errs.ErrUnknown)
}
