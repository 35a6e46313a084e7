package rexecutor_test

import (
	"context"
	"sync"
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

// F7
func TestOneCallOfManyTasksWakesAWorkerOfEach(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		busy, free, caller := executor(b.Peer(t)), executor(b.Peer(t)), executor(b.Peer(t))
		until := make(chan struct{})
		require.NoError(t, greet.Handle(busy, block(until)))
		require.NoError(t, other.Handle(free, nothing))
		work(t, busy)
		work(t, free)
		submit(t, caller, args{})
		time.Sleep(time.Second)
		for range 20 { // in whatever order they go
			start := time.Now()
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() { submit(t, caller, args{}) })
			}
			wg.Go(func() {
				f, err := other.Submit(t.Context(), caller, args{})
				assert.NoError(t, err)
				_, err = f.Get(t.Context())
				assert.NoError(t, err)
			})
			wg.Wait()
			require.Less(t, time.Since(start), soon, "though nobody is free for the others")
		}
		close(until)
	})
}

// F7
func TestGivenBackTasksWakeAWorkerOfEach(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		both, free, caller := executor(b.Peer(t)), executor(b.Peer(t)), executor(b.Peer(t))
		until := make(chan struct{})
		slow := rexecutor.NewTask[args, answer]("slow")
		require.NoError(t, slow.Handle(both, block(until)))
		require.NoError(t, greet.Handle(both, hello))
		require.NoError(t, other.Handle(both, nothing))
		stop := work(t, both, rexecutor.WithStopGrace(time.Hour))
		for range 100 { // quick ones, so that more are claimed ahead
			submit(t, caller, args{})
		}
		time.Sleep(time.Second)
		require.NoError(t, slow.Send(t.Context(), caller, args{}))
		submit(t, caller, args{})
		f, err := other.Submit(t.Context(), caller, args{})
		require.NoError(t, err)
		require.NoError(t, other.Handle(free, nothing))
		work(t, free)
		time.Sleep(10 * time.Millisecond)
		start := time.Now()
		go stop()
		_, err = f.Get(t.Context())
		require.NoError(t, err)
		assert.Less(t, time.Since(start), soon)
		close(until)
	})
}
