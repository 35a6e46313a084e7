package main

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/codec"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
)

type resizing struct {
	Path  string
	Width int
	Sizes []float64
}

func TestTasksAreLookedAtAndOperated(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		code, _, text := r.run(t.Context(), "exec", "stats", "media")
		assert.Equal(t, exitFailed, code)
		assert.Contains(t, text, "there is no executor")
		for _, args := range [][]string{
			{"submit", "media", "resize", "{"},
			{"submit", "media", "resize", "1 2"},
			{"submit", "media", "resize", "1", "--codec", "xml"},
			{"ls", "media", "-n", "0"},
			{"ls", "media", "--state", "none"},
			{"cancel", "media", "a"},
		} {
			code, _, text := r.run(t.Context(), append([]string{"exec"}, args...)...)
			assert.Equal(t, exitUsage, code, "%v: %s", args, text)
		}

		ex := rexecutor.New(r.c, "media")
		calls := make(chan rexecutor.Call[resizing], 1)
		resize := rexecutor.NewTask[resizing, struct{}]("resize")
		require.NoError(t, resize.Handle(ex, func(_ context.Context, c rexecutor.Call[resizing]) (struct{}, error) {
			calls <- c
			return struct{}{}, nil
		}))
		r.must(t, "exec", "submit", "media", "resize", `{"Path": "a.png", "Width": 200, "Sizes": [1, 0.5]}`, "--id", "one", "--group", "ann")
		r.must(t, "exec", "submit", "media", "other", "null", "--id", "two", "--priority", "3", "--delay", "1h")
		assert.Regexp(t, `one +resize +0 +\S+`, r.must(t, "exec", "ls", "media"))
		assert.Contains(t, r.must(t, "--json", "exec", "ls", "media", "--state", "delayed"), `"task":"other"`)
		out := r.must(t, "exec", "stats", "media")
		assert.Regexp(t, `executor +media\n`, out)
		assert.Regexp(t, `task other +1 delayed, 0 ready, 0 in flight, 0 dead, no worker handles it`, out)

		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ex.Work(ctx) }()
		select {
		case c := <-calls:
			assert.Equal(t, resizing{"a.png", 200, []float64{1, 0.5}}, c.Args)
			assert.Equal(t, "one", c.ID)
		case <-time.After(10 * time.Second):
			require.Fail(t, "the task was not begun")
		}
		r.must(t, "exec", "cancel", "media", "two", "--yes")
		code, _, _ = r.run(t.Context(), "exec", "cancel", "media", "two", "--yes")
		assert.Equal(t, exitFailed, code)
		stop()
		require.NoError(t, <-ended)
	})
}

func TestNameOfAnExecutorIsNotTakenForAnEmptyQueue(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		t.Helper()
		resize := rexecutor.NewTask[int, int]("resize")
		f, err := resize.Submit(t.Context(), rexecutor.New(r.c, "media"), 1)
		require.NoError(t, err)
		ended, err := f.Cancel(t.Context())
		require.NoError(t, err)
		require.True(t, ended)
		for _, args := range [][]string{
			{"stats", "media"},
			{"ls", "media"},
			{"tail", "media"},
			{"errors", "media"},
			{"redrive", "media"},
			{"purge", "media", "--yes"},
			{"pause", "media"},
			{"resume", "media"},
			{"cancel", "media", "a", "--yes"},
		} {
			code, _, text := r.run(t.Context(), append([]string{"queue"}, args...)...)
			assert.Equal(t, exitFailed, code, "%v", args)
			assert.Contains(t, text, `an executor, whose tasks are in the queue "{media}:tasks"`, "%v", args)
		}
		r.must(t, "queue", "pause", "{media}:tasks")
		s, err := rexecutor.New(r.c, "media").Stats(t.Context())
		require.NoError(t, err)
		assert.True(t, s.Paused)

		_, err = redlatch.GetDelayedQueue[int](r.c, "media").Offer(t.Context(), 1, 0)
		require.NoError(t, err)
		r.must(t, "queue", "pause", "media")
	})
}

