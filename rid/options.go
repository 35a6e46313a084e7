package rid

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
)

const (
	maxBlock = 1_000_000
	maxBits  = 32
)

// Option configures a generator.
type Option interface{ set(o *options) }

type setting func(*options)

func (s setting) set(o *options) { s(o) }

type options struct {
	block int
	timed bool
	bits  int
	epoch time.Time // zero for the default
}

// WithBlock sets how many ids a client takes at a time, from 1 to 1,000,000. Defaults to 1000. A client that needs more
// than a million plain ids a second takes up to 16 times as many. With [WithTimePrefix] it is the most that a client
// takes: it begins with one id, and then takes as many as a second needs.
func WithBlock(n int) Option { return setting(func(o *options) { o.block = n }) }

// WithTimePrefix makes ids of the seconds since an epoch and, in the lowest bits, a counter of the day. From 1 to 32
// bits; 2 to their power is how many ids there are for a day, and the other 63-bits are for the seconds: with 32 bits
// they last for 68 years. A block lapses with its second, and what is left of it is used up for the day: up to twice as
// many ids as were returned. So a client begins with a block of one id; where few are left for the day blocks are
// smaller.
func WithTimePrefix(bits int) Option {
	return setting(func(o *options) { o.timed, o.bits = true, bits })
}

// WithEpoch sets from when the seconds of [WithTimePrefix] count: a whole second from 1970 to 2100. It must not change
// while ids are in use. Defaults to the beginning of 2025 in UTC.
func WithEpoch(t time.Time) Option { return setting(func(o *options) { o.epoch = t }) }

func (o *options) validate() error {
	invalid := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{errs.ErrInvalid}, args...)...)
	}
	switch {
	case o.block < 1 || o.block > maxBlock:
		return invalid("a block of %d ids is not between 1 and %d", o.block, maxBlock)
	case o.timed && (o.bits < 1 || o.bits > maxBits):
		return invalid("a counter of %d bits is not between 1 and %d", o.bits, maxBits)
	case o.epoch.IsZero():
	case !o.timed:
		return invalid("an epoch is for WithTimePrefix")
	case o.epoch.Nanosecond() != 0 || o.epoch.Unix() < 0 || o.epoch.UTC().Year() >= 2100:
		return invalid("the epoch %v is not a whole second from 1970 to 2100", o.epoch)
	}
	return nil
}

// since returns the beginning of the seconds in s since 1970.
func (o *options) since() int64 {
	if o.epoch.IsZero() {
		return time.Date(2025, time.January, 1, 0, 0, 0, 0, time.UTC).Unix()
	}
	return o.epoch.Unix()
}
