package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/grid/rmap"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

var errNotYet = errors.New("not yet")

type user struct{ City string }

// users returns a cache with near values, of which the user 42 was read three times: loaded, from Redis, and near.
func users(t *testing.T, c *redlatch.Client, opts ...rcache.Option) *rcache.Cache[int, user] {
	t.Helper()
	users := rcache.New(c, "users", func(_ context.Context, id int) (user, error) {
		if id != 42 {
			return user{}, rcache.ErrNotFound
		}
		return user{"Rome"}, nil
	}, append([]rcache.Option{rcache.WithNear(100), rcache.WithMaxStale(time.Hour)}, opts...)...)
	redistest.Eventually(t, 10*time.Second, "the value is near", func() error {
		_, err := users.Get(t.Context(), 42)
		if err == nil && users.Stats().NearHits == 0 {
			err = errNotYet
		}
		return err
	})
	return users
}

// saying runs a command until it succeeds: clients can be asked once they have been in use for three seconds.
func (r *rig) saying(t *testing.T, args ...string) (out string) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, fmt.Sprint(args), func() error {
		code, text, failed := r.run(t.Context(), args...)
		if code != 0 || !strings.Contains(text, "worker") {
			return errors.New(text + failed)
		}
		out = text
		return nil
	})
	return out
}

func TestCacheStatsSayHowClientsDo(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		cache := users(t, r.c)
		_, err := cache.Get(t.Context(), 7)
		require.ErrorIs(t, err, rcache.ErrNotFound)
		prices := rmap.New[string, int](r.c, "prices", rmap.WithNear(10))
		require.NoError(t, prices.Set(t.Context(), "tea", 360))
		_, _, err = prices.Get(t.Context(), "tea")
		require.NoError(t, err)

		out := r.saying(t, "cache", "stats", "users")
		s := cache.Stats()
		assert.Regexp(t, fmt.Sprintf(`cache +users\nhit rate +\d+\.\d %%\nnear hits +%d\nhits +%d\nstale +0\nmisses +2\nloads +2\nfailed +0\n`, s.NearHits, s.Hits), out)
		assert.Regexp(t, r.c.ID()+` +\d+\.\d % +1 +\d+ +2 +2 +0 +1 +yes +\d+s +never +0 +1h0m0s\n`, out)
		out = r.must(t, "cache", "stats", "prices")
		assert.Regexp(t, `map +prices\nhit rate +0\.0 %\nnear hits +0\nmisses +1\nlength +1\n\nCLIENT`, out)
		out = r.must(t, "cache", "stats")
		assert.Regexp(t, `NAME +KIND +HIT RATE .*\nprices +map .*\nusers +cache +\d+\.\d % `, out)

		var all []struct {
			Kind, Name string
			HitRate    float64 `json:"hit_rate"`
			Misses     int
			Clients    []struct {
				Client string
				Near   struct {
					Entries   int
					Connected bool
					MaxStale  string `json:"max_stale"`
				}
			}
		}
		require.NoError(t, json.Unmarshal([]byte(r.must(t, "--json", "cache", "stats", "users")), &all))
		require.Len(t, all, 1)
		assert.Equal(t, []any{"cache", "users", 2}, []any{all[0].Kind, all[0].Name, all[0].Misses})
		require.Len(t, all[0].Clients, 1)
		assert.Equal(t, r.c.ID(), all[0].Clients[0].Client)
		assert.Equal(t, []any{1, true, "1h0m0s"}, []any{all[0].Clients[0].Near.Entries, all[0].Clients[0].Near.Connected, all[0].Clients[0].Near.MaxStale})

		out = r.must(t, "cache", "stats", "users", "--for", "10ms")
		assert.Regexp(t, `hit rate +\nnear hits +0\nhits +0\n`, out, "nobody has read it meanwhile")
		code, out, text := r.run(t.Context(), "--json", "cache", "stats", "user")
		assert.Equal(t, exitFailed, code)
		assert.Equal(t, "[]\n", out)
		assert.Contains(t, text, `no client that answers has read a cache or a near map "user"`)
		assert.Regexp(t, `CACHES +NAME +HIT RATE .*\nmap +prices +0\.0 % .*\ncache +users +\d+\.\d % .* yes `, r.must(t, "client", "worker"))
		runtime.KeepAlive([]any{cache, prices}) // what is near
	})
}

