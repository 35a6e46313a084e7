package rdelayedqueue

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/option"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/rratelimiter"
)

// QueueOption is a setting of a queue, for [New] and redlatch.GetDelayedQueue; each [SharedOption] is one too.
type QueueOption interface{ setQueue(s *settings) }

// ConsumeOption is a setting of one consumer, for [Queue.Consume]; each [SharedOption], such as [WithMaxAttempts], [WithBackoff] and
// [WithVisibility], is one too.
type ConsumeOption interface{ setConsumer(s *settings) }

// SharedOption is a setting of a queue that one of its consumers may override: a [QueueOption] and a [ConsumeOption].
type SharedOption interface {
	QueueOption
	ConsumeOption
}

// OfferOption is a setting of one message, for [Queue.Offer], [Queue.OfferAt] and [Queue.OfferNew].
type OfferOption interface{ setOffer(s *offering) }

// WaitOption is a setting of a queue that an offer may override: a [QueueOption] and an [OfferOption].
type WaitOption interface {
	QueueOption
	OfferOption
}

// AttemptsOption is a setting of a queue that a consumer may override, and a message again: a [SharedOption] and an [OfferOption].
type AttemptsOption interface {
	SharedOption
	OfferOption
}

type (
	queueOption   func(*settings)
	consumeOption func(*settings)
	sharedOption  func(*settings)
	offerOption   func(*offering)
)

// waitOption is the option of [WithWait].
type waitOption time.Duration

// attemptsOption is the option of [WithMaxAttempts].
type attemptsOption int

func (set queueOption) setQueue(s *settings)      { set(s) }
func (set consumeOption) setConsumer(s *settings) { set(s) }
func (set sharedOption) setQueue(s *settings)     { set(s) }
func (set sharedOption) setConsumer(s *settings)  { set(s) }
func (set offerOption) setOffer(s *offering)      { set(s) }
func (d waitOption) setQueue(s *settings)         { s.room.Wait = time.Duration(d) }
func (d waitOption) setOffer(s *offering)         { s.wait = (*time.Duration)(&d) }
func (n attemptsOption) setQueue(s *settings)     { s.attempts = int(n) }
func (n attemptsOption) setConsumer(s *settings)  { s.attempts = int(n) }
func (n attemptsOption) setOffer(s *offering)     { s.own.Attempts = (*int)(&n) }

// settings are the settings of a queue, or of one of its consumers.
type settings struct {
	codec      codec.Codec
	maxPayload int
	dedupe     time.Duration
	room       queue.Room
	groups     queue.Group // without a key

	visibility time.Duration
	attempts   int
	backoff    func(attempt int) time.Duration
	rate       *rratelimiter.Rate // nil for none

	concurrency int
	prefetch    *int           // nil for the default, which depends on the handlers
	timeout     *time.Duration // of a handler; nil for none
	stopGrace   time.Duration
	use         []any // middleware, the outermost first
}

// offering has the settings of one message.
type offering struct {
	id      *string // nil for a generated one
	headers map[string]string
	replace bool
	expires bool
	wait    *time.Duration // nil for the queue's
	group   *string        // its key; nil for none
	own     queue.Own
}

func (s *offering) validate() error {
	if s.id != nil {
		if err := checkID(*s.id); err != nil {
			return err
		}
	}
	if s.replace && s.id == nil {
		return fmt.Errorf("%w: WithReplace needs an id of WithID", errs.ErrInvalid)
	}
	if err := errs.Within("number of attempts", or(s.own.Attempts, 0), 0, maxAttempts); err != nil {
		return err
	}
	if err := errs.Within("priority", or(s.own.Priority, 0), 0, queue.MaxPriority); err != nil {
		return err
	}
	if s.group != nil {
		if err := queue.CheckText("group", *s.group); err != nil {
			return err
		}
	}
	if s.expires {
		if err := errs.Between("expiry", s.own.Expiry, time.Millisecond, maxDelay); err != nil {
			return err
		}
	}
	if err := errs.Between("wait", or(s.wait, 0), 0, maxDelay); err != nil {
		return err
	}
	return queue.CheckHeaders(s.headers)
}

