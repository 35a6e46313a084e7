package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const threeCommands = "*1\r\n$4\r\nPING\r\n" +
	"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\n*1\r\n$4\r\nP\r\n" + // a value that looks like a command
	"*2\r\n$3\r\nGET\r\n$0\r\n\r\n"

func TestParserCountsCommandsHoweverTheyAreCut(t *testing.T) {
	for size := 1; size <= len(threeCommands); size++ {
		var parser requestParser
		var commands int64
		for rest := []byte(threeCommands); len(rest) > 0; {
			n := min(size, len(rest))
			commands += parser.feed(rest[:n])
			rest = rest[n:]
		}
		assert.EqualValues(t, 3, commands, "in pieces of %d bytes", size)
	}
}

func FuzzParserCountsTheSameInOnePieceAndInTwo(f *testing.F) {
	f.Add([]byte(threeCommands), 7)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		cut = min(max(cut, 0), len(stream))
		var whole, parts requestParser
		want := whole.feed(stream)
		assert.Equal(t, want, parts.feed(stream[:cut])+parts.feed(stream[cut:]))
	})
}

func TestSentCountsWhatClientsSendAndNotWhatScriptsCall(t *testing.T) {
	s := testServer(t)
	counter := &sent{}
	rdb := newGoRedis(setup{Addr: s.addr, Sent: counter})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	ctx := t.Context()
	ping := func(p redis.Pipeliner) error { return p.Ping(ctx).Err() }
	require.NoError(t, rdb.Ping(ctx).Err())
	_, err := rdb.Pipelined(ctx, ping) // pipelines have a connection of their own
	require.NoError(t, err)
	before := counter.count()
	processed, err := s.admin.Info(ctx, "commandstats").Result()
	require.NoError(t, err)
	assert.NotContains(t, processed, "cmdstat_incr")

	for range 10 {
		require.NoError(t, rdb.Eval(ctx, "for i = 1, 5 do redis.call('INCR', KEYS[1]) end return 0", []string{"n"}).Err())
	}
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range 7 {
			p.Get(ctx, "n")
		}
		return nil
	})
	require.NoError(t, err)
	assert.EqualValues(t, 17, counter.count()-before, "10 EVAL and 7 GET in one pipeline")

	stats, err := s.admin.Info(ctx, "commandstats").Result()
	require.NoError(t, err)
	assert.Contains(t, stats, "cmdstat_incr:calls=50", "the server counts the scripts' calls, so its counters would not do")
}

func TestContestantsSendTwoCommandsForAPair(t *testing.T) {
	others := map[string]float64{
		multiName:     6, // an acquisition and a release for each lock
		inProcessName: 0, // it knows no Redis
		limiterName:   1, // a decision; there is nothing to unlock
		redisRateName: 1,
		throttledName: 3,
		electionName:  4, // the term is drawn with one of its own, and forgotten with another
		topicName:     1,
		publishName:   1,
	}
	s := testServer(t)
	b := &bench{server: s}
	for _, c := range allContestants() {
		t.Run(c.name, func(t *testing.T) {
			commands, err := commandsPerPair(t.Context(), b, c, 1)
			require.NoError(t, err)
			want, ok := others[c.name]
			if !ok {
				want = 2
			}
			assert.InDelta(t, want, commands, 0.01) // a script that a lock first uses meanwhile is sent once more
		})
	}
}

func testServer(t *testing.T) *server {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed")
	}
	s, err := startServer(t.Context(), binary)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.stop()) })
	return s
}

func TestParseCallsReadsTwoScripts(t *testing.T) {
	request := func(words ...string) string {
		text := fmt.Sprintf("*%d\r\n", len(words))
		for _, word := range words {
			text += fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
		}
		return text
	}
	one, two := request("evalsha", "aa", "1", "k", "owner"), request("EVALSHA", "bb", "2", "k", "c", "x\r\ny", "")
	calls, err := parseCalls(bytes.NewBufferString(one + two))
	require.NoError(t, err)
	assert.Equal(t, []call{
		{sha: "aa", keys: []string{"k"}, args: []any{"owner"}},
		{sha: "bb", keys: []string{"k", "c"}, args: []any{"x\r\ny", ""}},
	}, calls)

	for name, wrong := range map[string]string{
		"one": one, "cut": one + two[:len(two)-4], "another command": one + request("SET", "k", "v"), "too many keys": one + request("evalsha", "bb", "9", "k"),
	} {
		_, err := parseCalls(bytes.NewBufferString(wrong))
		assert.Error(t, err, name)
	}
}
