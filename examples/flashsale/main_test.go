package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The script has accepted the order and its answer was lost, so that go-redis sends it again; or the door died before it offered the
// order, and the user comes again.
func TestAcceptedOrderIsOfferedWhenItIsAskedForAgain(t *testing.T) {
	server, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	s := &sale{prefix: "flashsale:{test}:", url: server.URL()}
	d, err := s.open(t.Context())
	require.NoError(t, err)
	t.Cleanup(d.leave)
	require.NoError(t, d.decide.Run(t.Context(), d.rdb, []string{s.prefix + "stock", s.prefix + "users"}, "ann").Err())
	for _, first := range []bool{true, false} {
		got, err := d.buy(t.Context(), "ann")
		require.NoError(t, err)
		assert.Equal(t, first, got)
		stats, err := d.queue.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, stats.Delayed+stats.Ready+stats.InFlight)
		left, err := d.rdb.Get(t.Context(), s.prefix+"stock").Int()
		require.NoError(t, err)
		assert.Equal(t, items-1, left)
	}
}
