package pubsub_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/pubsub"
)

// F4
func TestMessageAfterConfirmationArrives(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var e ear
		m, confirmed := r.Join("a", &e)
		require.False(t, confirmed)
		synctest.Wait()
		require.Equal(t, 1, e.confirmations())

		r.server.Publish("a", "0")
		r.server.Publish("other", "1")
		synctest.Wait()
		assert.Equal(t, []string{"0"}, e.heard())
		assert.Equal(t, pubsub.Stats{Channels: 1, Messages: 1}, r.Stats())
		m.Leave()
	})
}

func TestListenersOfOneChannelShareItsSubscription(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var a, b, c ear
		ma, _ := r.Join("x", &a)
		synctest.Wait()
		_, _ = r.Join("x", &b)
		_, confirmed := r.Join("x", &c)
		require.True(t, confirmed, "the subscription stands")

		ma.Leave()
		ma.Leave()
		r.server.Publish("x", "0")
		synctest.Wait()
		assert.Empty(t, a.heard())
		assert.Equal(t, []string{"0"}, b.heard())
		assert.Equal(t, []string{"0"}, c.heard())
		assert.Zero(t, b.confirmations()+c.confirmations(), "Join has told already")
		assert.Equal(t, 1, r.wire(t).count("subscribe"))
	})
}

func TestHotChannelStaysSubscribed(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var e ear
		m, _ := r.Join("hot", &e)
		synctest.Wait()
		for range 100 {
			m.Leave()
			time.Sleep(900 * time.Millisecond)
			var confirmed bool
			m, confirmed = r.Join("hot", &e)
			require.True(t, confirmed)
		}
		assert.Equal(t, 1, r.wire(t).count("subscribe"))
		assert.Zero(t, r.wire(t).count("unsubscribe"))
		m.Leave()
	})
}

// F10
func TestLastLeaveUnsubscribesAfterTheLinger(t *testing.T) {
	inBubble(t, pubsub.Options{Linger: 3 * time.Second}, func(t *testing.T, r *rig) {
		var e ear
		var members []*pubsub.Membership
		for i := range 2000 {
			m, _ := r.Join(fmt.Sprint("c", i), &e)
			members = append(members, m)
		}
		synctest.Wait()
		require.Len(t, r.server.PubSubChannels(""), 2000)

		for _, m := range members {
			m.Leave()
		}
		synctest.Wait()
		assert.Len(t, r.server.PubSubChannels(""), 1000, "no more than 1,000 linger")
		time.Sleep(3*time.Second + time.Millisecond)
		synctest.Wait()
		assert.Empty(t, r.server.PubSubChannels(""))
		assert.Zero(t, r.Stats().Channels)
	})
}

// F4
func TestJoinDuringUnsubscribeWaitsForTheNewSubscription(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var e ear
		m, _ := r.Join("a", &e)
		synctest.Wait()
		w := r.wire(t)
		m.Leave()
		w.set(func() { w.held = true })
		time.Sleep(1100 * time.Millisecond)
		require.Equal(t, 1, w.count("unsubscribe"))
		require.Empty(t, r.server.PubSubChannels(""))

		for range 3 { // the last one stays
			var confirmed bool
			m.Leave()
			m, confirmed = r.Join("a", &e)
			require.False(t, confirmed, "the server has unsubscribed")
		}
		synctest.Wait()
		require.Equal(t, 1, e.confirmations())

		w.set(func() { w.held = false })
		synctest.Wait()
		assert.Equal(t, 2, e.confirmations())
		assert.Equal(t, []string{"a"}, r.server.PubSubChannels(""))
	})
}

func TestLeaveBeforeTheConfirmationIsCleanedUp(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var first, e ear
		_, _ = r.Join("other", &first)
		synctest.Wait()
		w := r.wire(t)
		w.set(func() { w.held = true })
		m, _ := r.Join("a", &e)
		synctest.Wait()
		m.Leave()
		time.Sleep(2 * time.Second) // longer than the linger
		w.set(func() { w.held = false })
		synctest.Wait()
		assert.Zero(t, e.confirmations())
		assert.Equal(t, []string{"other"}, r.server.PubSubChannels(""))
	})
}

// F21
func TestJoinsDuringACommandFormOneBatch(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		ears := make([]ear, 300)
		_, _ = r.Join("c0", &ears[0])
		synctest.Wait()
		w := r.wire(t)
		w.set(func() { w.held = true })
		_, _ = r.Join("c1", &ears[1])
		synctest.Wait()
		start := time.Now()
		for i := 2; i < len(ears); i++ {
			_, _ = r.Join(fmt.Sprint("c", i), &ears[i])
		}
		assert.Zero(t, time.Since(start), "Join does not wait")
		w.set(func() { w.held = false })
		synctest.Wait()
		assert.Equal(t, 3, w.count("subscribe"))
		for i := range ears {
			assert.Equal(t, 1, ears[i].confirmations(), i)
		}
	})
}

func TestManyNamesFitIntoCommandsOfLimitedSize(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		ears := make([]ear, 400)
		for i := range ears {
			_, _ = r.Join(fmt.Sprintf("%0600d", i), &ears[i])
		}
		synctest.Wait()
		for i := range ears {
			require.Equal(t, 1, ears[i].confirmations(), i)
		}
		assert.GreaterOrEqual(t, r.wire(t).count("subscribe"), 400*600/(32<<10))
	})
}

// F19
func TestManyNamesLeaveNoMemory(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var stays, e ear
		_, _ = r.Join("stays", &stays)
		synctest.Wait()
		before := heap()
		joinAndLeave(r, &e, 60_000)
		synctest.Wait()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, 1, r.Stats().Channels)
		assert.Equal(t, []string{"stays"}, r.server.PubSubChannels(""))
		assert.Less(t, heap()-before, int64(2<<20), "bytes left by 60,000 names")
		assert.Equal(t, 2, stays.confirmations(), "the Redis client's map is released with its connection")
		assert.Zero(t, r.Stats().Reconnects)
	})
}

func joinAndLeave(r *rig, e *ear, n int) {
	members := make([]*pubsub.Membership, n)
	for i := range members {
		members[i], _ = r.Join(fmt.Sprint("name", i), e)
	}
	synctest.Wait()
	for _, m := range members {
		m.Leave()
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
