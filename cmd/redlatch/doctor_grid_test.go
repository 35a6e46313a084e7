package main

import (
	"context"
	"errors"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/ratomic"
	"github.com/redlatch/redlatch/grid/rbucket"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/grid/rset"
	"github.com/redlatch/redlatch/grid/rsortedset"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// data is what all objects of the grid can.
type data interface {
	Expire(ctx context.Context, d time.Duration) (bool, error)
	Persist(ctx context.Context) (bool, error)
	TTL(ctx context.Context) (time.Duration, error)
	Delete(ctx context.Context) (bool, error)
}

// useGrid calls what needs each right of a package, and returns its errors. renewed blocks until a load was renewed.
func useGrid(ctx context.Context, c *redlatch.Client, pkg string, renewed func()) error {
	var all []error
	do := func(err error) { all = append(all, err) }
	no := func(_ any, err error) { do(err) }
	maybe := func(_ any, _ bool, err error) { do(err) }
	whole := func(o data) {
		no(o.Expire(ctx, time.Hour))
		no(o.Persist(ctx))
		no(o.TTL(ctx))
		no(o.Delete(ctx))
	}
	switch pkg {
	case "rbucket":
		b := rbucket.New[int](c, "bucket")
		do(b.Set(ctx, 1, rbucket.WithFence(1)))
		no(b.SetIfPresent(ctx, 2))
		maybe(b.Get(ctx))
		maybe(b.Swap(ctx, 3))
		no(b.CompareAndSwap(ctx, 3, 4))
		no(b.Update(ctx, func(v int, _ bool) (int, error) { return v, nil }))
		no(b.CompareAndDelete(ctx, 4))
		maybe(b.Pop(ctx))
		no(b.Info(ctx))
		whole(b)
	case "ratomic":
		n, f := ratomic.NewInt64(c, "number"), ratomic.NewFloat64(c, "float")
		do(n.Store(ctx, 1))
		no(n.Load(ctx))
		no(n.Add(ctx, 1))
		maybe(n.AddWithin(ctx, 1, 0, math.MaxInt64))
		no(n.Info(ctx))
		no(n.StoreIfGreater(ctx, 9))
		maybe(f.AddWithin(ctx, 1, 2, 3)) // which is taken back
		no(f.Add(ctx, 1.5))
		whole(n)
	case "rcache":
		loads := 0
		users := rcache.New(c, "users", func(context.Context, string) (int, error) {
			if loads++; loads == 1 {
				renewed()
			}
			return loads, nil
		}, rcache.WithTTL(time.Minute))
		no(users.Get(ctx, "a"))
		no(users.Get(ctx, "a"))
		do(users.Set(ctx, "a", 7))
		do(users.Invalidate(ctx, "a"))
		// What is in Redis no longer decodes is dropped.
		do(rcache.New[string, string](c, "users", nil, rcache.WithTTL(time.Minute)).Set(ctx, "b", "text"))
		no(users.Get(ctx, "b"))
	case "rmap":
		m, floats := rmap.New[string, int](c, "map"), rmap.New[string, float64](c, "floats")
		do(m.Set(ctx, "a", 1))
		do(m.Set(ctx, "a", 1, rmap.WithFence(1)))
		do(m.SetAll(ctx, map[string]int{"b": 2}))
		no(m.SetIfAbsent(ctx, "c", 3))
		maybe(m.Get(ctx, "a"))
		no(m.GetAll(ctx, []string{"a"}))
		no(m.Has(ctx, "a"))
		no(m.Len(ctx))
		no(m.Add(ctx, "a", 1))
		no(floats.Add(ctx, "a", 1.5))
		no(m.Update(ctx, "a", func(v int, _ bool) (int, error) { return v, nil }))
		_, err := m.ExpireEntry(ctx, "a", time.Hour)
		if errors.Is(err, redlatch.ErrUnsupported) {
			err = nil
		}
		do(err)
		for _, err := range m.All(ctx) {
			do(err)
		}
		maybe(m.Pop(ctx, "a"))
		no(m.Remove(ctx, "b"))
		no(m.Info(ctx))
		whole(m)
	case "rset":
		s, x := rset.New[string](c, "{s}:set"), rset.NewExpiring[string](c, "seen")
		no(s.Add(ctx, "a", "b", "c"))
		no(s.Has(ctx, "a"))
		no(s.HasAll(ctx, "a"))
		no(s.Len(ctx))
		no(s.Random(ctx, 1))
		no(s.MoveTo(ctx, rset.New[string](c, "{s}:other"), "a"))
		for _, err := range s.All(ctx) {
			do(err)
		}
		no(s.Remove(ctx, "b"))
		no(s.Pop(ctx, 1))
		no(s.Info(ctx))
		no(x.Add(ctx, "a", time.Hour))
		no(x.Has(ctx, "a"))
		no(x.Len(ctx))
		no(x.Info(ctx))
		for _, err := range x.All(ctx) {
			do(err)
		}
		no(x.Remove(ctx, "a"))
		whole(s)
		whole(x)
	case "rsortedset":
		s := rsortedset.New[string](c, "scores")
		for i, v := range []string{"a", "b", "c", "d"} {
			no(s.Add(ctx, v, float64(i)))
		}
		no(s.AddScore(ctx, "a", 1))
		maybe(s.Score(ctx, "a"))
		maybe(s.Rank(ctx, "a"))
		maybe(s.RankDesc(ctx, "a"))
		no(s.Len(ctx))
		no(s.Count(ctx, 0, 9))
		no(s.Range(ctx, 0, -1))
		no(s.RangeDesc(ctx, 0, -1))
		no(s.RangeByScore(ctx, 0, 9, 10))
		for _, err := range s.All(ctx) {
			do(err)
		}
		no(s.Remove(ctx, "a"))
		no(s.RemoveByScore(ctx, 1, 1))
		no(s.PopMin(ctx, 1))
		no(s.PopMax(ctx, 1))
		no(s.Info(ctx))
		whole(s)
	}
	return errors.Join(all...)
}

// asUser returns a client whose user has these commands and those of messages, keys with the prefix app:, and more rules.
func asUser(t *testing.T, server *redistest.Server, commands []string, more ...any) *redlatch.Client {
	t.Helper()
	rules := []any{"acl", "setuser", "app", "reset", "resetchannels", "on", ">secret", "~app:*", "~redlatch_*{app:*", "&redlatch_*{app:*", "+eval", "+evalsha", "+ping", "+publish", "+subscribe", "+unsubscribe"}
	for _, command := range commands {
		rules = append(rules, "+"+command)
	}
	rules = append(rules, more...)
	require.NoError(t, server.Client(t).Do(t.Context(), rules...).Err())
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret", DisableIdentity: true})
	c, err := redlatch.New(rdb, redlatch.WithNamePrefix("app:"), redlatch.WithoutPresence(), redlatch.WithWatchdogTimeout(300*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, c.Close())
		assert.NoError(t, rdb.Close())
	})
	return c
}

