package rexecutor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rexecutor"
)

// soon is the time after which a task is late that a worker could begin.
const soon = 500 * time.Millisecond

func nothing(context.Context, rexecutor.Call[args]) (struct{}, error) { return struct{}{}, nil }

// block returns a handler that waits until the test lets it go, or its context ends.
func block(until <-chan struct{}) func(context.Context, rexecutor.Call[args]) (answer, error) {
	return func(ctx context.Context, _ rexecutor.Call[args]) (answer, error) {
		select {
		case <-until:
			return answer{}, nil
		case <-ctx.Done():
			return answer{}, context.Cause(ctx)
		}
	}
}

// F7
func TestWorkThatBeginsBesideOneThatSleepsIsWoken(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, caller := b.Peer(t), executor(b.Peer(t))
		first, second := executor(p), executor(p)
		require.NoError(t, greet.Handle(first, hello))
		require.NoError(t, other.Handle(second, nothing))
		waiting, err := other.Submit(t.Context(), caller, args{})
		require.NoError(t, err)
		work(t, first)
		time.Sleep(time.Second)
		start := time.Now()
		work(t, second)
		_, err = waiting.Get(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(start), soon, "it looks for what is due")
		time.Sleep(time.Second)
		start = time.Now()
		f, err := other.Submit(t.Context(), caller, args{})
		require.NoError(t, err)
		_, err = f.Get(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(start), soon)
	})
}

// F7
func TestWorkerThatWasFullIsWokenBesideOneOfItsClientThatSleeps(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		p, caller := b.Peer(t), executor(b.Peer(t))
		first, second := executor(p), executor(p)
		require.NoError(t, greet.Handle(first, func(context.Context, rexecutor.Call[args]) (answer, error) {
			time.Sleep(3 * time.Second)
			return answer{}, nil
		}))
		require.NoError(t, other.Handle(second, nothing))
		work(t, first)
		work(t, second)
		time.Sleep(time.Second)
		submit(t, caller, args{})
		time.Sleep(time.Second)
		start := time.Now()
		_, err := submit(t, caller, args{}, rexecutor.WithDelay(time.Second)).Get(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(start), 5*time.Second+soon)
		start = time.Now()
		_, err = submit(t, caller, args{}).Get(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(start), 3*time.Second+soon)
	})
}

