package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// header is the number of bytes before the payload of a body: a sequence and a stamp.
const header = 25

// claimFields is the number of values of a message in claim's reply.
const claimFields = 5

// send sends one call once.
func (r *Registry) send(ctx context.Context, call *script.Call) error {
	return r.core.Batch.Do(ctx, call, pipeline.Ask{})
}

// readClaims reads claim's reply.
func readClaims(c *script.Call) (claims []Claimed, more, waiters bool, err error) {
	r, err := replyOf(c)
	if err != nil {
		return nil, false, false, err
	}
	status, err := r.int(0)
	if err != nil {
		return nil, false, false, err
	}
	switch {
	case status == -1:
		return nil, true, false, nil // settled before: ask again
	case status < 0:
		return nil, false, false, newerLayout(-status)
	}
	told, err := r.int(1)
	if err != nil {
		return nil, false, false, err
	}
	claims = make([]Claimed, 0, (len(r)-2)/claimFields)
	for i := 2; i < len(r); i += claimFields {
		c, err := readClaim(r, i)
		if err != nil {
			return nil, false, false, err
		}
		claims = append(claims, c)
	}
	return claims, status == 1, told == 1, nil
}

func readClaim(r reply, i int) (c Claimed, err error) {
	texts := [4]string{}
	for n, at := range []int{i, i + 1, i + 3, i + 4} {
		if texts[n], err = r.text(at); err != nil {
			return c, err
		}
	}
	attempt, err := r.int(i + 2)
	if err != nil {
		return c, err
	}
	due, err := r.int(i + 3)
	if err != nil {
		return c, err
	}
	c = Claimed{member: texts[0], claim: texts[1], due: texts[2], Attempt: int(attempt), DueAt: time.UnixMicro(due)}
	c.ID, err = idOf(c.member)
	c.Payload, c.Given = payloadOf(texts[3])
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

// payloadOf takes a body apart. Of one that was tampered with nothing is left, which its decoder will refuse.
func payloadOf(body string) (payload []byte, given bool) {
	if len(body) < header {
		return nil, false
	}
	return []byte(body[header:]), body[sequenceLength] == givenID
}

// giveBack returns claims that nobody began to work on. What fails is left to its visibility.
func (h *hub) giveBack(claims []Claimed) {
	for _, c := range claims {
		h.backs.add(c)
	}
}

func (h *hub) sendBacks(batch []*entry[Claimed]) {
	claims := make([]Claimed, len(batch))
	for i, e := range batch {
		claims[i] = e.value
	}
	c, err := h.registry.end(func() *script.Call { return h.keys.giveback(h.core.ID, claims) })
	if err == nil {
		h.announce(c)
	}
	answer(batch, make([]int64, len(batch)), err)
}

// announce has a client woken if giveback.lua said that some wait. How many claims it returned says nothing: an earlier try that
// was not answered may have returned them.
func (h *hub) announce(c *script.Call) {
	if r, err := c.Ints(); err == nil && len(r) > 0 && r[0] == 1 {
		h.wake()
	}
}

// Take waits until messages are due, and claims up to n. Their contexts descend from ctx.
func (q *Queue) Take(ctx context.Context, n int, terms Terms) ([]*Message, error) {
	if err := q.ready(ctx); err != nil {
		return nil, err
	}
	h := q.registry.use(q)
	defer h.leave()
	type outcome struct {
		claims []Claimed
		asked  time.Duration
		err    error
	}
	result := make(chan outcome, 1) // one of deliver and fail is called once
	t := &taker{terms: terms, want: min(n, maxBatch)}
	t.deliver = func(claims []Claimed, asked time.Duration) { result <- outcome{claims: claims, asked: asked} }
	t.fail = func(err error) { result <- outcome{err: err} }
	h.lane.add(t)
	var got outcome
	select {
	case got = <-result:
	case <-ctx.Done():
		if h.lane.remove(t) {
			return nil, ctx.Err()
		}
		got = <-result // it is on its way
	}
	if err := ctx.Err(); err != nil {
		h.giveBack(got.claims)
		return nil, err
	}
	if got.err != nil {
		return nil, got.err
	}
	messages := make([]*Message, len(got.claims))
	for i, c := range got.claims {
		messages[i] = q.message(ctx, c, terms, got.asked, false)
	}
	return messages, nil
}
