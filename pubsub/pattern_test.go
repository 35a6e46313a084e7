package pubsub_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/pubsub"
)

// patternEar is the ear of a pattern, and of refusals.
type patternEar struct {
	ear

	mu      sync.Mutex // guards refusal
	refusal error
}

func (e *patternEar) Message(channel, payload string) { e.ear.Message(channel + "=" + payload) }

func (e *patternEar) Refused(err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refusal = err
	return false
}

// F4
func TestPatternsShareTheConnectionOfChannels(t *testing.T) {
	inBubble(t, pubsub.Options{}, func(t *testing.T, r *rig) {
		var same, other ear
		var one, two patternEar
		_, _ = r.Join("a*", &same)
		_, _ = r.Join("ab", &other)
		first, confirmed := r.JoinPattern("a*", &one)
		require.False(t, confirmed)
		synctest.Wait()
		second, confirmed := r.JoinPattern("a*", &two)
		require.True(t, confirmed)
		assert.Len(t, r.subscriptions(), 1)
		r.server.Publish("ab", "1")
		r.server.Publish("a*", "2")
		r.server.Publish("b", "3")
		synctest.Wait()
		assert.Equal(t, []string{"ab=1", "a*=2"}, one.heard())
		assert.Equal(t, []string{"ab=1", "a*=2"}, two.heard())
		assert.Equal(t, []string{"2"}, same.heard(), "a channel whose name is the pattern is another one")
		assert.Equal(t, []string{"1"}, other.heard())

		require.NoError(t, r.wire(t).Conn.Close())
		synctest.Wait()
		assert.Equal(t, 2, one.confirmations())
		first.Leave()
		second.Leave()
		time.Sleep(2 * time.Second)
		w := r.wire(t)
		assert.Equal(t, 1, w.count("psubscribe"))
		assert.Equal(t, 1, w.count("punsubscribe"))
		r.server.Publish("ab", "4")
		synctest.Wait()
		assert.Equal(t, []string{"1", "4"}, other.heard())
		assert.Len(t, one.heard(), 2)
	})
}

// F20
func TestRefusedPatternIsReportedToItsListener(t *testing.T) {
	s := redistest.Start(t)
	require.NoError(t, s.Client(t).Do(t.Context(), "acl", "setuser", "u", "on", ">p", "~*", "+@all", "resetchannels", "&good*").Err())
	r, _ := onServer(t, s, redis.Options{Username: "u", Password: "p"})
	var good, bad patternEar
	_, _ = r.JoinPattern("good*", &good)
	_, _ = r.JoinPattern("good", &bad)
	redistest.Eventually(t, 10*time.Second, "one is confirmed and the other refused", func() error {
		bad.mu.Lock()
		defer bad.mu.Unlock()
		if good.confirmations() == 0 || bad.refusal == nil {
			return assert.AnError
		}
		return nil
	})
	require.ErrorContains(t, bad.refusal, "NOPERM")
	require.NoError(t, good.refusal)
	assert.Zero(t, bad.confirmations())
	assert.Zero(t, r.Stats().Reconnects)
}
