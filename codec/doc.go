// Package codec encodes values as the bytes that Redis keeps, and decodes them.
//
//	q := redlatch.GetDelayedQueue[Order](client, "orders", rdelayedqueue.WithCodec(codec.JSON{}))
//
// [MsgPack] is the default: small, fast, and it distinguishes Go's types. [JSON] is [encoding/json]. [String] and
// [Bytes] write what Redisson's StringCodec and ByteArrayCodec write. Any other type with the methods of [Codec] works
// as well.
//
// # Limits
//
// Bytes come from Redis, where others may have written them. No input makes [Unmarshal] panic: if a codec panics,
// Unmarshal returns an error. It allocates no more than a small multiple of the input's size, times the size of the
// largest element of a slice or map in the type, since one byte may encode an empty element. MessagePack is checked
// before it is decoded.
package codec
