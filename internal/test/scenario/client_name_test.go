package scenario_test

import (
	"fmt"
	"maps"
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
	"github.com/redlatch/redlatch/internal/test/redistest"
)

func TestClientIDSaysWhereTheClientRuns(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	ids := map[string]bool{}
	for _, opts := range [][]redlatch.Option{{}, {}, {redlatch.WithClientName("web-3_a.4711")}, {redlatch.WithClientName("web-3_a.4711")}} {
		c, err := redlatch.New(rdb, opts...)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		ids[c.ID()] = true
		name, unique := c.ID()[:len(c.ID())-17], c.ID()[len(c.ID())-17:]
		assert.Regexp(t, `^\.[0-9a-f]{16}$`, unique)
		if len(opts) > 0 {
			assert.Equal(t, "web-3_a.4711", name)
			continue
		}
		assert.LessOrEqual(t, len(name), 28)
		host, process, _ := strings.Cut(name, fmt.Sprintf(".%d", os.Getpid()))
		assert.Empty(t, process)
		own, err := os.Hostname()
		require.NoError(t, err)
		own = regexp.MustCompile(`[^A-Za-z0-9._-]`).ReplaceAllString(own, "-")
		assert.True(t, host != "" && strings.HasSuffix(own, host), "%q is the end of %q", host, own)
	}
	assert.Len(t, ids, 4, "each client has an id of its own")
}

func TestBadClientNamesAreRefused(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { require.NoError(t, rdb.Close()) }()
	for _, name := range []string{"", "a b", "a:b", "a\n", "{a}", "ä", "\x00", "a/b", strings.Repeat("a", 29)} {
		_, err := redlatch.New(rdb, redlatch.WithClientName(name))
		assert.ErrorIs(t, err, redlatch.ErrInvalid, "%q", name)
	}
}

func TestEveryHolderIsNamedInRedis(t *testing.T) {
	rdb := redistest.Shared(t).Client(t)
	// The longest name, so that Redis keeps a holder's field compact with any.
	c, err := redlatch.New(rdb, redlatch.WithClientName(strings.Repeat("n", 28)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	for kind, get := range lockKinds {
		name := "named:" + kind
		hold, err := get(c, name).Lock(t.Context())
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(hold.Owner(), c.ID()+":"), hold.Owner())
		fields, err := rdb.HGetAll(t.Context(), name).Result()
		require.NoError(t, err)
		assert.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(fields)), func(field string) bool { return strings.HasPrefix(field, c.ID()+":") }), fields)
		encoding, err := rdb.ObjectEncoding(t.Context(), name).Result()
		require.NoError(t, err)
		assert.Contains(t, []string{"listpack", "ziplist"}, encoding, kind)
		require.NoError(t, hold.Unlock(t.Context()))
	}
	s := c.GetPermitSemaphore("named:permit")
	_, err = s.TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	permits, err := s.AcquireN(t.Context(), 2)
	require.NoError(t, err)
	more, err := s.Acquire(t.Context())
	require.NoError(t, err)
	ids := map[string]bool{}
	for _, p := range append(permits, more) {
		assert.True(t, strings.HasPrefix(p.ID(), c.ID()[len(c.ID())-16:]), p.ID())
		ids[p.ID()] = true
		require.NoError(t, p.Release(t.Context()))
	}
	assert.Len(t, ids, 3)
}

func TestOpenNamesItsConnections(t *testing.T) {
	server := redistest.Start(t)
	rdb := server.Client(t)
	setUser := func(user, rule string) error {
		return rdb.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "on", "nopass", "~*", "&*"}, words(rule)...)...).Err()
	}
	require.NoError(t, setUser("named", "+@all"))
	if setUser("silent", "+@all -client|setname -info") != nil { // Redis 6.2 denies no subcommand alone
		require.NoError(t, setUser("silent", "+@all -client -info"))
	}
	refusals := func() int {
		log, err := rdb.Do(t.Context(), "ACL", "LOG").Slice()
		require.NoError(t, err)
		return len(log)
	}
	for query, want := range map[string]string{"": "id", "?client_name=mine": "mine", "silent": ""} {
		user := "named"
		if query == "silent" {
			user, query = query, ""
		}
		before := refusals()
		c, err := redlatch.Open(t.Context(), "redis://"+user+":x@"+server.Addr()+query, redlatch.WithWatchdogTimeout(10*time.Second))
		require.NoError(t, err)
		hold, err := c.GetLock("orders").Lock(t.Context())
		require.NoError(t, err)
		if want == "id" {
			want = c.ID()
		}
		list, err := rdb.ClientList(t.Context()).Result()
		require.NoError(t, err)
		mine := 0
		for line := range strings.Lines(list) {
			if strings.Contains(line, " user="+user+" ") {
				mine++
				assert.Contains(t, line, " name="+want+" ")
			}
		}
		assert.Positive(t, mine)
		require.NoError(t, hold.Unlock(t.Context()))
		require.NoError(t, c.Close())
		if user == "silent" {
			assert.LessOrEqual(t, refusals()-before, 2, "it is asked once, and INFO once")
		}
	}
}

func words(s string) []any {
	var all []any
	for word := range strings.FieldsSeq(s) {
		all = append(all, word)
	}
	return all
}
