package counter_test

import (
	"context"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/counter"
	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/script"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logScript appends what it is told to do to a list, and answers the list's length for each operation.
var logScript = script.New("test", `
local replies = {}
for i = 4, #ARGV do
  replies[#replies + 1] = redis.call('rpush', KEYS[1], ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[i])
end
return replies`)

// rig is a manager over an in-memory server.
type rig struct {
	*counter.Manager
	core  *core.Core
	mini  *miniredis.Miniredis
	redis *redis.Client
}

func inBubble(t *testing.T, test func(t *testing.T, d *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mini := miniredis.NewMiniRedis()
		t.Cleanup(mini.Close)
		rdb := redis.NewClient(&redis.Options{
			Dialer:                   func(context.Context, string, string) (net.Conn, error) { return mini.Dial() },
			DisableIdentity:          true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled, EndpointType: maintnotifications.EndpointTypeNone},
		})
		t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
		e := core.New(rdb, core.Config{Lease: 30 * time.Second, Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(e.Close)
		m := counter.New(e, counter.Kind{Script: logScript})
		test(t, &rig{Manager: m, core: e, mini: mini, redis: rdb})
	})
}

func (d *rig) leave(op *counter.Op) counter.Fate {
	fate, _ := d.Leave("k", op)
	return fate
}

// heard collects answers.
type heard struct {
	mu  sync.Mutex // guards got
	got []int64
	err []error
}

func (h *heard) Answered(op *counter.Op, _ []int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got, h.err = append(h.got, op.Result), append(h.err, op.Err)
}

func (d *rig) log(t *testing.T, key string) []string {
	t.Helper()
	list, err := d.redis.LRange(t.Context(), key, 0, -1).Result()
	require.NoError(t, err)
	return list
}

func TestOneBatchCarriesWhatWasPut(t *testing.T) {
	inBubble(t, func(t *testing.T, d *rig) {
		h := &heard{}
		for i := range 5 {
			require.True(t, d.Put("k", &counter.Op{Code: strconv.Itoa(i), Answerer: h}))
		}
		assert.Equal(t, 1, d.Logs())
		d.Go("k")
		synctest.Wait()
		assert.Equal(t, []int64{1, 2, 3, 4, 5}, h.got, "in the order of Put")
		assert.Equal(t, []string{"1 0 0", "1 0 1", "1 0 2", "1 0 3", "1 0 4"}, d.log(t, "k"), "under one number")
		assert.Zero(t, d.Logs(), "an idle log is gone")
	})
}

func TestNumbersRiseOverAllLogs(t *testing.T) {
	inBubble(t, func(t *testing.T, d *rig) {
		for i, key := range []string{"a", "b", "a", "a"} {
			_, err := d.Do(t.Context(), key, counter.Request{Code: "x"})
			require.NoError(t, err)
			list := d.log(t, key)
			assert.Equal(t, strconv.Itoa(i+1)+" 0 x", list[len(list)-1])
		}
	})
}

func TestWhoLeavesInTimeIsNotCarriedOut(t *testing.T) {
	inBubble(t, func(t *testing.T, d *rig) {
		h := &heard{}
		stays, leaves := &counter.Op{Code: "stays", Answerer: h}, &counter.Op{Code: "leaves", Answerer: h}
		insists := &counter.Op{Code: "insists", Answerer: h, Policy: counter.Insist}
		for _, op := range []*counter.Op{leaves, stays, insists} {
			require.True(t, d.Put("k", op))
		}
		assert.Equal(t, counter.Withdrawn, d.leave(leaves))
		assert.Equal(t, counter.InFlight, d.leave(insists))
		d.Go("k")
		synctest.Wait()
		assert.Equal(t, []string{"1 0 stays", "1 0 insists"}, d.log(t, "k"))
		assert.Equal(t, counter.Answered, d.leave(stays))
		require.True(t, d.Put("k", leaves), "it may be used again")
		assert.Equal(t, counter.Withdrawn, d.leave(leaves))
		assert.Zero(t, d.Logs())
	})
}

func TestManyAtATimeShareBatches(t *testing.T) {
	inBubble(t, func(t *testing.T, d *rig) {
		var calls sync.WaitGroup
		for range 1000 {
			calls.Go(func() {
				_, err := d.Do(t.Context(), "k", counter.Request{Code: "x"})
				assert.NoError(t, err)
			})
		}
		calls.Wait()
		synctest.Wait() // the log ends after its last answer
		assert.Len(t, d.log(t, "k"), 1000)
		assert.Less(t, d.core.Batch.Flushes(), int64(500))
		assert.Zero(t, d.Logs())
	})
}

func TestErrorReplyIsEverybodysAndNothingIsRepeated(t *testing.T) {
	inBubble(t, func(t *testing.T, d *rig) {
		require.NoError(t, d.redis.Set(t.Context(), "k", "word", 0).Err())
		_, err := d.Do(t.Context(), "k", counter.Request{Code: "x"})
		require.ErrorIs(t, err, errs.ErrWrongType)
		synctest.Wait() // the log ends after its last answer
		assert.Zero(t, d.Logs())
		assert.Zero(t, d.core.Settler.Len())
	})
}

func TestClosedClientTakesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, d *rig) {
		d.core.Close()
		assert.False(t, d.Put("k", &counter.Op{Code: "x", Answerer: &heard{}}))
		_, err := d.Do(t.Context(), "k", counter.Request{Code: "x"})
		require.ErrorIs(t, err, errs.ErrClosed)
		assert.Zero(t, d.Logs())
	})
}
