package tally_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/tally"
)

// onScript has the server ask what to do with each call of a script, counted from 1. A reply that is empty has the script
// run, [broken] closes the connection, and any other is an error.
func (d *desk) onScript(t *testing.T, reply func(call int) string) {
	t.Helper()
	require.NoError(t, d.redis.Ping(t.Context()).Err()) // the server exists from its first connection on
	var mu sync.Mutex                                   // guards call
	call := 0
	d.mini.Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
		if !strings.HasPrefix(cmd, "EVAL") {
			return false
		}
		mu.Lock()
		call++
		text := reply(call)
		mu.Unlock()
		switch text {
		case "":
			return false
		case broken:
			p.Close()
		default:
			p.WriteError(text)
		}
		return true
	})
}

const broken = "broken"

func TestLostBatchIsRepeatedHoweverMuchIsUnsettled(t *testing.T) {
	inBubble(t, func(t *testing.T, d *desk) {
		d.onScript(t, func(call int) string {
			if call == 1 {
				return broken
			}
			return ""
		})
		for range 10_000 { // as many as the settler takes of locks
			d.engine.Settler.Add(func(func(bool)) {}, func() {}, d.engine.Clock.Now()+time.Minute)
		}
		n, err := d.Do(t.Context(), "k", tally.Ask{Code: "x"})
		require.NoError(t, err)
		assert.EqualValues(t, 1, n)
		assert.Equal(t, []string{"1 1 x"}, d.log(t, "k"))
	})
}
