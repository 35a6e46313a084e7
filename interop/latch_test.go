package interop_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/faulttest"
)

const latchChannel = "redisson_countdownlatch__channel__"

func TestLatchThatEitherSideOpensReleasesBoth(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		inGo, lag := p.goSide(t).clients[0], faulttest.MeasureLag(t, p.addrs[0])
		for _, last := range []string{"Java", "Go"} {
			var slowest time.Duration
			for range rounds {
				name := unused("latch")
				latch := inGo.GetCountDownLatch(name)
				down := map[string]func(){
					"Java": func() { p.java.must(t, "countdown", "latch", name) },
					"Go":   func() { require.NoError(t, latch.CountDown(t.Context())) },
				}
				if last == "Java" {
					made, err := latch.TrySetCount(t.Context(), 2)
					require.NoError(t, err)
					assert.True(t, made)
					assert.Equal(t, "false", p.java.must(t, "set", "latch", name, "3"))
				} else {
					assert.Equal(t, "true", p.java.must(t, "set", "latch", name, "2"))
					made, err := latch.TrySetCount(t.Context(), 3)
					require.NoError(t, err)
					assert.False(t, made)
				}
				opened := make(chan error, 1)
				go func() { opened <- latch.Await(context.WithoutCancel(t.Context())) }() // ends with the client
				openedInJava := p.java.send(p.java.thread(), "await", "latch", name)
				p.awaitSubscribers(t, 2, latchChannel+"{"+name+"}")

				down[map[string]string{"Java": "Go", "Go": "Java"}[last]]()
				n, err := latch.Count(t.Context())
				require.NoError(t, err)
				assert.Equal(t, 1, n)
				assert.Equal(t, "1", p.java.must(t, "count", "latch", name))
				assert.Empty(t, opened)
				assert.Empty(t, openedInJava)

				begun := time.Now()
				down[last]()
				for range 2 {
					select {
					case err := <-opened:
						require.NoError(t, err)
					case r := <-openedInJava:
						require.NoError(t, r.err)
					case <-time.After(limit):
						require.Fail(t, "a waiter is left")
					}
				}
				slowest = max(slowest, time.Since(begun))
			}
			t.Logf("%s opened: both sides were released within %.1f ms", last, ms(slowest))
			assert.Less(t, slowest, promptly+lag.Late())
		}
	})
}

func TestLatchThatJavaDeletesReleasesGo(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		name := unused("latch")
		latch := p.goSide(t).clients[0].GetCountDownLatch(name)
		p.java.must(t, "set", "latch", name, "2")
		opened := make(chan error, 1)
		go func() { opened <- latch.Await(context.WithoutCancel(t.Context())) }() // ends with the client
		p.awaitSubscribers(t, 1, latchChannel+"{"+name+"}")
		lag, deleted := faulttest.MeasureLag(t, p.addrs[0]), time.Now()
		assert.Equal(t, "true", p.java.must(t, "delete", "latch", name))
		select {
		case err := <-opened:
			require.NoError(t, err)
			assert.Less(t, time.Since(deleted), promptly+lag.Late())
		case <-time.After(limit):
			require.Fail(t, "Go waits for a latch that is gone")
		}
	})
}

func TestLatchThatStaysOpenIsAnOrdinaryOneInJava(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		name := unused("latch")
		latch := p.goSide(t).clients[0].GetCountDownLatch(name)
		setOnce := func(want bool) {
			t.Helper()
			made, err := latch.TrySetCountOnce(t.Context(), 2, time.Hour)
			require.NoError(t, err)
			require.Equal(t, want, made)
		}
		setOnce(true)
		assert.Equal(t, "false", p.java.must(t, "set", "latch", name, "3"))
		p.java.must(t, "countdown", "latch", name)
		assert.Equal(t, "1", p.java.must(t, "count", "latch", name))
		p.java.must(t, "countdown", "latch", name)
		setOnce(false)
		counted, err := latch.CountDownOnce(t.Context(), "one")
		require.NoError(t, err)
		assert.False(t, counted)
		require.NoError(t, latch.Await(t.Context()))
		assert.Equal(t, "0", p.java.must(t, "count", "latch", name))

		assert.Equal(t, "true", p.java.must(t, "set", "latch", name, "1"), "Java does not know that it stays open")
		require.NoError(t, latch.CountDown(t.Context()))
		setOnce(false)
		assert.Equal(t, "0", p.java.must(t, "count", "latch", name))
	})
}
