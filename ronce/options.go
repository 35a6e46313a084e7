package ronce

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/option"
)

const (
	defaultTTL  = 24 * time.Hour
	shortestTTL = 10 * time.Millisecond
	longestTTL  = 10 * 365 * 24 * time.Hour
)

// Option is a setting of a [Once], for redlatch.GetOnce.
type Option interface{ set(o *options) }

type setting func(*options)

func (s setting) set(o *options) { s(o) }

type options struct {
	ttl    time.Duration
	errors *time.Duration // nil if failures are not kept
	codec  codec.Codec
}

// WithTTL sets for how long a value is kept, from 10 ms to ten years. Defaults to 24 h. That of the caller whose fn made the value counts.
func WithTTL(d time.Duration) Option { return setting(func(o *options) { o.ttl = d }) }

// WithErrors also keeps the failure of a run, for d, from 10 ms to ten years: callers get it as an [*Error] meanwhile, and nobody runs.
// The error of a run whose context has ended is not kept. Without WithErrors the next caller runs.
func WithErrors(d time.Duration) Option { return setting(func(o *options) { o.errors = &d }) }

// WithCodec sets the encoding of values. All clients of an object must use the same. Defaults to [codec.MsgPack].
func WithCodec(c codec.Codec) Option { return setting(func(o *options) { o.codec = c }) }

func collect(opts []Option) (o options, err error) {
	o = options{ttl: defaultTTL, codec: codec.MsgPack{}}
	if err := option.Apply(opts, &o, Option.set); err != nil {
		return o, err
	}
	return o, o.validate()
}

func (o options) validate() error {
	if err := checkTTL("TTL", o.ttl); err != nil {
		return err
	}
	if o.errors != nil {
		if err := checkTTL("TTL of errors", *o.errors); err != nil {
			return err
		}
	}
	if core.IsNil(o.codec) {
		return fmt.Errorf("%w: the codec is nil", errs.ErrInvalid)
	}
	return nil
}

func checkTTL(what string, d time.Duration) error {
	if d < shortestTTL || d > longestTTL {
		return fmt.Errorf("%w: the %s %v is not between %v and ten years", errs.ErrInvalid, what, d, shortestTTL)
	}
	return nil
}