func TestCacheGetShowsWhatIsKept(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		cache := users(t, r.c, rcache.WithRefresh(time.Minute))
		out := r.must(t, "cache", "get", "users", "42")
		assert.Regexp(t, `cache +users\nkey +42\nredis key +redlatch_cache:5:\{users:42\}\nkept +a value of \d+ bytes\nfor +9m5\d.*s\nfresh for +5\d.*s\n$`, out)
		assert.NotContains(t, out, "Rome")
		assert.Contains(t, r.must(t, "cache", "get", "users", "42", "--value"), `value      {"City":"Rome"}`)
		var kept struct {
			Kept  string
			Value user
		}
		require.NoError(t, json.Unmarshal([]byte(r.must(t, "--json", "cache", "get", "users", "42", "--value")), &kept))
		assert.Equal(t, user{"Rome"}, kept.Value)
		_, err := cache.Get(t.Context(), 7)
		require.ErrorIs(t, err, rcache.ErrNotFound)
		assert.Contains(t, r.must(t, "cache", "get", "users", "7"), "that the loader found nothing")
		code, out, text := r.run(t.Context(), "cache", "get", "users", "8")
		assert.Equal(t, exitFailed, code)
		assert.Regexp(t, `kept +nothing\n`, out)
		assert.Contains(t, text, `nothing is kept for the key "8" of "users"`)
	})
}

func TestCacheGetShowsTheLoadUnderWay(t *testing.T) {
	t.Parallel()
	r := embeddedRig(t)
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	slow := rcache.New(r.c, "users", func(context.Context, string) (string, error) {
		begun <- struct{}{}
		<-goOn
		return "", errors.New("the database is away")
	}, rcache.WithErrors(time.Hour))
	ended := make(chan error, 1)
	go func() { _, err := slow.Get(t.Context(), "a b"); ended <- err }()
	<-begun
	out := r.must(t, "cache", "get", "users", "a b")
	assert.Regexp(t, `kept +nothing\nloaded by +`+r.c.ID()+`:\d+\n +claim left +\d+\.?\d*s\n$`, out)
	r.must(t, "cache", "invalidate", "users", "a b", "--yes")
	assert.Contains(t, r.must(t, "cache", "get", "users", "a b"), "its result will not be kept")
	close(goOn)
	require.Error(t, <-ended)
	_, err := slow.Get(t.Context(), "a b")
	require.Error(t, err)
	assert.Regexp(t, `kept +that the load failed\n(?s:.*)error +the database is away\n`, r.must(t, "cache", "get", "users", "a b", "--value"))
}

// F30
func TestCacheInvalidateReachesNearValuesOfAllClients(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		other, err := redlatch.Open(t.Context(), r.url, redlatch.WithClientName("other"))
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, other.Close()) })
		caches := []*rcache.Cache[int, user]{users(t, r.c), users(t, other)}
		code, _, text := r.run(t.Context(), "cache", "invalidate", "users", "42")
		assert.Equal(t, exitUsage, code)
		assert.Contains(t, text, "say --yes")
		_, ok, err := caches[0].Peek(t.Context(), 42)
		require.NoError(t, err)
		assert.True(t, ok, "nobody has said yes")

		assert.Regexp(t, `cache +users\ninvalidated +2 keys\nredis had +1\n`, r.must(t, "cache", "invalidate", "users", "42", "8", "42", "--yes"))
		for _, c := range caches {
			redistest.Eventually(t, 10*time.Second, "nothing is near", func() error {
				_, ok, err := c.Peek(t.Context(), 42)
				if ok {
					err = errNotYet
				}
				return err
			})
		}
		assert.JSONEq(t, `{"keys":1,"had":0}`, r.must(t, "--json", "cache", "invalidate", "users", "42", "--yes"))
	})
}

func TestCacheCommandsRefuseArgumentsBeforeTheyConnect(t *testing.T) {
	r := &rig{url: "redis://127.0.0.1:1"}
	for _, args := range [][]string{
		{"stats", "a", "b"},
		{"stats", "--for", "-1s"},
		{"get", "users"},
		{"get", "users", ""},
		{"get", "", "42"},
		{"get", "users", strings.Repeat("k", 513)},
		{"invalidate", "users"},
		{"invalidate", "users", "42", "", "--yes"},
	} {
		code, out, text := r.run(t.Context(), append([]string{"cache"}, args...)...)
		assert.Equal(t, exitUsage, code, "%v: %s", args, text)
		assert.Empty(t, out)
	}
	for _, args := range [][]string{{"stats"}, {"get", "users", "42"}, {"invalidate", "users", "42", "--yes"}} {
		code, _, _ := r.run(t.Context(), append([]string{"cache"}, args...)...)
		assert.Equal(t, exitUnavailable, code, args)
	}
}

func TestNamesOfCachesAreCompleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	users(t, r.c)
	r.saying(t, "cache", "stats", "users")
	assert.Contains(t, r.must(t, "__complete", "cache", "stats", "us"), "users\n")
	assert.NotContains(t, r.must(t, "__complete", "cache", "get", "x"), "users")
}
