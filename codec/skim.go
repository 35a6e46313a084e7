package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	maxLevels    = 10_000 // of nesting
	maxLevelsAny = 100    // in an interface value, where each level costs far more
)

var (
	errShort    = errors.New("a length exceeds the remaining bytes")
	errTrailing = errors.New("trailing bytes after the value")
	errUnused   = errors.New("0xc1 is not valid MessagePack")
)

// skim walks over one MessagePack value and returns its levels of nesting: a bare number has none. It allocates a small
// number for each level, and nothing in proportion to an encoded length.
func skim(data []byte) (levels int, err error) {
	var open []uint64 // values still to come, level by level
	left := uint64(1)
	for {
		for left == 0 {
			if len(open) == 0 {
				if len(data) > 0 {
					return 0, errTrailing
				}
				return levels, nil
			}
			left, open = open[len(open)-1], open[:len(open)-1]
		}
		left--
		inner, rest, err := head(data)
		if err != nil {
			return 0, err
		}
		data = rest
		if inner > uint64(len(data)) {
			return 0, errShort // each value has at least one byte
		}
		if inner == 0 {
			continue
		}
		open, left = append(open, left), inner
		if levels = max(levels, len(open)); levels > maxLevels {
			return 0, fmt.Errorf("more than %d levels of nesting", maxLevels)
		}
	}
}

// head reads a value without the values that it contains. It returns their number and the remaining bytes.
func head(data []byte) (inner uint64, rest []byte, err error) {
	if len(data) == 0 {
		return 0, nil, errShort
	}
	c, rest := data[0], data[1:]
	switch {
	case c <= 0x7f || c >= 0xe0: // small numbers
		return 0, rest, nil
	case c <= 0x8f:
		return 2 * uint64(c&0x0f), rest, nil
	case c <= 0x9f:
		return uint64(c & 0x0f), rest, nil
	case c <= 0xbf:
		rest, err = skip(rest, uint64(c&0x1f))
		return 0, rest, err
	}
	f := formats[c-0xc0]
	if f.unused {
		return 0, nil, errUnused
	}
	n, rest, err := length(rest, f.length)
	if err != nil {
		return 0, nil, err
	}
	if f.inner > 0 {
		return f.inner * n, rest, nil
	}
	rest, err = skip(rest, n+f.fixed)
	return 0, rest, err
}

// format describes what follows a byte from 0xc0 to 0xdf: a length field of length bytes; then fixed bytes in addition
// to those that it counts, or inner values for each that it counts.
type format struct {
	length int
	fixed  uint64
	inner  uint64
	unused bool
}

//nolint:gochecknoglobals // a constant table
var formats = [32]format{
	{}, {unused: true}, {}, {}, // nil, unused, false, true
	{length: 1}, {length: 2}, {length: 4}, // bin
	{length: 1, fixed: 1}, {length: 2, fixed: 1}, {length: 4, fixed: 1}, // ext: a type byte
	{fixed: 4}, {fixed: 8}, // float
	{fixed: 1}, {fixed: 2}, {fixed: 4}, {fixed: 8}, // uint
	{fixed: 1}, {fixed: 2}, {fixed: 4}, {fixed: 8}, // int
	{fixed: 2}, {fixed: 3}, {fixed: 5}, {fixed: 9}, {fixed: 17}, // fixext: a type byte
	{length: 1}, {length: 2}, {length: 4}, // str
	{length: 2, inner: 1}, {length: 4, inner: 1}, // array
	{length: 2, inner: 2}, {length: 4, inner: 2}, // map
}

func length(data []byte, size int) (n uint64, rest []byte, err error) {
	if size > len(data) {
		return 0, nil, errShort
	}
	switch size {
	case 1:
		n = uint64(data[0])
	case 2:
		n = uint64(binary.BigEndian.Uint16(data))
	case 4:
		n = uint64(binary.BigEndian.Uint32(data))
	}
	return n, data[size:], nil
}

func skip(data []byte, n uint64) ([]byte, error) {
	if n > uint64(len(data)) {
		return nil, errShort
	}
	return data[n:], nil
}
