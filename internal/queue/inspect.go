package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// State is where a message is.
type State int

const (
	// Delayed messages wait for their time.
	Delayed State = iota
	// Ready messages may be taken, those included whose claims ran out.
	Ready
	// InFlight messages are claimed.
	InFlight
	// Dead messages are given up.
	Dead
)

// Entry is a message as it stands in Redis.
type Entry struct {
	ID       string
	Payload  []byte
	Headers  map[string]string
	Group    string // empty for none
	Task     string // empty for none
	Priority int
	State    State
	Attempt  int
	Attempts *int          // after which it is dead; nil for the consumer's
	Expiry   time.Duration // 0 for none
	DueAt    time.Time
	Error    string
	History  []Attempt // the last five, the newest first

	score, member string
}

// Attempt is one that failed, or whose process died.
type Attempt struct {
	Started time.Time
	Took    time.Duration // negative if it is not known
	Where   string        // the client
	Err     string
}

// historyOf reads a value of errors, see history.lua. What was tampered with is left out.
func historyOf(value string) (text string, history []Attempt) {
	text, rest, _ := strings.Cut(value, "\x01")
	for record := range strings.SplitSeq(rest, "\x01") {
		fields := strings.SplitN(record, " ", 4)
		if len(fields) < 4 {
			continue
		}
		started, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			continue
		}
		a := Attempt{Started: time.UnixMicro(started), Took: -1, Where: fields[2], Err: fields[3]}
		if took, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
			a.Took = time.Duration(took) * time.Microsecond
		}
		history = append(history, a)
	}
	return text, history
}

// Stats are counts of messages.
type Stats struct {
	Delayed, Ready, InFlight, Dead int
	Paused                         bool
	PausedUntil                    time.Time            // zero if it is not paused, or the pause has no end
	Failed                         int                  // of the first three
	Oldest                         time.Duration        // for how long the first one has been due that is ready
	Groups                         int                  // of which a message waits for another
	Priorities                     [MaxPriority + 1]int // from 1 on, of messages that are delayed or ready
}

// Minute is what was counted in one minute.
type Minute struct {
	Start                       time.Time
	Offered, Done, Failed, Dead int
	Lateness                    time.Duration // the greatest of a claim
}

// Get returns a message, or [errs.ErrNotFound].
func (q *Queue) Get(ctx context.Context, id string) (Entry, error) {
	r, err := q.ask(ctx, func(k *keys) *script.Call { return k.get(id) })
	if err != nil {
		return Entry{}, err
	}
	if len(r) == 0 {
		return Entry{}, fmt.Errorf("%s %w", q.noun(), errs.ErrNotFound)
	}
	state, err := r.int(0)
	if err != nil {
		return Entry{}, err
	}
	e, err := readEntry(r, 1)
	e.State = State(state)
	return e, err
}

// entryFields is the number of values of a message in list's reply.
const entryFields = 5

func readEntry(r reply, i int) (e Entry, err error) {
	texts := [4]string{}
	if err = r.texts(texts[:], i, i+1, i+3, i+4); err != nil {
		return e, err
	}
	attempt, err := r.int(i + 2)
	if err != nil {
		return e, err
	}
	score, err := r.int(i + 1)
	if err != nil {
		return e, err
	}
	e = Entry{member: texts[0], score: texts[1], Attempt: int(attempt), DueAt: dueOf(score)}
	e.Error, e.History = historyOf(texts[2])
	e.ID, err = idOf(e.member)
	b := bodyOf(texts[3])
	e.Payload, e.Headers, e.Task, e.Attempts, e.Expiry = b.payload, b.headers, b.own.Task, b.own.Attempts, b.own.Expiry
	if b.own.Group != nil {
		e.Group = b.own.Group.Key
	}
	if p := priorityOf(e.member); p != nil {
		e.Priority = *p
	}
	return e, err
}

