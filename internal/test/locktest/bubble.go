package locktest

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/pipe"
	"github.com/redlatch/redlatch/internal/wires"
)

// Bubble is an in-memory server in a bubble of fake time. What a test of it leaves running fails the test.
type Bubble struct {
	// Mini is the server.
	Mini *miniredis.Miniredis
	// Redis is a plain client of it, which is neither counted nor broken.
	Redis *redis.Client
}

// InBubble runs test in a bubble of fake time, on a server of its own.
func InBubble(t *testing.T, test func(t *testing.T, b *Bubble)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &Bubble{Mini: miniredis.NewMiniRedis()}
		b.Mini.ClockTTL(true)
		t.Cleanup(b.Mini.Close)
		b.Redis = b.connect(t, b.wires())
		test(t, b)
	})
}

// wires returns connections to the server that may be broken.
func (b *Bubble) wires() *wires.Wires { return wires.New(b.Mini.Dial) }

// connect returns a client over the given wires. It looks up no address by itself: that would not work in a bubble.
func (b *Bubble) connect(t *testing.T, w *wires.Wires) *redis.Client {
	rdb := redis.NewClient(&redis.Options{
		Dialer: pipe.Dialer(w.Dial),
		// A handshake without options, so that what is counted is what was asked for.
		DisableIdentity:          true,
		DialerRetries:            1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
	})
	t.Cleanup(func() {
		closeClient(t, rdb)
		time.Sleep(2 * time.Second) // after many refused dials go-redis goes on dialing for so long
		w.Cut()                     // below v9.23 it leaves connections open whose handshake failed
	})
	return rdb
}

// Peer is a client with wires of its own.
type Peer struct {
	*redlatch.Client
	*wires.Wires
	// Redis is the go-redis client below, over the same wires.
	Redis *redis.Client
}

// Peer returns a new client. It is closed when the test ends.
func (b *Bubble) Peer(t *testing.T, opts ...redlatch.Option) *Peer {
	t.Helper()
	p := &Peer{Wires: b.wires()}
	p.Redis = b.connect(t, p.Wires)
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	c, err := redlatch.New(p.Redis, append([]redlatch.Option{quiet}, opts...)...)
	require.NoError(t, err)
	p.Client = c
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return p
}

// Deliver has the scripts that were held back arrive, and returns how many when the server has run them.
func (p *Peer) Deliver(t *testing.T) int {
	t.Helper()
	n, err := p.Wires.Deliver()
	require.NoError(t, err)
	return n
}

// TTL returns what is left of a key's time: 0 for a key that does not exist.
func (b *Bubble) TTL(t *testing.T, key string) time.Duration {
	t.Helper()
	left, err := b.Redis.PTTL(t.Context(), key).Result()
	require.NoError(t, err)
	if left == -2 {
		return 0
	}
	return left
}

// Hash returns the fields of a key: none for a key that does not exist.
func (b *Bubble) Hash(t *testing.T, key string) map[string]string {
	t.Helper()
	fields, err := b.Redis.HGetAll(t.Context(), key).Result()
	require.NoError(t, err)
	return fields
}

// Keys returns the names of all keys.
func (b *Bubble) Keys(t *testing.T) []string {
	t.Helper()
	keys, err := b.Redis.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	return keys
}

// Foreign takes a lock as another program does that never releases it.
func (b *Bubble) Foreign(t *testing.T, key string, lease time.Duration) {
	t.Helper()
	require.NoError(t, b.Redis.HSet(t.Context(), key, "8743c9c0-0795-4907-87fd-6c719a6b4586:57", 1).Err())
	if lease > 0 {
		require.NoError(t, b.Redis.PExpire(t.Context(), key, lease).Err())
	}
}

// Delete removes a key as an operator does, without a word to anybody.
func (b *Bubble) Delete(t *testing.T, key string) {
	t.Helper()
	n, err := b.Redis.Del(t.Context(), key).Result()
	require.NoError(t, err)
	require.EqualValues(t, 1, n, "%s did not exist", key)
}

// Another returns one more server in the same bubble.
func (b *Bubble) Another(t *testing.T) *Bubble {
	t.Helper()
	other := &Bubble{Mini: miniredis.NewMiniRedis()}
	other.Mini.ClockTTL(true)
	t.Cleanup(other.Mini.Close)
	other.Redis = other.connect(t, other.wires())
	return other
}

// State returns all keys, with their values and for how long they stay.
func (b *Bubble) State(t *testing.T) (all []string) {
	t.Helper()
	for _, key := range b.Keys(t) {
		all = append(all, key+" "+b.Redis.PTTL(t.Context(), key).Val().String())
	}
	return append(all, b.Mini.Dump())
}
