package rexecutor_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rexecutor"
)

func TestErrorsSpeakOfTasksAndExecutors(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		ex := executor(b.Peer(t), rexecutor.WithCapacity(1))
		causes := make(chan error, 1)
		require.NoError(t, greet.Handle(ex, func(ctx context.Context, _ rexecutor.Call[args]) (answer, error) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return answer{}, nil
		}))
		work(t, ex)
		f := submit(t, ex, args{})
		synctest.Wait()
		_, err := greet.Submit(t.Context(), ex, args{})
		require.EqualError(t, err, `rexecutor: submit to "media": it is full`)
		ok, err := f.Cancel(t.Context())
		require.NoError(t, err)
		require.True(t, ok)
		assert.Regexp(t, `^rexecutor: task of "media": cancelled: task lost: `, <-causes)
		_, err = f.Get(t.Context())
		require.EqualError(t, err, `rexecutor: get the result of a task of "media": cancelled`)

		require.NoError(t, b.Redis.HSet(t.Context(), "redlatch_dq:{mail}:tasks:meta", "layout", 3).Err())
		_, err = rexecutor.New(b.Peer(t), "mail").Stats(t.Context())
		require.EqualError(t, err, `rexecutor: stats of "mail": it has a newer layout: version 3, and this library knows 2`)
	})
}
