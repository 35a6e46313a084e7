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

// WithNear keeps up to this many entries in the client, those that were used last, and publishes each change of the map, so that
// others drop what they have of it. With 0 it publishes and keeps nothing. At most 16,777,216.
//
// Get and GetAll return what is kept, and read the rest on the master; all other methods ask Redis, as without it. A key
// that has no entry is not remembered. Each caller gets a value of its own: one without pointers, slices and maps is copied,
// others are decoded at each read, see [WithSharedValues].
//
// After a change has returned, this client does not return the value from before. Another client may, until the message of the
// change comes, about a millisecond later. If the message is lost, as it may be while a server fails or the map moves to another
// one, or a change has published none, it may for as long as [WithMaxStale] says; so every program that changes the map needs this
// option. redis-cli and eviction publish nothing.
// While the client's subscription is lost, Get asks Redis. An entry is not kept for longer than its time to live, or the
// map's, when it was read.
//
// What is kept belongs to the Map that New returned: make it once. A change is a script and a message on the channel
// {name}:topic, on which the Redis user needs to subscribe and publish.
//
// The messages are those of Redisson's RLocalCachedMap: Java and Go drop what the other changes. A Java client whose
// reconnection strategy is LOAD misses changes from here while it is disconnected; CLEAR does not.
func WithNear(entries int) Option { return Option(grid.WithNear(entries)) }

// WithMaxStale sets for how long an entry in the client is returned, from when Redis was asked for it: what a reader may be
// behind at the worst, from 1 ms to a day. Defaults to 30 s. Without [WithNear] it has no effect.
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