// F28
func TestPackagesOfTheGridNeedNoMoreAndNoLessThanTheirRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	renewed := func() {
		redistest.Eventually(t, 10*time.Second, "the load is renewed", func() error {
			stats, err := admin.Info(t.Context(), "commandstats").Result()
			if err == nil && !strings.Contains(stats, "cmdstat_pexpire:") {
				err = errors.New("no PEXPIRE")
			}
			return err
		})
	}
	for _, r := range gridRights() {
		commands := knownOf(t, admin, r)
		c := asUser(t, server, commands)
		require.NoError(t, admin.FlushAll(t.Context()).Err())
		require.NoError(t, admin.ConfigResetStat(t.Context()).Err())
		require.NoError(t, useGrid(t.Context(), c, r.pkg, renewed), r.pkg)
		stats, err := admin.Info(t.Context(), "commandstats").Result()
		require.NoError(t, err)
		for _, command := range commands {
			assert.Contains(t, stats, "cmdstat_"+command+":", "%s needs no %s", r.pkg, command)
		}
	}
}

// knownOf returns those commands of a package that a server knows.
func knownOf(t *testing.T, rdb *redis.Client, r gridRight) (commands []string) {
	t.Helper()
	for command := range strings.FieldsSeq(r.all()) {
		known, err := rdb.Do(t.Context(), "command", "info", command).Slice()
		require.NoError(t, err)
		if known[0] != nil {
			commands = append(commands, command)
		}
	}
	return commands
}

// F28: an error says which right is missing, or who does.
func TestErrorsOfTheGridNameTheRightThatIsMissing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	for _, r := range gridRights() {
		commands := knownOf(t, admin, r)
		for i, lacks := range commands {
			c := asUser(t, server, slices.Delete(slices.Clone(commands), i, i+1))
			require.NoError(t, admin.FlushAll(t.Context()).Err())
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			err := useGrid(ctx, c, r.pkg, func() {})
			cancel()
			if renews := lacks == "pexpire" || lacks == "pttl"; r.cache && renews {
				continue // of which the renewal of a long load is refused, and logged
			}
			require.ErrorContains(t, err, "redlatch doctor --grid", "%s without %s", r.pkg, lacks)
			if !strings.Contains(err.Error(), "can't run this command") { // Redis before 7.2 does not name what a script may not run
				assert.ErrorContains(t, err, "'"+lacks+"'", "%s without %s", r.pkg, lacks)
			}
		}
	}
}

