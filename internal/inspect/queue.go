package inspect

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// Queue is a queue whose payloads are not decoded.
type Queue = rdelayedqueue.Queue[[]byte]

// QueueOf returns the queue of a name.
func QueueOf(c *redlatch.Client, name string) *Queue {
	return redlatch.GetDelayedQueue[[]byte](c, name, rdelayedqueue.WithCodec(codec.Bytes{}))
}

// Page returns up to n messages of a queue after a cursor, in the order of rdelayedqueue's All, and the cursor of the next
// page: empty for the first page, and after the last one.
func Page(ctx context.Context, c *redlatch.Client, name string, s rdelayedqueue.State, cursor string, n int) ([]rdelayedqueue.Entry[[]byte], string, error) {
	q := core.Manager(core.Of(c), queue.New).Queue(name)
	err := q.Check()
	if err == nil && !queue.CheckCursor(cursor) {
		err = fmt.Errorf("%w: %.100q is no cursor", errs.ErrInvalid, cursor)
	}
	if err != nil {
		return nil, "", errs.Wrap("rdelayedqueue", "list", name, err)
	}
	found, next, err := q.List(ctx, queue.State(s), cursor, n)
	all := make([]rdelayedqueue.Entry[[]byte], len(found))
	for i, e := range found {
		all[i] = rdelayedqueue.Entry[[]byte]{
			ID: e.ID, Value: e.Payload, Raw: e.Payload, Headers: e.Headers, Priority: e.Priority, Group: e.Group, State: s,
			Attempt: e.Attempt, DueAt: e.DueAt, Error: e.Error,
		}
	}
	return all, next, errs.Wrap("rdelayedqueue", "list", name, err)
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
	ID       string
	Group    string `json:",omitempty"`
	Priority int    `json:",omitempty"`
	State    string
	Attempt  int
	DueAt    time.Time
	Error    string
	History  []Attempt `json:",omitempty"`
	Payload  any       // nil if it is not to be shown
}

// Attempt is an attempt of a message that failed, or whose claim ran out.
type Attempt = rdelayedqueue.Attempt

// MessageOf returns what is shown of a message, with its payload as [Decoded] returns it if it is to be shown.
func MessageOf(e rdelayedqueue.Entry[[]byte], payload bool) Message {
	m := Message{
		ID: e.ID, Group: e.Group, Priority: e.Priority, State: StateName(e.State), Attempt: e.Attempt, DueAt: e.DueAt, Error: e.Error,
		History: e.History,
	}
	if payload {
		m.Payload = Decoded(e.Raw)
	}
	return m
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
