package rscheduler_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rscheduler"
)

// F20
func TestOutageIsLoggedOnceHoweverManyRunsCannotBegin(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var text strings.Builder // written by one goroutine at a time, and read after Close
		var p *locktest.Peer
		var cut atomic.Bool
		p = r.Peer(t, redlatch.WithLogger(slog.New(slog.NewTextHandler(&text, nil))), redlatch.WithObserver(redlatch.Observer{
			ScriptStart: func(ctx context.Context, e redlatch.ScriptStartEvent) context.Context {
				if e.Name == "rscheduler.begin" && !cut.Swap(true) {
					p.Blackhole(true)
				}
				return ctx
			},
		}))
		s := p.GetScheduler("billing")
		for n := range 5 {
			require.NoError(t, s.Register(fmt.Sprint("job", n), rscheduler.Every(10*time.Second), r.handle))
		}
		stop := run(t, s)
		time.Sleep(time.Minute)
		require.True(t, cut.Load())
		assert.Empty(t, r.take())
		p.Blackhole(false)
		time.Sleep(time.Minute)
		assert.NotEmpty(t, r.take())
		require.NoError(t, stop())
		require.NoError(t, p.Close())
		for _, line := range []string{"runs cannot begin, and are tried again", "runs begin again", "a scheduler cannot plan", "a scheduler plans again"} {
			assert.Equal(t, 1, strings.Count(text.String(), line), "%s in\n%s", line, text.String())
		}
	})
}
