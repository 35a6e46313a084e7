package rexecutor_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/rexecutor"
)

func TestTimeoutFailsTheAttempt(t *testing.T) {
	slow := rexecutor.NewTask[args, answer]("slow", rexecutor.WithTimeout(3*time.Second), rexecutor.WithMaxAttempts(2),
		rexecutor.WithBackoff(func(int) time.Duration { return time.Second }))
	for what, c := range map[string]struct {
		returns func(ctx context.Context) error
		text    string
	}{
		"nothing":                {func(context.Context) error { return nil }, rexecutor.ErrTimeout.Error()},
		"the context's error":    {context.Context.Err, rexecutor.ErrTimeout.Error()},
		"a snooze":               {func(context.Context) error { return rexecutor.Snooze(time.Hour) }, rexecutor.ErrTimeout.Error()},
		"an error of its own":    {func(context.Context) error { return errors.New("own") }, "own"},
		"the context's cause":    {context.Cause, rexecutor.ErrTimeout.Error()},
		"a result in the second": {nil, ""},
	} {
		t.Run(what, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
				ex := executor(b.Peer(t))
				require.NoError(t, slow.Handle(ex, func(ctx context.Context, call rexecutor.Call[args]) (answer, error) {
					if call.Attempt == 2 && c.returns == nil {
						return answer{"in time"}, nil
					}
					<-ctx.Done()
					assert.ErrorIs(t, context.Cause(ctx), rexecutor.ErrTimeout)
					if c.returns == nil {
						return answer{"too late"}, nil
					}
					return answer{"too late"}, c.returns(ctx)
				}))
				work(t, ex)
				start := time.Now()
				f, err := slow.Submit(t.Context(), ex, args{})
				require.NoError(t, err)
				time.Sleep(3500 * time.Millisecond)
				st, err := f.Status(t.Context())
				require.NoError(t, err)
				assert.Equal(t, rexecutor.Delayed, st.State)
				assert.Equal(t, 1, st.Attempt)
				got, err := f.Get(t.Context())
				if c.returns == nil {
					require.NoError(t, err)
					assert.Equal(t, answer{"in time"}, got)
					return
				}
				var failed *rexecutor.TaskError
				require.ErrorAs(t, err, &failed)
				assert.Equal(t, &rexecutor.TaskError{Text: c.text, Attempts: 2}, failed)
				assert.InDelta(t, 7*time.Second, time.Since(start), float64(100*time.Millisecond))
			})
		})
	}
}
