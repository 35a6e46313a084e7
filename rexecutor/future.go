package rexecutor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// Future is the result of a task that may not have ended. It keeps nothing alive, and is safe for concurrent use.
type Future[R any] struct {
	ex   *Executor
	id   string
	task string
	err  error  // of the task, the executor or the id
	mark uint64 // of its executor's futures before it was submitted; 0 if the task may have been there before
}

// ID returns the task's id.
func (f *Future[R]) ID() string {
	if f == nil {
		return ""
	}
	return f.id
}

// wrap says what was being done. A nil future, which comes with an error, is nobody's.
func (f *Future[R]) wrap(verb string, err error) error {
	if f == nil {
		return errs.Wrap("rexecutor", verb, "", err)
	}
	return f.ex.wrap(verb, err)
}

func (f *Future[R]) bad() error {
	if f == nil {
		return fmt.Errorf("%w: the future is nil", errs.ErrInvalid)
	}
	return f.err
}

// Status is how a task stands.
type Status struct {
	State State
	// Attempt is how many attempts there were, the one in flight included; of a task that waits for its retry, those before.
	Attempt int
	// Err is a [TaskError] for a task that is dead or whose last attempt failed, [ErrExpired], [ErrCancelled], or nil.
	Err error
}

// Status returns how the task stands, or [ErrNotFound]. It waits for Redis until ctx is done, or for the call timeout if ctx has no deadline,
// and costs one round trip.
func (f *Future[R]) Status(ctx context.Context) (Status, error) {
	s, err := f.status(ctx)
	return s, f.wrap("status of a task of", err)
}

func (f *Future[R]) status(ctx context.Context) (Status, error) {
	if err := f.bad(); err != nil {
		return Status{}, err
	}
	fates, err := f.ex.queue.Look(ctx, []string{f.id})
	if err != nil {
		return Status{}, err
	}
	fate := fates[0]
	s := Status{State: State(fate.State), Attempt: fate.Attempt}
	switch {
	case fate.State == queue.Unknown:
		return Status{}, fmt.Errorf("task %w", ErrNotFound)
	case fate.State == queue.Cancelled:
		s.State, s.Err = Dead, ErrCancelled
	case fate.State != queue.Done && fate.Text != "":
		s.Err = failureOf(fate)
	}
	return s, f.own(fate)
}

// own returns an error for what became of another task of this id.
func (f *Future[R]) own(fate queue.Fate) error {
	if fate.Task != f.task && fate.State != queue.Unknown {
		return fmt.Errorf("%w: task %q has the id %q", errs.ErrInvalid, fate.Task, f.id)
	}
	return nil
}

func failureOf(fate queue.Fate) error {
	if fate.State == queue.Dead && fate.Attempt == 0 && fate.Text == "expired" {
		return ErrExpired
	}
	return &TaskError{Text: fate.Text, Attempts: fate.Attempt}
}

// Get waits until the task has ended, and returns its result; or a [TaskError] if it has failed for good, [ErrCancelled], [ErrExpired], or
// [ErrNotFound], within a second or two, if there is no such task any more: the time of [WithResultTTL] is over, it was purged, or Redis has lost
// it. The error of a task that has failed is there until it is redriven, cancelled or purged.
//
// It waits until ctx is done, also while Redis does not answer, and then returns the error of the context, with that of the last call if that
// has failed. It returns redlatch.ErrClosed when the client closes. It ends tasks itself that have expired, also if no worker is there.
//
// The client that submitted the task first is told of its end; others learn of it when they ask, about once a second. All futures of an executor in
// a client share one channel, and one call a second for each 100.
func (f *Future[R]) Get(ctx context.Context) (R, error) {
	r, err := f.get(ctx)
	return r, f.wrap("get the result of a task of", err)
}

