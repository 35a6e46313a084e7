package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
)

// buffer is what a command prints while somebody reads it.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// rig is a server, with a client and what commands have printed.
type rig struct {
	url    string
	prefix string
	c      *redlatch.Client
	out    buffer
	err    buffer
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return rigAt(t, redistest.Start(t).URL())
}

// embeddedRig is a rig whose server is in memory.
func embeddedRig(t *testing.T) *rig {
	t.Helper()
	server, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	return rigAt(t, server.URL())
}

// onEach runs a test on a server, and on a cluster that has nothing else.
func onEach(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Run("server", func(t *testing.T) { test(t, newRig(t)) })
	t.Run("cluster", func(t *testing.T) {
		cluster := redistest.SharedCluster(t)
		for _, node := range cluster.Nodes() {
			require.NoError(t, node.Client(t).FlushAll(t.Context()).Err())
		}
		test(t, rigAt(t, cluster.URL()))
	})
}

func rigAt(t *testing.T, url string) *rig {
	t.Helper()
	r := &rig{url: url}
	var err error
	r.c, err = redlatch.Open(t.Context(), r.url, redlatch.WithClientName("worker"), redlatch.WithCallSites())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, r.c.Close()) })
	return r
}

func (r *rig) getenv(name string) string {
	return map[string]string{"REDIS_URL": r.url, "REDLATCH_PREFIX": r.prefix}[name]
}

// run runs a command and returns its exit code and what it printed.
func (r *rig) run(ctx context.Context, args ...string) (code int, out, err string) {
	from, fromErr := len(r.out.String()), len(r.err.String())
	code = run(ctx, args, &environment{out: &r.out, err: &r.err, getenv: r.getenv})
	return code, r.out.String()[from:], r.err.String()[fromErr:]
}

// must is run for what has to work.
func (r *rig) must(t *testing.T, args ...string) string {
	t.Helper()
	code, out, err := r.run(t.Context(), args...)
	require.Zero(t, code, "%v: %s", args, err)
	return out
}

// hasNothing runs a command for something that Redis does not have, which shows that all the same.
func (r *rig) hasNothing(t *testing.T, shows string, args ...string) {
	t.Helper()
	code, out, text := r.run(t.Context(), args...)
	assert.Equal(t, exitFailed, code, "%v", args)
	assert.Regexp(t, shows, out)
	assert.Regexp(t, `^redlatch: nothing is named ".*" in Redis: .*; is the name right\?\n$`, text)
}

func TestWrongArgumentsAreSaidBeforeAnything(t *testing.T) {
	for _, args := range [][]string{
		{"lock", "info"},
		{"lock", "info", "a", "b"},
		{"nothing"},
		{"lock", "run", "a"},
		{"lock", "run", "a", "true"},
		{"lock", "run", "a", "--wait", "1s", "--no-wait", "--", "true"},
		{"lock", "run", "a", "--wait", "-1s", "--", "true"},
		{"lock", "run", "a", "--kill-after", "-1s", "--", "true"},
		{"elect", "run", "a", "--kill-after", "-1s", "--", "true"},
		{"lock", "watch", "a", "--every", "1ns"},
		{"--flag"},
		{"queue", "ls", "q", "--state", "new"},
		{"queue", "ls", "q", "-n", "0"},
		{"queue", "redrive"},
		{"queue", "cancel", "q"},
		{"queue", "cancel", "q", "--error", "x"},
		{"clients", "x"},
		{"ls", "a", "b"},
		{"-u", "no://url", "ls"},
		{"-u", "no://url", "doctor"},
		{"-u", "localhost:6379", "ls"},
		{"lock", "info", ""},
	} {
		r := newRig(t)
		code, out, err := r.run(t.Context(), args...)
		assert.Equal(t, exitUsage, code, "%v: %s", args, err)
		assert.Empty(t, out, "%v", args)
		assert.NotEmpty(t, err, "%v", args)
	}
}

func TestWrongArgumentsAreAnsweredWithTheUsage(t *testing.T) {
	for want, args := range map[string][]string{
		"missing program: write it after --\nusage: redlatch lock run [flags] NAME -- PROGRAM [ARGUMENTS]\n":  {"lock", "run", "nightly", "echo", "hi"},
		"missing program: write it after --\nusage: redlatch elect run [flags] NAME -- PROGRAM [ARGUMENTS]\n": {"elect", "run", "nightly", "--"},
		"missing name: write it before --\nusage: redlatch lock run":                                          {"lock", "run", "--", "echo"},
		"one name is written before --, and not 2\nusage: redlatch lock run":                                  {"lock", "run", "a", "b", "--", "echo"},
		"\nusage: redlatch queue get NAME ID [flags]\n":                                                       {"queue", "get", "mails"},
		"\nusage: redlatch ls [PATTERN] [flags]\n":                                                            {"ls", "a", "b"},
	} {
		code, _, text := (&rig{}).run(t.Context(), args...)
		assert.Equal(t, exitUsage, code, "%v", args)
		assert.Contains(t, text, want, "%v", args)
	}
}

