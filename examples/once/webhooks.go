package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/ronce"
)

// Receipt is what came of an event.
type Receipt struct{ Number int64 }

// webhooks handles events, each once for all servers.
func webhooks(client *redlatch.Client, b *bank) http.Handler {
	receipts := redlatch.GetOnce[Receipt](client, "webhooks", ronce.WithTTL(24*time.Hour)) // longer than anybody delivers again
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		event := r.FormValue("event")
		receipt, _, err := receipts.Do(r.Context(), event, func(ctx context.Context) (Receipt, error) {
			return b.charge(ctx, event)
		})
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError) // the provider delivers it again
			return
		}
		_, _ = fmt.Fprintf(w, "R%d", receipt.Number)
	})
}

// bank is the service that the servers call. It would charge an event twice.
type bank struct {
	calls, charges atomic.Int64
	failed         atomic.Bool
}

func (b *bank) charge(ctx context.Context, event string) (Receipt, error) {
	number := 1000 + b.calls.Add(1)
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return Receipt{}, context.Cause(ctx)
	}
	if event == "2" && b.failed.CompareAndSwap(false, true) {
		return Receipt{}, errors.New("the bank is closed")
	}
	b.charges.Add(1)
	return Receipt{number}, nil
}