// maxAttempts bounds the number of attempts.
const maxAttempts = 1 << 30

func defaults() settings {
	return settings{
		codec:       codec.MsgPack{},
		maxPayload:  1 << 20,
		dedupe:      10 * time.Minute,
		groups:      queue.Group{Limit: 1},
		visibility:  30 * time.Second,
		attempts:    10,
		backoff:     queue.DefaultBackoff,
		concurrency: 1,
		stopGrace:   5 * time.Second,
	}
}

// WithCodec sets the encoding of values. All clients of a queue must use the same. Defaults to [codec.MsgPack].
func WithCodec(c codec.Codec) QueueOption { return queueOption(func(s *settings) { s.codec = c }) }

// WithMaxPayload sets the largest size of an encoded value, 1 byte to 64 MiB: Offer refuses a larger one. Defaults to 1
// MiB.
func WithMaxPayload(bytes int) QueueOption {
	return queueOption(func(s *settings) { s.maxPayload = bytes })
}

// WithDedupe sets how long an id given by [WithID] stays taken after the Ack of its message, 1 s to a year. The setting
// of the acknowledging consumer applies. Defaults to 10 minutes.
func WithDedupe(d time.Duration) QueueOption {
	return queueOption(func(s *settings) { s.dedupe = d })
}

// WithCapacity sets how many messages the queue takes: an offer that would make more than n of them delayed, ready or in flight waits for
// room as [WithWait] says, and then returns [ErrFull]. So producers that are faster than the consumers cannot fill Redis. All producers of a
// queue should have the same. A batch of up to 100 messages and 1 MiB is taken whole or not, and a larger one in such parts; one of more than n
// messages is refused at once. Retries, [Queue.Redrive] and [WithReplace] are never refused. 0 for no limit, which is the default.
//
// What makes room wakes the producers that wait. Messages that were offered without a capacity do not: those wait up to 15 s longer.
func WithCapacity(n int) QueueOption { return queueOption(func(s *settings) { s.room.Capacity = n }) }

// WithWait sets for how long an offer waits for room in a queue with [WithCapacity], besides the time that it waits for Redis; a batch takes
// that of the queue. The offers of a client wait in their order; those of others, and those that come later and need less room, may pass
// them. An error of Redis ends the wait. Defaults to 0: such an offer returns [ErrFull] at once.
func WithWait(d time.Duration) WaitOption { return waitOption(d) }

// WithGroupLimit sets how many messages of one group may be in flight at a time, 1 to 10,000: see [WithGroup]. That of the queue which
// offered a message counts; all producers of a queue should have the same. Defaults to 1.
func WithGroupLimit(n int) QueueOption { return queueOption(func(s *settings) { s.groups.Limit = n }) }

// WithGroupSkip has the messages of a group pass one that waits for its retry, or was snoozed. By default they wait with it, which keeps
// their order.
func WithGroupSkip() QueueOption { return queueOption(func(s *settings) { s.groups.Skip = true }) }

// WithVisibility sets how long a claim lasts, 1 s to 7 days: a message that is neither acknowledged nor extended by
// then is delivered again. Consume renews it while a handler runs. Defaults to 30 s.
func WithVisibility(d time.Duration) SharedOption {
	return sharedOption(func(s *settings) { s.visibility = d })
}

// WithMaxAttempts sets the number of attempts after which a message becomes a dead letter; 0 for no limit. That of a message goes before
// that of its consumer, and that before the queue's. Defaults to 10.
func WithMaxAttempts(n int) AttemptsOption { return attemptsOption(n) }

// WithBackoff sets the pause before a message is due again after a failed attempt, counted from 1. The function must
// return at once. If it panics or returns a negative duration, the pause is 1 s; the longest pause is 100 years.
// Defaults to 1 s, doubled with each attempt up to 15 minutes, with a jitter of 25 %.
func WithBackoff(f func(attempt int) time.Duration) SharedOption {
	return sharedOption(func(s *settings) { s.backoff = f })
}

