package near_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/near"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// point is a value without pointers.
type point struct {
	ID   int64
	Name string
	X, Y float64
}

var errNotYet = errors.New("not confirmed yet")

// full returns a cache with 5,000 entries.
func full[V any](b *testing.B, n *node, opts near.Options[V], value V, encoded string) (c *near.Cache[int64, V]) {
	b.Helper()
	opts.Entries, opts.MaxStale = 10_000, 1<<60
	c = near.New[int64](n.core, near.MapTopic(name), opts)
	c.Get(0)
	redistest.Eventually(b, maxStale, "the subscription", func() error {
		if c.Ask(nil) == (near.Ticket{}) {
			return errNotYet
		}
		return nil
	})
	for i := range int64(5000) {
		c.Store(i, value, []byte(encoded), 0, c.Ask(strconv.AppendInt(nil, i, 10)))
	}
	return c
}

func hits[V any](b *testing.B, c *near.Cache[int64, V]) {
	b.Helper()
	b.ReportAllocs()
	missed := 0
	for i := int64(0); b.Loop(); i++ {
		if _, ok := c.Get(i % 5000); !ok {
			missed++
		}
	}
	require.Less(b, missed, 100, "stripes are shared")
}

func BenchmarkHit(b *testing.B) {
	n := newNode(b, redistest.Shared(b).Client(b))
	b.Run("plain", func(b *testing.B) { hits(b, full(b, n, near.Options[point]{}, point{1, "tea", 1, 2}, "")) })
	b.Run("shared", func(b *testing.B) {
		hits(b, full(b, n, near.Options[*order]{Shared: true}, &order{[]string{"tea"}}, ""))
	})
	b.Run("decoded", func(b *testing.B) {
		hits(b, full(b, n, near.Options[order]{Decode: decodeOrder}, order{}, `{"Items":["tea","milk"]}`))
	})
	b.Run("64 goroutines", func(b *testing.B) {
		c := full(b, n, near.Options[point]{}, point{1, "tea", 1, 2}, "")
		b.ReportAllocs()
		b.SetParallelism(32)
		b.RunParallel(func(p *testing.PB) {
			for i := int64(0); p.Next(); i++ {
				c.Get(i % 5000)
			}
		})
	})
}

func BenchmarkMissAndStore(b *testing.B) {
	n := newNode(b, redistest.Shared(b).Client(b))
	c := full(b, n, near.Options[point]{}, point{}, "")
	b.ReportAllocs()
	var key []byte
	for i := int64(0); b.Loop(); i++ {
		k := i % 100_000
		key = strconv.AppendInt(key[:0], k, 10)
		c.Store(k, point{}, nil, 0, c.Ask(key))
	}
}

func BenchmarkInvalidate(b *testing.B) {
	n := newNode(b, redistest.Shared(b).Client(b))
	c := full(b, n, near.Options[point]{}, point{}, "")
	b.ReportAllocs()
	for b.Loop() {
		w := c.Write([]byte("user:1"))
		_ = w.Message()
		w.Answered()
	}
}
