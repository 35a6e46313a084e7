package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rexecutor"
)

var (
	resize = rexecutor.NewTask[string, struct{}]("resize")
	report = rexecutor.NewTask[string, struct{}]("report")
)

// busy is an executor with a task that has failed for good, one in flight, two that nobody handles and one for later.
func busy(t *testing.T, c *redlatch.Client) *rexecutor.Executor {
	t.Helper()
	ex := rexecutor.New(c, "media")
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	require.NoError(t, resize.Handle(ex, func(_ context.Context, c rexecutor.Call[string]) (struct{}, error) {
		if c.Args == "bad.png" {
			return struct{}{}, rexecutor.Reject(errors.New("no picture"))
		}
		<-ctx.Done()
		return struct{}{}, nil
	}))
	ended := make(chan error, 1)
	go func() { ended <- ex.Work(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	send := func(task *rexecutor.Task[string, struct{}], id, arg string, opts ...rexecutor.SubmitOption) {
		require.NoError(t, task.Send(t.Context(), ex, arg, append(opts, rexecutor.WithID(id))...))
	}
	send(resize, "r-1", "bad.png")
	send(resize, "r-2", "good.png")
	send(report, "p-1", "today")
	send(report, "p-2", "today")
	send(report, "p-3", "tomorrow", rexecutor.WithDelay(time.Hour), rexecutor.WithMaxAttempts(7))
	redistest.Eventually(t, 20*time.Second, "one is dead and one in flight", func() error {
		s, err := ex.Stats(t.Context())
		if err == nil && (s.Dead != 1 || s.InFlight != 1) {
			err = errors.New("not yet")
		}
		return err
	})
	return ex
}

func TestExecutorIsShownAsOne(t *testing.T) {
	s := newSite(t, WithPayloads())
	busy(t, s.client)
	text := s.whole(t, "")
	assert.Contains(t, text, `<strong>orphaned</strong> executor <a href="executor?name=media&amp;state=ready">media</a>: no worker handles &#34;report&#34;, of which 3 tasks wait; the first of all was due <time `)
	assert.Contains(t, text, `<strong>dead tasks</strong> executor <a href="executor?name=media&amp;state=dead">media</a>: 1 task, 1 × no picture`)
	assert.Contains(t, text, `<td><a href="executor?name=media">media</a> <span class="dim">executor</span></td>`)
	assert.Contains(t, text, `<td>executor</td><td class="n">1</td>`)
	assert.NotContains(t, text, ":tasks")
	text = s.whole(t, "queues?q=media")
	assert.Contains(t, text, `<td><a href="executor?name=media">media</a></td><td>executor</td><td class="said">1 delayed, 2 ready, 1 in flight, 1 dead, no worker handles report</td>`)

	_, text = s.get(t, "executor?name=media&state=dead")
	assert.Contains(t, text, `<h1>media <span class="dim">executor</span></h1>`)
	assert.Regexp(t, `(?s)>report</a> <span class="bad"><strong>orphaned</strong>: no worker was ever seen</span></td><td class="n">1</td><td class="n">2</td><td class="n">0</td><td class="n">0</td>`+
		`.*>resize</a> <span class="dim">a worker was seen <time [^>]*>\d s ago</time></span></td><td class="n">0</td><td class="n">0</td><td class="n">1</td><td class="n">1</td>`, text, "what is wrong comes first")
	assert.Contains(t, text, `<a href="message?kind=executor&amp;name=media&amp;id=r-1">r-1</a> resize`)
	assert.Contains(t, text, `href="executor?error=no&#43;picture&amp;name=media"`)
	_, text = s.get(t, "executor?name=media&q=report")
	assert.ElementsMatch(t, []string{"p-1", "p-2", "p-3"}, rows(text))
	_, text = s.get(t, "message?kind=executor&name=media&id=p-3")
	assert.Contains(t, text, `<tr><th>executor</th><td><a href="executor?name=media">media</a></td></tr>`)
	assert.Contains(t, text, "<tr><th>task</th><td>report</td></tr>")
	assert.Contains(t, text, "<tr><th>attempt</th><td>0 of 7</td></tr>")
	assert.Contains(t, text, "tomorrow")
	assert.Contains(t, text, "<title>Task – redlatch</title>")
	_, text = s.get(t, "message?kind=executor&name=media&id=x")
	assert.Contains(t, text, "the task &#34;x&#34; of &#34;media&#34;")
	_, text = s.get(t, "executor?name=none")
	assert.Contains(t, text, "No task was submitted or handled.")
}

// A future hears that its task was cancelled, and not only that it is gone.
func TestTasksAreOperated(t *testing.T) {
	var asked []Action
	s := newSite(t, WithActions(func(_ *http.Request, a Action) error { asked = append(asked, a); return nil }))
	ex := busy(t, s.client)
	csrf := s.csrf(t, "executor?name=media")
	do := func(verb string, more url.Values) string {
		form := url.Values{"kind": {"executor"}, "name": {"media"}, "verb": {verb}, "csrf": {csrf}}
		for name, values := range more {
			form[name] = values
		}
		status, text := s.post(t, form)
		assert.Equal(t, http.StatusOK, status, text)
		assert.Contains(t, text, `<h1>media <span class="dim">executor</span></h1>`)
		return text
	}
	state := func(task *rexecutor.Task[string, struct{}], id string) rexecutor.Status {
		st, err := task.Future(ex, id).Status(t.Context())
		require.NoError(t, err)
		return st
	}
	do("cancel", url.Values{"id": {"p-1"}})
	assert.ErrorIs(t, state(report, "p-1").Err, rexecutor.ErrCancelled)
	assert.Equal(t, []Action{{Verb: "cancel", Kind: "executor", Name: "media", ID: "p-1"}}, asked)
	do("snooze", url.Values{"id": {"p-2"}, "delay": {"1h"}})
	assert.Equal(t, rexecutor.Delayed, state(report, "p-2").State)
	do("pause", nil)
	assert.Contains(t, do("redrive", url.Values{"all": {"on"}, "q": {"resize"}, "choose": {""}}), "Done for 1 of 2 tasks.")
	assert.Equal(t, rexecutor.Ready, state(resize, "r-1").State)
	assert.Contains(t, do("cancel", url.Values{"choose": {""}}), "Nothing was done: no task was chosen.")
	do("purge", url.Values{"state": {"delayed"}})
	_, err := report.Future(ex, "p-3").Status(t.Context())
	require.ErrorIs(t, err, rexecutor.ErrNotFound)
	do("resume", nil)
	st, err := ex.Stats(t.Context())
	require.NoError(t, err)
	assert.False(t, st.Paused)
}
