package interop_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/rtopic"
)

// price is Price in Peer.java.
type price struct {
	Name  string `json:"name"`
	Cents int64  `json:"cents"`
}

// next returns the next value of a subscription.
func next[E any](t *testing.T, sub *rtopic.Subscription[E]) (value E) {
	t.Helper()
	timer := time.AfterFunc(limit, sub.Close)
	defer timer.Stop()
	for value, err := range sub.All() {
		require.NoError(t, err)
		return value
	}
	require.Fail(t, "nothing is received")
	return value
}

func TestTopicReachesBothSides(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		client := p.goSide(t).clients[0]
		name := unused("topic")
		text := redlatch.GetTopic[string](client, name, rtopic.WithCodec(codec.Text{}))
		json := redlatch.GetTopic[price](client, name+"json", rtopic.WithCodec(codec.JSON{}))
		texts, err := text.Subscribe(t.Context())
		require.NoError(t, err)
		prices, err := json.Subscribe(t.Context())
		require.NoError(t, err)
		events, err := redlatch.GetPatternTopic[string](client, name+"?*", rtopic.WithCodec(codec.Text{})).Subscribe(t.Context())
		require.NoError(t, err)
		p.java.must(t, "subscribe", "text", name)
		p.java.must(t, "subscribe", "json", name+"json")
		p.java.must(t, "subscribe", "pattern", name+"?*")
		info, err := text.Info(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 2, info.Subscribers)

		for _, value := range []string{"grün", "1,5"} {
			_, err = text.Publish(t.Context(), value)
			require.NoError(t, err)
			assert.Equal(t, value, p.java.must(t, "received", "text", name))
			assert.Equal(t, value, next(t, texts))
			p.java.must(t, "publish", "text", name, value)
			assert.Equal(t, value, next(t, texts))
			assert.Equal(t, value, p.java.must(t, "received", "text", name))
		}

		_, err = json.Publish(t.Context(), price{"tea", 250})
		require.NoError(t, err)
		assert.Equal(t, "tea,250", p.java.must(t, "received", "json", name+"json"))
		p.java.must(t, "publish", "json", name+"json", "milk,99")
		assert.Equal(t, "milk,99", p.java.must(t, "received", "json", name+"json"))
		assert.Equal(t, []price{{"tea", 250}, {"milk", 99}}, []price{next(t, prices), next(t, prices)})

		for _, want := range []string{`{"name":"tea","cents":250}`, `{"cents":99,"name":"milk"}`} {
			assert.Equal(t, rtopic.Event[string]{Topic: name + "json", Value: want}, next(t, events))
			assert.Equal(t, name+"json="+want, p.java.must(t, "received", "pattern", name+"?*"))
		}
	})
}
