package rsemaphore_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
)

// F2
func TestSemaphoreReleaseIsNotRepeatedWhenRedisHasForgottenIt(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		s := p.GetSemaphore("s")
		give(t, s, 5)
		var silent bool
		b.Mini.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool {
			if !silent && (cmd == "EVALSHA" || cmd == "EVAL") {
				silent = true
				p.Blackhole(true) // it runs, and its reply is late for ever
			}
			return false
		})
		released := make(chan error, 1) // room for the result
		go func() { released <- s.Release(t.Context(), 1) }()
		time.Sleep(time.Second)
		require.Equal(t, 6, counter(t, b.Redis, "s"))
		time.Sleep(time.Hour)
		require.Equal(t, []string{"s"}, b.Keys(t), "the batch is forgotten")
		p.Blackhole(false)
		require.ErrorIs(t, <-released, redlatch.ErrUnknown)
		time.Sleep(time.Minute)
		require.Equal(t, 6, counter(t, b.Redis, "s"), "released once")
	})
}
