package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

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
	Headers map[string]string // nil for none
	Replace bool              // one of its id that waits or is in flight
	Own     Own
}

// Own are terms of one message, which go before those of its consumer.
type Own struct {
	Attempts *int          // nil for the consumer's; 0 for no limit
	Expiry   time.Duration // after it was due, until when the first attempt has to begin; 0 for no end
	Priority *int          // 0 to 9; nil for 0, or that of the message of a successor
	Group    *Group        // nil for none, or that of the message of a successor
	Task     string        // empty for none
	Watcher  string        // the client that is told of the end of a task; empty for none

	bounded bool // its queue has a capacity, which who acknowledges it may not know
}

// text returns the terms as claim.lua reads them; nothing if there are none.
func (o Own) text() string {
	text := ""
	if o.bounded {
		text = "c "
	}
	if o.Attempts != nil {
		text += "a" + strconv.Itoa(*o.Attempts) + " "
	}
	if o.Expiry > 0 {
		text += "e" + strconv.FormatInt(micros(o.Expiry), 10) + " "
	}
	if o.Group != nil {
		text += "g" + o.Group.text()
	}
	if o.Task != "" {
		text += " T" + url.QueryEscape(o.Task)
	}
	if o.Watcher != "" {
		text += " w" + o.Watcher
	}
	return text
}

// ownOf reads the terms of a message.
func ownOf(text string) (o Own) {
	for field := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(field[1:], 10, 64)
		switch {
		case field[0] == 'g':
			o.Group = groupOf(field[1:])
		case field[0] == 'T':
			o.Task = taskOf(field[1:])
		case field[0] == 'w':
			o.Watcher = field[1:]
		case field[0] == 'c':
			o.bounded = true
		case err != nil: // one that was tampered with
		case field[0] == 'a':
			attempts := int(n)
			o.Attempts = &attempts
		case field[0] == 'e':
			o.Expiry = time.Duration(n) * time.Microsecond
		}
	}
	return o
}

// offer is an item on its way.
type offer struct {
	id      string
	grouped bool
	mark    string
	delay   any // as offer.lua takes it
	payload []byte
	room    int // the queue's capacity; 0 for no limit
}

// The mark of a message says whose its id is: a user's, who may offer it again, or the library's own, which nobody has used before. Then
// it says how many bytes of header are before the payload, in hexadecimal digits. The header is JSON of the headers. With a capital letter
// it begins with a line of the message's own terms.
const (
	givenMark = "g00000000"
	ownMark   = "o00000000"
)

func isGiven(mark string) bool  { return mark[0] == 'g' || mark[0] == 'G' }
func hasTerms(mark string) bool { return mark[0] < 'a' }

// MaxHeaders is how many bytes of headers a message may have, as JSON.
const MaxHeaders = 4 << 10

// with returns the offer with headers and the message's own terms. Headers of an observer that are more than a message may have are left
// out.
func (o offer) with(i Item, observer map[string]string) offer {
	headers := i.Headers
	if len(observer) > 0 {
		headers = make(map[string]string, len(i.Headers)+len(observer))
		maps.Copy(headers, i.Headers)
		maps.Copy(headers, observer)
	}
	text := headerText(headers)
	if len(text) > MaxHeaders {
		text = headerText(i.Headers)
	}
	letter := o.mark[:1]
	i.Own.bounded = i.Own.bounded || o.room > 0
	if own := i.Own.text(); own != "" {
		letter = strings.ToUpper(letter)
		text = own + "\n" + text
	}
	if text != "" {
		o.mark = fmt.Sprintf("%s%08x", letter, len(text))
		o.payload = slices.Concat([]byte(text), o.payload)
	}
	return o
}

func headerText(headers map[string]string) string {
	if len(headers) == 0 {
		return ""
	}
	text, _ := json.Marshal(headers) // it cannot fail
	return string(text)
}

