package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch/embedded"
)

func TestOneClientIsSeenInMetricsTracesAndConsole(t *testing.T) {
	server, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	spans := tracetest.NewSpanRecorder()
	client, handler, err := observed(t.Context(), server.URL(), sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	hold, err := client.GetLock("orders").Lock(t.Context())
	require.NoError(t, err)
	defer hold.Unlock(t.Context())

	for path, want := range map[string]string{
		"/metrics":     `redlatch_holds{kind="lock",name="orders"} 1`,
		"/locks/locks": "orders",
	} {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil))
		assert.Equal(t, http.StatusOK, answer.Code, path)
		assert.Contains(t, answer.Body.String(), want, path)
	}
	assert.NotEmpty(t, spans.Ended())
}
