package rdelayedqueue

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/queue"
)

// Option is a setting of a queue, of an offer or of a consumer. One that does not apply where it is given is redlatch.ErrInvalid.
type Option func(*options)

type options struct {
	given []string // the names of the options that were given

	codec      codec.Codec
	maxPayload int
	dedupe     time.Duration
	visibility time.Duration
	attempts   int
	backoff    func(attempt int) time.Duration

	id string

	concurrency    int
	prefetch       int
	handlerTimeout time.Duration
	stopGrace      time.Duration
}

func defaults() options {
	return options{
		codec:       codec.MsgPack{},
		maxPayload:  1 << 20,
		dedupe:      10 * time.Minute,
		visibility:  30 * time.Second,
		attempts:    10,
		backoff:     queue.DefaultBackoff,
		concurrency: 1,
		prefetch:    -1,
		stopGrace:   5 * time.Second,
	}
}

func option(name string, set func(*options)) Option {
	return func(o *options) {
		o.given = append(o.given, name)
		set(o)
	}
}

// WithCodec sets how values become bytes. All who use a queue must agree on it. For a queue. Defaults to [codec.MsgPack].
func WithCodec(c codec.Codec) Option { return option("WithCodec", func(o *options) { o.codec = c }) }

// WithMaxPayload sets how many bytes an encoded value may have: a larger one is refused by Offer. 1 byte to 64 MiB. For a queue.
// Defaults to 1 MiB.
func WithMaxPayload(bytes int) Option {
	return option("WithMaxPayload", func(o *options) { o.maxPayload = bytes })
}

// WithDedupe sets how long an id given by [WithID] stays taken after its message was acknowledged; what counts is the setting of the
// consumer that acknowledges. An offer or an Ack whose reply is lost is recognised for as long: below a minute an outage may pass it.
// At least 1 s, at most a year. For a queue. Defaults to 10 minutes.
func WithDedupe(d time.Duration) Option {
	return option("WithDedupe", func(o *options) { o.dedupe = d })
}

// WithVisibility sets how long a claim lasts: a message that is neither acknowledged nor extended by then is delivered again. Consume
// renews it while a handler runs. 1 s to 7 days. For a queue, or a consumer. Defaults to 30 s.
func WithVisibility(d time.Duration) Option {
	return option("WithVisibility", func(o *options) { o.visibility = d })
}

// WithMaxAttempts sets how often a message is tried before it is a dead letter; 0 for no limit. For a queue, or a consumer.
// Defaults to 10.
func WithMaxAttempts(n int) Option {
	return option("WithMaxAttempts", func(o *options) { o.attempts = n })
}

// WithBackoff sets the pause after a failed attempt, counted from 1, before the message is due again. It must return at once; a
// negative time or a panic is taken for a second, and more than 100 years for so many. For a queue, or a consumer. Defaults to 1 s, doubled with each attempt up to 15
// minutes, a quarter more or less.
func WithBackoff(f func(attempt int) time.Duration) Option {
	return option("WithBackoff", func(o *options) { o.backoff = f })
}

// WithID gives the message an id of the caller's own: offering it again changes nothing while the message lives or is a dead letter,
// and for the time of [WithDedupe] after its Ack. 1 to 512 bytes of UTF-8 without control characters. For Offer and OfferNew.
func WithID(id string) Option { return option("WithID", func(o *options) { o.id = id }) }

// WithConcurrency sets how many handlers run at a time. 1 to 100,000. For a consumer. Defaults to 1.
func WithConcurrency(n int) Option {
	return option("WithConcurrency", func(o *options) { o.concurrency = n })
}

// WithPrefetch sets how many messages may be claimed before handlers are free for them. 0 to 100. For a consumer. Without it as many
// as there are handlers, 16 to 100, while handlers take less than 5 ms, and none while they take longer.
func WithPrefetch(n int) Option { return option("WithPrefetch", func(o *options) { o.prefetch = n }) }