func TestURLWithoutASchemeIsExplained(t *testing.T) {
	for given, want := range map[string]string{
		"localhost:6379":          "write redis://localhost:6379",
		"10.0.0.1:6379":           "write redis://10.0.0.1:6379",
		"localhost":               "write redis://localhost",
		"ann:hunter2@server:6379": "write redis://user:password@host:6379",
		"http://localhost:6379":   "must begin with redis://, rediss:// or unix://",
	} {
		for _, command := range []string{"ls", "doctor"} {
			code, _, text := (&rig{}).run(t.Context(), "-u", given, command)
			assert.Equal(t, exitUsage, code, given)
			assert.Contains(t, text, want, given)
			assert.NotContains(t, text, "hunter2")
		}
	}
}

func TestServerThatDoesNotAnswerIsSaid(t *testing.T) {
	r := newRig(t)
	for _, args := range [][]string{{"ls"}, {"doctor"}, {"lock", "info", "a"}, {"queue", "stats", "q"}, {"lock", "run", "a", "--", "true"}} {
		code, _, err := r.run(t.Context(), append([]string{"-u", "redis://127.0.0.1:1"}, args...)...)
		assert.Equal(t, exitUnavailable, code, "%v: %s", args, err)
	}
}

func TestWhatCannotBeServedHasACodeOfItsOwn(t *testing.T) {
	full := fmt.Errorf("rlock: try lock: %w", errors.Join(redlatch.ErrUnavailable, errors.New("OOM command not allowed")))
	for err, want := range map[error]int{
		full: exitUnavailable,
		errors.Join(rlock.ErrNotAcquired, redlatch.ErrUnavailable): exitUnavailable,
		redlatch.ErrUnknown:                       exitUnavailable,
		rlock.ErrNotAcquired:                      exitTaken,
		redlatch.ErrInvalid:                       exitUsage,
		errors.Join(full, &exit{code: exitUsage}): exitUsage,
		errors.New("another"):                     exitFailed,
	} {
		assert.Equal(t, want, codeOf(err), "%v", err)
	}
}

func TestLockInfoTellsWhoHoldsIt(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		began := time.Now()
		hold, err := r.c.GetFairLock("orders").Lock(t.Context())
		require.NoError(t, err)
		if text := r.must(t, "lock", "info", "orders"); time.Since(began) < 2*time.Second {
			assert.Contains(t, text, "its client says so once it has held something for 3 s")
		}
		var s struct {
			Locked  bool
			Holders []struct {
				Owner, Client, Site string
				Levels              int
			}
		}
		require.Eventually(t, func() bool { // the client listens after some seconds of use
			require.NoError(t, json.Unmarshal([]byte(r.must(t, "--json", "lock", "info", "orders")), &s))
			return len(s.Holders) == 1 && s.Holders[0].Site != ""
		}, 20*time.Second, 100*time.Millisecond)
		assert.True(t, s.Locked)
		assert.Equal(t, hold.Owner(), s.Holders[0].Owner)
		assert.Equal(t, r.c.ID(), s.Holders[0].Client)
		text := r.must(t, "lock", "info", "orders")
		assert.Regexp(t, `held by +worker\.`, text)
		host, err := os.Hostname()
		require.NoError(t, err)
		assert.Contains(t, text, fmt.Sprintf("process      %d on %s\n", os.Getpid(), host))
		assert.Regexp(t, `acquired at +.*:\d+\n`, text)
		assert.Regexp(t, `lock +orders +\d+s +held by worker`, r.must(t, "ls"))
		var o struct{ Since time.Time }
		require.NoError(t, json.Unmarshal([]byte(r.must(t, "--json", "ls")), &o))
		assert.WithinDuration(t, time.Now(), o.Since, time.Minute)
		assert.Contains(t, r.must(t, "clients"), r.c.ID())
		assert.Regexp(t, r.c.ID()+` +1 +0 +0 +`, r.must(t, "clients"))
		time.Sleep(time.Second) // a client answers 10 questions a second
		uploads := r.c.GetPermitSemaphore("uploads")
		require.NoError(t, uploads.SetPermits(t.Context(), 1))
		permit, err := uploads.Acquire(t.Context())
		require.NoError(t, err)
		for _, given := range []string{r.c.ID(), hold.Owner(), permit.ID(), "worker"} {
			assert.Regexp(t, `fair lock +orders .*:\d+ .*command_test.go:\d+\n`, r.must(t, "client", given))
		}
		require.NoError(t, permit.Release(t.Context()))
		require.NoError(t, hold.Unlock(t.Context()))
		r.hasNothing(t, `held +no`, "lock", "info", "orders")
	})
}

