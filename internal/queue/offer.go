package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/events"
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
	Headers map[string]string // of an observer; nil for none
}

// offer is an item on its way.
type offer struct {
	id      string
	mark    string
	delay   any // as offer.lua takes it
	payload []byte
}

// The mark of a message says whose its id is: a user's, who may offer it again, or the library's own, which nobody has used before. Then
// it says how many bytes of headers are before the payload, in hexadecimal digits.
const (
	givenMark = "g00000000"
	ownMark   = "o00000000"
	givenID   = 'g'
)

// maxHeaders is how many bytes of headers a message may have; an observer's that are more are left out.
const maxHeaders = 4 << 10

// with returns the offer with headers, which a tracer adds.
func (o offer) with(headers map[string]string) offer {
	if len(headers) == 0 {
		return o
	}
	text, err := json.Marshal(headers)
	if err != nil || len(text) > maxHeaders {
		return o
	}
	o.mark = fmt.Sprintf("%c%08x", o.mark[0], len(text))
	o.payload = slices.Concat(text, o.payload)
	return o
}

// delayOf returns when an item is due as offer.lua takes it.
func delayOf(i Item) any {
	if i.At.IsZero() {
		return micros(i.Delay)
	}
	return "@" + strconv.FormatInt(i.At.Add(time.Microsecond-1).UnixMicro(), 10)
}

func offerOf(i Item) (offer, error) {
	if i.ID != "" {
		return offer{i.ID, givenMark, delayOf(i), i.Payload}.with(i.Headers), nil
	}
	id, err := uuid.NewV7()
	return offer{id.String(), ownMark, delayOf(i), i.Payload}.with(i.Headers), err
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
	hooks := &q.manager.core.Events.Hooks
	if hooks.OfferStart == nil && hooks.OfferEnd == nil || q.ready(ctx) != nil {
		return q.offer(ctx, items)
	}
	began := time.Now()
	ctx, headers := q.manager.core.Events.BeginOffer(ctx, q.kind, q.Name(), len(items))
	for i := range items {
		items[i].Headers = headers
	}
	ids, added, err = q.offer(ctx, items)
	if f := hooks.OfferEnd; f != nil {
		f(ctx, events.OfferEnd{Kind: q.kind, Name: q.Name(), Messages: len(items), IDs: ids, Took: time.Since(began), Err: err})
	}
	return ids, added, err
}

func (q *Queue) offer(ctx context.Context, items []Item) (ids []string, added []bool, err error) {
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
		if failed != nil && (err == nil || errors.Is(err, errs.ErrNotConfirmed)) {
			err = failed
		}
	}
	return ids, added, err
}
