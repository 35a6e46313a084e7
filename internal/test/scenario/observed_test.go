// What clients tell observers and logs, and what they send.

package scenario_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// logbook is a log as an operator's tools read it.
type logbook struct {
	mu    sync.Mutex
	lines []map[string]any
}

func (l *logbook) Write(line []byte) (int, error) {
	attributes := map[string]any{}
	if err := json.Unmarshal(line, &attributes); err != nil {
		return 0, err
	}
	delete(attributes, slog.TimeKey)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, attributes)
	return len(line), nil
}

func (l *logbook) option() redlatch.Option {
	return redlatch.WithLogger(slog.New(slog.NewJSONHandler(l, nil)))
}

// take returns what was logged since it was last called.
func (l *logbook) take() []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.lines
	l.lines = nil
	return all
}

// span is the key of a value by which a test follows a context.
type span struct{}

// sink gathers what an observer is told.
type sink[E any] struct {
	mu  sync.Mutex
	all []E
}

func (s *sink[E]) add(e E) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, e)
}

// take returns what was told since it was last called.
func (s *sink[E]) take() []E {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// one requires that just one thing was told, and returns it.
func one[E any](t *testing.T, s *sink[E]) E {
	t.Helper()
	all := s.take()
	require.Len(t, all, 1)
	return all[0]
}

// counted counts what passes it.
type counted struct{ commands, pipelines atomic.Int64 }

func (*counted) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counted) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counted) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.pipelines.Add(1)
		return next(ctx, cmds)
	}
}

// next returns what a hook was told next.
func next[T any](t *testing.T, told <-chan T) T {
	t.Helper()
	select {
	case one := <-told:
		return one
	case <-time.After(20 * time.Second):
		require.Fail(t, "nothing was told")
		panic("not reached")
	}
}
