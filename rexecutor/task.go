package rexecutor

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/rscheduler"
)

// maxPayload is how many bytes arguments or a result may have when they are encoded.
const maxPayload = 1 << 20

// Task is a kind of work: a name, the types of its arguments and its result, and settings. Both sides use the same. It is safe for concurrent
// use.
type Task[A, R any] struct {
	name     string
	settings taskSettings
	err      error // of the name or the options
}

// NewTask returns the task with this name, 1 to 512 bytes of UTF-8 without control characters, for arguments of type A and results of type
// R, which is struct{} for a job without a result. It does no I/O; bad input is the error of every method. Tasks of other executors may have the
// same name.
func NewTask[A, R any](name string, opts ...TaskOption) *Task[A, R] {
	t := &Task[A, R]{name: name}
	t.err = queue.CheckText("task", name)
	s, err := taskSettingsOf(opts)
	if t.err == nil {
		t.err = err
	}
	t.settings = s
	return t
}

// Name returns the task's name.
func (t *Task[A, R]) Name() string { return t.name }

// Submit submits a task, and returns the future of its result. If a task with the id of [WithID] waits, runs, has failed for good, or has a
// result that is kept, that is the one.
//
// It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline (10 s by default, see redlatch.WithCallTimeout). A
// submission whose reply is lost is repeated and submits one task. Bad options, and arguments that the codec refuses or that have more than 1 MiB
// encoded, are redlatch.ErrInvalid. After redlatch.ErrUnknown and redlatch.ErrNotConfirmed it returns the future too, of a task that may be
// there.
//
// It costs one round trip, which concurrent submissions share, and one more for an id that is taken.
func (t *Task[A, R]) Submit(ctx context.Context, ex *Executor, args A, opts ...SubmitOption) (*Future[R], error) {
	mark := uint64(0)
	if ex.bad() == nil {
		mark = ex.futures.mark()
	}
	id, added, err := t.submit(ctx, ex, args, opts, watched)
	if id == "" {
		return nil, ex.wrap("submit to", err)
	}
	f := t.Future(ex, id)
	if added {
		f.mark = mark
	}
	return f, ex.wrap("submit to", err)
}

// Send submits a task whose result is not kept, and for which nobody waits. It does nothing if a task with the id of [WithID] waits, runs or has
// ended lately, and returns [ErrDead] if one has failed for good. It blocks, fails and costs as Submit does.
func (t *Task[A, R]) Send(ctx context.Context, ex *Executor, args A, opts ...SubmitOption) error {
	return ex.wrap("send to", t.send(ctx, ex, args, opts))
}

func (t *Task[A, R]) send(ctx context.Context, ex *Executor, args A, opts []SubmitOption) error {
	_, _, err := t.submit(ctx, ex, args, opts, unwatched)
	return err
}

// interest says whether anybody waits for the result of a task.
type interest int

const (
	unwatched interest = iota
	watched
)

// lookTries is how often a submission is repeated whose id was taken, and is free when it looks.
const lookTries = 3

func (t *Task[A, R]) submit(ctx context.Context, ex *Executor, args A, opts []SubmitOption, why interest) (id string, added bool, err error) {
	if err := cmp.Or(ex.bad(), t.bad()); err != nil {
		return "", false, err
	}
	s, err := submissionOf(t.settings.terms, opts)
	if err != nil {
		return "", false, err
	}
	item, err := t.item(ex, args, s, why)
	if err != nil {
		return "", false, err
	}
	room := ex.settings.room
	if s.wait != nil {
		room.Wait = *s.wait
	}
	for try := 1; ; try++ {
		ids, outcomes, err := ex.queue.Offer(ctx, []queue.Item{item}, room)
		if len(ids) == 0 {
			return "", false, err
		}
		taken := errors.Is(err, queue.ErrDead) || err == nil && outcomes[0] == queue.Kept
		switch {
		case errors.Is(err, errs.ErrUnknown) || errors.Is(err, errs.ErrNotConfirmed) && !taken:
			return ids[0], false, err
		case err != nil && !taken:
			return "", false, err
		case !taken:
			return ids[0], true, nil
		}
		fates, err := ex.queue.Look(ctx, ids)
		switch {
		case err != nil:
			return "", false, err
		case fates[0].State == queue.Unknown && try < lookTries || fates[0].State == queue.Cancelled && try < lookTries:
			continue // it was free again before this has looked
		case fates[0].Task != t.name && fates[0].State != queue.Unknown:
			return "", false, fmt.Errorf("%w: task %q has the id %q", errs.ErrInvalid, fates[0].Task, ids[0])
		case fates[0].State == queue.Dead && why == unwatched:
			return "", false, ErrDead
		}
		return ids[0], false, nil
	}
}

func (t *Task[A, R]) bad() error {
	if t == nil {
		return fmt.Errorf("%w: the task is nil", errs.ErrInvalid)
	}
	return t.err
}

// item returns the message of a submission.
func (t *Task[A, R]) item(ex *Executor, args A, s submission, why interest) (queue.Item, error) {
	payload, err := codec.Marshal(ex.settings.codec, args)
	if err != nil {
		return queue.Item{}, fmt.Errorf("%w: %w", errs.ErrInvalid, err)
	}
	if len(payload) > maxPayload {
		return queue.Item{}, fmt.Errorf("%w: the arguments have %d bytes, more than %d", errs.ErrInvalid, len(payload), maxPayload)
	}
	item := queue.Item{Delay: s.delay, Payload: payload, Headers: s.headers}
	item.Own = queue.Own{Attempts: s.attempts, Priority: s.priority, Task: t.name}
	if s.id != nil {
		item.ID = *s.id
	}
	if s.expiry != nil {
		item.Own.Expiry = *s.expiry
	}
	if s.group != nil {
		group := ex.settings.group
		group.Key = *s.group
		item.Own.Group = &group
	}
	if why == watched {
		item.Own.Watcher = ex.core.ID
	}
	return item, nil
}

// Future returns the future of the task with an id, which may have been submitted by any process. It does no I/O.
func (t *Task[A, R]) Future(ex *Executor, id string) *Future[R] {
	f := &Future[R]{ex: ex, id: id}
	f.err = cmp.Or(ex.bad(), t.bad())
	if f.err == nil {
		f.err, f.task = queue.CheckText("id", id), t.name
	}
	return f
}

// Job returns a handler for a job of a scheduler: each run sends the task, under the id of the job and the time of the run, so that a run
// which is repeated sends it once. That id goes before one of [WithID]. Jobs of one name, of several schedulers, need several executors or
// tasks.
//
//	err := s.Register("nightly", rscheduler.MustCron("0 2 * * *"), Report.Job(ex, args))
func (t *Task[A, R]) Job(ex *Executor, args A, opts ...SubmitOption) func(ctx context.Context, run rscheduler.Run) error {
	return func(ctx context.Context, run rscheduler.Run) error {
		id := fmt.Sprintf("%s@%d", run.Job, run.Scheduled.UnixMicro())
		err := t.send(ctx, ex, args, append(opts[:len(opts):len(opts)], WithID(id)))
		if errors.Is(err, ErrDead) {
			return nil // it was sent by the run before
		}
		return ex.wrap("send to", err)
	}
}