// WithHandlerTimeout ends the context of a handler after d, with the cause [ErrHandlerTimeout]; the attempt has then failed, whatever
// the handler returns. At least 1 ms. For a consumer. Defaults to none.
func WithHandlerTimeout(d time.Duration) Option {
	return option("WithHandlerTimeout", func(o *options) { o.handlerTimeout = d })
}

// WithStopGrace sets for how long the handlers of a consumer that stops may go on before their contexts end. 0 to 1 h. For a consumer.
// Defaults to 5 s.
func WithStopGrace(d time.Duration) Option {
	return option("WithStopGrace", func(o *options) { o.stopGrace = d })
}

const (
	forQueue    = "WithCodec WithMaxPayload WithDedupe WithVisibility WithMaxAttempts WithBackoff"
	forOffer    = "WithID"
	forConsumer = "WithVisibility WithMaxAttempts WithBackoff WithConcurrency WithPrefetch WithHandlerTimeout WithStopGrace"
)

// apply returns base, which is in order, with the options set, if they may be given here.
func apply(base options, opts []Option, here string) (options, error) {
	base.given = nil
	if len(opts) == 0 {
		return base, nil
	}
	return set(base, opts, strings.Fields(here))
}

func set(base options, opts []Option, here []string) (options, error) {
	for _, opt := range opts {
		if opt == nil {
			return base, fmt.Errorf("%w: an option is nil", errs.ErrInvalid)
		}
		opt(&base)
	}
	for _, name := range base.given {
		if !slices.Contains(here, name) {
			return base, fmt.Errorf("%w: %s does not apply here", errs.ErrInvalid, name)
		}
	}
	return base, validate(&base)
}

func validate(o *options) error {
	switch {
	case isNil(o.codec):
		return fmt.Errorf("%w: the codec is nil", errs.ErrInvalid)
	case o.backoff == nil:
		return fmt.Errorf("%w: the back-off is nil", errs.ErrInvalid)
	case slices.Contains(o.given, "WithID"):
		return checkID(o.id)
	}
	for _, n := range []struct {
		what               string
		value, least, most int
	}{
		{"maximum payload", o.maxPayload, 1, 64 << 20},
		{"number of attempts", o.attempts, 0, 1 << 30},
		{"concurrency", o.concurrency, 1, 100_000},
		{"prefetch", o.prefetch, prefetchFloor(o), 100},
	} {
		if n.value < n.least || n.value > n.most {
			return fmt.Errorf("%w: %s %d is not between %d and %d", errs.ErrInvalid, n.what, n.value, n.least, n.most)
		}
	}
	for _, d := range []struct {
		what               string
		value, least, most time.Duration
	}{
		{"time to remember ids", o.dedupe, time.Second, 365 * 24 * time.Hour},
		{"visibility", o.visibility, time.Second, 7 * 24 * time.Hour},
		{"stop grace", o.stopGrace, 0, time.Hour},
	} {
		if err := between(d.what, d.value, d.least, d.most); err != nil {
			return err
		}
	}
	if slices.Contains(o.given, "WithHandlerTimeout") {
		return between("handler timeout", o.handlerTimeout, time.Millisecond, 7*24*time.Hour)
	}
	return nil
}

// isNil reports whether there is no codec, or one that is a nil pointer, which would refuse all payloads.
func isNil(c codec.Codec) bool {
	v := reflect.ValueOf(c)
	return c == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// prefetchFloor is -1 where no number was given, which then is one of the library's own.
func prefetchFloor(o *options) int {
	if slices.Contains(o.given, "WithPrefetch") {
		return 0
	}
	return -1
}

func between(what string, d, least, most time.Duration) error {
	if d < least || d > most {
		return fmt.Errorf("%w: %s %v is not between %v and %v", errs.ErrInvalid, what, d, least, most)
	}
	return nil
}