// CheckHeaders reports whether a message may have headers: they are UTF-8, and not too many.
func CheckHeaders(headers map[string]string) error {
	for key, value := range headers {
		if !utf8.ValidString(key + value) {
			return fmt.Errorf("%w: the header %q is not valid UTF-8", errs.ErrInvalid, key)
		}
	}
	if n := len(headerText(headers)); n > MaxHeaders {
		return fmt.Errorf("%w: the headers have %d bytes as JSON, more than %d", errs.ErrInvalid, n, MaxHeaders)
	}
	return nil
}

// maxID is the longest id, group or task, in bytes.
const maxID = 512

// CheckText reports whether a text may be an id, a group or a task, which the error calls what.
func CheckText(what, text string) error {
	switch {
	case text == "":
		return fmt.Errorf("%w: the %s is empty", errs.ErrInvalid, what)
	case len(text) > maxID:
		return fmt.Errorf("%w: the %s has %d bytes, more than %d", errs.ErrInvalid, what, len(text), maxID)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: the %s is not valid UTF-8", errs.ErrInvalid, what)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("%w: the %s has a control character", errs.ErrInvalid, what)
	}
	return nil
}

// apart reports whether two offers may not share a call: to a queue with a capacity a batch goes alone, as it is taken whole or not.
func apart(a, b *entry[offer]) bool {
	return a.value.room != b.value.room || a.value.room > 0 && a.request != b.request && max(len(a.request.entries), len(b.request.entries)) > 1
}

// delayOf returns when an item is due as offer.lua takes it.
func delayOf(i Item) any {
	marker := i.Own.marker()
	if i.At.IsZero() && !i.Replace && marker == "" {
		return micros(i.Delay)
	}
	text := strconv.FormatInt(micros(i.Delay), 10)
	if !i.At.IsZero() {
		text = "@" + strconv.FormatInt(i.At.Add(time.Microsecond-1).UnixMicro(), 10)
	}
	if i.Replace {
		text = "r" + text
	}
	if marker != "" {
		text += " " + marker
	}
	return text
}

func offerOf(i Item, room Room, observer map[string]string) (offer, error) {
	if i.ID != "" {
		return offer{i.ID, i.Own.Group != nil, givenMark, delayOf(i), i.Payload, room.Capacity}.with(i, observer), nil
	}
	id, err := uuid.NewV7()
	return offer{id.String(), i.Own.Group != nil, ownMark, delayOf(i), i.Payload, room.Capacity}.with(i, observer), err
}

// Outcome is what became of an offer.
type Outcome int64

const (
	// Kept says that there was a message of this id already.
	Kept Outcome = iota
	// Added says that the message was added.
	Added
	// Replaced says that it has taken the place of another.
	Replaced
	// IsDead says that a dead letter has this id.
	IsDead
	// IsFull says that there is no room for it.
	IsFull
	// HasTooManyTasks says that its task would be one too many.
	HasTooManyTasks
)

func offersOf(items []Item, room Room, observer map[string]string) (offers []offer, ids []string, err error) {
	offers, ids = make([]offer, len(items)), make([]string, len(items))
	for i, item := range items {
		if offers[i], err = offerOf(item, room, observer); err != nil {
			return nil, nil, err
		}
		ids[i] = offers[i].id
	}
	return offers, ids, nil
}

// Offer puts messages into the queue. It returns their ids, and what became of each. After an error some may have been added; the ids are
// returned even so, unless the name or the context is at fault. The error is [ErrFull] if some found no room, or else [ErrDead] if dead
// letters have some of the ids, and nothing else went wrong.
func (q *Queue) Offer(ctx context.Context, items []Item, room Room) (ids []string, outcomes []Outcome, err error) {
	hooks := &q.manager.core.Events.Hooks
	if hooks.OfferStart == nil && hooks.OfferEnd == nil || q.ready(ctx) != nil {
		return q.offer(ctx, items, room, nil)
	}
	began := time.Now()
	ctx, headers := q.manager.core.Events.BeginOffer(ctx, q.kind, q.Name(), len(items))
	ids, outcomes, err = q.offer(ctx, items, room, headers)
	if f := hooks.OfferEnd; f != nil {
		f(ctx, events.OfferEnd{Kind: q.kind, Name: q.Name(), Messages: len(items), IDs: ids, Took: time.Since(began), Err: err})
	}
	return ids, outcomes, err
}

