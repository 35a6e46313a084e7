package relection

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/option"
)

// MaxValue is the longest value of a candidate or a leader, in bytes.
const MaxValue = 64 << 10

// CampaignOption is a setting of Campaign and Run.
type CampaignOption interface{ set(o *campaignOptions) }

type campaignSetting func(*campaignOptions)

func (s campaignSetting) set(o *campaignOptions) { s(o) }

type campaignOptions struct {
	value string
}

// WithValue sets what others see of the candidate, and of the leader until it proclaims another value: its address, for
// example. At most 64 KiB. Defaults to none.
func WithValue(value string) CampaignOption {
	return campaignSetting(func(o *campaignOptions) { o.value = value })
}

func collectCampaign(opts []CampaignOption) (campaignOptions, error) {
	var o campaignOptions
	if err := option.Apply(opts, &o, CampaignOption.set); err != nil {
		return o, err
	}
	return o, checkValue(o.value)
}

func checkValue(value string) error {
	if len(value) > MaxValue {
		return fmt.Errorf("%w: the value has %d bytes, more than %d", errs.ErrInvalid, len(value), MaxValue)
	}
	return nil
}