// useNear has a map and a cache with near values change one each, read it, and read it near. It returns what fails.
func useNear(ctx context.Context, c *redlatch.Client, name string) error {
	m := rmap.New[string, int](c, name+"map", rmap.WithNear(10))
	users := rcache.New[string, int](c, name+"users", nil, rcache.WithNear(10))
	err := errors.Join(m.Set(ctx, "a", 1), users.Set(ctx, "a", 1))
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for err == nil && (m.NearStats().Hits == 0 || users.Stats().NearHits == 0) {
		_, _, mapErr := m.Get(ctx, "a")
		_, cacheErr := users.Get(ctx, "a")
		err = errors.Join(mapErr, cacheErr)
	}
	return err
}

// F28
func TestDocumentedUserMayUseTheGrid(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	server := redistest.Start(t)
	admin := server.Client(t)
	for _, command := range regexp.MustCompile("(?s)redis-cli (ACL SETUSER .*?)```").FindAllSubmatch(text, 2) {
		var words []any
		for word := range strings.FieldsSeq(strings.NewReplacer("'", "", "\\\n", " ").Replace(string(command[1]))) {
			words = append(words, word)
		}
		require.NoError(t, admin.Do(t.Context(), words...).Err())
	}
	near := regexp.MustCompile("(?s)near values.*?add\\s+`'(&[^']*)' '(&[^']*)'`").FindSubmatch(text)
	require.NotNil(t, near)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "app", Password: "secret"})
	c, err := redlatch.New(rdb, redlatch.WithNamePrefix("app:"))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, c.Close())
		assert.NoError(t, rdb.Close())
	})
	for _, r := range gridRights() {
		require.NoError(t, useGrid(t.Context(), c, r.pkg, func() {}), r.pkg)
	}
	require.ErrorContains(t, useNear(t.Context(), c, ""), "channel")
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "app", string(near[1])).Err())
	require.NoError(t, useNear(t.Context(), c, ""))
	require.ErrorContains(t, useNear(t.Context(), c, "{shop}:"), "channel")
	require.NoError(t, admin.Do(t.Context(), "acl", "setuser", "app", string(near[2]), "&redlatch_*:app:*", "~redlatch_*:app:*").Err())
	require.NoError(t, useNear(t.Context(), c, "{shop}:"))
}

// F28, F30: a change that could not be published is not made, and what could not be heard of is not near.
func TestUserWithoutItsChannelHasNothingNearAndChangesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin, ctx := server.Client(t), t.Context()
	var commands []string
	for _, r := range gridRights() {
		commands = append(commands, knownOf(t, admin, r)...)
	}
	c := asUser(t, server, commands, "resetchannels", "&redlatch_cache_load_channel:*")
	m := rmap.New[string, int](c, "map", rmap.WithNear(10))
	users := rcache.New(c, "users", func(context.Context, string) (int, error) { return 1, nil }, rcache.WithNear(10))
	for _, err := range []error{m.Set(ctx, "a", 1), m.SetAll(ctx, map[string]int{"a": 1}), users.Set(ctx, "a", 2)} {
		require.ErrorContains(t, err, "redlatch doctor --grid")
		require.ErrorContains(t, err, "channel")
	}
	assert.Empty(t, admin.Keys(ctx, "*").Val())
	require.NoError(t, admin.HSet(ctx, "app:map", "a", 3).Err())
	for range 100 {
		v, _, err := m.Get(ctx, "a")
		require.NoError(t, err)
		require.Equal(t, 3, v)
		v, err = users.Get(ctx, "a")
		require.NoError(t, err)
		require.Equal(t, 1, v)
	}
	assert.Zero(t, m.NearStats().Hits)
	assert.Zero(t, users.Stats().NearHits)
	require.ErrorContains(t, users.Invalidate(ctx, "a"), "channel")
}

func TestOperationsListTheRightsOfTheGrid(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	row := func(name, commands string) string {
		words := strings.Fields(strings.ToUpper(commands))
		slices.Sort(words)
		return "| " + name + " | `" + strings.Join(words, " ") + "` |"
	}
	rows := []string{row("each but `rcache`", gridShared)}
	for _, r := range gridRights() {
		rows = append(rows, row("`"+r.pkg+"`", r.commands))
	}
	for _, want := range rows {
		assert.True(t, strings.Contains(string(text), want), want)
	}
}

