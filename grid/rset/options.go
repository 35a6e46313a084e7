package rset

import (
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/grid"
)

// Option is a setting of a [Set] or an [Expiring], for [New] and [NewExpiring].
type Option grid.Option

// WithCodec sets the encoding of members, which must write equal members as equal bytes, as
// [codec.MsgPack] does not. Defaults to [codec.Text].
func WithCodec(c codec.Codec) Option { return Option(grid.WithCodec(c)) }

// WithMaxValue sets how many bytes an encoded member may have, up to 512 MiB. Defaults to 16 MiB.
func WithMaxValue(bytes int) Option { return Option(grid.WithMaxValue(bytes)) }
