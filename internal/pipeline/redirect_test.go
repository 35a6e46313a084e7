package pipeline

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/script"
)

// node is a server that knows one command, and answers others with an error.
func node(t *testing.T, command string, answer server.Cmd) *server.Server {
	t.Helper()
	s, err := server.NewServer("127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	require.NoError(t, s.Register(command, answer))
	return s
}

func TestRedirectedCallsWithoutAnAnswerAreUnknown(t *testing.T) {
	hangUp := func(c *server.Peer, _ string, _ []string) { c.Close() }
	for redirect, first := range map[string]string{"MOVED": "EVALSHA", "ASK": "ASKING"} {
		t.Run(redirect, func(t *testing.T) {
			next := node(t, first, hangUp)
			old := node(t, "EVALSHA", func(c *server.Peer, _ string, _ []string) {
				c.WriteError(fmt.Sprintf("%s 1 %s", redirect, next.Addr()))
			})
			rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: old.Addr().String()}}}}, nil
			}})
			t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
			b := New(rdb, time.Minute)
			t.Cleanup(b.Close)
			s := script.New("test", "return 1")
			calls := []*script.Call{s.Call(1, "k"), s.Call(1, "k"), s.Call(1, "k")}
			b.sendAll(t.Context(), calls)
			for _, call := range calls {
				assert.Equal(t, script.Unknown, script.Judge(call.Err()), "%v", call.Err())
			}
		})
	}
}
