package console

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
)

const (
	surveyShare = 20 // the console spends at most 1/surveyShare of its time looking at all messages of a state
	surveysMost = 10 // surveys that are kept, each of some MB
	groupsMost  = 10 // errors that are listed
)

// queuePage is the page of a queue or an executor: its errors, and the messages of one state, or those that a search has found.
type queuePage struct {
	inspect.Object
	Stats      rexecutor.Stats
	State      string // whose messages are shown; "" of a search in several
	Tabs       []tab
	Query      string // what is searched for
	Line       string // the error whose messages are shown; "" for any
	Errors     []errorLine
	Looked     looked // of the errors
	MoreErrors int

	Hour []hourChart

	Messages []inspect.Message
	After    string // the address of the next messages
	Found    looked // of a search
	More     int    // messages that were found and are not listed
}

// Executor reports whether it is the page of one.
func (p *queuePage) Executor() bool { return p.Kind == kinds.Executor }

// TasksCut reports whether some tasks are not counted by name.
func (p *queuePage) TasksCut() bool { return max(p.Stats.InFlight, p.Stats.Dead) > inspect.TasksMost }

// tab leads to the messages of a state.
type tab struct {
	State, Address string
	Count          int
}

// errorLine is a line of the errors.
type errorLine struct {
	inspect.Group
	Address string
}

// looked is how many messages were looked at, and whether there are others.
type looked struct {
	At   int
	Rest bool
}

func (l *looked) add(v inspect.Survey) { l.At, l.Rest = l.At+len(v.Messages), l.Rest || v.More }

// Searched reports whether the page shows what was found.
func (p *queuePage) Searched() bool { return p.Query != "" || p.Line != "" }

// Filled returns the fields of a form that the page is to be shown with after an action, beside its name.
func (p *queuePage) Filled() map[string]string {
	return map[string]string{"tab": p.State, "q": p.Query, "error": p.Line}
}

// queueAddress returns the address of the page of a queue or an executor.
func queueAddress(of inspect.Object, params ...string) string {
	query := url.Values{"name": {of.Name}}
	for pair := range slices.Chunk(params, 2) {
		if pair[1] != "" {
			query.Set(pair[0], pair[1])
		}
	}
	return of.Kind + "?" + query.Encode()
}

func (h *handler) queue(r *request) (any, error) {
	name, err := nameOf(r)
	if err != nil {
		return nil, err
	}
	of := inspect.Object{Kind: r.path, Name: name}
	q := inspect.MessagesOf(h.client, of)
	p := &queuePage{Object: of, State: r.query.Get("state"), Query: strings.TrimSpace(r.query.Get("q")), Line: r.query.Get("error")}
	state := rdelayedqueue.Ready
	if p.State != "" {
		if state, err = stateOf(p.State); err != nil {
			return nil, err
		}
	} else if !p.Searched() {
		p.State = inspect.StateName(state)
	}
	if p.Stats, err = q.Stats(r.ctx); err != nil {
		return nil, err
	}
	slices.SortStableFunc(p.Stats.Tasks, orphanedFirst)
	minutes, err := q.Series(r.ctx)
	if err != nil {
		return nil, err
	}
	p.Hour = hourOf(p.Kind, minutes, p.Stats.Oldest)
	for i, n := range []int{p.Stats.Delayed, p.Stats.Ready, p.Stats.InFlight, p.Stats.Dead} {
		state := inspect.StateName(inspect.States()[i])
		p.Tabs = append(p.Tabs, tab{state, queueAddress(of, "state", state), n})
	}
	if p.Searched() {
		r.begin()
		err = h.search(r, p)
	} else {
		err = h.messages(r, p, state)
	}
	if err != nil {
		return nil, err
	}
	r.begin()
	return p, h.errorsOf(r, p)
}

func orphanedFirst(a, b rexecutor.TaskStats) int {
	switch {
	case a.Orphaned == b.Orphaned:
		return 0
	case a.Orphaned:
		return -1
	}
	return 1
}

