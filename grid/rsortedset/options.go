package rsortedset

import (
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/grid"
)

// Option is a setting of a [SortedSet], for [New].
type Option grid.Option

// WithCodec sets the encoding of members, which must write equal members as equal bytes, as
// [codec.MsgPack] does not. Defaults to [codec.Text].
func WithCodec(c codec.Codec) Option { return Option(grid.WithCodec(c)) }

// WithMaxValue sets how many bytes an encoded member may have, up to 512 MiB. Defaults to 16 MiB.
func WithMaxValue(bytes int) Option { return Option(grid.WithMaxValue(bytes)) }

// AddOption is a condition of [SortedSet.Add]. A call takes one at most.
type AddOption struct{ flag string }

// IfAbsent adds a member only if it is not there.
func IfAbsent() AddOption { return AddOption{"nx"} }

// IfGreater sets the score of a member that is there only to a greater one.
func IfGreater() AddOption { return AddOption{"gt"} }

// IfLess sets the score of a member that is there only to a lesser one.
func IfLess() AddOption { return AddOption{"lt"} }