func TestResultOfATaskIsWaitedFor(t *testing.T) {
	r := embeddedRig(t)
	ex := rexecutor.New(r.c, "media")
	double := rexecutor.NewTask[int, map[string]int]("double", rexecutor.WithMaxAttempts(1))
	require.NoError(t, double.Handle(ex, func(_ context.Context, c rexecutor.Call[int]) (map[string]int, error) {
		if c.Args == 0 {
			return nil, errors.New("nothing to double")
		}
		return map[string]int{"twice": 2 * c.Args}, nil
	}))
	rests := rexecutor.NewTask[int, struct{}]("rests")
	_, err := rests.Submit(t.Context(), ex, 1, rexecutor.WithID("expired"), rexecutor.WithExpiry(time.Millisecond))
	require.NoError(t, err)
	f, err := rests.Submit(t.Context(), ex, 1, rexecutor.WithID("cancelled"))
	require.NoError(t, err)
	ok, err := f.Cancel(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ex.Work(ctx) }()

	id, isLine := strings.CutSuffix(r.must(t, "exec", "submit", "media", "double", "21"), "\n")
	assert.True(t, isLine)
	assert.Equal(t, `{"twice":42}`+"\n", r.must(t, "exec", "get", "media", id, "--wait", "10s"))
	assert.Equal(t, id+"\n", r.must(t, "exec", "submit", "media", "double", "5", "--id", id), "it is the one that was there")
	assert.JSONEq(t, `{"twice":42}`, r.must(t, "exec", "get", "media", id))
	assert.JSONEq(t, `{"id": "fails"}`, r.must(t, "--json", "exec", "submit", "media", "double", "0", "--id", "fails", "--attempts", "1"))
	require.NoError(t, double.Send(t.Context(), ex, 1, rexecutor.WithID("sent")))
	r.must(t, "exec", "submit", "media", "rests", "1", "--id", "rests")
	for _, of := range []struct {
		id   string
		code int
		text string
	}{
		{"fails", exitTaskFailed, "task failed: nothing to double"},
		{"cancelled", exitCancelled, "cancelled"},
		{"expired", exitExpired, "task expired"},
		{"sent", exitFailed, "not found"},
		{"unheard", exitFailed, `there is no task "unheard"`},
	} {
		code, out, text := r.run(t.Context(), "exec", "get", "media", of.id)
		assert.Equal(t, of.code, code, "%s: %s", of.id, text)
		assert.Contains(t, text, of.text)
		assert.Empty(t, out)
	}
	code, _, text := r.run(t.Context(), "exec", "get", "media", "rests", "--wait", "20ms")
	assert.Equal(t, exitTaken, code, text)
	code, _, _ = r.run(t.Context(), "exec", "get", "media", "rests", "--wait", "0")
	assert.Equal(t, exitUsage, code)

	assert.Equal(t, "1 task\n", r.must(t, "exec", "redrive", "media", "fails"))
	code, _, text = r.run(t.Context(), "exec", "redrive", "media", "rests")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, text, `"rests" is no dead task`)
	code, _, _ = r.run(t.Context(), "exec", "get", "media", "fails")
	assert.Equal(t, exitTaskFailed, code, "it was tried again")
	assert.Contains(t, r.must(t, "--json", "exec", "status", "media", "fails"), `"err":"nothing to double"`)
	assert.Regexp(t, `\nlast hour +6 +2 +2 +3 `, r.must(t, "exec", "stats", "media"))
	var stats struct {
		Tasks    []struct{ Name string }
		LastHour struct{ Done int } `json:"last_hour"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.must(t, "--json", "exec", "stats", "media")), &stats))
	assert.Equal(t, 2, stats.LastHour.Done)
	assert.Len(t, stats.Tasks, 2)
	assert.JSONEq(t, `{"tasks": 2}`, r.must(t, "--json", "exec", "redrive", "media"), "what has failed, and what has expired")
	stop()
	require.NoError(t, <-ended)

	r.must(t, "exec", "submit", "media", "double", "[7]", "--id", "stands", "--group", "ann", "--delay", "1h")
	assert.Regexp(t, `^id +stands\ntask +double\nstate +delayed\nattempt +0 of 10\ndue +\S+Z\ngroup +ann\n$`, r.must(t, "exec", "status", "media", "stands"))
	assert.Regexp(t, `\npayload +\[7\]\n$`, r.must(t, "exec", "status", "media", "stands", "--payloads"))
	assert.Regexp(t, `\nstands +double +0 +\S+Z +\[7\]\n$`, r.must(t, "exec", "ls", "media", "--state", "delayed", "--payloads"))
	assert.Regexp(t, `^id +\S+\ntask +double\nstate +done\n$`, r.must(t, "exec", "status", "media", id))
	assert.Regexp(t, `^id +cancelled\ntask +rests\nstate +cancelled\n$`, r.must(t, "exec", "status", "media", "cancelled"))
	code, _, text = r.run(t.Context(), "exec", "status", "media", "unheard")
	assert.Equal(t, exitFailed, code, text)
}

// It looks what became of the task, and then reads it: by then the task has ended.
func TestStatusOfATaskThatEndsMeanwhile(t *testing.T) {
	server, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	proxy := faulttest.NewProxy(t, server.Addr())
	r := rigAt(t, server.URL())
	r.must(t, "exec", "submit", "media", "double", "1", "--id", "ends")
	var cancel sync.Once
	proxy.OnCommand(func(cmd []string) {
		if len(cmd) > 2 && faulttest.Script(cmd) && cmd[2] == "7" { // get.lua
			cancel.Do(func() {
				ok, err := rexecutor.New(r.c, "media").Queue().Cancel(context.WithoutCancel(t.Context()), "ends")
				assert.True(t, ok)
				assert.NoError(t, err)
			})
		}
	})
	out := (&rig{url: "redis://" + proxy.Addr()}).must(t, "exec", "status", "media", "ends")
	assert.Regexp(t, `^id +ends\ntask +double\nstate +cancelled\n$`, out)
}

func TestTaskIsSubmittedWithTheCodecOfItsExecutor(t *testing.T) {
	r := embeddedRig(t)
	ex := rexecutor.New(r.c, "media", rexecutor.WithCodec(codec.JSON{}))
	calls := make(chan resizing, 1)
	require.NoError(t, rexecutor.NewTask[resizing, struct{}]("resize").Handle(ex, func(_ context.Context, c rexecutor.Call[resizing]) (struct{}, error) {
		calls <- c.Args
		return struct{}{}, nil
	}))
	r.must(t, "exec", "submit", "media", "resize", `{"Path": "a.png", "Width": 9007199254740993, "Sizes": [1, 0.5]}`, "--codec", "json")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ex.Work(ctx) }()
	select {
	case got := <-calls:
		assert.Equal(t, resizing{"a.png", 9007199254740993, []float64{1, 0.5}}, got)
	case <-time.After(10 * time.Second):
		assert.Fail(t, "the task was not begun")
	}
	stop()
	require.NoError(t, <-ended)
}

func TestDoctorNamesTasksThatNobodyHandles(t *testing.T) {
	r := newRig(t)
	r.must(t, "exec", "submit", "media", "resize", "1")
	r.must(t, "exec", "submit", "{tag}:media", "other", "1")
	d := &doctor{}
	d.allQueues(t.Context(), r.c)
	var found []string
	for _, f := range d.findings {
		assert.Equal(t, bad, f.Level)
		text, _, _ := strings.Cut(f.Found, ";") // since when
		found = append(found, text)
	}
	assert.ElementsMatch(t, []string{
		`executor media: no worker handles "resize", of which 1 task waits`, `executor {tag}:media: no worker handles "other", of which 1 task waits`,
	}, found)
}

// It lags because nobody handles its tasks, which is one finding.
func TestDoctorSaysOnceThatOrphanedTasksLag(t *testing.T) {
	found := func(tasks ...rexecutor.TaskStats) (all []string) {
		s := rexecutor.Stats{Stats: rdelayedqueue.Stats{Ready: 2, Oldest: time.Hour}, Tasks: tasks}
		d := &doctor{}
		d.executor(queueLook{Object: inspect.Object{Kind: "executor", Name: "media"}, Stats: s.Stats, growth: 2_000}, s)
		for _, f := range d.findings {
			all = append(all, f.Found)
		}
		return all
	}
	assert.Equal(t, []string{`executor media: no worker handles "a", of which 2 tasks wait; the first of all has been due for 1h0m0s`},
		found(rexecutor.TaskStats{Name: "a", Ready: 2, Orphaned: true}, rexecutor.TaskStats{Name: "b"}))
	assert.Equal(t, []string{
		"executor media: 0 delayed, 2 ready, 0 in flight, 0 dead; 2000 more came than went in the last 10 min; one has been due for 1h0m0s",
		`executor media: no worker handles "a", of which 1 task waits`,
	}, found(rexecutor.TaskStats{Name: "a", Ready: 1, Orphaned: true}, rexecutor.TaskStats{Name: "b", Ready: 1}))
}
