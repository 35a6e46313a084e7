package gridtest

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Place is a server and a client of it.
type Place struct {
	Client *redlatch.Client
	// Server is nil in memory.
	Server *redistest.Server
	// Redis goes past the client.
	Redis *redis.Client
	// Lose has the server run the client's next call and loses its reply.
	Lose func()
	// Calls returns how many calls the client has sent.
	Calls func() int
}

// RefuseWrites has the server refuse writes for want of replicas, or end that.
func (p *Place) RefuseWrites(t *testing.T, refuse bool) {
	t.Helper()
	require.NoError(t, p.Redis.ConfigSet(t.Context(), "min-replicas-to-write", map[bool]string{true: "1", false: "0"}[refuse]).Err())
}

// InMemory runs a test on a server in memory, in a bubble of fake time.
func InMemory(t *testing.T, test func(t *testing.T, p *Place)) {
	t.Helper()
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p := b.Peer(t)
		test(t, &Place{Client: p.Client, Redis: b.Redis, Lose: func() { p.LoseReplies(1) }, Calls: p.Scripts})
	})
}

// OnServer runs a test on a server of its own, behind a proxy.
func OnServer(t *testing.T, test func(t *testing.T, p *Place)) {
	t.Helper()
	server := redistest.Start(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), DisableIdentity: true})
	client, err := redlatch.New(rdb, redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, client.Close())
		assert.NoError(t, rdb.Close())
	})
	counted := func(cmd []string) bool {
		return !strings.Contains(" HELLO CLIENT SUBSCRIBE PING ", " "+strings.ToUpper(cmd[0])+" ")
	}
	test(t, &Place{
		Client: client, Server: server, Redis: server.Client(t),
		Lose: func() { proxy.DropReplies(counted, 1) },
		Calls: func() (n int) {
			for name, sent := range proxy.Commands() {
				if counted([]string{name}) {
					n += sent
				}
			}
			return n
		},
	})
}

// Everywhere runs a test in memory, and on a server if there is one.
func Everywhere(t *testing.T, test func(t *testing.T, p *Place)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { InMemory(t, test) })
	t.Run("server", func(t *testing.T) { OnServer(t, test) })
}
