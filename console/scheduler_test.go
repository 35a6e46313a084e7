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

	"github.com/redlatch/redlatch/rscheduler"
)

func TestSchedulersAreShownAndTheirJobsChanged(t *testing.T) {
	s := newSite(t, WithActions(func(*http.Request, Action) error { return nil }))
	scheduler := s.client.GetScheduler("billing")
	ran := make(chan rscheduler.Run, 10)
	require.NoError(t, scheduler.Register(hostile, rscheduler.MustCron("@yearly"), func(_ context.Context, run rscheduler.Run) error {
		ran <- run
		return errors.New("the <bank> is down")
	}))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- scheduler.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	address := "scheduler?name=billing&job=" + url.QueryEscape(hostile)
	require.Eventually(t, func() bool {
		status, _ := s.get(t, address)
		return status == http.StatusOK
	}, 10*time.Second, 10*time.Millisecond)
	csrf := s.csrf(t, address)
	do := func(verb, job string, why ...string) string {
		t.Helper()
		status, text := s.post(t, url.Values{"verb": {verb}, "name": {"billing"}, "id": {job}, "why": why, "csrf": {csrf}})
		assert.Equal(t, http.StatusOK, status, verb)
		return text
	}
	assert.Contains(t, do("trigger", hostile), "It runs as soon as a process has time; if it runs already, its overlap policy decides.")
	assert.True(t, (<-ran).Manual)
	require.Eventually(t, func() bool {
		runs, err := scheduler.Runs(t.Context(), hostile, 1)
		return err == nil && len(runs) == 1
	}, 10*time.Second, 10*time.Millisecond)
	_, text := s.get(t, address)
	for _, want := range []string{"@yearly", "01-01", "failed", "the &lt;bank&gt; is down", "by hand", s.client.ID()} {
		assert.Contains(t, text, want)
	}
	assert.NotContains(t, text, hostile)
	assert.Contains(t, do("pause-job", hostile), "<strong>paused</strong>: by the console")
	assert.Contains(t, do("pause-job", hostile, "the <bank> is closed"), "<strong>paused</strong>: the &lt;bank&gt; is closed")
	assert.NotContains(t, do("resume-job", hostile), "<strong>paused</strong>")
	assert.Contains(t, do("trigger", "nobody's"), "Nothing was done")
	_, text = s.get(t, "schedulers")
	assert.Contains(t, text, "jobs: 1, running 0, paused 0, failed at last 1")
	assert.Contains(t, s.whole(t, ""), "<td>scheduler</td>")
	status, _ := s.get(t, "scheduler?name=billing&job=none")
	assert.Equal(t, http.StatusNotFound, status)
	status, text = s.get(t, "scheduler?name=none")
	assert.Equal(t, http.StatusOK, status)
	assert.Contains(t, text, "No process has run this scheduler")
}