// A lease of 0 would be about to end.
func TestLeaseWithoutEndIsShownAsSuch(t *testing.T) {
	r := embeddedRig(t)
	opts, err := redis.ParseURL(r.url)
	require.NoError(t, err)
	rdb := redis.NewClient(opts)
	defer func() { require.NoError(t, rdb.Close()) }()
	require.NoError(t, rdb.HSet(t.Context(), "orders", "web.0123456789abcdef:1", 1).Err())
	assert.Regexp(t, `lease left +without end\n`, r.must(t, "lock", "info", "orders"))
}

func TestReadWriteLockHasItsReaders(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		for range 2 {
			hold, err := r.c.GetReadWriteLock("page").RLock(t.Context())
			require.NoError(t, err)
			defer func() { assert.Error(t, hold.Unlock(t.Context()), "it was forced") }()
		}
		text := r.must(t, "lock", "info", "page")
		assert.Regexp(t, `held to +read`, text)
		assert.Equal(t, 2, strings.Count(text, "held by"))
		r.must(t, "lock", "force", "page", "--yes")
		r.hasNothing(t, `held +no`, "lock", "info", "page")
	})
}

func TestNothingIsTakenAwayWithoutAYes(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		hold, err := r.c.GetLock("orders").Lock(t.Context())
		require.NoError(t, err)
		q := redlatch.GetDelayedQueue[string](r.c, "mails")
		id, err := q.Offer(t.Context(), "hello", 0)
		require.NoError(t, err)
		for _, args := range [][]string{{"lock", "force", "orders"}, {"queue", "purge", "mails", "--state", "ready"}, {"queue", "cancel", "mails", id}} {
			code, _, text := r.run(t.Context(), args...)
			assert.Equal(t, exitUsage, code, "%v", args)
			assert.Contains(t, text, "--yes")
		}
		locked, err := r.c.GetLock("orders").IsLocked(t.Context())
		require.NoError(t, err)
		assert.True(t, locked)
		s, err := q.Stats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, s.Ready)

		text := r.must(t, "lock", "force", "orders", "--yes")
		assert.Regexp(t, `freed +orders\ntaken from +`+hold.Owner()+`\nwaiting +0 clients\n`, text)
		<-hold.Context().Done()
		code, _, _ := r.run(t.Context(), "lock", "force", "orders", "--yes")
		assert.Equal(t, exitFailed, code, "nobody holds it")
		r.must(t, "queue", "cancel", "mails", id, "--yes")
	})
}

// Who reads whom the lock is to be taken from, and then answers, does not free that of another one.
func TestForceAfterAnAnswerTakesTheLockFromNobodyElse(t *testing.T) {
	r := newRig(t)
	for name, args := range map[string][]string{"text": {}, "JSON": {"--json"}} {
		t.Run(name, func(t *testing.T) {
			shown, err := r.c.GetLock("orders").Lock(t.Context())
			require.NoError(t, err)
			term := startInTerminal(t, r.url, append(args, "lock", "force", "orders")...)
			term.sees(`(?s)held by +` + shown.Owner() + `.*free "orders"\? \[y/N\]`)
			require.NoError(t, shown.Unlock(t.Context()))
			other, err := r.c.GetLock("orders").Lock(t.Context())
			require.NoError(t, err)
			term.tmux("send-keys", "-t", "top", "y", "Enter")
			text := term.sees(`exit code \d+`)
			assert.Contains(t, text, "exit code 75")
			assert.Regexp(t, `nothing was done, look at "orders" again: somebody else holds it now: "`+other.Owner()+`"`, strings.ReplaceAll(text, "\n", ""))
			require.NoError(t, other.Context().Err())
			require.NoError(t, other.Unlock(t.Context()))
		})
	}
}

func TestCtrlCEndsTheCommandThatAsks(t *testing.T) {
	r := embeddedRig(t)
	hold, err := r.c.GetLock("orders").Lock(t.Context())
	require.NoError(t, err)
	term := startInTerminal(t, r.url, "lock", "force", "orders")
	term.sees(`free "orders"\? \[y/N\]`)
	term.tmux("send-keys", "-t", "top", "C-c")
	assert.Regexp(t, `\nredlatch: nothing was done\nexit code 1\n`, term.sees(`exit code \d+`))
	require.NoError(t, hold.Unlock(t.Context()))
}