// List returns up to n messages of a state after a cursor, in the order of their times in each of its places, and the cursor of the
// next page, empty after the last one.
func (q *Queue) List(ctx context.Context, s State, cursor string, n int) ([]Entry, string, error) {
	var entries []Entry
	for {
		page, next, err := q.page(ctx, s, cursor, min(n-len(entries), maxBatch))
		if err != nil {
			return nil, "", err
		}
		entries, cursor = append(entries, page...), next
		if cursor == "" || len(entries) >= n {
			return entries, cursor, nil
		}
	}
}

// furtherPlace begins a cursor in the second place of a state, and is one by itself.
const furtherPlace = "+"

func (q *Queue) page(ctx context.Context, s State, cursor string, n int) ([]Entry, string, error) {
	rest, further := strings.CutPrefix(cursor, furtherPlace)
	score, member, _ := strings.Cut(rest, " ")
	places := q.names().setsOf(s)
	mark, here := "", places[0]
	if further && len(places) > 1 {
		mark, here, places = furtherPlace, places[1], places[1:]
	}
	r, err := q.ask(ctx, func(k *keys) *script.Call { return k.list(here, score, member, n) })
	if err != nil {
		return nil, "", err
	}
	more, err := r.int(0)
	if err != nil {
		return nil, "", err
	}
	var entries []Entry
	for i := 1; i < len(r); i += entryFields {
		e, err := readEntry(r, i)
		if err != nil {
			return nil, "", err
		}
		e.State = s
		entries = append(entries, e)
	}
	switch last := len(entries) - 1; {
	case more == 1 && last >= 0:
		return entries, mark + entries[last].score + " " + entries[last].member, nil
	case len(places) > 1:
		return entries, furtherPlace, nil
	}
	return entries, "", nil
}

// CheckCursor reports whether a cursor may have come from List.
func CheckCursor(cursor string) bool {
	rest := strings.TrimPrefix(cursor, furtherPlace)
	score, member, found := strings.Cut(rest, " ")
	_, err := strconv.ParseFloat(score, 64)
	return rest == "" || found && err == nil && len(member) > sequenceLength
}

// Stats counts the messages by state. It makes a call for each 100 lanes.
func (q *Queue) Stats(ctx context.Context) (s Stats, err error) {
	for lane := ""; ; {
		r, err := q.ask(ctx, func(k *keys) *script.Call { return k.stats(lane) })
		if err != nil {
			return s, err
		}
		counts := [8 + MaxPriority]int64{}
		for i := range counts {
			if counts[i], err = r.int(i); err != nil {
				return s, err
			}
		}
		if lane == "" {
			s = Stats{InFlight: int(counts[2]), Dead: int(counts[3]), Paused: counts[4] > 0, Failed: int(counts[5]), Groups: int(counts[7])}
			if counts[4] > 1 {
				s.PausedUntil = time.UnixMicro(counts[4])
			}
		}
		s.Delayed, s.Ready = s.Delayed+int(counts[0]), s.Ready+int(counts[1])
		s.Oldest = max(s.Oldest, time.Duration(counts[6])*time.Microsecond)
		for p, n := range counts[8:] {
			s.Priorities[p+1] += int(n)
		}
		if lane, err = r.text(len(counts)); err != nil || lane == "" {
			return s, err
		}
	}
}

// minutes is how many Series returns.
const minutes = 60

// Series returns what was counted in each minute of the last hour, the oldest first.
func (q *Queue) Series(ctx context.Context) ([]Minute, error) {
	r, err := q.ask(ctx, func(k *keys) *script.Call { return k.minutes() })
	if err != nil {
		return nil, err
	}
	numbers := [1 + 5*minutes]int64{}
	for i := range numbers {
		if numbers[i], err = r.int(i); err != nil {
			return nil, err
		}
	}
	all := make([]Minute, minutes)
	for i := range all {
		n := numbers[1+5*i:]
		all[i] = Minute{
			Start:   time.Unix(60*(numbers[0]-minutes+1+int64(i)), 0),
			Offered: int(n[0]), Done: int(n[1]), Failed: int(n[2]), Dead: int(n[3]), Lateness: time.Duration(n[4]) * time.Microsecond,
		}
	}
	return all, nil
}