func TestDoctorFindsRightsOfTheGridThatAreMissing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	if server.Major(t) < 7 {
		redistest.Skip(t, "this server cannot tell the rights of its users")
	}
	r := &rig{url: "redis://app:secret@" + server.Addr()}
	allow := func(rules ...string) string {
		args := []any{"acl", "setuser", "app", "reset", "on", ">secret", "&*", "+@all"}
		for _, rule := range rules {
			args = append(args, rule)
		}
		require.NoError(t, server.Client(t).Do(t.Context(), args...).Err())
		_, found, _ := r.run(t.Context(), "--prefix", "app:", "doctor", "--grid")
		return found
	}
	assert.Regexp(t, `ok +grid +\S+ +the user may run what the packages of the grid need`, allow("~*"))
	known, err := server.Client(t).Do(t.Context(), "command", "info", "hpexpire").Slice()
	require.NoError(t, err)
	assert.Equal(t, known[0] == nil, strings.Contains(allow("~*"), "Redis 7.4 and Valkey 9 have them."))
	found := allow("~*", "-hset", "-hget", "-zadd")
	assert.Regexp(t, `bad +grid +\S+ +rmap: the user lacks \+hget \+hset\n`, found)
	assert.Regexp(t, `bad +grid +\S+ +rset: the user lacks \+zadd\n`, found)
	assert.NotRegexp(t, `grid +\S+ +(rbucket|ratomic):`, found)
	found = allow("~app:*", "~redisson_*")
	assert.Regexp(t, `bad +grid +\S+ +rbucket: the user lacks the key redlatch_fence:\{app:redlatch_doctor\}\n`, found)
	assert.Regexp(t, `bad +grid +\S+ +rcache: the user lacks the key redlatch_cache:1:\{app:redlatch_doctor\}\n`, found)
	assert.NotRegexp(t, `grid +\S+ +ratomic:`, found)
	_, found, _ = r.run(t.Context(), "--prefix", "app:", "doctor")
	assert.NotContains(t, found, "grid")
	assert.NotContains(t, found, "near")
}

// F30
func TestDoctorFindsNearValuesThatDoNotHearOfChanges(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	admin := server.Client(t)
	r := &rig{url: "redis://app:secret@" + server.Addr()}
	look := func(rules ...any) string {
		rules = append([]any{"acl", "setuser", "app", "reset", "resetchannels", "on", ">secret", "~*", "+@all"}, rules...)
		require.NoError(t, admin.Do(t.Context(), rules...).Err())
		_, found, _ := r.run(t.Context(), "--prefix", "app:", "doctor", "--grid")
		return found
	}
	found := look("&redlatch_*{app:*", "&redisson_*{app:*", "&{app:*")
	assert.Regexp(t, `ok +near +changes of near maps are heard of\n`, found)
	assert.Regexp(t, `ok +near +changes of near caches are heard of\n`, found)
	found = look("&redlatch_*{app:*", "&redisson_*{app:*")
	assert.Regexp(t, `bad +near +changes of near maps are not heard of: NOPERM`, found)
	assert.Contains(t, found, "Allow the channel {app:redlatch_doctor}:topic and its like")
	assert.Regexp(t, `ok +near +changes of near caches are heard of\n`, found)
	found = look("&redlatch_doctor:{app:*", "&redisson_*{app:*", "&{app:*")
	assert.Regexp(t, `ok +near +changes of near maps are heard of\n`, found)
	assert.Regexp(t, `bad +near +changes of near caches are not heard of: NOPERM`, found)
	assert.Regexp(t, `bad +near +changes of near maps are not heard of: NOPERM`, look("&*", "-publish"))
}

// F30
func TestDoctorFindsClientsThatHearByDifferentChannels(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 3)
	if cluster.Nodes()[0].Major(t) < 7 {
		redistest.Skip(t, "the servers have no sharded channels")
	}
	addrs := cluster.Addrs()
	r := &rig{url: "redis://" + addrs[0] + "?addr=" + addrs[1] + "&addr=" + addrs[2]}
	opposite := map[string]redlatch.ShardedWakeups{"one": redlatch.ShardedAlways, "other": redlatch.ShardedNever}
	for name, mode := range opposite {
		c, err := redlatch.New(cluster.Client(t), redlatch.WithShardedWakeups(mode))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.Close()) })
		require.NoError(t, useNear(t.Context(), c, "its own "+name))
		require.NoError(t, useNear(t.Context(), c, "common "))
	}
	_, found, _ := r.run(t.Context(), "doctor", "--grid")
	assert.Regexp(t, `ok +near +changes of near maps are heard of\n`, found)
	assert.Regexp(t, `ok +near +changes of near caches are heard of\n`, found)
	assert.Contains(t, found, "some clients listen to {common map}:topic as a sharded channel, and some as a plain one")
	assert.NotContains(t, found, "its own")
}
