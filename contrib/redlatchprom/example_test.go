package redlatchprom_test

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/contrib/redlatchprom"
	"github.com/redlatch/redlatch/embedded"
)

func Example() {
	server, err := embedded.Start()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	stop, err := serveMetrics(context.Background(), server.URL())
	if err != nil {
		log.Fatal(err)
	}
	stop()
	fmt.Println("served")
	// Output: served
}

func serveMetrics(ctx context.Context, url string) (stop func(), err error) {
	metrics := redlatchprom.New(redlatchprom.WithNames("orders", "mail")) // other names are no labels
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	client, err := redlatch.Open(ctx, url, redlatch.WithObserver(metrics.Observer()), redlatch.WithCallSites())
	if err != nil {
		return nil, err
	}
	metrics.Watch(client)                                                // what it holds and waits for
	metrics.WatchQueue(redlatch.GetDelayedQueue[string](client, "mail")) // how many messages there are
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{})) // for the service's own server
	return func() { _ = client.Close() }, nil
}
