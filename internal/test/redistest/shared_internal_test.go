package redistest

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestLeakCheckClosesSentinelClientsAgainAndFindsOurGoroutines(t *testing.T) {
	group := StartSentinel(t, Start(t), "main", 1, 1)
	others := goleak.IgnoreCurrent()
	var goOn func()
	answer := make(chan error)
	t.Run("ends and closes its client while the client dials", func(t *testing.T) {
		rdb := group.Client(t)
		var begun <-chan struct{}
		begun, goOn = HoldDials(rdb)
		go func() { answer <- rdb.Ping(context.Background()).Err() }()
		<-begun
	})
	goOn()
	require.ErrorIs(t, <-answer, redis.ErrClosed)
	require.NoError(t, retry(leakLimit, func() error { return left(others) }))

	ours := make(chan struct{})
	go func() { <-ours }()
	require.ErrorContains(t, left(others), "TestLeakCheckClosesSentinelClientsAgain")
	close(ours)
	assert.NoError(t, retry(leakLimit, func() error { return left(others) }))
}
