// Package codec encodes values as the bytes that Redis keeps, and decodes them.
//
//	q := redlatch.GetDelayedQueue[Order](client, "orders", rdelayedqueue.WithCodec(codec.JSON{}))
//
// [MsgPack] is the default of queues, topics and once: small, fast, and it distinguishes Go's types. [Text] is that of the
// objects in grid: text for texts and numbers, JSON for the rest, the same bytes for the same value. [JSON] is
// [encoding/json]. [Text] and [Bytes] write what Redisson's StringCodec and ByteArrayCodec read. Any other type with the
// methods of [Codec] works as well.
//
// # Limits
//
// Bytes come from Redis, where others may have written them. No input makes [Unmarshal] panic: if a codec panics,
// Unmarshal returns an error. It allocates no more than a small multiple of the input's size, times the size of the
// largest element of a slice or map in the type, since one byte may encode an empty element. MessagePack is checked
// before it is decoded.
package codec