func TestQueueIsLookedAtAndOperated(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		q := redlatch.GetDelayedQueue[map[string]int](r.c, "mails", rdelayedqueue.WithMaxAttempts(1))
		_, err := q.Offer(t.Context(), map[string]int{"to": 7}, time.Hour)
		require.NoError(t, err)
		dead, err := q.Offer(t.Context(), map[string]int{"to": 8}, 0)
		require.NoError(t, err)
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Reject(t.Context(), "no such address"))

		for _, verb := range []string{"stats", "info"} {
			got := map[string]any{}
			require.NoError(t, json.Unmarshal([]byte(r.must(t, "--json", "queue", verb, "mails")), &got))
			for _, when := range []string{"this_minute", "ten_minutes", "last_hour"} {
				m, ok := got[when].(map[string]any)
				require.True(t, ok, "%v", got)
				assert.NotEmpty(t, m["start"])
				delete(got, when)
				if when != "this_minute" { // which may just have begun
					assert.Equal(t, []any{2.0, 0.0, 1.0, 1.0}, []any{m["offered"], m["done"], m["failed"], m["dead"]}, when)
				}
			}
			text, err := json.Marshal(got)
			require.NoError(t, err)
			assert.JSONEq(t, `{"delayed":1,"ready":0,"in_flight":0,"dead":1,"failed":0,"paused":false,"paused_until":null,"oldest":"0s",
				"groups":0,"priorities":[0,0,0,0,0,0,0,0,0,0]}`, string(text))
		}
		assert.Regexp(t, `\n +OFFERED +DONE +FAILED +DEAD +LATE\nthis minute .*\n10 minutes .*\nlast hour +2 +0 +1 +1 +\S+s\n$`, r.must(t, "queue", "stats", "mails"))
		hidden := r.must(t, "queue", "ls", "mails", "--state", "dead")
		assert.Contains(t, hidden, "no such address")
		assert.NotContains(t, hidden, `"to"`)
		assert.Contains(t, r.must(t, "queue", "ls", "mails", "--state", "delayed", "--payloads"), `{"to":7}`)
		var j struct{ Payload map[string]int }
		require.NoError(t, json.Unmarshal([]byte(r.must(t, "--json", "queue", "get", "mails", dead, "--payloads")), &j))
		assert.Equal(t, map[string]int{"to": 8}, j.Payload)

		assert.Equal(t, "1 message\n", r.must(t, "queue", "redrive", "mails", dead))
		code, _, _ := r.run(t.Context(), "queue", "redrive", "mails", dead)
		assert.Equal(t, exitFailed, code, "it is no dead letter")
		r.must(t, "queue", "pause", "mails")
		assert.Regexp(t, `paused +true`, r.must(t, "queue", "stats", "mails"))
		r.must(t, "queue", "pause", "mails", "--for", "10m")
		assert.Regexp(t, `paused +until 2`, r.must(t, "queue", "stats", "mails"))
		assert.Contains(t, r.must(t, "ls"), "0 dead, paused until 2")
		code, _, _ = r.run(t.Context(), "queue", "pause", "mails", "--for", "0s")
		assert.Equal(t, exitUsage, code)
		r.must(t, "queue", "resume", "mails")
		assert.Regexp(t, `paused +false`, r.must(t, "queue", "stats", "mails"))
		assert.Equal(t, "1 message\n", r.must(t, "queue", "purge", "mails", "--state", "ready", "--yes"))
		assert.Contains(t, r.must(t, "ls"), "1 delayed, 0 ready, 0 in flight, 0 dead")
	})
}

func TestPayloadOfJSONIsPrintedAsItIs(t *testing.T) {
	r := embeddedRig(t)
	const order = `{"order":9007199254740993,"a":[1.0,null]}`
	q := redlatch.GetDelayedQueue[json.RawMessage](r.c, "orders", rdelayedqueue.WithCodec(codec.JSON{}))
	id, err := q.Offer(t.Context(), json.RawMessage(order), 0)
	require.NoError(t, err)
	assert.Contains(t, r.must(t, "--json", "queue", "get", "orders", id, "--payloads"), `"payload":`+order)
	assert.Regexp(t, `payload +`+regexp.QuoteMeta(order)+`\n`, r.must(t, "queue", "get", "orders", id, "--payloads"))
}

func TestCountersAreLookedAt(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		_, err := r.c.GetSemaphore("uploads").TrySetPermits(t.Context(), 3)
		require.NoError(t, err)
		_, err = r.c.GetCountDownLatch("ready").TrySetCount(t.Context(), 2)
		require.NoError(t, err)
		_, err = r.c.GetPermitSemaphore("leased").TrySetPermits(t.Context(), 2)
		require.NoError(t, err)
		p, err := r.c.GetPermitSemaphore("leased").Acquire(t.Context())
		require.NoError(t, err)
		assert.Regexp(t, `available +3`, r.must(t, "sem", "info", "uploads"))
		assert.Regexp(t, `count +2`, r.must(t, "latch", "info", "ready"))
		assert.Contains(t, r.must(t, "sem", "info", "leased"), p.ID())
		require.NoError(t, p.Release(t.Context()))
	})
}

