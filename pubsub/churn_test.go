package pubsub_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/pubsub"
)

// Listeners come and go while the connection is cut at random. Whoever stays for two seconds is confirmed, a message
// sent then arrives, and in the end nothing is left.
//
// F10
func TestChurnEndsWithNothing(t *testing.T) {
	inBubble(t, pubsub.Options{Linger: 20 * time.Millisecond}, func(t *testing.T, r *rig) {
		var wg sync.WaitGroup
		for g := range 20 {
			wg.Go(func() { churn(r, rand.New(rand.NewPCG(uint64(g), 7))) })
		}
		for range 20 {
			time.Sleep(100 * time.Millisecond)
			for _, w := range r.subscriptions() {
				_ = w.Conn.Close() // most of them are closed already
			}
		}
		stays := make([]ear, 30)
		members := make([]*pubsub.Membership, len(stays))
		for i := range stays {
			var confirmed bool
			if members[i], confirmed = r.Join(fmt.Sprint("c", i), &stays[i]); confirmed {
				stays[i].Subscribed()
			}
		}
		time.Sleep(2 * time.Second)
		for i := range stays {
			require.Positive(t, stays[i].confirmations(), i)
			r.server.Publish(fmt.Sprint("c", i), "0")
		}
		synctest.Wait()
		for i := range stays {
			assert.Equal(t, []string{"0"}, stays[i].heard(), i)
			members[i].Leave()
		}
		wg.Wait()
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, r.Stats().Channels)
		assert.Empty(t, r.server.PubSubChannels(""))
	})
}

func churn(r *rig, random *rand.Rand) {
	for range 400 {
		var e ear
		m, _ := r.Join(fmt.Sprint("c", random.IntN(30)), &e)
		time.Sleep(time.Duration(random.IntN(30_000)) * time.Microsecond)
		m.Leave()
	}
}
