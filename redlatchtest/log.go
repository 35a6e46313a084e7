package redlatchtest

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

//nolint:gochecknoinits // go-redis has one logger, which nobody may set while it is in use
func init() {
	redis.SetLogger(logging.NewBlacklistLogger([]string{"dial pipe"})) // the network of these servers
}

// testLog passes lines on to a test until that ends: from then on it would panic.
type testLog struct {
	tb    testing.TB
	mu    sync.Mutex // guards ended
	ended bool
}

// logger returns a logger whose lines have no time, which may be that of a fake clock.
func (l *testLog) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

func (l *testLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.tb.Log(string(bytes.TrimSuffix(line, []byte("\n"))))
	}
	return len(line), nil
}

func (l *testLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}
