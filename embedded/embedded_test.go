package embedded_test

import (
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
)

func TestServerTellsItsAddressAfterClose(t *testing.T) {
	s, err := embedded.Start()
	require.NoError(t, err)
	addr, url := s.Addr(), s.URL()
	s.Close()
	s.Close()
	assert.Equal(t, addr, s.Addr())
	assert.Equal(t, url, s.URL())
	_, err = redlatch.Open(t.Context(), url+"?max_retries=-1")
	require.ErrorContains(t, err, "connection refused")
}

// lines is a log.
type lines struct {
	mu  sync.Mutex // guards all
	all []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}

// In a bubble its lines would be of the year 2000.
func TestClientLogsNothingUnlessItIsGivenALogger(t *testing.T) {
	var usual, given lines
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&usual, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	for _, opts := range [][]redlatch.Option{nil, {redlatch.WithLogger(slog.New(slog.NewTextHandler(&given, nil)))}} {
		synctest.Test(t, func(t *testing.T) {
			client, err := embedded.Open(opts...)
			require.NoError(t, err)
			defer client.Close()
			hold, err := client.GetLock("orders").Lock(t.Context())
			require.NoError(t, err)
			ok, err := client.GetLock("orders").ForceUnlock(t.Context())
			require.NoError(t, err)
			require.True(t, ok)
			<-hold.Context().Done()
			synctest.Wait()
		})
	}
	assert.Empty(t, usual.all)
	require.NotEmpty(t, given.all)
	assert.Contains(t, given.all[0], "a lock was lost")
}
