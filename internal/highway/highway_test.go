package highway_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/highway"
)

func TestSumIsRedissonsHash(t *testing.T) {
	for value, want := range map[string]string{"Jack_001": "7pNoDdizVy2xY792MaFv+w", "Mary_002": "kIX2DFOX4IWct7G7K6tV9A"} {
		sum := highway.Sum([]byte(value))
		assert.Equal(t, want, base64.RawStdEncoding.EncodeToString(sum[:]), value)
	}
}

func BenchmarkSum(b *testing.B) {
	key := []byte("user:12345")
	b.ReportAllocs()
	for b.Loop() {
		highway.Sum(key)
	}
}
