package rexecutor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/queue"
)

const (
	beatEvery = 10 * time.Second
	lifetime  = 25 * time.Second // for which a task counts as handled after a sign of life
	beatLimit = time.Second      // of one of them
)

// Info is what a handler is told of the attempt that it makes.
type Info struct {
	// Task is the name of the task, and ID its id.
	Task, ID string
	// Attempt is 1 at first. One that was given back before work on it began does not count.
	Attempt int
	// Token rises with each claim of the executor: a fencing token.
	Token int64
	// Headers are those of the submission, and those of an observer. They are not to be changed.
	Headers map[string]string
}

// Call is an attempt at a task, with its arguments.
type Call[A any] struct {
	Args A
	Info
}

// Handler handles an attempt at a task of any name, for middleware: see [Use].
type Handler = func(ctx context.Context, info Info) error

// handling is what Handle has registered.
type handling struct {
	settings taskSettings
	// begin returns a handler for one attempt, and what returns its result, encoded, once the handler has returned nil.
	begin func(args []byte) (Handler, func() ([]byte, error))
}

// Handle registers the handler of a task, for each [Executor.Work] that begins later. It does no I/O. If the handler returns an error, panics or
// takes longer than [WithTimeout], the attempt has failed: the task is due again after the pause of [WithBackoff], or has failed for good after the last of
// [WithMaxAttempts]. With an error of [Reject] it has failed for good at once, and one of [Snooze] puts it off. The context ends after [WithTimeout] ([ErrTimeout]), when the task is
// cancelled ([ErrCancelled]), when its claim is lost ([ErrLost]), when the client closes, or when the grace of a Work that ends is over
// ([ErrStopped]).
//
// Arguments that cannot be decoded, and a result of [Task.Submit] that cannot be encoded or has more than 1 MiB, make the task fail for good. A nil handler, a
// second one for a name, and the 101st task are redlatch.ErrInvalid.
func (t *Task[A, R]) Handle(ex *Executor, handle func(ctx context.Context, c Call[A]) (R, error)) error {
	return ex.wrap("handle tasks of", t.handle(ex, handle))
}

func (t *Task[A, R]) handle(ex *Executor, handle func(ctx context.Context, c Call[A]) (R, error)) error {
	if err := cmp.Or(ex.bad(), t.bad()); err != nil {
		return err
	}
	if handle == nil {
		return fmt.Errorf("task %q: %w: the handler is nil", t.name, errs.ErrInvalid)
	}
	h := &handling{settings: t.settings, begin: func(args []byte) (Handler, func() ([]byte, error)) {
		var result R
		run := func(ctx context.Context, info Info) (err error) {
			c := Call[A]{Info: info}
			if err := codec.Unmarshal(ex.settings.codec, args, &c.Args); err != nil {
				return Reject(fmt.Errorf("the arguments cannot be decoded: %w", err))
			}
			result, err = handle(ctx, c)
			return err
		}
		return run, func() ([]byte, error) { return codec.Marshal(ex.settings.codec, result) }
	}}
	ex.mu.Lock()
	defer ex.mu.Unlock()
	switch {
	case ex.handlers[t.name] != nil:
		return fmt.Errorf("task %q: %w: it has a handler already", t.name, errs.ErrInvalid)
	case len(ex.handlers) == queue.MaxTasks:
		return fmt.Errorf("task %q: %w: %d tasks have handlers already", t.name, errs.ErrInvalid, queue.MaxTasks)
	}
	ex.handlers[t.name] = h
	return nil
}

// Reject returns an error for handlers that give up: the task has failed for good, also if attempts are left. The handler may wrap it.
func Reject(err error) error { return queue.Rejection(err) }

// Snooze returns an error for handlers that cannot work on their task now: it is due again after d, and the attempt does not count. With a d
// that is negative or above 100 years the error is redlatch.ErrInvalid, and fails the attempt.
func Snooze(d time.Duration) error { return queue.Postponement(d) }

// Work claims tasks that have handlers here, and runs the handlers, until ctx is done. Then it begins nothing more, gives back what it has not begun, waits for running
// handlers, ends their contexts after [WithStopGrace] with [ErrStopped], and returns nil. It waits for a handler that ignores its context. One that
// then returns an error has made no attempt: its task is due again at once. The handlers' contexts have the values of ctx.
//
// It returns redlatch.ErrClosed when the client closes, redlatch.ErrInvalid for bad options and without a handler, redlatch.ErrWrongType for
// data of another type, and [ErrLayout]. It logs any other error, such as an outage of Redis, and goes on. Handlers that are registered later
// are those of the next Work.
//
// It costs a command each 10 s, and another each 10 to 15 s, while nothing is due.
func (ex *Executor) Work(ctx context.Context, opts ...WorkOption) error {
	return ex.wrap("work for", ex.work(ctx, opts))
}