func TestBarriersAreLookedAt(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		r.hasNothing(t, `barrier +start\nparticipants +not known: nobody has used it for a minute\n`, "barrier", "info", "start")
		ended := make(chan error, 2)
		ctx, giveUp := context.WithCancel(t.Context())
		for _, call := range []func(context.Context) error{r.c.GetBarrier("start", 3).Await, r.c.GetDoubleBarrier("start", 2).Enter} {
			go func() { ended <- call(ctx) }()
		}
		require.Eventually(t, func() bool {
			return strings.Count(r.must(t, "barrier", "info", "start"), r.c.ID()) == 2
		}, 10*time.Second, 10*time.Millisecond)
		who := r.c.ID() + `:\d+ +left \d+\.?\d*m?s\n`
		assert.Regexp(t, `(?s)^barrier +start\nparticipants +3\narrived +1\n +`+who+
			`double barrier +start\nparticipants +2\narrived +1\n +`+who+`inside +0\nleaving +0\n$`, r.must(t, "barrier", "info", "start"))
		assert.Regexp(t, `"in_use":\[{"arrived":{"count":1,"places":\[{"client":"`+r.c.ID()+`".*"double":false,.*"participants":3},{.*"double":true,.*"participants":2}\]`,
			r.must(t, "--json", "barrier", "info", "start"))
		list := r.must(t, "ls")
		assert.Regexp(t, `barrier +start +1 of 3 arrived\n`, list)
		assert.Regexp(t, `barrier +start +double, 1 of 2 arrived, 0 inside, 0 leaving\n`, list)
		giveUp()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestNoTextControlsTheTerminal(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, row(&b, "a\x1b[31m\nb", 1))
	assert.Equal(t, "a\\x1b[31m\\nb\t1\n", b.String())
	const hostile = "a\x1b[31m\u009b31m\x7f\u202e\U000e0001\nb"
	for _, asJSON := range []bool{false, true} {
		b.Reset()
		a := &app{environment: &environment{out: &b}, json: asJSON}
		require.NoError(t, a.line(party{Owner: hostile}, func() string { return hostile }))
		require.NoError(t, a.print(party{Owner: hostile}, func(w io.Writer) error { return row(w, hostile) }))
		assert.Equal(t, 2, strings.Count(b.String(), "\n"), "two lines: %s", b.String())
		assert.Equal(t, -1, strings.IndexFunc(b.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }), "%q", b.String())
	}
	var back party
	require.NoError(t, json.Unmarshal(b.Bytes()[bytes.IndexByte(b.Bytes(), '\n'):], &back))
	assert.Equal(t, hostile, back.Owner)
	_, _, text := newRig(t).run(t.Context(), "queue", "get", "mails", "a\x1b[31m")
	assert.NotEmpty(t, text)
	assert.NotContains(t, text, "\x1b")
}

func TestWatchTellsEachChange(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			code, _, _ := r.run(ctx, "lock", "watch", "orders", "--every", "10ms")
			ended <- code
		}()
		says := func(what string) {
			t.Helper()
			require.Eventually(t, func() bool { return strings.Contains(r.out.String(), what) }, 10*time.Second, time.Millisecond)
		}
		says("free, 0 clients wait")
		hold, err := r.c.GetLock("orders").Lock(t.Context())
		require.NoError(t, err)
		says("held by worker.")
		require.NoError(t, hold.Unlock(t.Context()))
		for range 2 {
			hold, err := r.c.GetReadWriteLock("orders").RLock(t.Context())
			require.NoError(t, err)
			defer func() { assert.NoError(t, hold.Unlock(t.Context())) }()
		}
		says(" and 1 more, 0 clients wait")
		stop()
		assert.Zero(t, <-ended)
	})
}

func TestWatchAsJSONHasTheTimeAndNothingThatWasNotAsked(t *testing.T) {
	r := newRig(t)
	hold, err := r.c.GetLock("orders").Lock(t.Context())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		code, _, _ := r.run(ctx, "--json", "lock", "watch", "orders", "--every", "10ms")
		ended <- code
	}()
	require.Eventually(t, func() bool { return strings.HasSuffix(r.out.String(), "\n") }, 10*time.Second, time.Millisecond)
	stop()
	assert.Zero(t, <-ended)
	var seen map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.out.String()), &seen))
	at, err := time.Parse(time.RFC3339Nano, seen["at"].(string))
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), at, time.Minute)
	delete(seen, "at")
	assert.Equal(t, map[string]any{
		"name": "orders", "locked": true, "mode": "", "token": 0.0, "waiting": 0.0, "queue": []any{}, "more_holders": 0.0,
		"holders": []any{map[string]any{"owner": hold.Owner(), "client": r.c.ID()}},
	}, seen)
	require.NoError(t, hold.Unlock(t.Context()))
}

