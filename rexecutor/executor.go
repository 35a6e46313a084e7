package rexecutor

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// Executor has the tasks of all processes that share its name. It is safe for concurrent use.
type Executor struct {
	core     *core.Core
	name     string
	settings settings
	queue    *queue.Queue
	futures  *futures
	err      error // of the name or the options

	mu       sync.Mutex // guards handlers
	handlers map[string]*handling
}

// New returns the executor with this name. client is a *redlatch.Client. It does no I/O and keeps nothing alive; bad input is the error of
// every method. Handlers belong to the value that it returns: [Executor.Work] runs those of its own.
func New(client core.Client, name string, opts ...Option) *Executor {
	c := core.Of(client)
	ex := &Executor{core: c, name: name, handlers: map[string]*handling{}}
	ex.err = core.CheckUserName(name, c.Prefix+name)
	s, err := executorSettings(opts)
	if ex.err == nil {
		ex.err = err
	}
	ex.settings = s
	ex.queue = core.Manager(c, queue.New).Derived(kinds.Executor, name, queue.TasksSuffix)
	if ex.err == nil {
		ex.err = ex.queue.Check()
	}
	ex.futures = core.Manager(c, newManager).of(ex.queue)
	return ex
}

// Name returns the executor's name as it was given to the client.
func (ex *Executor) Name() string { return ex.name }

func (ex *Executor) bad() error {
	if ex == nil {
		return fmt.Errorf("%w: the executor is nil", errs.ErrInvalid)
	}
	return ex.err
}

func (ex *Executor) wrap(verb string, err error) error {
	name := ""
	if ex != nil {
		name = ex.name
	}
	return errs.Wrap("rexecutor", verb, name, err)
}

// State is the state of a task.
type State int

const (
	// Delayed tasks are not due.
	Delayed = State(queue.Delayed)
	// Ready tasks are due, or their claim has run out.
	Ready = State(queue.Ready)
	// InFlight tasks are claimed by a worker.
	InFlight = State(queue.InFlight)
	// Dead tasks have failed for good, have expired, or were cancelled.
	Dead = State(queue.Dead)
	// Done tasks have ended, and their results are kept.
	Done = State(queue.Done)
)

// String returns the name of the state.
func (s State) String() string {
	if s == Done {
		return "done"
	}
	return rdelayedqueue.State(s).String()
}

// Entry is a task as it stands in Redis.
type Entry struct {
	ID   string
	Task string
	// Args are the encoded arguments.
	Args     []byte
	Headers  map[string]string
	Group    string // empty for none
	Priority int
	State    State
	// Attempt is how many attempts there were, the one in flight included.
	Attempt int
	// DueAt is when the task is due; of one in flight, when its claim runs out; of a dead one, when it died.
	DueAt time.Time
	// Error is the text of the last attempt that failed, or why the task is dead.
	Error string
	// History has its last five attempts that failed, or whose claims ran out, the newest first.
	History []rdelayedqueue.Attempt
}

// All returns the tasks of a state, sorted by DueAt, those of higher priority first. [Done] is redlatch.ErrInvalid: what has ended is not listed. Tasks that change their state
// meanwhile may be missed or listed twice.
//
// It asks for more when the loop gets there: a round trip for each 100 tasks or 1 MiB. An error is the last thing that it yields.
func (ex *Executor) All(ctx context.Context, s State) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		err := ex.bad()
		if err == nil && (s < Delayed || s > Dead) {
			err = fmt.Errorf("%w: tasks that are %v are not listed", errs.ErrInvalid, s)
		}
		for cursor, more := "", true; more; more = cursor != "" {
			var page []queue.Entry
			if err == nil {
				page, cursor, err = ex.queue.List(ctx, queue.State(s), cursor, pageSize)
			}
			if err != nil {
				yield(Entry{}, ex.wrap("list", err))
				return
			}
			for _, e := range page {
				if !yield(entryOf(e), nil) {
					return
				}
			}
		}
	}
}

// pageSize is how many tasks All asks for at a time.
const pageSize = 100

func entryOf(e queue.Entry) Entry {
	entry := Entry{
		ID: e.ID, Task: e.Task, Args: e.Payload, Headers: e.Headers, Group: e.Group, Priority: e.Priority, State: State(e.State),
		Attempt: e.Attempt, DueAt: e.DueAt, Error: e.Error,
	}
	for _, a := range e.History {
		entry.History = append(entry.History, rdelayedqueue.Attempt(a))
	}
	return entry
}

// Stats are the numbers of an executor's tasks, as of [rdelayedqueue.Stats].
type Stats struct {
	rdelayedqueue.Stats

	// Tasks has the names that were ever submitted or handled, sorted.
	Tasks []TaskStats
}

