// Package codec turns values into the bytes that Redis keeps, and back.
//
//	q := redlatch.GetDelayedQueue[Order](client, "orders", rdelayedqueue.WithCodec(codec.JSON{}))
//
// [MsgPack] is the default: small, fast, and it keeps Go's types apart. [JSON] is [encoding/json]. [String] and [Bytes] write what
// Redisson's StringCodec and ByteArrayCodec write. Anything with the two methods of [Codec] will do.
//
// # Limits
//
// Bytes come from Redis, where anybody may have written them. No input makes [Unmarshal] panic: a codec that panics has
// refused its input. It allocates no more than a small multiple of the input's size, times the size of the largest element of a slice or
// map in the type: one byte may stand for an element that is empty. MessagePack is looked over before it is decoded.
package codec
