package pipeline_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/pipeline"
	"github.com/redlatch/redlatch/internal/script"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// F9: the repetition of a call finds its work done, and writes nothing. It is confirmed only if what the first sending wrote is.
func TestCallThatWritesNothingIsConfirmedWithWhatWasWrittenBefore(t *testing.T) {
	redistest.Long(t)
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	rdb := master.Client(t)
	b := pipeline.New(master.Client(t), time.Minute)
	b.Confirmations = []pipeline.Confirmation{{Replicas: 1, Timeout: 100 * time.Millisecond}}
	t.Cleanup(b.Close)
	look := script.New("test", `return redis.call('exists', KEYS[1])`)
	patient := pipeline.New(master.Client(t), time.Minute)
	patient.Confirmations = []pipeline.Confirmation{{Replicas: 1, Timeout: time.Second}}
	t.Cleanup(patient.Close)
	for _, key := range []string{"without", "with", "missing"} {
		require.NoError(t, rdb.Set(t.Context(), "without", 1, 0).Err())
		require.NoError(t, rdb.Set(t.Context(), "with", 1, time.Hour).Err())
		confirm := func(b *pipeline.Batcher) error {
			call := look.Call(1, key)
			call.Confirms = true
			require.NoError(t, b.Do(t.Context(), call, pipeline.SendOptions{}))
			return call.Unconfirmed
		}
		require.NoError(t, confirm(patient), key)
		replica.Pause()
		require.NoError(t, rdb.Set(t.Context(), "other", 1, 0).Err())
		err := confirm(b)
		replica.Resume()
		require.ErrorIs(t, err, errs.ErrNotConfirmed, key)
		require.ErrorContains(t, err, "by 0 of 1 replicas within 100ms")
		redistest.AwaitSync(t, master, replica)
	}
	assert.Equal(t, time.Duration(-1), rdb.PTTL(t.Context(), "without").Val(), "the key was not changed")
	assert.Greater(t, rdb.PTTL(t.Context(), "with").Val(), 59*time.Minute)
	assert.Zero(t, rdb.Exists(t.Context(), "missing").Val())
}

func TestManyConfirmedCallsShareAPipeline(t *testing.T) {
	master := redistest.Start(t)
	redistest.StartReplica(t, master)
	b := pipeline.New(master.Client(t), time.Minute)
	b.Confirmations = []pipeline.Confirmation{{Replicas: 1, Timeout: time.Second}}
	t.Cleanup(b.Close)
	const calls = 500
	set := script.New("test", `return redis.call('incr', KEYS[1])`)
	done := make(chan error, calls)
	for i := range calls {
		call := set.Call(1, "k"+strconv.Itoa(i))
		call.Confirms = true
		require.True(t, b.Start(call, pipeline.Normal, func(c *script.Call) {
			if err := c.Err(); err != nil {
				done <- err
				return
			}
			done <- c.Unconfirmed
		}))
	}
	for range calls {
		require.NoError(t, <-done)
	}
	assert.Less(t, b.Flushes(), int64(calls/5))
}

// F28
func TestConfirmationThatTheServerDoesNotKnowIsAnError(t *testing.T) {
	server := redistest.Start(t, "--rename-command", "WAIT", "")
	b := pipeline.New(server.Client(t), time.Minute)
	b.Confirmations = []pipeline.Confirmation{{Replicas: 1, Timeout: time.Second}}
	t.Cleanup(b.Close)
	call := script.New("test", `return 1`).Call(1, "k")
	call.Confirms = true
	require.NoError(t, b.Do(t.Context(), call, pipeline.SendOptions{}))
	require.ErrorIs(t, call.Unconfirmed, errs.ErrNotConfirmed)
	require.ErrorContains(t, call.Unconfirmed, "unknown command")
}

func TestErrorOfOneCallLeavesTheOthersConfirmed(t *testing.T) {
	server := redistest.Start(t)
	redistest.StartReplica(t, server)
	admin := server.Client(t)
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "few", "on", ">secret", "~mine*", "+@all").Err())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "few", Password: "secret"})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	b := pipeline.New(rdb, time.Minute)
	b.Confirmations = []pipeline.Confirmation{{Replicas: 1, Timeout: time.Second}}
	t.Cleanup(b.Close)
	set := script.New("test", `return redis.call('incr', KEYS[1])`)
	ended := make(chan *script.Call, 3)
	var together []pipeline.Sending
	for _, key := range []string{"theirs", "mine", "mine too"} {
		call := set.Call(1, key)
		call.Confirms = true
		together = append(together, pipeline.Sending{Call: call, Done: func(c *script.Call) { ended <- c }})
	}
	require.True(t, b.StartAll(pipeline.Normal, together))
	for range together {
		call := <-ended
		if call.Key() == "theirs" {
			require.ErrorContains(t, call.Err(), "NOPERM")
			continue
		}
		require.NoError(t, call.Err(), call.Key())
		require.NoError(t, call.Unconfirmed, call.Key())
	}
	assert.EqualValues(t, 1, b.Flushes())
}

// F20
func TestUserWithoutPersistLeavesNoTTLBehind(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "few", "on", ">secret", "~*", "+@all", "-persist").Err())
	require.NoError(t, admin.Set(t.Context(), "permits", 3, 0).Err())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "few", Password: "secret"})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	b := pipeline.New(rdb, time.Minute)
	b.Confirmations = []pipeline.Confirmation{{Replicas: 1, Timeout: 10 * time.Millisecond}}
	t.Cleanup(b.Close)
	call := script.New("test", `return redis.call('decr', KEYS[1])`).Call(1, "permits")
	call.Confirms = true
	require.NoError(t, b.Do(t.Context(), call, pipeline.SendOptions{}))
	require.ErrorIs(t, call.Unconfirmed, errs.ErrNotConfirmed)
	assert.NotContains(t, call.Unconfirmed.Error(), "replicas", "each server refuses it in words of its own")
	assert.Equal(t, time.Duration(-1), admin.PTTL(t.Context(), "permits").Val())
}
