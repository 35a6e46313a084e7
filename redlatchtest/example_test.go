package redlatchtest_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
)

// closeOrders stands for what a program does under a lock.
func closeOrders(ctx context.Context, client *redlatch.Client, working chan<- *rlock.Hold) error {
	hold, err := client.GetLock("orders").Lock(ctx)
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	working <- hold
	<-hold.Context().Done() // the work, which stops with the hold
	return context.Cause(hold.Context())
}

// snippet: breaking
func TestWorkStopsWhenTheLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redlatchtest.Start(t)
		client := server.Client()
		working, ended := make(chan *rlock.Hold), make(chan error, 1)
		go func() { ended <- closeOrders(t.Context(), client, working) }()

		server.Lose(<-working)
		require.ErrorIs(t, <-ended, rlock.ErrLost)
	})
}

// end snippet