func (f *Future[R]) get(ctx context.Context) (result R, err error) {
	if err := f.bad(); err != nil {
		return result, err
	}
	if ctx == nil {
		return result, core.ErrNilContext
	}
	fate, err := f.ex.futures.wait(ctx, f.id, f.mark)
	if err == nil {
		err = f.own(fate)
	}
	switch {
	case err != nil:
		return result, err
	case fate.State == queue.Cancelled:
		return result, ErrCancelled
	case fate.State == queue.Dead:
		return result, failureOf(fate)
	case fate.State != queue.Done || !strings.HasPrefix(fate.Text, resultMark):
		return result, fmt.Errorf("task %w", ErrNotFound)
	}
	if err := codec.Unmarshal(f.ex.settings.codec, []byte(fate.Text[len(resultMark):]), &result); err != nil {
		return result, fmt.Errorf("the result cannot be decoded: %w", err)
	}
	return result, nil
}

// Cancel removes the task, wherever it is, and returns false if there is none, or it has ended. The context of a handler that runs ends
// with the cause [ErrCancelled], and what it returns is ignored; its worker is notified at once, or finds out when it renews its claim, after a third of the
// visibility. Who waits for the result gets [ErrCancelled], which is remembered for the time of [WithResultTTL]. The id is free at once. The
// id of another task is redlatch.ErrInvalid. It waits for Redis as Status does, costs a round trip, and is done once; after redlatch.ErrUnknown it may have been done.
func (f *Future[R]) Cancel(ctx context.Context) (bool, error) {
	if err := f.bad(); err != nil {
		return false, f.wrap("cancel a task of", err)
	}
	ok, err := f.ex.queue.CancelTask(ctx, f.id, f.task, f.ex.settings.resultTTL)
	return ok, f.ex.wrap("cancel a task of", err)
}

// manager has the futures of one client that are waited for, by executor.
type manager struct {
	core *core.Core

	mu  sync.Mutex // guards all
	all map[string]*futures
}

func newManager(c *core.Core) *manager { return &manager{core: c, all: map[string]*futures{}} }

func (m *manager) of(q *queue.Queue) *futures {
	channel := q.Ends()
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.all[channel]
	if f == nil {
		f = &futures{core: m.core, queue: q, channel: channel, waits: map[string][]waiter{}, missed: 1, poke: make(chan struct{}, 1)}
		m.all[channel] = f
	}
	return f
}

// futures are those of one executor that are waited for. A goroutine looks what became of them: at once of those that are new, or whose ends
// are told, and each second of all. It ends a second after the last has gone.
type futures struct {
	core    *core.Core
	queue   *queue.Queue
	channel string
	poke    chan struct{} // has a token when there is something to look at

	mu      sync.Mutex // guards all below
	waits   map[string][]waiter
	hears   bool     // the channel is subscribed
	missed  uint64   // rises with each end that may have been missed, from 1
	begun   int      // waits
	fresh   []string // ids to look at now
	running bool
	failure error // of the last look; nil if it was answered
}

// waiter is one who waits.
type waiter struct {
	end    chan outcome // 1
	number int          // how many had begun to wait before
}

// outcome is what became of a task, or an error that ends all waits.
type outcome struct {
	fate queue.Fate
	err  error
}

const (
	lookEvery = time.Second
	lookPart  = 100 // ids in one call
)

// mark returns a number that changes when the end of a task may have been missed; 0 while the channel is not subscribed.
func (f *futures) mark() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.hears {
		return 0
	}
	return f.missed
}

// wait waits until a task has ended. It looks at once, unless the task was submitted after mark was taken, and its end cannot have been missed.
func (f *futures) wait(ctx context.Context, id string, mark uint64) (queue.Fate, error) {
	if err := f.core.Ready(ctx); err != nil {
		return queue.Fate{}, err
	}
	end := make(chan outcome, 1)
	f.mu.Lock()
	f.waits[id] = append(f.waits[id], waiter{end, f.begun})
	f.begun++
	if !f.running {
		f.running = true
		go f.run() // ends as said above, or when the client closes
	}
	looks := mark == 0 || mark != f.missed
	if looks {
		f.fresh = append(f.fresh, id)
	}
	f.mu.Unlock()
	if looks {
		f.look()
	}
	select {
	case o := <-end:
		return o.fate, o.err
	case <-ctx.Done():
		if failure := f.forget(id, end); failure != nil {
			return queue.Fate{}, fmt.Errorf("%w: %w", ctx.Err(), failure)
		}
		return queue.Fate{}, ctx.Err()
	case <-f.core.Closing():
		_ = f.forget(id, end) // the client has closed
		return queue.Fate{}, errs.ErrClosed
	}
}

