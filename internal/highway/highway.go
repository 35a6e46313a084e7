// Package highway has Redisson's hash of a value: HighwayHash-128 with a fixed key.
package highway

import (
	"encoding/binary"

	"github.com/minio/highwayhash"
)

// Size is the length of a hash, in bytes.
const Size = 16

// words is Redisson's key.
var words = [4]uint64{0x9e3779b97f4a7c15, 0xf39cc0605cedc834, 0x1082276bf3a27251, 0xf86c6a11d0c18e95}

var key = func() []byte {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}()

// Sum returns the two words of the hash, big-endian, the first word first. It allocates nothing.
func Sum(encoded []byte) [Size]byte {
	sum := highwayhash.Sum128(encoded, key) // little-endian
	for i := 0; i < Size; i += 8 {
		binary.BigEndian.PutUint64(sum[i:], binary.LittleEndian.Uint64(sum[i:]))
	}
	return sum
}