// statesIn returns the text that a search is for, and in which states: those that it names, or all.
func statesIn(search string) (text string, states []rdelayedqueue.State) {
	var rest []string
	for _, word := range strings.Fields(search) {
		s, err := inspect.StateOf(strings.ToLower(word))
		if err != nil {
			rest = append(rest, word)
			continue
		}
		states = append(states, s)
	}
	if len(states) == 0 {
		return search, inspect.States()
	}
	return strings.Join(rest, " "), states
}

// messages has the page show those of a state.
func (h *handler) messages(r *request, p *queuePage, s rdelayedqueue.State) error {
	all, next, err := inspect.MessagesOf(h.client, p.Object).Page(r.ctx, s, r.query.Get("after"), pageSize)
	if err != nil {
		return err
	}
	p.Messages = all
	if next != "" {
		p.After = queueAddress(p.Object, "state", p.State, "after", next)
	}
	return nil
}

// search has the page show what is found: the message of that id first, wherever it is, and then those of each state.
func (h *handler) search(r *request, p *queuePage) error {
	if p.Query != "" && p.Line == "" && p.State == "" {
		m, _, err := inspect.MessagesOf(h.client, p.Object).Get(r.ctx, p.Query)
		switch {
		case err == nil:
			p.Messages = append(p.Messages, m)
		case !errors.Is(err, rdelayedqueue.ErrNotFound) && !errors.Is(err, redlatch.ErrInvalid): // it may be no id
			return err
		}
	}
	found, looked, err := h.find(r.ctx, p.Object, p.State, p.Query, p.Line)
	if err != nil {
		return err
	}
	for _, m := range found {
		if len(p.Messages) == 0 || m.ID != p.Messages[0].ID {
			p.Messages = append(p.Messages, m)
		}
	}
	p.Found = looked
	p.More = max(0, len(p.Messages)-pageSize)
	p.Messages = first(p.Messages, pageSize)
	return nil
}

// find returns the messages that a search finds among those that are looked at: of one state, or if that is empty of those that the search
// names, or else of all.
func (h *handler) find(ctx context.Context, in inspect.Object, of, query, line string) (found []inspect.Message, l looked, err error) {
	text, states := statesIn(query)
	if of != "" {
		s, err := stateOf(of)
		if err != nil {
			return nil, l, err
		}
		text, states = query, []rdelayedqueue.State{s}
	}
	for _, s := range states {
		v, err := h.survey(ctx, in, s)
		if err != nil {
			return nil, l, err
		}
		l.add(v)
		found = append(found, v.Find(inspect.Sought{Text: text, Line: line})...)
	}
	return found, l, nil
}

// errorsOf has the page show the errors of its messages by their first lines.
func (h *handler) errorsOf(r *request, p *queuePage) error {
	var states []rdelayedqueue.State
	if p.Stats.Dead > 0 {
		states = append(states, rdelayedqueue.Dead)
	}
	if p.Stats.Failed > 0 {
		states = append(states, rdelayedqueue.Delayed, rdelayedqueue.Ready, rdelayedqueue.InFlight)
	}
	var surveys []inspect.Survey
	for _, s := range states {
		v, err := h.survey(r.ctx, p.Object, s)
		if err != nil {
			return err
		}
		surveys = append(surveys, v)
		p.Looked.add(v)
	}
	groups := inspect.Groups(surveys...)
	for _, g := range first(groups, groupsMost) {
		p.Errors = append(p.Errors, errorLine{g, queueAddress(p.Object, "error", g.Line)})
	}
	p.MoreErrors = len(groups) - len(p.Errors)
	return nil
}

// survey returns the messages of a state, as they were not long ago.
func (h *handler) survey(ctx context.Context, of inspect.Object, s rdelayedqueue.State) (inspect.Survey, error) {
	return h.surveys.get(ctx, inspect.StateName(s)+" "+of.Kind+" "+of.Name, func(ctx context.Context) (inspect.Survey, error) {
		return inspect.MessagesOf(h.client, of).Survey(ctx, s)
	})
}

// ofQueue returns which surveys are those of a queue or an executor.
func ofQueue(of inspect.Object) func(key string) bool {
	return func(key string) bool {
		_, found, _ := strings.Cut(key, " ")
		return found == of.Kind+" "+of.Name
	}
}