// other is another client of the rig's server.
func (r *rig) other(t *testing.T, name string, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	c, err := redlatch.Open(t.Context(), r.url, append([]redlatch.Option{redlatch.WithClientName(name), redlatch.WithCallSites()}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func TestHoldsOfAClientThatAreNotListedAreCounted(t *testing.T) {
	r := newRig(t)
	busy := r.other(t, "busy", redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	for i := range 1_001 {
		_, err := busy.GetLock(fmt.Sprint("many", i)).Lock(t.Context())
		require.NoError(t, err)
	}
	var text string
	require.Eventually(t, func() bool {
		var code int
		code, text, _ = r.run(t.Context(), "client", busy.ID())
		return code == 0
	}, 20*time.Second, 100*time.Millisecond)
	assert.NotContains(t, text, "many1000 ")
	assert.Contains(t, text, inspect.More(1))
	assert.Contains(t, r.must(t, "lock", "info", "many1000"), "command_test.go:", "it is asked for one that it has not listed")
}

func TestClientsThatDoNotListenAreNamed(t *testing.T) {
	r := newRig(t)
	shy := r.other(t, "shy", redlatch.WithoutPresence())
	hold, err := shy.GetReadWriteLock("page").RLock(t.Context())
	require.NoError(t, err)
	assert.Regexp(t, `shy +`+shy.ID()+` +holds a lock, and does not listen\n`, r.must(t, "clients"))
	code, _, text := r.run(t.Context(), "client", shy.ID())
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, text, "does not listen: it does not yet (a client listens after 3 s of use), is gone, ")
	assert.NotContains(t, text, "unavailable")
	code, _, text = r.run(t.Context(), "client", "billing")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, text, `no client "billing" listens, and no other; a client listens after 3 s of use`)
	require.NoError(t, hold.Unlock(t.Context()))
}

func TestWhatIsNotThereIsSaid(t *testing.T) {
	r := newRig(t)
	code, out, text := r.run(t.Context(), "queue", "stats", "mails")
	assert.Equal(t, exitFailed, code)
	assert.Empty(t, out)
	assert.Contains(t, text, `there is no queue "mails"`)
	r.hasNothing(t, `held +no\n`, "lock", "info", "invoicess")
	r.hasNothing(t, `"locked":false`, "--json", "lock", "info", "invoicess")
	q := redlatch.GetDelayedQueue[string](r.c, "mails")
	_, err := q.Offer(t.Context(), "hello", 0, rdelayedqueue.WithID("m-1"))
	require.NoError(t, err)
	m, err := q.Take(t.Context())
	require.NoError(t, err)
	code, _, said := r.run(t.Context(), "queue", "ls", "mails", "--state", "dead")
	assert.Zero(t, code)
	assert.Contains(t, said, "none of that state; there are: ")
	code, _, said = r.run(t.Context(), "queue", "ls", "nothing")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, said, "there is no queue")
	assert.Contains(t, r.must(t, "queue", "ls", "mails", "--state", "in-flight"), "CLAIMED UNTIL")
	code, _, said = r.run(t.Context(), "queue", "cancel", "mails", "m-2", "--yes")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, said, "there is no message")
	assert.Equal(t, "1 message\n", r.must(t, "queue", "cancel", "mails", "m-1", "--yes"), "in flight")
	require.ErrorIs(t, m.Ack(t.Context()), rdelayedqueue.ErrNotHeld)
	assert.Regexp(t, `ready +0`, r.must(t, "queue", "stats", "mails"), "it is empty, and there")
	assert.Equal(t, "0 messages\n", r.must(t, "queue", "redrive", "mails"))
	assert.Contains(t, r.err.String(), "There is no dead letter.")
}

func TestMessageIsPrintedWithItsTerms(t *testing.T) {
	r := embeddedRig(t)
	q := redlatch.GetDelayedQueue[string](r.c, "mails")
	_, err := q.Offer(t.Context(), "hello", time.Hour, rdelayedqueue.WithID("all"), rdelayedqueue.WithGroup("ann"), rdelayedqueue.WithPriority(3),
		rdelayedqueue.WithMaxAttempts(7), rdelayedqueue.WithExpiry(time.Minute), rdelayedqueue.WithHeaders(map[string]string{"b": "two", "a": "one"}))
	require.NoError(t, err)
	_, err = q.Offer(t.Context(), "hello", time.Hour, rdelayedqueue.WithID("none"))
	require.NoError(t, err)
	assert.Regexp(t, `^message +all\nstate +delayed\nattempt +0 of 7\ndue +\S+Z\ngroup +ann\npriority +3\nexpiry +1m0s\n`+
		`header a +not shown.*\nheader b +not shown.*\n$`, r.must(t, "queue", "get", "mails", "all"))
	assert.Regexp(t, `\nheader a +one\nheader b +two\npayload +"hello"\n$`, r.must(t, "queue", "get", "mails", "all", "--payloads"))
	assert.Regexp(t, `^message +none\nstate +delayed\nattempt +0\ndue +\S+Z\n$`, r.must(t, "queue", "get", "mails", "none"))
	hidden := r.must(t, "--json", "queue", "get", "mails", "all")
	for _, part := range []string{`"group":"ann"`, `"priority":3`, `"max_attempts":7`, `"expiry":"1m0s"`, `"headers":{"a":null,"b":null}`, `"payload":null`} {
		assert.Contains(t, hidden, part)
	}
	assert.Contains(t, r.must(t, "--json", "queue", "get", "mails", "none"), `"max_attempts":null`)
}