func (ex *Executor) work(ctx context.Context, opts []WorkOption) error {
	if err := ex.bad(); err != nil {
		return err
	}
	s, err := workSettingsOf(opts)
	if err != nil {
		return err
	}
	w := &worker{ex: ex}
	ex.mu.Lock()
	w.handlers = maps.Clone(ex.handlers)
	ex.mu.Unlock()
	if len(w.handlers) == 0 {
		return fmt.Errorf("%w: no task has a handler", errs.ErrInvalid)
	}
	for name := range s.limits {
		if w.handlers[name] == nil {
			return fmt.Errorf("%w: task %q has a concurrency and no handler", errs.ErrInvalid, name)
		}
	}
	if w.chain, err = chained(s.use); err != nil {
		return err
	}
	switch {
	case ctx == nil:
		return core.ErrNilContext
	case ctx.Err() != nil:
		return nil // its end is no error, however early
	}
	tasks := queue.NewTasks(slices.Sorted(maps.Keys(w.handlers)), s.limits)
	if err := w.announce(ctx, tasks); err != nil || ctx.Err() != nil {
		return err
	}
	working, cancel := context.WithCancel(ctx)
	beaten := make(chan error, 1)
	go func() { // ends with working, or when the client closes
		err := w.beats(working, tasks)
		if err != nil {
			cancel()
		}
		beaten <- err
	}()
	err = ex.queue.Consume(working, queue.Work{
		Terms:       queue.Terms{Visibility: ex.settings.visibility, Attempts: defaultAttempts, Dedupe: ex.settings.resultTTL, Tasks: tasks},
		Concurrency: s.concurrency, Prefetch: -1, StopGrace: s.stopGrace, Handle: w.handle, Backoff: w.backoff, Timeout: w.timeout,
	})
	cancel()
	return cmp.Or(err, <-beaten)
}

// defaultAttempts is how many attempts a task has that says nothing else.
const defaultAttempts = 10

// worker is one call of Work.
type worker struct {
	ex       *Executor
	handlers map[string]*handling
	chain    Handler // all middleware; the handler that it calls last is in the context
	trouble  events.Trouble
}

// innermost is the key of the handler that the chain of middleware calls last.
type innermost struct{}

// chained returns the chain of middleware, which is one for all tasks.
func chained(use []func(Handler) Handler) (Handler, error) {
	chain := func(ctx context.Context, info Info) error {
		run, ok := ctx.Value(innermost{}).(Handler)
		if !ok {
			return Reject(errors.New("a middleware has passed on a context that does not descend from its own"))
		}
		return run(ctx, info)
	}
	for _, middleware := range slices.Backward(use) {
		if middleware == nil {
			return nil, fmt.Errorf("%w: a middleware is nil", errs.ErrInvalid)
		}
		if chain = middleware(chain); chain == nil {
			return nil, fmt.Errorf("%w: a middleware returned no handler", errs.ErrInvalid)
		}
	}
	return chain, nil
}

// announce says that the tasks are handled here, before the first is claimed: until Redis has answered, or ctx is done.
func (w *worker) announce(ctx context.Context, tasks *queue.Tasks) error {
	for try := 0; ; try++ {
		err := w.ex.queue.Beat(ctx, tasks)
		if err == nil || fatal(err) {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		w.note(err)
		if core.Pause(ctx, try) != nil {
			return nil
		}
	}
}

// beats says each 10 s that the tasks are handled here, until ctx is done, or an error ends Work: a worker that has nothing to claim learns of
// a newer layout only here.
func (w *worker) beats(ctx context.Context, tasks *queue.Tasks) error {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		case <-w.ex.core.Closing():
			return nil
		}
		bounded, cancel := context.WithTimeout(ctx, beatLimit)
		err := w.ex.queue.Beat(bounded, tasks)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrLayout) || errors.Is(err, errs.ErrWrongType):
			return err
		}
		w.note(err)
	}
}

func (w *worker) note(err error) {
	if !errors.Is(err, errs.ErrClosed) {
		w.trouble.Note(w.ex.core.Events, err, "redlatch: a worker cannot say which tasks it handles, and tries again", "redlatch: a worker says which tasks it handles again",
			kinds.Executor, w.ex.name)
	}
}

// fatal reports whether an error ends Work.
func fatal(err error) bool {
	return errors.Is(err, errs.ErrClosed) || errors.Is(err, ErrLayout) || errors.Is(err, errs.ErrWrongType) || errors.Is(err, errs.ErrInvalid)
}

// handle makes an attempt at a task.
func (w *worker) handle(ctx context.Context, m *queue.Message) error {
	h := w.handlers[m.Task()]
	if h == nil { // its number in Redis is that of another task: what Redis has lost was written again
		m.Return(beatEvery)
		return nil
	}
	run, encode := h.begin(m.Payload)
	info := Info{Task: m.Task(), ID: m.ID, Attempt: m.Attempt, Token: m.Token(), Headers: m.Headers}
	err := w.chain(context.WithValue(ctx, innermost{}, run), info)
	if err == nil && !m.Finished() {
		err = conclude(m, encode)
	}
	return m.Heed(ctx, err)
}

// conclude has the end of a task keep its result, if anybody wants it.
func conclude(m *queue.Message, encode func() ([]byte, error)) error {
	if !m.Watched() {
		m.Conclude(nil)
		return nil
	}
	result, err := encode()
	switch {
	case err != nil:
		return Reject(fmt.Errorf("the result cannot be encoded: %w", err))
	case len(result) > maxPayload:
		return Reject(fmt.Errorf("the result has %d bytes, more than %d", len(result), maxPayload))
	}
	m.Conclude(append([]byte(resultMark), result...))
	return nil
}

// resultMark stands before a result that is kept.
const resultMark = "r"

func (w *worker) backoff(m *queue.Message) time.Duration {
	if h := w.handlers[m.Task()]; h != nil {
		return h.settings.backoff(m.Attempt)
	}
	return time.Second
}

func (w *worker) timeout(m *queue.Message) time.Duration {
	if h := w.handlers[m.Task()]; h != nil && h.settings.timeout != nil {
		return *h.settings.timeout
	}
	return 0
}
