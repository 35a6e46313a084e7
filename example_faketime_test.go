package redlatch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// snippet: fakeTime
func TestUnpaidOrderIsClosedAfterFifteenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in here time passes as soon as all goroutines wait for it
		client, err := embedded.Open()
		require.NoError(t, err)
		defer client.Close()
		ctx, stop := context.WithCancel(t.Context())

		orders := redlatch.GetDelayedQueue[Order](client, "orders")
		offered := time.Now()
		_, err = orders.Offer(ctx, Order{Number: 42}, 15*time.Minute)
		require.NoError(t, err)

		err = orders.Consume(ctx, func(context.Context, *rdelayedqueue.Message[Order]) error {
			require.WithinDuration(t, offered.Add(15*time.Minute), time.Now(), 10*time.Millisecond)
			stop() // a service would go on
			return nil
		})
		require.NoError(t, err)
	})
}

// end snippet
