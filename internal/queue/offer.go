package queue

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
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

// offer is an item on its way.
type offer struct {
	id      string
	mark    string
	delay   any // as offer.lua takes it
	payload []byte
}

// The mark of a message says whose its id is: a user's, who may offer it again, or the library's own, which nobody has used before.
// Its other bytes are not used.
const (
	givenMark = "g00000000"
	ownMark   = "o00000000"
	givenID   = 'g'
)

// delayOf returns when an item is due as offer.lua takes it.
func delayOf(i Item) any {
	if i.At.IsZero() {
		return micros(i.Delay)
	}
	return "@" + strconv.FormatInt(i.At.Add(time.Microsecond-1).UnixMicro(), 10)
}

func offerOf(i Item) (offer, error) {
	if i.ID != "" {
		return offer{i.ID, givenMark, delayOf(i), i.Payload}, nil
	}
	id, err := uuid.NewV7()
	return offer{id.String(), ownMark, delayOf(i), i.Payload}, err
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
	c := q.manager.use(q)
	defer c.leave()
	add := c.offers.addAll
	if ctx.Done() == nil && c.core.Batch.Bounded() && c.core.CallTimeout >= pipeline.Usual {
		add = c.offers.addHere
	}
	r := add(offers...)
	left := c.offers.wait(ctx, r)
	for i := range items {
		n, failed := r.entries[i].outcome(left)
		added[i] = n == 1
		if failed != nil && err == nil {
			err = failed
		}
	}
	return ids, added, err
}
