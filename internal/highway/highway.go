// Package highway has Redisson's hash of a value: HighwayHash-128 with a fixed key.
package highway

import (
	"encoding/binary"

	"github.com/minio/highwayhash"
)

// Size is the length of a hash, in bytes.
const Size = 16

// key is Redisson's, of four words, little-endian.
const key = "\x15\x7c\x4a\x7f\xb9\x79\x37\x9e" + "\x34\xc8\xed\x5c\x60\xc0\x9c\xf3" +
	"\x51\x72\xa2\xf3\x6b\x27\x82\x10" + "\x95\x8e\xc1\xd0\x11\x6a\x6c\xf8"

// Sum returns the two words of the hash, big-endian, the first word first. It allocates nothing.
func Sum(encoded []byte) [Size]byte {
	sum := highwayhash.Sum128(encoded, []byte(key)) // little-endian
	for i := 0; i < Size; i += 8 {
		binary.BigEndian.PutUint64(sum[i:], binary.LittleEndian.Uint64(sum[i:]))
	}
	return sum
}
