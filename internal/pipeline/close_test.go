package pipeline_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
)

// A call may have found the batcher open, and look for a worker when Close waits for the last one already. The race detector is the judge.
func TestCallsThatComeAsItClosesAreRefusedOrEnded(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return nil, net.ErrClosed },
		DialerRetries:            1,
		PoolSize:                 1 << 16, // after as many refused dials go-redis would go on dialing by itself
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
	})
	defer func() { assert.NoError(t, rdb.Close()) }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s := add()
	for range 2000 {
		b := pipeline.New(rdb, 0)
		var callers sync.WaitGroup
		for range 2 {
			callers.Go(func() {
				_ = b.Do(ctx, s.Call(1, "k", 1), pipeline.SendOptions{}) // it ends; without a server never well
				b.Start(s.Call(1, "k", 1), pipeline.Urgent, func(*script.Call) {})
			})
		}
		b.Close()
		callers.Wait()
	}
}

// mute is a server that never replies.
func mute(context.Context, string, string) (net.Conn, error) {
	server, client := net.Pipe()
	go func() { // ends with the connection
		_, _ = io.Copy(io.Discard, server)
		_ = server.Close()
	}()
	return client, nil
}

func TestEndWaitsGivesUpCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := redis.NewClient(&redis.Options{
			Dialer: mute, MaxRetries: -1,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
		})
		b := pipeline.New(rdb, time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		given := make(chan error, 1)
		go func() { given <- b.Do(ctx, add().Call(1, "k", 1), pipeline.SendOptions{}) }()
		synctest.Wait()
		began := time.Now()
		b.EndWaits()
		err := <-given
		assert.ErrorIs(t, err, errs.ErrClosed)
		assert.Equal(t, script.Unknown, script.Judge(err))
		assert.Zero(t, time.Since(began))
		b.Stop()
		assert.NoError(t, rdb.Close())
		b.Close()
	})
}
