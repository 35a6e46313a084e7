package inspect

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

const (
	// SurveyMost is how many messages of a state a survey looks at.
	SurveyMost = 10_000

	surveyFor  = time.Second // for how long it looks at them
	surveyPart = 1_000       // dead letters that are read in order; the newest such part comes first
	surveyPage = 50          // messages in a call
	surveyText = 1_000       // bytes of an error that are kept
	lineMost   = 200         // bytes of the line that errors are grouped by
)

// Survey is what there is of a state in a queue, without payloads: the first messages by their time, of dead letters the newest,
// which come first.
type Survey struct {
	Messages []Message
	More     bool // there are messages that were not looked at
}

// Survey looks at those of a state, at most [SurveyMost] of them, as long as there is time. It costs a round trip for each 50.
func (q *Messages) Survey(ctx context.Context, s rdelayedqueue.State) (v Survey, err error) {
	l := surveyor{Messages: q, state: s, end: time.Now().Add(surveyFor)}
	if s != rdelayedqueue.Dead {
		var cursor string
		v.Messages, cursor, err = l.read(ctx, "", SurveyMost, "")
		v.More = cursor != ""
		return v, err
	}
	for v.More = true; v.More && len(v.Messages) < SurveyMost && time.Now().Before(l.end); {
		start, err := l.before(ctx, len(v.Messages)+surveyPart)
		if err != nil {
			return v, err
		}
		next := ""
		if n := len(v.Messages); n > 0 {
			next = v.Messages[n-1].ID
		}
		part, rest, err := l.read(ctx, start, surveyPart, next)
		if err != nil {
			return v, err
		}
		if rest != "" && len(part) < surveyPart { // there was no time for all of the part
			break
		}
		slices.Reverse(part)
		v.Messages, v.More = append(v.Messages, part...), start != ""
	}
	return v, nil
}

// Newest looks at the newest dead letters, up to 50 of them. It costs two round trips, and more if their payloads are large.
func (q *Messages) Newest(ctx context.Context) (v Survey, err error) {
	l := surveyor{Messages: q, state: rdelayedqueue.Dead, end: time.Now().Add(surveyFor)}
	start, err := l.before(ctx, surveyPage)
	if err != nil {
		return v, err
	}
	v.Messages, _, err = l.read(ctx, start, surveyPage, "")
	slices.Reverse(v.Messages)
	v.More = start != ""
	return v, err
}

// surveyor looks at the messages of a state until the end of its time.
type surveyor struct {
	*Messages
	state rdelayedqueue.State
	end   time.Time
}

// read returns up to n messages after a cursor, up to the one with an id, which is left out, and the cursor of those that were not read.
func (l *surveyor) read(ctx context.Context, cursor string, n int, until string) (all []Message, rest string, err error) {
	for first := true; (first || cursor != "") && len(all) < n && time.Now().Before(l.end); first = false {
		var page []Message
		if page, cursor, err = l.Page(ctx, l.state, cursor, surveyPage); err != nil {
			return nil, "", err
		}
		for _, m := range page {
			if until != "" && m.ID == until {
				return all, "", nil
			}
			m.Error, m.History = strings.Clone(cut(m.Error, surveyText)), nil
			all = append(all, m)
		}
	}
	return all, cursor, nil
}

// before returns the cursor of the newest n dead letters; empty if there are no others.
func (l *surveyor) before(ctx context.Context, n int) (string, error) {
	if err := l.queue.Check(); err != nil {
		return "", l.wrap("list", err)
	}
	ctx, cancel := l.core.Bound(ctx)
	defer cancel()
	last := int64(-n - 1)
	found, err := l.core.Redis.ZRangeWithScores(ctx, l.queue.Places().Base+"dead", last, last).Result()
	if err != nil {
		return "", l.wrap("list", core.Conclude(ctx, script.NotDone, err))
	}
	if len(found) == 0 {
		return "", nil
	}
	return fmt.Sprintf("%.0f %s", found[0].Score, found[0].Member), nil
}

// Sought is which messages a survey is searched for; empty parts are not asked for.
type Sought struct {
	Text string // a part of the id, the task, the group or the error, in any case
	Line string // what [Line] returns for the error
}

// Find returns the messages that are sought.
func (v Survey) Find(sought Sought) (found []Message) {
	text := strings.ToLower(sought.Text)
	for _, m := range v.Messages {
		if sought.Line != "" && Line(m.Error) != sought.Line {
			continue
		}
		for _, part := range []string{m.ID, m.Task, m.Group, m.Error} {
			if strings.Contains(strings.ToLower(part), text) {
				found = append(found, m)
				break
			}
		}
	}
	return found
}

// Line returns the first line of an error, up to 200 bytes: what errors are grouped by.
func Line(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return cut(strings.TrimSpace(line), lineMost)
}

// cut returns the first n bytes of a text, or fewer, where a character would be cut in two.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// Group is the messages whose errors begin with the same line.
type Group struct {
	Line          string
	Dead, Waiting int
}

// Groups returns the groups of messages that have an error, the largest first.
func Groups(surveys ...Survey) (all []Group) {
	at := map[string]int{}
	for _, v := range surveys {
		for _, m := range v.Messages {
			line := Line(m.Error)
			if line == "" {
				continue
			}
			i, known := at[line]
			if !known {
				i = len(all)
				at[line], all = i, append(all, Group{Line: line})
			}
			if m.State == StateName(rdelayedqueue.Dead) {
				all[i].Dead++
			} else {
				all[i].Waiting++
			}
		}
	}
	slices.SortFunc(all, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Dead+b.Waiting, a.Dead+a.Waiting), cmp.Compare(a.Line, b.Line))
	})
	return all
}