// WithRate bounds how many messages are begun: all consumers of the queue together begin at most n of rratelimiter.Per(n, period)
// at once, and then one each period/n, so that never more than n + t*n/period have begun after a time t. What waits for the rate
// is not claimed. rratelimiter.Window is redlatch.ErrInvalid. Without WithRate there is no bound. [Queue.Take] keeps to the
// queue's rate, [Queue.Consume] to its own if it has one; Redis counts the messages of all that have one together, as the
// time that they take, and others not at all: so give all consumers of a queue the same. One without a rate beside others with
// one may find a message up to 15 s late.
//
// A message counts when it is claimed, also for a further attempt, and also if it is given back: after a reply that was lost, or
// when its consumer stops before its handler has begun, the rate is not reached. A consumer with a rate claims nothing ahead
// unless [WithPrefetch] says so; what it has claimed ahead may begin together. At a low rate each message costs two more
// round trips, to claim it and to ask when the next one may be.
func WithRate(r rratelimiter.Rate) SharedOption {
	return sharedOption(func(s *settings) { s.rate = &r })
}

// WithID sets the id of the message, 1 to 512 bytes of UTF-8 without control characters. An offer changes nothing if a
// message with this id waits, is in flight, or was acknowledged within the time of [WithDedupe]; if it is a dead letter, the offer
// returns [ErrDead]. Defaults to a generated UUIDv7.
func WithID(id string) OfferOption { return offerOption(func(s *offering) { s.id = &id }) }

// WithReplace puts the message in the place of one with the id of [WithID], which it needs: of many offers the last one counts, once.
// One that waits gets the value, the headers, the options and the due time of this offer, and its attempts are counted from 1. One in
// flight goes on; the new one is due when that claim has ended, in whatever way, and its own delay is over. A message that was acknowledged
// within the time of [WithDedupe] does not keep the new one out. A dead letter does, with [ErrDead].
func WithReplace() OfferOption { return offerOption(func(s *offering) { s.replace = true }) }

// WithExpiry makes the message a dead letter with the reason "expired" if its first attempt has not begun within d after it was due, 1 ms to
// 100 years; to wait for a place in a group, for the rate or in a pause counts too. A consumer finds out when it would claim the message. A redriven message has the whole time again. Defaults to no end.
func WithExpiry(d time.Duration) OfferOption {
	return offerOption(func(s *offering) { s.own.Expiry, s.expires = d, true })
}

// WithPriority sets the priority of the message, 0 to 9: of those that are due the higher ones are delivered first, and those of the same
// priority in order of the time at which they were due, rounded up to a millisecond. A steady flow of high ones starves low ones. Defaults to
// 0.
func WithPriority(p int) OfferOption { return offerOption(func(s *offering) { s.own.Priority = &p }) }

// WithGroup sets the group of the message, 1 to 512 bytes of UTF-8 without control characters, such as the id of a customer. Messages of a
// group are delivered in the order of the times at which they are due, and then of offering, and only [WithGroupLimit] of them (1 by
// default) are in flight at a time; messages of other groups, and those without one, pass them. Within a group the priority does not count:
// its next message has the priority that it was offered with, among those of others. So a message of high priority does not pass those of its
// own group. Groups run side by side only in a consumer with [WithConcurrency], or in several.
//
// A message whose attempt failed, which was snoozed, or whose claim ran out, keeps its place, and the group waits for it unless the queue
// has [WithGroupSkip]. [Queue.Reschedule], [WithReplace], [Queue.Redrive] and [Message.Successor] put it behind those that are due before. When
// a process dies, the group goes on after the visibility. A message that is cancelled in flight keeps its place until its handler has
// returned, or until the visibility is over. What replaces a message in flight has the group and the priority of that. A dead letter has
// left its group, which goes on without it. The time of [WithExpiry] runs on while a message waits for its place.
func WithGroup(key string) OfferOption { return offerOption(func(s *offering) { s.group = &key }) }

