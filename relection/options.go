package relection

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/waitqueue"
)

// MaxValue is the longest value of a candidate or a leader, in bytes.
const MaxValue = 64 << 10

const (
	minRecheck = 100 * time.Millisecond
	maxRecheck = time.Hour
)

// Option configures an election.
type Option func(*options)

type options struct {
	recheck time.Duration
}

// WithRecheck sets how often [Election.Observe] asks who leads when it has received no message, jittered, from 100 ms to an
// hour: so late it notices a leader that died, and a message that was lost. Defaults to 1 s.
func WithRecheck(d time.Duration) Option { return func(o *options) { o.recheck = d } }

func collect(opts []Option) (options, error) {
	o := options{recheck: waitqueue.Recheck}
	for _, opt := range opts {
		if opt == nil {
			return o, errs.ErrNilOption
		}
		opt(&o)
	}
	if o.recheck < minRecheck || o.recheck > maxRecheck {
		return o, fmt.Errorf("%w: recheck %v is not between %v and %v", errs.ErrInvalid, o.recheck, minRecheck, maxRecheck)
	}
	return o, nil
}

// CampaignOption is a setting of Campaign and Run.
type CampaignOption func(*campaignOptions)

type campaignOptions struct {
	value string
}

// WithValue sets what others see of the candidate, and of the leader until it proclaims another value: its address, for
// example. At most 64 KiB. Defaults to none.
func WithValue(value string) CampaignOption { return func(o *campaignOptions) { o.value = value } }

func collectCampaign(opts []CampaignOption) (campaignOptions, error) {
	var o campaignOptions
	for _, opt := range opts {
		if opt == nil {
			return o, errs.ErrNilOption
		}
		opt(&o)
	}
	return o, checkValue(o.value)
}

func checkValue(value string) error {
	if len(value) > MaxValue {
		return fmt.Errorf("%w: the value has %d bytes, more than %d", errs.ErrInvalid, len(value), MaxValue)
	}
	return nil
}
