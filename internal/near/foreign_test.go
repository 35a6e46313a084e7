package near_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/highway"
	"github.com/redlatch/redlatch/internal/near"
	"github.com/redlatch/redlatch/internal/pipe"
)

// What RLocalCachedMap publishes.
var (
	javaID = strings.Repeat("\xca\xfe", 8)
	clears = strings.Repeat("\x01", 16)
)

func javaKeys(keys ...string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(keys)))
	for _, k := range keys {
		sum := highway.Sum([]byte(k))
		b = append(b, sum[:]...)
	}
	return string(b)
}

func disable(request string, timeout time.Duration, all string, keys ...string) []byte {
	head := []byte{3, byte(len(request))}
	head = append(head, request...)
	return append(binary.BigEndian.AppendUint64(head, uint64(timeout/time.Millisecond)), all+javaKeys(keys...)...)
}

func enable(request string, keys ...string) []byte {
	return append([]byte{5, byte(len(request))}, request+"\x00"+javaKeys(keys...)...)
}

func TestMessagesOfJavaEndEntries(t *testing.T) {
	for name, message := range map[string]string{
		"clear":      "\x00" + javaID + clears + "\x00",
		"invalidate": "\x01" + javaID + javaKeys("x", "k"),
		"update":     "\x02" + javaID + "\x00\x00\x00\x01k\x00\x00\x00\x03new",
		"unknown":    "\x09",
		"cut":        "\x01" + javaID + javaKeys("x", "y")[:30],
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.keep("k", "old")
				r.keep("other", "v")
				r.publish([]byte(message))
				r.requireNone(t, "k")
				if name == "invalidate" || name == "update" {
					r.requireKept(t, "other", "v")
				} else {
					r.requireNone(t, "other")
				}
				r.keep("k", "new")
				r.requireKept(t, "k", "new")
			})
		})
	}
}

func TestClearOfJavaGetsAPermitFromEachClient(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		near.New[string](r.core, near.MapTopic(name), options(10)).Get("") // of the same client
		r.other(t)
		permits := name + ":clear:" + strings.Repeat("01", 16)
		message := []byte("\x00" + javaID + clears + "\x01")
		r.publish(message)
		assert.False(t, r.server.Exists(permits), "the sender has gone")

		require.NoError(t, r.server.Set(permits, "0"))
		var waiting ear
		_, _ = r.core.Topics.Join("redisson_sc:{"+permits+"}", &waiting)
		synctest.Wait()
		r.publish([]byte("\x00" + javaID + clears + "\x00"))
		r.publish(message)
		assert.Equal(t, []string{"1", "2"}, waiting.heard())
		got, err := r.server.Get(permits)
		require.NoError(t, err)
		assert.Equal(t, "2", got)
	})
}

func TestKeysOfATransactionAreNotKept(t *testing.T) {
	for end, wait := range map[string]func(r *rig){
		"enable":   func(r *rig) { r.publish(enable("tx", "k")) },
		"time-out": func(*rig) { time.Sleep(5 * time.Second) },
	} {
		t.Run(end, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				var acks ear
				_, _ = r.core.Topics.Join("{orders}:tx:topic", &acks)
				synctest.Wait()
				r.keep("k", "old")
				r.keep("other", "v")
				before := r.Ask([]byte("k"))
				r.publish(disable("tx", 5*time.Second, "\x00", "k"))
				assert.Equal(t, []string{"\x04"}, acks.heard())
				r.requireNone(t, "k")
				r.requireKept(t, "other", "v")

				during := r.Ask([]byte("k"))
				r.keep("k", "old")
				r.requireNone(t, "k")
				wait(r)
				r.Store("k", "old", nil, 0, before)
				r.Store("k", "old", nil, 0, during)
				r.requireNone(t, "k")
				r.keep("k", "new")
				r.requireKept(t, "k", "new")
			})
		})
	}
}

func TestTransactionOfAllKeysKeepsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.keep("k", "old")
		r.publish(disable("tx", 5*time.Second, "\x01"))
		r.requireNone(t, "k")
		r.keep("k", "old")
		r.requireNone(t, "k")
		r.publish(enable("tx"))
		r.keep("k", "new")
		r.requireKept(t, "k", "new")
	})
}

// F19
func TestManyTransactionsKeepNothingUntilTheirTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		for i := range 300 {
			r.publish(disable(fmt.Sprint(i), 5*time.Second, "\x00", "x"))
		}
		r.keep("k", "v")
		r.requireNone(t, "k")
		for i := range 300 {
			r.publish(enable(fmt.Sprint(i), "x"))
		}
		r.keep("k", "v")
		r.requireNone(t, "k")
		time.Sleep(5 * time.Second)
		r.keep("k", "v")
		r.requireKept(t, "k", "v")
	})
}

func TestTimeoutOfATransactionIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.publish(disable("tx", 1<<62, "\x00", "k"))
		time.Sleep(time.Hour - time.Second)
		r.keep("k", "v")
		r.requireNone(t, "k")
		time.Sleep(time.Second)
		r.keep("k", "v")
		r.requireKept(t, "k", "v")
	})
}

func TestCacheOfNoMapAnswersNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		topic := near.Topic{Channel: "redlatch_cache_channel:{c}", Plain: true}
		n := newNode(t, pipe.Client(r.server.Dial))
		c := near.New[string](n.core, topic, options(10))
		c.Get("")
		synctest.Wait()
		c.Store("k", "v", nil, 0, c.Ask([]byte("k")))
		_, ok := c.Get("k")
		require.True(t, ok)
		for _, m := range [][]byte{disable("tx", 5*time.Second, "\x00", "k"), []byte("\x00" + javaID + clears + "\x01")} {
			r.server.Publish(topic.Channel, string(m))
		}
		synctest.Wait()
		_, ok = c.Get("k")
		assert.False(t, ok)
		assert.Zero(t, n.core.Batch.Flushes())
	})
}
