package near_test

import (
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/near"
	"github.com/redlatch/redlatch/internal/pipe"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/wires"
)

const (
	name     = "orders"
	channel  = "{orders}:topic"
	maxStale = 30 * time.Second
)

// node is a client with a cache of the map.
type node struct {
	*near.Cache[string, string]
	core *core.Core
	rdb  redis.UniversalClient
}

func newNode(tb testing.TB, rdb redis.UniversalClient) *node {
	tb.Helper()
	c := core.New(rdb, core.Config{Lease: 30 * time.Second, CallTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler), WithoutPresence: true})
	tb.Cleanup(func() {
		c.Close()
		_ = rdb.Close()
	})
	return &node{near.New[string](c, near.MapTopic(name), options(100)), c, rdb}
}

func options(entries int) near.Options[string] {
	return near.Options[string]{Entries: entries, MaxStale: maxStale}
}

// rig is an in-memory server and a client whose connections can be broken.
type rig struct {
	*node
	*wires.Wires
	server *miniredis.Miniredis
}

func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		t.Cleanup(server.Close)
		w := wires.New(server.Dial)
		r := &rig{newNode(t, pipe.Client(w.Dial)), w, server}
		r.Get("")
		synctest.Wait() // the subscription is confirmed
		test(t, r)
	})
}

// other returns another client of the same server.
func (r *rig) other(t *testing.T) *node {
	t.Helper()
	n := newNode(t, pipe.Client(r.server.Dial))
	n.Get("")
	synctest.Wait()
	return n
}

// keep stores a value as if Redis had replied with it.
func (n *node) keep(key, value string) {
	n.Store(key, value, nil, 0, n.Ask([]byte(key)))
}

func (n *node) requireKept(t *testing.T, key, value string) {
	t.Helper()
	got, ok := n.Get(key)
	require.True(t, ok, "it is kept")
	require.Equal(t, value, got)
}

func (n *node) requireNone(t *testing.T, key string) {
	t.Helper()
	got, ok := n.Get(key)
	require.False(t, ok, got)
}

// publish has the server publish a message, which comes at once.
func (r *rig) publish(message []byte) {
	r.server.Publish(channel, string(message))
	synctest.Wait()
}

var setScript = script.New("test.set", `
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
redis.call('publish', KEYS[2], ARGV[3])
return 1`)

var getCommand = script.Command("hget")

// set writes a value as a map does.
func (n *node) set(tb testing.TB, key, value string) error {
	tb.Helper()
	w := n.Write([]byte(key))
	_, err := n.core.Once(tb.Context(), func() *script.Call {
		return setScript.Call(2, name, channel, key, value, w.Message())
	})
	if err == nil {
		w.Answered()
	}
	return err
}

// get reads a value as a map does, and reports whether it was near.
func (n *node) get(tb testing.TB, key string) (value string, hit bool, err error) {
	tb.Helper()
	if value, ok := n.Get(key); ok {
		return value, true, nil
	}
	ticket := n.Ask([]byte(key))
	call, err := n.core.Read(tb.Context(), func() *script.Call { return getCommand.Call(1, name, key) })
	if err != nil {
		return "", false, err
	}
	value, err = call.Text()
	if err == nil {
		n.Store(key, value, nil, 0, ticket)
	}
	return value, false, err
}

// order is a value with a pointer.
type order struct {
	Items []string
}

func decodeOrder(encoded []byte) (o order, err error) {
	err = json.Unmarshal(encoded, &o)
	return o, err
}

// ear is a listener that remembers.
type ear struct {
	mu       sync.Mutex // guards messages
	messages []string
}

func (*ear) Subscribed() {}

func (e *ear) Message(payload string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.messages = append(e.messages, payload)
}

func (e *ear) heard() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.messages)
}
