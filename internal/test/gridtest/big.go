package gridtest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// Fill writes n elements by a command, past the client.
func Fill(t *testing.T, p *Place, key, command string, n int, element func(i int) []any) {
	t.Helper()
	const step = 1000
	for from := 0; from < n; from += step {
		args := []any{command, key}
		for i := from; i < from+step; i++ {
			args = append(args, element(i)...)
		}
		require.NoError(t, p.Redis.Do(t.Context(), args...).Err())
	}
}

// Thousand returns the elements of a call that has as many as a round trip can, out of a million that are numbers.
func Thousand() []string {
	all := make([]string, 1000)
	for i := range all {
		all[i] = strconv.Itoa(1000*i + 1)
	}
	return all
}

// NoLongCalls makes all calls on a big object, and finds none that the server takes more than 5 ms for. A machine that is busy holds up any
// call now and then, for seconds on end, and doubles the CPU time of all of them where two threads share a core: a method fails whose
// calls were long at each of many tries, more than one in a hundred, and only if the server has used as much CPU time as that many long
// calls take. Each try has a big object: what was deleted is there again.
func NoLongCalls(t *testing.T, p *Place, name string, calls func(c *redlatch.Client, name string) []Call) {
	t.Helper()
	const (
		bound    = 5 * time.Millisecond
		tries    = 10               // of each method, at the least,
		patience = 20 * time.Second // and for as long: ten tries of a short call are over before a busy moment is
	)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	first := name + ":first"
	slow := redis.NewClient(&redis.Options{Addr: p.Server.Addr(), ReadTimeout: time.Minute})
	defer func() { assert.NoError(t, slow.Close()) }()
	clone := func(from, to string) { require.NoError(t, slow.Copy(ctx, from, to, 0, true).Err()) }
	clone(name, first)
	for _, call := range calls(p.Client, name) {
		var long []redis.SlowLog
		for try, began := 0, time.Now(); try < tries || time.Since(began) < patience; try++ {
			if p.Redis.Exists(ctx, name).Val() == 0 {
				clone(first, name)
			}
			redistest.WatchCalls(t, p.Redis, bound)
			before, used := p.Calls(), cpu(t, p)
			require.NoError(t, call.Do(ctx), call.Verb)
			used = cpu(t, p) - used
			long = sent(redistest.LongCalls(t, p.Redis, ""))
			if len(long) <= (p.Calls()-before)/100 || used < time.Duration(len(long))*bound {
				long = nil
				break
			}
		}
		for _, l := range long {
			assert.Fail(t, "a call holds the server up", "%s: %v: %.100v", call.Verb, l.Duration, l.Args)
		}
	}
}

// sent returns the long calls that a client has sent. The server notes down a long command of a script and the script, which are one call.
func sent(long []redis.SlowLog) []redis.SlowLog {
	var scripts []redis.SlowLog
	for _, l := range long {
		if strings.EqualFold(l.Args[0], "evalsha") {
			scripts = append(scripts, l)
		}
	}
	if len(scripts) > 0 {
		return scripts
	}
	return long
}

// cpu returns how much CPU time the thread of a server that runs commands has used.
func cpu(t *testing.T, p *Place) (used time.Duration) {
	t.Helper()
	info, err := p.Redis.Info(t.Context(), "cpu").Result()
	require.NoError(t, err)
	for _, which := range []string{"user", "sys"} {
		_, text, _ := strings.Cut(info, "used_cpu_"+which+"_main_thread:")
		text, _, _ = strings.Cut(text, "\r\n")
		d, err := time.ParseDuration(text + "s")
		require.NoError(t, err, info)
		used += d
	}
	return used
}
