package rcache

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/option"
)

const (
	shortest = 10 * time.Millisecond
	longest  = 10 * 365 * 24 * time.Hour
	aDay     = 24 * time.Hour
	maxNear  = 1 << 24
)

// Option is a setting of a [Cache], for [New].
type Option interface{ set(o *options) }

type setting func(*options)

func (s setting) set(o *options) { s(o) }

type options struct {
	ttl, missTTL          time.Duration
	refresh, errors       *time.Duration // nil for none
	loadTimeout, maxStale time.Duration
	near                  *int // entries; nil for no near cache
	parallel              int
	failOpen              bool
	codec, keys           codec.Codec
}

// WithTTL sets for how long a value is kept, from 10 ms to ten years. Defaults to 10 min.
func WithTTL(d time.Duration) Option { return setting(func(o *options) { o.ttl = d }) }

// WithRefresh sets after what time a value is old: it is still returned, and the first who sees it loads in the background. A refresh
// that fails leaves the value, and is tried again after a second. d is from 10 ms to the TTL; a value with a shorter TTL of its own
// ([KeepFor]) is not refreshed. Without it a value is not refreshed.
func WithRefresh(d time.Duration) Option { return setting(func(o *options) { o.refresh = &d }) }

// WithMissTTL sets for how long it is kept that the loader found nothing, from 10 ms to ten years. Defaults to 10 s.
func WithMissTTL(d time.Duration) Option { return setting(func(o *options) { o.missTTL = d }) }

// WithErrors also keeps the failure of a load, for d, from 10 ms to ten years: callers get it as a [*LoadError] meanwhile, and nobody
// loads. One of a refresh is not kept. Without it the next Get loads.
func WithErrors(d time.Duration) Option { return setting(func(o *options) { o.errors = &d }) }

// WithLoadTimeout sets when the context of a load ends, from 10 ms to a day. A loader that goes on for a second more loses its claim,
// and another one may run. Defaults to 30 s.
func WithLoadTimeout(d time.Duration) Option { return setting(func(o *options) { o.loadTimeout = d }) }

// WithFailOpen has Get load without Redis while that does not answer for a second, or refuses writes: each process for itself, one load
// at a time for each key. The process keeps the value for a second, in which an Invalidate of another process does not reach it. Get waits
// for that second for each other key.
//
// A Get that waits for a load looks every second whether Redis answers, and loads two seconds after it was lost. One whose own load has
// ended returns its result a second later, though it is not known to be kept.
func WithFailOpen() Option { return setting(func(o *options) { o.failOpen = true }) }

// WithNear keeps up to n values in the client, which Get returns without I/O. All clients of a cache must have it, or none; with 0 a
// client keeps nothing near, and publishes its changes. At most 16,777,216.
func WithNear(n int) Option { return setting(func(o *options) { o.near = &n }) }

// WithMaxStale sets for how long a near value is returned at the most, from when Redis was asked for it: it bounds how old it can be
// if a message was lost. From 10 ms to a day. Defaults to 30 s.
func WithMaxStale(d time.Duration) Option { return setting(func(o *options) { o.maxStale = d }) }

// WithParallel sets how many loads [Cache.GetAll] waits for at a time, from 1 to 1,000. Defaults to 8.
func WithParallel(n int) Option { return setting(func(o *options) { o.parallel = n }) }

// WithCodec sets the encoding of values. A value that another codec has written is loaded again. Defaults to [codec.MsgPack].
func WithCodec(c codec.Codec) Option { return setting(func(o *options) { o.codec = c }) }

// WithKeyCodec sets the encoding of keys, which have 1 to 512 bytes then. It must write equal keys as equal bytes, which
// [codec.MsgPack] does not. Defaults to [codec.Text].
func WithKeyCodec(c codec.Codec) Option { return setting(func(o *options) { o.keys = c }) }

func collect(opts []Option) (o options, err error) {
	o = options{
		ttl: 10 * time.Minute, missTTL: 10 * time.Second, loadTimeout: 30 * time.Second, maxStale: 30 * time.Second,
		parallel: 8, codec: codec.MsgPack{}, keys: codec.Text{},
	}
	if err := option.Apply(opts, &o, Option.set); err != nil {
		return o, err
	}
	return o, o.validate()
}

func (o *options) validate() error {
	for _, d := range []struct {
		what  string
		value *time.Duration
		most  time.Duration
	}{
		{"TTL", &o.ttl, longest},
		{"TTL of misses", &o.missTTL, longest},
		{"TTL of errors", o.errors, longest},
		{"refresh", o.refresh, o.ttl},
		{"load timeout", &o.loadTimeout, aDay},
		{"max stale", &o.maxStale, aDay},
	} {
		if d.value == nil {
			continue
		}
		if err := errs.Between(d.what, *d.value, shortest, d.most); err != nil {
			return err
		}
	}
	switch {
	case o.near != nil && (*o.near < 0 || *o.near > maxNear):
		return fmt.Errorf("%w: %d near entries are not between 0 and %d", errs.ErrInvalid, *o.near, maxNear)
	case o.parallel < 1 || o.parallel > 1000:
		return fmt.Errorf("%w: %d parallel loads are not between 1 and 1000", errs.ErrInvalid, o.parallel)
	case core.IsNil(o.codec), core.IsNil(o.keys):
		return fmt.Errorf("%w: the codec is nil", errs.ErrInvalid)
	}
	return nil
}

// freshFor returns for how long a value is fresh that is kept for ttl, 0 for all that time.
func (o *options) freshFor(ttl time.Duration) time.Duration {
	if o.refresh == nil || *o.refresh >= ttl {
		return 0
	}
	return *o.refresh
}
