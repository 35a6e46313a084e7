package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

// MaxDelay keeps times within what a sorted set holds exactly.
const MaxDelay = 100 * 365 * 24 * time.Hour

// Item is a message to be offered.
type Item struct {
	ID      string // empty for one of the library's own
	Delay   time.Duration
	At      time.Time // by Redis's clock, if not zero: the delay does not count then
	Payload []byte
}

// offer is an item on its way. Sent twice with one stamp it is recognised.
type offer struct {
	id, stamp string
	delay     any // as offer.lua takes it
	payload   []byte
}

// delayOf returns when an item is due as offer.lua takes it.
func delayOf(i Item) any {
	if i.At.IsZero() {
		return micros(i.Delay)
	}
	return "@" + strconv.FormatInt(i.At.Add(time.Microsecond-1).UnixMicro(), 10)
}

// The first byte of a stamp says whose the id is, which decides how long it is remembered.
const givenID = 'g'

// ownStamp is that of messages whose ids are the library's own: nobody else can have offered them.
const ownStamp = "o00000000"

func offerOf(i Item) (offer, error) {
	if i.ID == "" {
		id, err := uuid.NewV7()
		return offer{id.String(), ownStamp, delayOf(i), i.Payload}, err
	}
	stamp := append(make([]byte, 0, 16), givenID)
	stamp = strconv.AppendUint(stamp, 1<<40|rand.Uint64N(1<<40), 32)[:len(ownStamp)]
	return offer{i.ID, string(stamp), delayOf(i), i.Payload}, nil
}

func offersOf(items []Item) (offers []offer, ids []string, err error) {
	offers, ids = make([]offer, len(items)), make([]string, len(items))
	for i, item := range items {
		if offers[i], err = offerOf(item); err != nil {
			return nil, nil, err
		}
		ids[i] = offers[i].id
	}
	return offers, ids, nil
}

// Offer puts messages into the queue. It returns their ids, and for each whether this call added it. After an error some
// may have been added; the ids are returned even so, unless the name or the context is at fault.
func (q *Queue) Offer(ctx context.Context, items []Item) (ids []string, added []bool, err error) {
	added = make([]bool, len(items))
	offers, ids, err := offersOf(items)
	if err != nil {
		return nil, nil, err
	}
	if err := q.ready(ctx); err != nil {
		if errors.Is(err, errs.ErrInvalid) {
			ids = nil
		}
		return ids, added, err
	}
	h := q.registry.use(q)
	defer h.leave()
	add := h.offers.addAll
	if ctx.Done() == nil && h.core.Batch.Bounded() {
		add = h.offers.do
	}
	sent := add(offers...)
	h.offers.wait(ctx, sent)
	for i := range items {
		n, failed := sent.entries[i].outcome(ctx.Err())
		added[i] = n == 1 || failed == nil && items[i].ID == "" // one of its own may be done before its offer is answered
		if failed != nil && err == nil {
			err = failed
		}
	}
	return ids, added, err
}

// offerAgain is for how long an offer that was not answered is sent again: its id may be forgotten [ownKeep] after.
const offerAgain = ownKeep / 2

func (h *hub) sendOffers(batch []*entry[offer]) {
	c, err := h.registry.twice(func() *script.Call { return h.keys.offers(batch) }, offerAgain)
	if err != nil {
		answer(batch, nil, err)
		return
	}
	results, err := c.Ints()
	switch {
	case err != nil:
	case len(results) == 0:
		err = errors.Join(errs.ErrUnknown, errors.New("an empty answer"))
	case results[0] < 0:
		err = newerLayout(-results[0])
	case results[0] == 1:
		h.wake() // before the answers: their process may end with them
	}
	if err != nil {
		answer(batch, nil, err)
		return
	}
	answer(batch, results[1:], nil)
}