func (q *Queue) offer(ctx context.Context, items []Item, room Room, observer map[string]string) (ids []string, outcomes []Outcome, err error) {
	outcomes = make([]Outcome, len(items))
	offers, ids, err := offersOf(items, room, observer)
	if err != nil {
		return nil, nil, err
	}
	if err := q.ready(ctx); err != nil {
		if errors.Is(err, errs.ErrInvalid) {
			ids = nil
		}
		return ids, outcomes, err
	}
	if room.Capacity > 0 && min(len(items), maxBatch) > room.Capacity {
		return ids, outcomes, fmt.Errorf("%w: it takes %d messages, and the batch has %d", ErrFull, room.Capacity, len(items))
	}
	c := q.manager.use(q)
	defer c.leave()
	failed := c.offer(ctx, offers, outcomes)
	err = verdict(offers, outcomes, failed)
	if errors.Is(err, ErrFull) && room.Wait > 0 {
		err = c.await(ctx, offers, outcomes, failed, room.Wait)
	}
	return ids, outcomes, err
}

// offer offers once, and sets the outcomes. Its error says what else went wrong. In a queue with a capacity the parts of a large batch go
// one by one, and none after one that found no room: it would overtake it.
func (c *client) offer(ctx context.Context, offers []offer, outcomes []Outcome) (err error) {
	for first, end := 0, 0; first < len(offers); first = end {
		end = first + part(offers[first:])
		failed := c.send(ctx, offers[first:end], outcomes[first:end])
		if err == nil || failed != nil && !errors.Is(failed, errs.ErrNotConfirmed) {
			err = failed
		}
		if slices.Contains(outcomes[first:end], IsFull) {
			for i := range outcomes[end:] {
				outcomes[end+i] = IsFull
			}
			return err
		}
		if err != nil && !errors.Is(err, errs.ErrNotConfirmed) {
			return err
		}
	}
	return err
}

// part returns how many of the offers go together: what one call takes, or all if there is no capacity.
func part(offers []offer) int {
	if offers[0].room == 0 {
		return len(offers)
	}
	n, bytes := 0, 0
	for n < min(len(offers), maxBatch) {
		if bytes += len(offers[n].payload); n > 0 && bytes > maxBytes {
			break
		}
		n++
	}
	return n
}

// send offers what goes together, sets the outcomes, and returns what else went wrong.
func (c *client) send(ctx context.Context, offers []offer, outcomes []Outcome) (err error) {
	add := c.offers.addAll
	if ctx.Done() == nil && c.core.Batch.Bounded() && c.core.CallTimeout >= pipeline.Usual {
		add = c.offers.addHere
	}
	r := add(offers...)
	left := c.offers.wait(ctx, r)
	for i := range offers {
		n, failed := r.entries[i].outcome(left)
		outcomes[i] = Outcome(n)
		if outcomes[i] != IsDead && failed != nil && (err == nil || errors.Is(err, errs.ErrNotConfirmed)) {
			err = failed // that of a dead letter counts, whether it is confirmed or not
		}
	}
	return err
}

// verdict returns the error of offers with these outcomes: what else went wrong, [ErrFull], if some of them found no room, or [ErrDead].
func verdict(offers []offer, outcomes []Outcome, failed error) error {
	var dead []string
	for i, outcome := range outcomes {
		if outcome == IsDead {
			dead = append(dead, offers[i].id)
		}
	}
	switch {
	case failed != nil && !errors.Is(failed, errs.ErrNotConfirmed):
		return failed
	case slices.Contains(outcomes, IsFull):
		return ErrFull
	case slices.Contains(outcomes, HasTooManyTasks):
		return fmt.Errorf("%w: there are %d tasks already", errs.ErrInvalid, MaxTasks)
	case len(dead) > 0 && failed == nil:
		return fmt.Errorf("%w: %q", ErrDead, dead)
	case len(dead) > 0:
		return fmt.Errorf("%w: %q, and %w", ErrDead, dead, failed)
	}
	return failed
}
