package redistest

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// holdDials is a hook that holds dials back.
type holdDials struct{ hold func() }

func (h holdDials) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		h.hold()
		return next(ctx, network, addr)
	}
}

func (holdDials) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (holdDials) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func TestLeakCheckClosesSentinelClientsAgainAndFindsOurGoroutines(t *testing.T) {
	group := StartSentinel(t, Start(t), "main", 1, 1)
	others := goleak.IgnoreCurrent()
	begun, goOn, answer := make(chan struct{}), make(chan struct{}), make(chan error)
	t.Run("ends and closes its client while the client dials", func(t *testing.T) {
		rdb := group.Client(t)
		begin := sync.OnceFunc(func() { close(begun) })
		rdb.AddHook(holdDials{hold: func() { begin(); <-goOn }})
		go func() { answer <- rdb.Ping(context.Background()).Err() }()
		<-begun
	})
	close(goOn)
	require.ErrorIs(t, <-answer, redis.ErrClosed)
	require.NoError(t, retry(leakLimit, func() error { return left(others) }))

	ours := make(chan struct{})
	go func() { <-ours }()
	require.ErrorContains(t, left(others), "TestLeakCheckClosesSentinelClientsAgain")
	close(ours)
	assert.NoError(t, retry(leakLimit, func() error { return left(others) }))
}
