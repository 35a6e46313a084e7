package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/events"
	"github.com/redlatch/redlatch/internal/script"
)

// Claimed is a message under a claim.
type Claimed struct {
	ID      string
	Attempt int
	DueAt   time.Time
	Payload []byte
	Headers map[string]string
	Given   bool // the id was given by a user

	member, claim, due string
	own                Own
}

// header is the number of bytes before the payload of a body: a sequence and a mark.
const header = 25

// claimFields is the number of values of a message in claim's reply.
const claimFields = 5

// rest is what a claim has left.
type rest int

const (
	nothing rest = iota
	more         // may be due
	limited      // by the rate, which allows no more now
)

// answer is claim's reply.
type answer struct {
	claims []Claimed
	dead   []events.DeadLetter // without kind and name
	left   rest
	look   int64 // as wait's reply; nowhere if Redis does not count on the client to look in
}

const nowhere = -2

func readClaims(c *script.Call) (a answer, err error) {
	a.look = nowhere
	r, err := replyOf(c)
	if err != nil {
		return a, err
	}
	status, err := r.int(0)
	switch {
	case err != nil:
		return a, err
	case status == -1:
		a.left = more // settled before: ask again
		return a, nil
	case status < 0:
		return a, newerLayout(-status)
	}
	a.left = rest(status)
	if a.look, err = r.int(1); err != nil {
		return a, err
	}
	a.claims = make([]Claimed, 0, len(r)/claimFields)
	for i := 2; i < len(r); i += claimFields {
		claim, err := r.text(i + 1)
		if err != nil {
			return a, err
		}
		if claim == "" {
			d, err := readDead(r, i)
			if err != nil {
				return a, err
			}
			a.dead = append(a.dead, d)
			continue
		}
		c, err := readClaim(r, i)
		if err != nil {
			return a, err
		}
		a.claims = append(a.claims, c)
	}
	return a, nil
}

func readDead(r reply, i int) (d events.DeadLetter, err error) {
	texts := [3]string{}
	if err = r.texts(texts[:], i, i+3, i+4); err != nil {
		return d, err
	}
	attempt, err := r.int(i + 2)
	if err != nil {
		return d, err
	}
	d = events.DeadLetter{Task: taskOf(texts[1]), Attempt: int(attempt), Cause: texts[2]}
	d.ID, err = idOf(texts[0])
	return d, err
}

func readClaim(r reply, i int) (c Claimed, err error) {
	texts := [4]string{}
	if err = r.texts(texts[:], i, i+1, i+3, i+4); err != nil {
		return c, err
	}
	attempt, err := r.int(i + 2)
	if err != nil {
		return c, err
	}
	due, err := r.int(i + 3)
	if err != nil {
		return c, err
	}
	c = Claimed{member: texts[0], claim: texts[1], due: texts[2], Attempt: int(attempt), DueAt: dueOf(due)}
	c.ID, err = idOf(c.member)
	b := bodyOf(texts[3])
	c.Payload, c.Headers, c.Given, c.own = b.payload, b.headers, b.given, b.own
	c.own.Priority = priorityOf(c.member)
	return c, err
}

// sequenceLength is the number of digits before the id of a member.
const sequenceLength = 16

func idOf(member string) (string, error) {
	if len(member) <= sequenceLength {
		return "", fmt.Errorf("a member of %d bytes has no id", len(member))
	}
	return member[sequenceLength:], nil
}

// body is what a message is made of, taken apart.
type body struct {
	payload []byte
	headers map[string]string
	given   bool // a user chose the id
	own     Own
}

// bodyOf takes a body apart. Of one that was tampered with nothing is left, which its decoder will refuse.
func bodyOf(text string) (b body) {
	if len(text) < header {
		return b
	}
	mark, rest := text[sequenceLength:header], text[header:]
	size, err := strconv.ParseUint(mark[1:], 16, 32)
	if err != nil || size > uint64(len(rest)) {
		return b
	}
	head := rest[:size]
	if hasTerms(mark) {
		own, rest, _ := strings.Cut(head, "\n")
		head = rest
		b.own = ownOf(own)
	}
	if head != "" {
		_ = json.Unmarshal([]byte(head), &b.headers) // what cannot be read is left out: a trace is not worth a message
	}
	b.payload, b.given = []byte(rest[size:]), isGiven(mark)
	return b
}

// giveBack returns claims that nobody began to work on. What fails is left to its visibility.
func (c *client) giveBack(claims []Claimed) {
	for _, claimed := range claims {
		c.returns.add(claimed)
	}
}

// Take waits until messages are due, and claims up to n. Their contexts descend from ctx.
func (q *Queue) Take(ctx context.Context, n int, terms Terms) ([]*Message, error) {
	if err := q.ready(ctx); err != nil {
		return nil, err
	}
	c := q.manager.use(q)
	defer c.leave()
	type outcome struct {
		claims []Claimed
		asked  time.Duration
		err    error
	}
	result := make(chan outcome, 1) // one of deliver and report is called once
	d := &demand{terms: terms, want: min(n, maxBatch), site: q.manager.core.Events.Site()}
	d.deliver = func(claims []Claimed, asked time.Duration) { result <- outcome{claims: claims, asked: asked} }
	d.report = func(err error) { result <- outcome{err: err} }
	c.claimer.add(d)
	var got outcome
	select {
	case got = <-result:
	case <-ctx.Done():
		if c.claimer.remove(d) {
			if err := c.claimer.unanswered(d); err != nil {
				return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
			}
			return nil, ctx.Err()
		}
		got = <-result // it is on its way
	}
	if err := ctx.Err(); err != nil {
		c.giveBack(got.claims)
		return nil, err
	}
	if got.err != nil {
		return nil, got.err
	}
	messages := make([]*Message, len(got.claims))
	for i, claimed := range got.claims {
		messages[i] = q.message(ctx, claimed, d, got.asked, byCaller)
	}
	return messages, nil
}
