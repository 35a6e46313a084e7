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

// WithNear keeps up to so many entries in the client, those that were used last, and publishes changes of the map, so that
// others drop what they have of it. With 0 it publishes and keeps nothing; below 0 is redlatch.ErrInvalid. Get and GetAll return what is kept,
// and read the rest on the master; all other methods ask Redis as without it.
//
// After a change returns, this client does not return the value from before. Other clients may until the message of the change
// comes, about a millisecond later, and never longer than [WithMaxStale] allows. While the client's subscription to the
// messages is lost, every read asks Redis. Those limits need every program that writes the map to have WithNear: a change
// without it, by redis-cli, by expiry of the map before it was read, or by eviction, is seen after WithMaxStale. An entry
// that was read is not kept beyond its time to live, or that of the map.
//
// Entries belong to the Map that New returned, so make one and keep it. Each caller gets a value of its own: one without
// pointers, maps and slices is copied, others are decoded again for each read, see [WithSharedValues]. A key without an
// entry is not remembered.
//
// Each change is a script and a message on the channel {name}:topic, which users need the right to publish and subscribe to. Messages
// are those of Redisson's RLocalCachedMap, and both drop what the other changes, with two exceptions: Java clients whose
// reconnection strategy is LOAD need a log that is not written here, so that they can return what changed while
// they were disconnected; use CLEAR. And they must not set useTopicPattern on a cluster.
func WithNear(entries int) Option { return Option(grid.WithNear(entries)) }

// WithMaxStale sets for how long an entry in the client is returned, from when Redis was asked for it: what a reader may be
// behind at the worst, at least 1 ms. Defaults to 30 s. Without [WithNear] it has no effect.
func WithMaxStale(d time.Duration) Option { return Option(grid.WithMaxStale(d)) }

// WithSharedValues has all callers get the same value of an entry in the client, which nobody may change then: no read decodes
// it again. It makes no difference for values without pointers, maps and slices. Without [WithNear] it has no effect.
func WithSharedValues() Option { return Option(grid.WithSharedValues()) }

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
