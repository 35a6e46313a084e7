package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
)

// Queue is a queue whose payloads are not decoded.
type Queue = rdelayedqueue.Queue[[]byte]

// QueueOf returns the queue of a name.
func QueueOf(c *redlatch.Client, name string) *Queue {
	return redlatch.GetDelayedQueue[[]byte](c, name, rdelayedqueue.WithCodec(codec.Bytes{}))
}

// Messages are those of a queue, or the tasks of an executor.
type Messages struct {
	operations
	Object
	Payloads bool // of pages

	core  *core.Core
	queue *queue.Queue
	stats func(ctx context.Context) (rexecutor.Stats, error)
	purge func(ctx context.Context, s rdelayedqueue.State) (int, error)
}

// operations are what both are operated with.
type operations interface {
	Redrive(ctx context.Context, id string) (bool, error)
	RedriveAll(ctx context.Context) (int, error)
	Cancel(ctx context.Context, id string) (bool, error)
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	Series(ctx context.Context) ([]rdelayedqueue.Minute, error)
}

// MessagesOf returns those of a queue or an executor.
func MessagesOf(c *redlatch.Client, o Object) *Messages {
	of := core.Of(c)
	if o.Kind == kinds.Executor {
		ex := rexecutor.New(c, o.Name)
		return &Messages{
			ex.Queue(), o, false, of, core.Manager(of, queue.New).Derived(o.Kind, o.Name, queue.TasksSuffix), ex.Stats,
			func(ctx context.Context, s rdelayedqueue.State) (int, error) {
				return ex.Queue().Purge(ctx, rexecutor.State(s))
			},
		}
	}
	q := QueueOf(c, o.Name)
	return &Messages{
		q, o, false, of, core.Manager(of, queue.New).Queue(o.Name),
		func(ctx context.Context) (rexecutor.Stats, error) {
			s, err := q.Stats(ctx)
			return rexecutor.Stats{Stats: s}, err
		},
		func(ctx context.Context, s rdelayedqueue.State) (int, error) { return q.Purge(ctx, s) },
	}
}

// Stats counts them; a queue has no tasks.
func (q *Messages) Stats(ctx context.Context) (rexecutor.Stats, error) { return q.stats(ctx) }

// Purge deletes all of a state.
func (q *Messages) Purge(ctx context.Context, s rdelayedqueue.State) (int, error) {
	return q.purge(ctx, s)
}

// Reschedule changes when a message that waits is due.
func (q *Messages) Reschedule(ctx context.Context, id string, d time.Duration) (ok bool, err error) {
	if err = q.check(id); err == nil {
		err = errs.Between("delay", d, 0, queue.MaxDelay)
	}
	if err == nil {
		ok, err = q.queue.Reschedule(ctx, id, d)
	}
	return ok, q.wrap("reschedule in", err)
}

// Get returns one with its payload, and its headers, or [rdelayedqueue.ErrNotFound].
func (q *Messages) Get(ctx context.Context, id string) (m Message, headers map[string]string, err error) {
	var e queue.Entry
	if err = q.check(id); err == nil {
		e, err = q.queue.Get(ctx, id)
	}
	if err != nil {
		return m, nil, q.wrap("get from", err)
	}
	m = messageOf(e)
	m.Payload = Decoded(e.Payload)
	return m, e.Headers, nil
}

// Page returns up to n after a cursor, with payloads if those are wanted, in the order of rdelayedqueue's All, and the cursor of the next page: empty for
// the first page, and after the last one.
func (q *Messages) Page(ctx context.Context, s rdelayedqueue.State, cursor string, n int) (all []Message, next string, err error) {
	err = q.queue.Check()
	if err == nil && !queue.CheckCursor(cursor) {
		err = fmt.Errorf("%w: %.100q is no cursor", errs.ErrInvalid, cursor)
	}
	var found []queue.Entry
	if err == nil {
		found, next, err = q.queue.List(ctx, queue.State(s), cursor, n)
	}
	for _, e := range found {
		m := messageOf(e)
		if q.Payloads {
			m.Payload = Decoded(e.Payload)
		}
		all = append(all, m)
	}
	return all, next, q.wrap("list", err)
}

func (q *Messages) check(id string) error {
	if err := q.queue.Check(); err != nil {
		return err
	}
	return queue.CheckText("id", id)
}

func (q *Messages) wrap(verb string, err error) error {
	return errs.Wrap(kinds.Package(q.Kind), verb, q.Name, err)
}

// States are the states of messages, in the order of their lives.
func States() []rdelayedqueue.State {
	return []rdelayedqueue.State{rdelayedqueue.Delayed, rdelayedqueue.Ready, rdelayedqueue.InFlight, rdelayedqueue.Dead}
}

// StateOf returns the state that a word names.
func StateOf(word string) (rdelayedqueue.State, error) {
	for _, s := range States() {
		if StateName(s) == word {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%q is no state: delayed, ready, in-flight or dead", word)
}

// StateName returns the word for a state.
func StateName(s rdelayedqueue.State) string {
	switch s {
	case rdelayedqueue.Delayed:
		return "delayed"
	case rdelayedqueue.Ready:
		return "ready"
	case rdelayedqueue.InFlight:
		return "in-flight"
	default:
		return "dead"
	}
}

// TimeName says what DueAt is for messages of a state, which is given by its word.
func TimeName(state string) string {
	switch state {
	case StateName(rdelayedqueue.InFlight):
		return "claimed until"
	case StateName(rdelayedqueue.Dead):
		return "died"
	}
	return "due"
}

// FirstLine returns the first line of a text, with a mark if there are more.
func FirstLine(text string) string {
	line, rest, _ := strings.Cut(text, "\n")
	if rest != "" {
		line += " …"
	}
	return line
}

// Message is a message as it is shown.
type Message struct {
	ID          string
	Task        string `json:",omitempty"` // of an executor
	Group       string `json:",omitempty"`
	Priority    int    `json:",omitempty"`
	State       string
	Attempt     int
	MaxAttempts *int          `json:",omitempty"` // its own; 0 for no limit
	Expiry      time.Duration `json:",omitempty"`
	DueAt       time.Time
	Error       string
	History     []queue.Attempt `json:",omitempty"`
	Payload     any             // as [Decoded] returns it; nil if it is not to be shown
}

// Attempts returns which attempt it is at, and of how many if it says so itself.
func (m Message) Attempts() string {
	if m.MaxAttempts == nil || *m.MaxAttempts == 0 {
		return strconv.Itoa(m.Attempt)
	}
	return fmt.Sprint(m.Attempt, " of ", *m.MaxAttempts)
}

func messageOf(e queue.Entry) Message {
	return Message{
		ID: e.ID, Task: e.Task, Group: e.Group, Priority: e.Priority, State: StateName(rdelayedqueue.State(e.State)), Attempt: e.Attempt,
		MaxAttempts: e.Attempts, Expiry: e.Expiry, DueAt: e.DueAt, Error: e.Error, History: e.History,
	}
}

// Decoded returns what bytes mean by the default codec, or as JSON, or as text; or else the bytes.
func Decoded(data []byte) any {
	var v any
	if codec.Unmarshal(codec.MsgPack{}, data, &v) == nil { // no JSON but a single digit is MessagePack too
		if _, err := json.Marshal(v); err == nil {
			return v
		}
	}
	var text json.RawMessage // which keeps numbers as they are
	switch {
	case codec.Unmarshal(codec.JSON{}, data, &text) == nil:
		return text
	case utf8.Valid(data):
		return string(data)
	}
	return data
}
