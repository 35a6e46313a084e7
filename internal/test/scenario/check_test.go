package scenario_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// F28
func TestCheckNamesWhatAServerDoesNotKnow(t *testing.T) {
	server := redistest.Start(t, "--rename-command", "ZADD", "", "--rename-command", "EVALSHA", "")
	const want = " does not know ZADD, EVALSHA; the oldest that do are Redis 6.2 and Valkey 7.2"
	require.ErrorContains(t, redlatch.Check(t.Context(), server.Client(t)), "redlatch: check: the server lacks commands: "+server.Addr()+want)
	c, err := redlatch.Open(t.Context(), server.URL())
	require.ErrorContains(t, err, want)
	require.Nil(t, c)
}

// F23, F28
func TestCallsOfAClientThatWasNotCheckedPointToTheCheck(t *testing.T) {
	const hint = "the server lacks a command, or the user a right; redlatch.Check, and redlatch doctor --grid, name those that objects need: "
	server := redistest.Start(t, "--rename-command", "ZADD", "")
	require.NoError(t, server.Client(t).Do(t.Context(), "acl", "setuser", "few", "on", "nopass", "~*", "&*", "+@all", "-hset").Err())
	few := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "few", Password: "x", DisableIdentity: true})
	t.Cleanup(func() { assert.NoError(t, few.Close()) })
	for what, rdb := range map[string]*redis.Client{"command": server.Client(t), "right": few} {
		c, err := redlatch.New(rdb)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		if what == "command" {
			_, err = c.GetPermitSemaphore("permits").TrySetPermits(t.Context(), 1)
			require.NoError(t, err)
			_, err = c.GetPermitSemaphore("permits").TryAcquire(t.Context())
		} else {
			_, err = c.GetLock("n").Lock(t.Context())
		}
		require.ErrorContains(t, err, hint, what)
		assert.NotErrorIs(t, err, redlatch.ErrUnavailable, what)
	}
}

func TestCheckFindsNothingWrongWithTheSupportedServers(t *testing.T) {
	t.Parallel()
	require.NoError(t, redlatch.Check(t.Context(), redistest.Shared(t).Client(t)))
	require.NoError(t, redlatch.Check(t.Context(), redistest.SharedCluster(t).Client(t)))
	require.NoError(t, redlatch.Check(t.Context(), redistest.Shared(t).Client(t), redlatch.WithShardedWakeups(redlatch.ShardedAlways)))
}

// F28
func TestCheckNamesTheMissingRight(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client(t)
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "few", "on", "nopass", "~*", "&*", "+@all", "-zadd").Err())
	few := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "few", Password: "x", DisableIdentity: true})
	t.Cleanup(func() { assert.NoError(t, few.Close()) })
	err := redlatch.Check(t.Context(), few)
	if server.Major(t) < 7 {
		require.NoError(t, err, "it cannot tell")
		return
	}
	require.ErrorContains(t, err, "no permission for: zadd")
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "few", "+zadd", "-command").Err())
	require.NoError(t, redlatch.Check(t.Context(), few))
}

// F20, F28: the nodes of a cluster do not share their users.
func TestCheckNamesTheMasterThatLacksARight(t *testing.T) {
	t.Parallel()
	cluster := redistest.SharedCluster(t)
	if redistest.Shared(t).Major(t) < 7 {
		redistest.Skip(t, "this server cannot tell the rights of its users")
	}
	rules := slices.DeleteFunc(append(documentedUser(t), documentedRules(t, "On a cluster add")...), func(word any) bool {
		return strings.Contains(fmt.Sprint(word), ":app:") // for names with a tag of their own
	})
	check := func(user string) error {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: user, Password: "secret", DisableIdentity: true})
		defer func() { assert.NoError(t, rdb.Close()) }()
		return redlatch.Check(t.Context(), rdb, redlatch.WithNamePrefix("app:"))
	}
	for n, lacking := range append(cluster.Addrs(), "none") {
		user := fmt.Sprint("checked", n)
		for _, node := range cluster.Nodes() {
			admin, words := node.Client(t), slices.Clone(rules)
			words[2] = user
			if node.Addr() == lacking {
				words = append(words, "-zadd")
			}
			require.NoError(t, admin.Do(t.Context(), words...).Err())
			t.Cleanup(func() { assert.NoError(t, admin.Do(context.WithoutCancel(t.Context()), "acl", "deluser", user).Err()) })
		}
		if err := check(user); lacking == "none" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, "redlatch: check: "+lacking+": the Redis user has no permission for: zadd")
		}
	}
}

// F20, F28: a proxy in front of a newer server may not pass on what sharded wake-ups take. An older server needs none of it.
func TestCheckNamesWhatShardedWakeupsLack(t *testing.T) {
	if redistest.Shared(t).Major(t) < 7 {
		redistest.Skip(t, "this server has no sharded channels")
	}
	for _, lacks := range []string{"spublish", "ssubscribe", "sunsubscribe"} {
		rdb := redistest.Start(t, "--rename-command", lacks, "").Client(t)
		require.ErrorContains(t, redlatch.Check(t.Context(), rdb, redlatch.WithShardedWakeups(redlatch.ShardedAlways)), "no permission for: "+lacks+", which the server does not know")
		require.NoError(t, redlatch.Check(t.Context(), rdb), "plain ones do without")
	}
}

// F26, F27
func TestCheckOfASilentServerEnds(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	server.Pause()
	defer server.Resume()
	start := time.Now()
	err := redlatch.Check(t.Context(), rdb, redlatch.WithCallTimeout(200*time.Millisecond))
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	assert.Less(t, time.Since(start), 2*time.Second)

	var none context.Context
	require.ErrorIs(t, redlatch.Check(none, rdb), redlatch.ErrInvalid)
	require.ErrorIs(t, redlatch.Check(t.Context(), nil), redlatch.ErrInvalid)
	require.ErrorIs(t, redlatch.Check(t.Context(), rdb, redlatch.WithCallTimeout(-1)), redlatch.ErrInvalid)
}