func TestMessagesThatFailAreCountedListedInOneLineAndCancelled(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		q := redlatch.GetDelayedQueue[string](r.c, "mails", rdelayedqueue.WithBackoff(func(int) time.Duration { return time.Hour }))
		for _, id := range []string{"bad", "worse", "panics"} {
			_, err := q.Offer(t.Context(), "hello", 0, rdelayedqueue.WithID(id))
			require.NoError(t, err)
		}
		_, err := q.Offer(t.Context(), "later", time.Hour, rdelayedqueue.WithID("later"))
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- q.Consume(ctx, func(_ context.Context, m *rdelayedqueue.Message[string]) error {
				if m.ID == "panics" {
					panic("no hope")
				}
				return errors.New(m.ID + " address\nand more of it")
			})
		}()
		require.Eventually(t, func() bool { return strings.Contains(r.must(t, "queue", "stats", "mails"), "being retried  3") }, 20*time.Second, 10*time.Millisecond)
		stop()
		require.NoError(t, <-ended)
		assert.Contains(t, r.must(t, "ls"), "4 delayed, 0 ready, 0 in flight, 0 dead, 3 being retried")
		list := r.must(t, "queue", "ls", "mails", "--state", "delayed")
		assert.Equal(t, 5, strings.Count(list, "\n"))
		assert.Contains(t, list, "worse address …")
		assert.Regexp(t, `panic: no hope at redlatch\.Test\S+ \(redlatch/command_test\.go:\d+\)`, list)
		assert.Regexp(t, `error +bad address\n +and more of it\n`, r.must(t, "queue", "get", "mails", "bad"))
		counts := r.must(t, "queue", "errors", "mails")
		assert.Regexp(t, `DEAD +BEING RETRIED +ERROR\n`, counts)
		assert.Regexp(t, `\n0 +1 +bad address\n`, counts)
		assert.Contains(t, r.must(t, "--json", "queue", "errors", "mails"), `"being_retried":1,"dead":0,"error":"bad address"`)
		assert.Regexp(t, `attempt \S+Z +took \S+, \S+: bad address …\n`, r.must(t, "queue", "get", "mails", "bad"))

		assert.Equal(t, "0 messages\n", r.must(t, "queue", "cancel", "mails", "--attempts", "2", "--yes"))
		assert.Equal(t, "1 message\n", r.must(t, "queue", "cancel", "mails", "--attempts", "1", "--error", "worse", "--yes"))
		assert.Equal(t, "2 messages\n", r.must(t, "queue", "cancel", "mails", "--attempts", "1", "--yes"))
		assert.Contains(t, r.must(t, "queue", "ls", "mails", "--state", "delayed"), "later", "it has not failed")
	})
}

// A terminal would go on in the next line, which hides the columns.
func TestErrorsInAListAreCutToTheTerminal(t *testing.T) {
	r := newRig(t)
	q := redlatch.GetDelayedQueue[string](r.c, "mails", rdelayedqueue.WithMaxAttempts(1))
	for i := range 2 {
		_, err := q.Offer(t.Context(), "hello", 0, rdelayedqueue.WithID(fmt.Sprint("m-", i)))
		require.NoError(t, err)
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Reject(t.Context(), strings.Repeat("word ", 40)+"end"))
	}
	args := []string{"queue", "ls", "mails", "--state", "dead"}
	assert.Equal(t, 2, strings.Count(r.must(t, args...), "word end\n"), "a pipe has all of it")
	text := startInTerminal(t, r.url, args...).sees(`exit code 0`)
	assert.Regexp(t, `ID +STATE +ATTEMPT +DIED +ERROR\nm-0 +dead .*word.*…\nm-1 +dead .*word.*…\nexit`, text)
	text = startInTerminal(t, r.url, append(args, "--payloads")...).sees(`exit code 0`)
	assert.Equal(t, 2, strings.Count(text, `end  "hello"`), "which stands behind the errors: %s", text)
}

