package rlatch_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rlatch"
)

// F25, F28
func TestErrorOfARefusedCommandMeansNotDone(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	connect := func(user string) *redlatch.Client {
		few := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: "x", DisableIdentity: true})
		t.Cleanup(func() { assert.NoError(t, few.Close()) })
		c, err := redlatch.New(few)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		return c
	}
	for _, rule := range []string{
		"-mget", "-get", "-exists", "-publish", "-pexpire", "-set", "-del", "-sadd", "-sismember", "-time", "resetchannels",
	} {
		require.NoError(t, rdb.Do(t.Context(), "acl", "setuser", "without"+rule, "on", "nopass", "~*", "&*", "+@all", rule).Err())
		c := connect("without" + rule)
		for verb, call := range map[string]struct {
			do            func(context.Context, *rlatch.Latch) error
			before, after int
			stays, then   string // what is kept of a latch that stays open
		}{
			"count down":         {func(ctx context.Context, l *rlatch.Latch) error { return l.CountDown(ctx) }, 2, 1, "9000", "9000"},
			"open":               {func(ctx context.Context, l *rlatch.Latch) error { return l.CountDownBy(ctx, 3) }, 2, 0, "9000", "open"},
			"count down once":    {func(ctx context.Context, l *rlatch.Latch) error { _, err := l.CountDownOnce(ctx, "b"); return err }, 2, 1, "", ""},
			"open once":          {func(ctx context.Context, l *rlatch.Latch) error { _, err := l.CountDownOnce(ctx, "b"); return err }, 1, 0, "9000", "open"},
			"delete":             {func(ctx context.Context, l *rlatch.Latch) error { _, err := l.Delete(ctx); return err }, 2, 0, "9000", ""},
			"delete an open one": {func(ctx context.Context, l *rlatch.Latch) error { _, err := l.Delete(ctx); return err }, 0, 0, "open", ""},
			"find an open one":   {func(ctx context.Context, l *rlatch.Latch) error { return l.CountDown(ctx) }, 0, 0, "9000", "open"},
			"set once": {func(ctx context.Context, l *rlatch.Latch) error {
				_, err := l.TrySetCountOnce(ctx, 5, time.Minute)
				return err
			}, 0, 5, "", "60000"},
			"set": {func(ctx context.Context, l *rlatch.Latch) error { _, err := l.TrySetCount(ctx, 5); return err }, 0, 5, "open", ""},
		} {
			name := fmt.Sprintf("%s with %s", verb, rule)
			members := "redlatch_latch_once:{" + name + "}"
			if call.before > 0 {
				require.NoError(t, rdb.Set(t.Context(), name, call.before, 0).Err())
			}
			stays := "redlatch_latch_open:{" + name + "}"
			if call.stays != "" {
				require.NoError(t, rdb.Set(t.Context(), stays, call.stays, 0).Err())
			}
			had := []string{}
			if call.before+call.after > 0 {
				had = []string{"a"}
				require.NoError(t, rdb.SAdd(t.Context(), members, "a").Err())
			}
			messages := rdb.Subscribe(t.Context(), "redisson_countdownlatch__channel__{"+name+"}")
			_, err := messages.Receive(t.Context())
			require.NoError(t, err)

			err = call.do(t.Context(), c.GetCountDownLatch(name))

			want, kept, people := call.after, call.then, []string{"a", "b"}
			if call.after == 0 || call.before == 0 {
				people = []string{}
			} else if verb == "count down" {
				people = []string{"a"}
			}
			if err != nil {
				require.NotErrorIs(t, err, redlatch.ErrUnknown, name)
				want, kept, people = call.before, call.stays, had
				require.NoError(t, rdb.Publish(t.Context(), "redisson_countdownlatch__channel__{"+name+"}", "end").Err())
				message, err := messages.ReceiveMessage(t.Context())
				require.NoError(t, err)
				require.Equal(t, "end", message.Payload, "%s: nobody goes on", name)
			}
			got, _ := rdb.Get(t.Context(), name).Int() // 0 for none
			require.Equal(t, want, got, "%s: %v", name, err)
			require.ElementsMatch(t, people, rdb.SMembers(t.Context(), members).Val(), "%s: %v", name, err)
			require.Equal(t, kept, rdb.Get(t.Context(), stays).Val(), "%s: %v", name, err)
			require.NoError(t, messages.Close())
		}
	}
}

// F25, F28
func TestLatchOpensWhileMemoryIsFull(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	c, err := redlatch.New(server.Client(t))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	l := c.GetCountDownLatch("ready")
	setOnce(t, l, 3, true)
	waiter := begin(t.Context(), l)
	redistest.AwaitSubscribers(t, rdb, "redisson_countdownlatch__channel__{ready}", 1)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	down(t, l)
	once, err := l.CountDownOnce(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, once)
	waits(t, waiter)
	down(t, l)
	require.NoError(t, ended(t, waiter))
	setOnce(t, l, 3, false)
	_, err = l.TrySetCount(t.Context(), 1)
	require.ErrorIs(t, err, redlatch.ErrUnwritable)
	require.NotErrorIs(t, err, redlatch.ErrUnknown)
	requireCount(t, l, 0)
	setOnce(t, l, 3, false)
}

// F2, F28
func TestLatchCountsDownAfterALostReplyWhileMemoryIsFull(t *testing.T) {
	server := redistest.Start(t)
	proxy := faulttest.NewProxy(t, server.Addr())
	rdb := server.Client(t)
	through := redis.NewClient(&redis.Options{Addr: proxy.Addr()})
	t.Cleanup(func() { assert.NoError(t, through.Close()) })
	c, err := redlatch.New(through)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	l := c.GetCountDownLatch("ready")
	set(t, l, 3)
	once(t, l, "a", true)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	proxy.DropReplies(faulttest.Script, 1)
	once(t, l, "a", false)
	require.Equal(t, 1, proxy.Dropped())
	down(t, l)
	requireCount(t, l, 1)
}
