package rtopic

import (
	"fmt"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/option"
)

// Option is a setting of a topic, for redlatch.GetTopic and redlatch.GetPatternTopic.
type Option interface{ setCodec(c *codec.Codec) }

// SubscribeOption is a setting of one subscription, for [Topic.Subscribe] and [PatternTopic.Subscribe].
type SubscribeOption interface{ setBuffer(values *int) }

type (
	codecOption  struct{ codec codec.Codec }
	bufferOption int
)

func (o codecOption) setCodec(c *codec.Codec) { *c = o.codec }
func (o bufferOption) setBuffer(values *int)  { *values = int(o) }

// WithCodec sets the encoding of values. All clients of a topic must use the same. Defaults to [codec.MsgPack].
func WithCodec(c codec.Codec) Option { return codecOption{c} }

// maxBuffer is the most values that a subscription may keep.
const maxBuffer = 1 << 20

// WithBuffer sets how many values a subscription keeps for its loop, 1 to 1,048,576. One more drops the oldest of them, and
// a [Gap] says so. Values are kept as they were published, and the subscriptions of a client share their bytes. Defaults to
// 1000.
func WithBuffer(values int) SubscribeOption { return bufferOption(values) }

func codecOf(opts []Option) (codec.Codec, error) {
	var c codec.Codec = codec.MsgPack{}
	if err := option.Apply(opts, &c, Option.setCodec); err != nil {
		return c, err
	}
	if core.IsNil(c) {
		return c, fmt.Errorf("%w: the codec is nil", errs.ErrInvalid)
	}
	return c, nil
}

func bufferSize(opts []SubscribeOption) (int, error) {
	size := 1000
	if err := option.Apply(opts, &size, SubscribeOption.setBuffer); err != nil {
		return 0, err
	}
	if size < 1 || size > maxBuffer {
		return 0, fmt.Errorf("%w: buffer %d is not between 1 and %d", errs.ErrInvalid, size, maxBuffer)
	}
	return size, nil
}