func TestQueueCancelTakesAnIDOrAttempts(t *testing.T) {
	r := embeddedRig(t)
	id, err := redlatch.GetDelayedQueue[string](r.c, "mails").Offer(t.Context(), "hello", 0)
	require.NoError(t, err)
	for _, flags := range [][]string{{"--attempts", "5"}, {"--error", "nil map"}, {"--attempts", "5", "--error", "nil map"}} {
		code, _, text := r.run(t.Context(), append([]string{"queue", "cancel", "mails", id, "--yes"}, flags...)...)
		assert.Equal(t, exitUsage, code, "%v: %s", flags, text)
	}
	assert.Contains(t, r.must(t, "queue", "get", "mails", id), "ready", "it has not failed, and is there")
}

func TestProgramRunsUnderTheLock(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		code, out, _ := r.run(t.Context(), "lock", "run", "nightly", "--", "sh", "-c", "echo inside; exit 3")
		assert.Equal(t, 3, code)
		assert.Equal(t, "inside\n", out)
		code, _, _ = r.run(t.Context(), "lock", "run", "nightly", "--", "sh", "-c", "kill -9 $$")
		assert.Equal(t, 128+9, code)
		code, _, _ = r.run(t.Context(), "lock", "run", "nightly", "--", "no such program")
		assert.Equal(t, 127, code)
		locked, err := r.c.GetLock("nightly").IsLocked(t.Context())
		require.NoError(t, err)
		assert.False(t, locked)

		hold, err := r.c.GetLock("nightly").Lock(t.Context())
		require.NoError(t, err)
		for _, flag := range []string{"--no-wait", "--wait=500ms", "--wait=0s"} {
			ctx, giveUp := context.WithTimeout(t.Context(), 10*time.Second)
			defer giveUp()
			code, out, text := r.run(ctx, "lock", "run", "nightly", flag, "--", "echo", "inside")
			assert.Equal(t, exitTaken, code)
			assert.Empty(t, out)
			assert.Contains(t, text, hold.Owner())
		}
		require.NoError(t, hold.Unlock(t.Context()))
	})
}

func TestProgramThatCannotBeRunHasACodeOfItsOwn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.sh")
	require.NoError(t, os.WriteFile(file, []byte("#!/bin/sh\n"), 0o600))
	r := embeddedRig(t)
	for _, noun := range []string{"lock", "elect"} {
		code, _, text := r.run(t.Context(), noun, "run", "nightly", "--", file)
		assert.Equal(t, 126, code, "%s: it is there, and cannot be run: %s", noun, text)
		code, _, text = r.run(t.Context(), noun, "run", "nightly", "--", file+".sh")
		assert.Equal(t, 127, code, "%s: it is not found: %s", noun, text)
	}
}

// An owner id is all that Redis knows of a holder.
func TestHolderThatRunsAProgramSaysWhereItRuns(t *testing.T) {
	r := newRig(t)
	self, err := os.Executable()
	require.NoError(t, err)
	for noun, says := range map[string]string{"lock": "held by", "elect": "led by"} {
		code, out, text := r.run(t.Context(), noun, "run", "nightly", "--",
			"env", "REDLATCH_TEST_COMMAND=1", "REDIS_URL="+r.url, self, noun, "info", "nightly")
		assert.Zero(t, code, text)
		assert.Regexp(t, fmt.Sprintf(`%s +\S+\.%d\.[0-9a-f]{16}:`, says, os.Getpid()), out)
	}
}

func TestLongWaitSaysWhoHoldsTheLock(t *testing.T) {
	r := newRig(t)
	hold, err := r.c.GetLock("nightly").Lock(t.Context())
	require.NoError(t, err)
	ended := make(chan int, 1)
	go func() { code, _, _ := r.run(t.Context(), "lock", "run", "nightly", "--", "true"); ended <- code }()
	want := `redlatch: waiting for "nightly", held by ` + hold.Owner() + "\n"
	require.Eventually(t, func() bool { return r.err.String() == want }, 20*time.Second, 10*time.Millisecond)
	require.NoError(t, hold.Unlock(t.Context()))
	assert.Zero(t, <-ended)
	assert.Equal(t, want, r.err.String(), "once")
}

// start runs a program that says so, and returns once it does.
func (r *rig) start(t *testing.T, script string) <-chan int {
	t.Helper()
	ended := make(chan int, 1)
	go func() {
		code, _, _ := r.run(t.Context(), "lock", "run", "nightly", "--lease", "3s", "--", "sh", "-c", script)
		ended <- code
	}()
	require.Eventually(t, func() bool { return strings.Contains(r.out.String(), "started") }, 10*time.Second, time.Millisecond)
	return ended
}

func TestProgramIsToldThatTheLockIsLost(t *testing.T) {
	r := newRig(t)
	ended := r.start(t, `trap 'echo told; exit 0' TERM; echo started; while :; do sleep 0.05; done`)
	r.must(t, "lock", "force", "nightly", "--yes")
	assert.Equal(t, exitLost, <-ended)
	assert.Contains(t, r.out.String(), "told")
}
