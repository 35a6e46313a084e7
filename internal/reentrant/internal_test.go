package reentrant

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
)

// answered returns a call of the kind that Redis answered with the value.
func answered(k *locker.Kind, reply any) *script.Call {
	c := k.Acquire(locker.AcquireArgs{Key: "k", Owner: "o", Lease: time.Second})
	c.SetVal(reply)
	return c
}

// replyOf makes a reply of what a fuzzer varies.
func replyOf(shape uint8, text string, a, b int64) any {
	switch shape % 8 {
	case 0:
		return a
	case 1:
		return []any{a, b}
	case 2:
		return []any{a}
	case 3:
		return []any{a, b, a}
	case 4:
		return []any{}
	case 5:
		return text
	case 6:
		return []any{text, b}
	default:
		return nil
	}
}

func FuzzReplies(f *testing.F) {
	for shape := range uint8(8) {
		for _, left := range []int64{-2, -1, 0, 1, 30_000, -1 << 63, 1<<63 - 1} {
			f.Add(shape, "12", left, int64(7))
		}
	}
	plain, fenced := Kind(), fencedKind(time.Hour)
	f.Fuzz(func(t *testing.T, shape uint8, text string, a, b int64) {
		reply := replyOf(shape, text, a, b)
		got, err := plain.Acquired(answered(plain, reply))
		if left, ok := reply.(int64); err == nil && ok {
			require.Equal(t, left == -2, got.Granted)
		}
		got, err = fenced.Acquired(answered(fenced, reply))
		if pair, ok := reply.([]any); err == nil && ok && len(pair) == 2 && shape%8 == 1 {
			require.Equal(t, a == -2, got.Granted)
			require.True(t, !got.Granted || got.Token == b)
		}
		require.False(t, err != nil && got.Granted, "granted by a reply that is none")
		_, _ = locker.ReadInspected("a", answered(plain, reply))
	})
}

func TestRepliesOfAnotherShapeAreErrors(t *testing.T) {
	plain, fenced := Kind(), fencedKind(time.Hour)
	for _, reply := range []any{"x", []any{}, []any{int64(-2)}, []any{int64(-2), int64(1), int64(1)}, []any{"x", int64(1)}} {
		_, err := fenced.Acquired(answered(fenced, reply))
		assert.Error(t, err, "an acquisition was answered with %v", reply)
		_, err = locker.ReadInspected("a", answered(plain, reply))
		assert.Error(t, err, "an inspection was answered with %v", reply)
		_, err = plain.Acquired(answered(plain, reply))
		assert.Error(t, err, "an acquisition was answered with %v", reply)
	}
}
