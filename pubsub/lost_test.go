package pubsub_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/pubsub"
)

// F4
func TestLossIsNotifiedAtOnce(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var first, second, left ear
		var pattern patternEar
		_, _ = r.Join("a", &first)
		_, _ = r.JoinPattern("b*", &pattern)
		m, _ := r.Join("a", &left)
		synctest.Wait()
		_, confirmed := r.Join("a", &second)
		require.True(t, confirmed)
		m.Leave()
		all := []*ear{&first, &second, &pattern.ear}

		r.set(func() { r.refuse = true })
		start := time.Now()
		require.NoError(t, r.wire(t).Conn.Close())
		synctest.Wait()
		assert.Zero(t, time.Since(start))
		for _, e := range all {
			n, gone := e.losses()
			assert.Equal(t, 1, n)
			assert.True(t, gone)
		}
		n, _ := left.losses()
		assert.Zero(t, n)

		time.Sleep(5 * time.Second)
		r.set(func() { r.refuse = false })
		time.Sleep(time.Second)
		synctest.Wait()
		for _, e := range all {
			n, gone := e.losses()
			assert.Equal(t, 1, n, "attempts that fail lose nothing")
			assert.False(t, gone)
		}
	})
}

// F4
func TestSilentConnectionIsLostWithinTwentySeconds(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var e ear
		_, _ = r.Join("a", &e)
		synctest.Wait()
		time.Sleep(14 * time.Second)
		w := r.wire(t)
		r.server.Publish("a", "0")
		synctest.Wait()
		w.set(func() { w.dead = true })
		r.set(func() { r.hang = true })
		time.Sleep(19900 * time.Millisecond)
		synctest.Wait()
		n, _ := e.losses()
		require.Zero(t, n)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		n, gone := e.losses()
		assert.Equal(t, 1, n, "15 s of silence, 5 s without a pong")
		assert.True(t, gone, "the next connection is not made yet")
	})
}

func TestCloseIsALoss(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var e, unconfirmed ear
		_, _ = r.Join("a", &e)
		synctest.Wait()
		w := r.wire(t)
		w.set(func() { w.held = true })
		_, _ = r.Join("b", &unconfirmed)
		synctest.Wait()
		r.Close()
		r.Close()
		n, _ := e.losses()
		assert.Equal(t, 1, n)
		n, _ = unconfirmed.losses()
		assert.Zero(t, n)
	})
}

// F4
func TestReplacedConnectionIsALoss(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var stays, e ear
		_, _ = r.Join("stays", &stays)
		joinAndLeave(r, &e, 60_000) // more names than the Redis client may remember
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 2, stays.confirmations())
		n, gone := stays.losses()
		assert.Equal(t, 1, n)
		assert.False(t, gone)
	})
}