// WithHeaders sets the headers of the message, for what is not part of its value: see Message.Headers. They are UTF-8 and have at most 4 KiB
// as JSON. Those of an observer are added, and go before these; all of its own are left out if there would be more than 4 KiB.
func WithHeaders(headers map[string]string) OfferOption {
	return offerOption(func(s *offering) { s.headers = headers })
}

// WithConcurrency sets how many handlers run at a time, 1 to 100,000. Defaults to 1.
func WithConcurrency(n int) ConsumeOption {
	return consumeOption(func(s *settings) { s.concurrency = n })
}

// WithPrefetch sets how many messages may be claimed beyond those that handlers work on, 0 to 100: they wait for a handler, or have been
// handled and their acknowledgements are on the way, which the next handler does not wait for. Defaults to four times the number of handlers, but
// 16 to 100, while handlers take less than 5 ms on average, and to 0 while they take longer, or with [WithRate].
func WithPrefetch(n int) ConsumeOption { return consumeOption(func(s *settings) { s.prefetch = &n }) }

// WithTimeout ends the context of a handler after d, 1 ms to 7 days, with the cause [ErrTimeout]. The attempt has then
// failed, whatever the handler returns. Defaults to none.
func WithTimeout(d time.Duration) ConsumeOption {
	return consumeOption(func(s *settings) { s.timeout = &d })
}

// WithStopGrace sets how long handlers may go on after their consumer stops, before their contexts end. 0 to 1 h.
// Defaults to 5 s.
func WithStopGrace(d time.Duration) ConsumeOption {
	return consumeOption(func(s *settings) { s.stopGrace = d })
}

func queueSettings(opts []QueueOption) (settings, error) {
	s := defaults()
	if err := option.Apply(opts, &s, QueueOption.setQueue); err != nil {
		return s, err
	}
	return s, s.validate()
}

// consumer returns the settings of a consumer of a queue with these settings, which are valid.
func (s settings) consumer(opts []ConsumeOption) (settings, error) {
	if len(opts) == 0 {
		return s, nil
	}
	if err := option.Apply(opts, &s, ConsumeOption.setConsumer); err != nil {
		return s, err
	}
	return s, s.validate()
}

// offeringOf returns the settings of a message.
func offeringOf(opts []OfferOption) (s offering, err error) {
	if err := option.Apply(opts, &s, OfferOption.setOffer); err != nil {
		return s, err
	}
	return s, s.validate()
}

func (s *settings) validate() error {
	switch {
	case core.IsNil(s.codec):
		return fmt.Errorf("%w: the codec is nil", errs.ErrInvalid)
	case s.backoff == nil:
		return fmt.Errorf("%w: the back-off is nil", errs.ErrInvalid)
	}
	if s.rate != nil {
		if _, _, err := s.rate.Tokens(); err != nil {
			return err
		}
	}
	for _, n := range []struct {
		what               string
		value, least, most int
	}{
		{"maximum payload", s.maxPayload, 1, 64 << 20},
		{"number of attempts", s.attempts, 0, maxAttempts},
		{"capacity", s.room.Capacity, 0, 1 << 30},
		{"group limit", s.groups.Limit, 1, 10_000},
		{"concurrency", s.concurrency, 1, 100_000},
		{"prefetch", or(s.prefetch, 0), 0, 100},
	} {
		if err := errs.Within(n.what, n.value, n.least, n.most); err != nil {
			return err
		}
	}
	for _, d := range []struct {
		what               string
		value, least, most time.Duration
	}{
		{"wait", s.room.Wait, 0, maxDelay},
		{"dedupe time", s.dedupe, time.Second, 365 * 24 * time.Hour},
		{"visibility", s.visibility, time.Second, 7 * 24 * time.Hour},
		{"stop grace", s.stopGrace, 0, time.Hour},
		{"timeout", or(s.timeout, time.Second), time.Millisecond, 7 * 24 * time.Hour},
	} {
		if err := errs.Between(d.what, d.value, d.least, d.most); err != nil {
			return err
		}
	}
	return nil
}

// or returns what p points to; other if p is nil.
func or[T any](p *T, other T) T {
	if p == nil {
		return other
	}
	return *p
}
