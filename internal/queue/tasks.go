package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/script"
)

// MaxTasks is how many tasks a queue may have.
const MaxTasks = 100

// TasksSuffix ends the name of the queue that has the tasks of an executor.
const TasksSuffix = "tasks"

// Tasks are those on whose messages a consumer works. It claims no others. It is safe for concurrent use.
type Tasks struct {
	names  []string
	limits map[string]int // how many messages of a task the consumer may have at a time; by its name

	mu  sync.Mutex     // guards all below; a leaf
	has map[string]int // how many it has, of the tasks with a limit
}

// NewTasks returns tasks, some of which have a limit.
func NewTasks(names []string, limits map[string]int) *Tasks {
	return &Tasks{names: names, limits: limits, has: map[string]int{}}
}

// wanted returns the names of the tasks of which it may have more messages, each with how many more, as scripts take them.
func (t *Tasks) wanted() []any {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []any
	for _, name := range t.names {
		room := maxBatch
		if limit := t.limits[name]; limit > 0 {
			room = limit - t.has[name]
		}
		if room > 0 {
			all = append(all, url.QueryEscape(name), room)
		}
	}
	return all
}

// room returns how many more messages it may have, of all tasks together.
func (t *Tasks) room() int {
	if len(t.limits) < len(t.names) {
		return math.MaxInt
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for name, limit := range t.limits {
		n += max(0, limit-t.has[name])
	}
	return n
}

// add notes that the consumer has a message more.
func (t *Tasks) add(task string) {
	if t == nil || t.limits[task] == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.has[task]++
}

// drop notes that it has one less, and reports whether it may have more of the task only since then.
func (t *Tasks) drop(task string) (freed bool) {
	if t == nil || t.limits[task] == 0 {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.has[task]--
	return t.has[task] == t.limits[task]-1
}

// Fate is what became of a task.
type Fate struct {
	State   State
	Attempt int
	Task    string
	Text    string // its result or its error
}

const (
	// Done tasks have ended; their results are kept.
	Done State = iota + Dead + 1
	// Cancelled tasks were removed.
	Cancelled
	// Unknown tasks are not there.
	Unknown State = -1

	// buried tasks are dead since the look that says so.
	buried State = Cancelled + 1
)

// fateFields is the number of values of a task in the reply of look.
const fateFields = 4

// Look returns what became of tasks: of the first of them, as many as the size of the results allows, and of one at least.
func (q *Queue) Look(ctx context.Context, ids []string) ([]Fate, error) {
	ids = ids[:min(len(ids), maxBatch)]
	r, err := q.ask(ctx, func(k *keys) *script.Call { return k.look(ids) })
	if err != nil {
		return nil, err
	}
	fates := make([]Fate, len(r)/fateFields)
	for i := range fates {
		state, err := r.int(fateFields * i)
		if err != nil {
			return nil, err
		}
		attempt, err := r.int(fateFields*i + 1)
		if err != nil {
			return nil, err
		}
		task, err := r.text(fateFields*i + 2)
		if err != nil {
			return nil, err
		}
		text, err := r.text(fateFields*i + 3)
		if err != nil {
			return nil, err
		}
		fates[i] = Fate{State: State(state), Attempt: int(attempt), Task: taskOf(task), Text: text}
		if fates[i].State == buried {
			fates[i].State = Dead
			q.manager.core.Events.DeadLetter(events.DeadLetter{
				Kind: q.kind, Name: q.user, ID: ids[i], Task: fates[i].Task, Attempt: int(attempt), Cause: text,
			})
		}
	}
	return fates, nil
}

// TaskCount are the numbers of the messages of a task.
type TaskCount struct {
	Name                           string
	Delayed, Ready, InFlight, Dead int
	Unseen                         time.Duration // for how long nobody has been seen who works on it; negative if nobody ever was
}

const (
	// CensusMost is how many claims and how many dead letters Census looks at, the newest.
	CensusMost = 10_000

	// What a call counts takes about 1 ms at most. Only executors have more lanes: one for each task and priority in use.
	censusPart   = 500
	countedLanes = 100
	allLanes     = "end" // stands for the lane after the last
)

// Census counts the messages by task, sorted by name. It makes a call for each 500 claims or dead letters, or 100 lanes.
func (q *Queue) Census(ctx context.Context) ([]TaskCount, error) {
	all := map[string]TaskCount{}
	for from, more, lane := 0, true, ""; more && from < CensusMost || lane != allLanes; from += censusPart {
		r, err := q.ask(ctx, func(k *keys) *script.Call { return k.census(from, min(censusPart, max(CensusMost-from, 0)), lane) })
		if err == nil {
			more, lane, err = r.census(all)
		}
		if err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b TaskCount) int { return cmp.Compare(a.Name, b.Name) }), nil
}

// census adds what a reply of the script has counted, and returns whether there are more claims or dead letters to count, and from which
// lane on messages that wait.
func (r reply) census(all map[string]TaskCount) (more bool, lane string, err error) {
	mark, err := r.int(0)
	if err != nil {
		return false, "", err
	}
	lane, err = r.text(1)
	if err != nil {
		return false, "", err
	}
	const fields = 6
	for i := 2; i < len(r); i += fields {
		escaped, err := r.text(i)
		if err != nil {
			return false, "", err
		}
		n := [fields - 1]int64{}
		for field := range n {
			if n[field], err = r.int(i + 1 + field); err != nil {
				return false, "", err
			}
		}
		name := taskOf(escaped)
		t := all[name]
		t.Name, t.Unseen = name, time.Duration(n[4])*time.Microsecond
		t.Delayed, t.Ready, t.InFlight, t.Dead = t.Delayed+int(n[0]), t.Ready+int(n[1]), t.InFlight+int(n[2]), t.Dead+int(n[3])
		all[name] = t
	}
	return mark == 1, lane, nil
}

// Beat notes that this client works on tasks.
func (q *Queue) Beat(ctx context.Context, t *Tasks) error {
	names := make([]any, len(t.names))
	for i, name := range t.names {
		names[i] = url.QueryEscape(name)
	}
	r, err := q.ask(ctx, func(k *keys) *script.Call { return k.beat(names) })
	if err != nil {
		return err
	}
	if n, err := r.int(0); err != nil || n == 0 {
		return err
	}
	return fmt.Errorf("%w: there are %d tasks already", errs.ErrInvalid, MaxTasks)
}

// Ends returns the channel on which a client hears which of the tasks that it waits for have ended.
func (q *Queue) Ends() string { return q.names().channel + q.manager.core.ID + ":ends" }

// EndsIn returns the ids of the tasks that a message on that channel names, or what became of one of them.
func EndsIn(message string) (ids []string, ended string, fate Fate) {
	text, one := strings.CutPrefix(message, "\x02")
	if !one {
		return strings.Split(message, "\n"), "", fate
	}
	id, record, _ := strings.Cut(text, "\n")
	escaped, result, _ := strings.Cut(strings.TrimPrefix(record, " "), " ")
	return nil, id, Fate{State: Done, Task: taskOf(escaped), Text: result}
}

// taskOf returns the task whose name stands in Redis; one that was tampered with is nobody's.
func taskOf(escaped string) string {
	name, _ := url.QueryUnescape(escaped)
	return name
}
