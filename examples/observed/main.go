// Observed is a service with everything of docs/observability.md: metrics for Prometheus, traces and metrics for OpenTelemetry,
// and the console.
//
//	cd examples/observed && go run .
//	cd examples/observed && go run . -redis redis://localhost:6379
//
// It serves /metrics and /locks/ on localhost:8080 until it is interrupted. Without -redis it has a server of its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/console"
	"github.com/redlatch/redlatch/contrib/redlatchotel"
	"github.com/redlatch/redlatch/contrib/redlatchprom"
	"github.com/redlatch/redlatch/embedded"
)

func main() {
	url := flag.String("redis", os.Getenv("REDIS_URL"), "`URL` of a Redis; default $REDIS_URL, and without that a server of its own")
	flag.Parse()
	redis.SetLogger(goRedisLog{}) // before the first client
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *url); err != nil {
		log.Fatal("observed: ", err)
	}
}

func run(ctx context.Context, url string) error {
	if url == "" {
		own, err := embedded.Start()
		if err != nil {
			return err
		}
		defer own.Close()
		url = own.URL()
	}
	tracers := sdktrace.NewTracerProvider() // give it your exporter: sdktrace.WithBatcher
	client, handler, err := observed(ctx, url, tracers)
	if err != nil {
		return err
	}
	defer client.Close()
	hold, err := client.GetLock("orders").Lock(ctx) // something to see
	if err != nil {
		return err
	}
	defer hold.Unlock(ctx)
	server := &http.Server{Addr: "localhost:8080", Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	log.Print("http://localhost:8080/locks/ and http://localhost:8080/metrics")
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// goRedisLog has go-redis log with slog, at a level that is off by default: the client itself says when an outage begins and ends.
type goRedisLog struct{}

func (goRedisLog) Printf(ctx context.Context, format string, args ...any) {
	slog.DebugContext(ctx, "go-redis: "+fmt.Sprintf(format, args...))
}

// snippet: observed
func observed(ctx context.Context, url string, tracers *sdktrace.TracerProvider) (*redlatch.Client, http.Handler, error) {
	metrics := redlatchprom.New(redlatchprom.WithNames("orders", "mails"))
	telemetry, err := redlatchotel.New(redlatchotel.WithTracerProvider(tracers)) // metrics go to the global provider
	if err != nil {
		return nil, nil, err
	}
	client, err := redlatch.Open(ctx, url, redlatch.WithCallSites(), // the lines of code, in the console and the logs
		redlatch.WithObserver(metrics.Observer()), redlatch.WithObserver(telemetry.Observer()))
	if err != nil {
		return nil, nil, err
	}
	metrics.Watch(client)
	telemetry.Watch(client)
	metrics.WatchQueue(redlatch.GetDelayedQueue[string](client, "mails"))
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)

	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/locks/", http.StripPrefix("/locks", console.Handler(client))) // put it behind your login
	return client, mux, nil
}

// end snippet