// forget ends a wait, and returns why the last look has failed.
func (f *futures) forget(id string, end chan outcome) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waits[id] = slices.DeleteFunc(f.waits[id], func(w waiter) bool { return w.end == end })
	if len(f.waits[id]) == 0 {
		delete(f.waits, id)
	}
	return f.failure
}

func (f *futures) look() {
	select {
	case f.poke <- struct{}{}:
	default: // it is about to look
	}
}

// Subscribed has all looked at: what was published before was not heard.
func (f *futures) Subscribed() {
	f.mu.Lock()
	f.hears = true
	f.missed++
	for id := range f.waits {
		f.fresh = append(f.fresh, id)
	}
	f.mu.Unlock()
	f.look()
}

// Message says which tasks have ended, or what the result of one is.
func (f *futures) Message(payload string) {
	ids, ended, fate := queue.EndsIn(payload)
	f.mu.Lock()
	if slices.ContainsFunc(append(ids[:len(ids):len(ids)], ended), func(id string) bool { return id != "" && len(f.waits[id]) == 0 }) {
		f.missed++
	}
	if ended != "" {
		f.endLocked([]string{ended}, f.begun, outcome{fate: fate})
	}
	f.fresh = append(f.fresh, ids...)
	f.mu.Unlock()
	if len(ids) > 0 {
		f.look()
	}
}

func (f *futures) run() {
	member, confirmed := f.core.Router.Join(f.channel, f)
	if confirmed {
		f.Subscribed()
	}
	defer member.Leave()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for idle := false; ; {
		all := false
		select {
		case <-f.poke:
		case <-ticker.C:
			all = true
		case <-f.core.Closing():
		}
		ids, ended := f.next(all, idle)
		if ended {
			return
		}
		idle = all && len(ids) == 0
		var parts sync.WaitGroup // they go out together
		for part := range slices.Chunk(ids, lookPart) {
			parts.Go(func() {
				for len(part) > 0 {
					part = part[f.lookAt(part):]
				}
			})
		}
		parts.Wait()
	}
}

// next returns the ids to look at, and whether the goroutine ends: nobody waits, or the client closes.
func (f *futures) next(all, idle bool) (ids []string, ended bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.core.Closed() || all && idle && len(f.waits) == 0 {
		f.running, f.hears = false, false
		f.missed++
		return nil, true
	}
	seen := map[string]bool{}
	add := func(id string) {
		if len(f.waits[id]) > 0 && !seen[id] {
			seen[id], ids = true, append(ids, id)
		}
	}
	for _, id := range f.fresh {
		add(id)
	}
	f.fresh = nil
	for id := range f.waits {
		if all {
			add(id)
		}
	}
	return ids, false
}

// lookAt asks what became of tasks, ends the waits for those that have ended, and returns of how many it has learned: of all after an error,
// which are looked at again later.
func (f *futures) lookAt(ids []string) int {
	ctx, cancel := context.WithTimeout(context.Background(), f.core.CallTimeout) //nolint:forbidigo // a look belongs to no caller
	defer cancel()
	f.mu.Lock()
	begun := f.begun
	f.mu.Unlock()
	fates, err := f.queue.Look(ctx, ids)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failure = err
	if err != nil {
		if fatal(err) {
			f.endLocked(ids, begun, outcome{err: err})
		}
		return len(ids)
	}
	for i, fate := range fates {
		if fate.State == queue.Dead || fate.State == queue.Done || fate.State == queue.Cancelled || fate.State == queue.Unknown {
			f.endLocked(ids[i:i+1], begun, outcome{fate: fate})
		}
	}
	return max(1, len(fates))
}

// endLocked ends waits, of those that had begun when the look was sent: what it has found may be over for others.
func (f *futures) endLocked(ids []string, begun int, o outcome) {
	for _, id := range ids {
		var left []waiter
		for _, w := range f.waits[id] {
			if w.number >= begun {
				left = append(left, w)
				continue
			}
			w.end <- o // it has room for one, and gets no other
		}
		if f.waits[id] = left; len(left) == 0 {
			delete(f.waits, id)
		}
	}
}
