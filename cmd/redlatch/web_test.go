package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConsoleIsServedToThisMachineAlone(t *testing.T) {
	r := newRig(t)
	_, err := r.c.GetLock("orders").Lock(t.Context())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1) // the exit code
	go func() { code, _, _ := r.run(ctx, "web"); ended <- code }()
	require.Eventually(t, func() bool { return strings.HasSuffix(r.out.String(), "/\n") }, 10*time.Second, time.Millisecond)
	url := strings.TrimSpace(r.out.String())

	get := func(page, host string) (int, string) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+page, nil)
		require.NoError(t, err)
		request.Host = host
		request.Close = true
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode, string(text)
	}
	status, text := get("lock?name=orders", "")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, r.c.ID())
	assert.NotContains(t, text, "Free this lock")
	for host, want := range map[string]int{
		"localhost": http.StatusOK, "127.0.0.1:9": http.StatusOK, "[::1]:80": http.StatusOK,
		"evil.example": http.StatusMisdirectedRequest, "evil.example:80": http.StatusMisdirectedRequest, "10.0.0.1": http.StatusMisdirectedRequest,
	} {
		status, text := get("locks", host)
		assert.Equal(t, want, status, host)
		if want != http.StatusOK {
			assert.NotContains(t, text, "orders", host)
		}
	}
	stop()
	assert.Zero(t, <-ended)
}

func TestConsoleIsNotServedToTheWorld(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:8080", ":8080", "192.0.2.1:80", "evil.example:80", "127.0.0.1"} {
		r := newRig(t)
		code, _, text := r.run(t.Context(), "web", "--addr", addr)
		assert.Equal(t, exitUsage, code, addr)
		assert.Contains(t, text, "loopback", addr)
	}
}
