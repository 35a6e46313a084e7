package rmap

import (
	"time"

	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/internal/grid"
)

// Option is a setting of a [Map], for [New].
type Option grid.Option

// WithCodec sets the encoding of values. Defaults to [codec.Text].
func WithCodec(c codec.Codec) Option { return Option(grid.WithCodec(c)) }

// WithKeyCodec sets the encoding of keys, which have at most 64 KiB then. It must write equal keys as equal bytes, which
// [codec.MsgPack] does not. Defaults to [codec.Text].
func WithKeyCodec(c codec.Codec) Option { return Option(grid.WithKeyCodec(c)) }

// WithMaxValue sets how many bytes an encoded value may have, up to 512 MiB. Defaults to 16 MiB.
func WithMaxValue(bytes int) Option { return Option(grid.WithMaxValue(bytes)) }

// SetOption is a setting of [Map.Set], [Map.SetIfAbsent] and [Map.SetIfPresent].
type SetOption interface{ set(w *grid.Write) }

// TTLOption is a [SetOption] about the time to live.
type TTLOption struct{ ttl any }

func (o TTLOption) set(w *grid.Write) { w.TTL = o.ttl }

// WithTTL sets the time to live of the entry, from 1 ms to 100 years. It needs Redis 7.4 or Valkey 9: others return
// redlatch.ErrUnsupported, and nothing is set.
func WithTTL(d time.Duration) TTLOption { return TTLOption{grid.TTL(d)} }

// SwapOption is a setting of [Map.CompareAndSwap] and [Map.Update].
type SwapOption interface{ swap(w *grid.Write) }

// FenceOption is a [SetOption] and a [SwapOption] with a fencing token.
type FenceOption struct{ token int64 }

func (o FenceOption) set(w *grid.Write) { w.Fence = &o.token }

func (o FenceOption) swap(w *grid.Write) { w.Fence = &o.token }

// WithFence refuses the change with redlatch.ErrFenced if a higher token was seen before. token is that of a hold of a fenced
// lock, at least 1.
func WithFence(token int64) FenceOption { return FenceOption{token} }