// TaskStats are the numbers of the tasks of one name.
type TaskStats struct {
	Name string
	// InFlight and Dead are counted among the 10,000 newest of the executor.
	Delayed, Ready, InFlight, Dead int
	// Unseen is the time since the last sign of life of a worker that handles the task, which each gives every 10 s; negative if none ever
	// did.
	Unseen time.Duration
	// Orphaned reports whether tasks of the name wait, and no worker that handles them has been there for 25 s.
	Orphaned bool
}

// Stats counts the tasks. It costs two round trips, and one more for each 500 tasks that are in flight, or dead, after the first, nineteen at
// most. With more than 100 pairs of a task and a priority that wait it costs two more for each 100.
func (ex *Executor) Stats(ctx context.Context) (Stats, error) {
	s, err := ex.stats(ctx)
	return s, ex.wrap("stats of", err)
}

func (ex *Executor) stats(ctx context.Context) (s Stats, err error) {
	if err := ex.bad(); err != nil {
		return s, err
	}
	counts, err := ex.queue.Stats(ctx)
	if err != nil {
		return s, err
	}
	s.Stats = rdelayedqueue.Stats(counts)
	tasks, err := ex.queue.Census(ctx)
	for _, t := range tasks {
		waits, handled := t.Delayed+t.Ready > 0, t.Unseen >= 0 && t.Unseen <= lifetime
		s.Tasks = append(s.Tasks, TaskStats{
			Name: t.Name, Delayed: t.Delayed, Ready: t.Ready, InFlight: t.InFlight, Dead: t.Dead, Unseen: t.Unseen, Orphaned: waits && !handled,
		})
	}
	return s, err
}

// Queue is the queue of an executor's tasks, for those who operate it.
type Queue struct{ ex *Executor }

// Queue returns the queue of the executor's tasks.
func (ex *Executor) Queue() *Queue { return &Queue{ex} }

// Pause has no task begin until [Queue.Resume]. Those that run go on. It waits for Redis until ctx is done, or for the call timeout if ctx has
// no deadline, as the other methods do, and each costs a round trip. After redlatch.ErrUnknown it may have been done.
func (q *Queue) Pause(ctx context.Context) error {
	return q.do("pause", func() error { return q.ex.queue.Pause(ctx, -1) })
}

// PauseFor is Pause for a time, 1 ms to 100 years.
func (q *Queue) PauseFor(ctx context.Context, d time.Duration) error {
	return q.do("pause", func() error {
		if err := errs.Between("pause", d, time.Millisecond, queue.MaxDelay); err != nil {
			return err
		}
		return q.ex.queue.Pause(ctx, d)
	})
}

// Resume ends a pause.
func (q *Queue) Resume(ctx context.Context) error {
	return q.do("resume", func() error { return q.ex.queue.Resume(ctx) })
}

// Redrive makes a task due again that has failed for good or has expired, as if it had never been tried, and returns false if there is none.
func (q *Queue) Redrive(ctx context.Context, id string) (ok bool, err error) {
	err = q.do("redrive in", func() (err error) {
		if err := queue.CheckText("id", id); err != nil {
			return err
		}
		ok, err = q.ex.queue.Redrive(ctx, id)
		return err
	})
	return ok, err
}

// RedriveAll is Redrive for all that are dead now, and returns their number. It costs a round trip for each 100.
func (q *Queue) RedriveAll(ctx context.Context) (n int, err error) {
	err = q.do("redrive in", func() (err error) {
		n, err = q.ex.queue.RedriveAll(ctx)
		return err
	})
	return n, err
}

// Cancel is [Future.Cancel] for a task of any name.
func (q *Queue) Cancel(ctx context.Context, id string) (ok bool, err error) {
	err = q.do("cancel a task of", func() (err error) {
		if err := queue.CheckText("id", id); err != nil {
			return err
		}
		ok, err = q.ex.queue.CancelTask(ctx, id, "", q.ex.settings.resultTTL)
		return err
	})
	return ok, err
}

// Purge removes all tasks of a state for good, and returns their number. Their futures return [ErrNotFound]. It costs a round trip for each 100.
func (q *Queue) Purge(ctx context.Context, s State) (n int, err error) {
	err = q.do("purge", func() (err error) {
		if s < Delayed || s > Dead {
			return fmt.Errorf("%w: tasks that are %v cannot be purged", errs.ErrInvalid, s)
		}
		n, err = q.ex.queue.Purge(ctx, queue.State(s))
		return err
	})
	return n, err
}

// Series returns what happened in each minute of the last hour, the oldest first.
func (q *Queue) Series(ctx context.Context) (all []rdelayedqueue.Minute, err error) {
	err = q.do("series of", func() error {
		minutes, err := q.ex.queue.Series(ctx)
		for _, m := range minutes {
			all = append(all, rdelayedqueue.Minute(m))
		}
		return err
	})
	return all, err
}

func (q *Queue) do(verb string, act func() error) error {
	if err := q.ex.bad(); err != nil {
		return q.ex.wrap(verb, err)
	}
	return q.ex.wrap(verb, act())
}
