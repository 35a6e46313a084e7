package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// completed returns what a shell offers after some arguments, the last of which is begun, and whether it offers files.
func (r *rig) completed(t *testing.T, args ...string) (words []string, files bool) {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(r.must(t, append([]string{"__completeNoDesc"}, args...)...)), "\n")
	last := len(lines) - 1
	return lines[:last], lines[last] == ":0"
}

func TestShellsOfferNamesAndNoFiles(t *testing.T) {
	r := newRig(t)
	for _, name := range []string{"orders", "or*ers", "prices", "o`reboot`", "o$x", "größe"} {
		hold, err := r.c.GetLock(name).Lock(t.Context())
		require.NoError(t, err)
		defer func() { assert.NoError(t, hold.Unlock(t.Context())) }()
	}
	_, err := r.c.GetSemaphore("uploads").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	_, err = r.c.GetCountDownLatch("ready").TrySetCount(t.Context(), 2)
	require.NoError(t, err)
	require.NoError(t, r.c.GetBarrier("start", 1).Await(t.Context()))
	_, err = redlatch.GetDelayedQueue[string](r.c, "mails").Offer(t.Context(), "hello", 0)
	require.NoError(t, err)
	for args, want := range map[string]string{
		"lock info ":              "größe orders prices",
		"lock info o":             "orders",
		"lock force or*":          "",
		"lock watch p":            "prices",
		"lock run --wait 1s p":    "prices",
		"sem info u":              "uploads",
		"latch info r":            "ready",
		"barrier info s":          "start",
		"queue stats ":            "mails",
		"queue get ":              "mails",
		"queue get mails ":        "",
		"queue ls mails --state":  "--state",
		"queue ls mails --state ": "delayed ready in-flight dead",
		"lock info --prefix ":     "",
		"-u ":                     "",
		"ls ":                     "",
		"client ":                 "",
		"loc":                     "lock",
		"queue pu":                "purge",
	} {
		redistest.Eventually(t, 20*time.Second, args, func() error { // a slow look is cut off
			words, files := r.completed(t, strings.Split(args, " ")...)
			if found := strings.Join(words, " "); found != want || files {
				return fmt.Errorf("offered: %q, files: %v", found, files)
			}
			return nil
		})
	}
	_, files := r.completed(t, "lock", "run", "nightly", "--", "")
	assert.True(t, files)

	r.url = "redis://127.0.0.1:1"
	words, files := r.completed(t, "lock", "info", "")
	assert.Empty(t, words)
	assert.False(t, files)
}

// A shell that expands the first name would run lock force orders --yes.
func TestShellsAreOfferedNoNameThatBecomesSeveralWords(t *testing.T) {
	r := embeddedRig(t)
	for _, name := range []string{"{orders,--yes}", "{1..3}:a", "{shop}:a"} {
		hold, err := r.c.GetLock(name).Lock(t.Context())
		require.NoError(t, err)
		defer func() { assert.NoError(t, hold.Unlock(t.Context())) }()
	}
	words, _ := r.completed(t, "lock", "force", "")
	assert.Equal(t, []string{"{shop}:a"}, words)
}

func TestMistypedCommandIsRecognized(t *testing.T) {
	for args, want := range map[string]string{
		"lcok":       `unknown command "lcok" for "redlatch"; did you mean lock?`,
		"lock inof":  `unknown command "inof" for "redlatch lock"; did you mean info?`,
		"queue zzzz": `unknown command "zzzz" for "redlatch queue"`,
	} {
		var r rig
		code, _, text := r.run(t.Context(), strings.Fields(args)...)
		assert.Equal(t, exitUsage, code, args)
		assert.Equal(t, "redlatch: "+want+"\n", text)
	}
}

func TestVersionIsSaid(t *testing.T) {
	var r rig
	assert.Regexp(t, `^redlatch version \S+\n$`, r.must(t, "--version"))
}
