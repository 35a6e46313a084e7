package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
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

func TestStripShowsRunsAndPlans(t *testing.T) {
	now := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	s := stripOf(rscheduler.Job{
		Name: "report", Schedule: "0 */6 * * *", Next: now.Add(2 * time.Hour), Late: 20 * time.Minute,
		Running: []rscheduler.Run{{Started: ago(6 * time.Minute)}},
	}, []rscheduler.Result{
		{Scheduled: ago(time.Hour), Started: ago(time.Hour)},
		{Scheduled: ago(2 * time.Hour), Started: ago(2 * time.Hour), Err: "no luck\nat all"},
		{Scheduled: ago(2 * time.Hour), Started: ago(2 * time.Hour)}, // in the same place as a failed one
		{Scheduled: ago(4 * time.Hour), Started: ago(3 * time.Hour)},
		{Scheduled: ago(9 * time.Hour), Started: ago(9 * time.Hour)}, // before the strip
	}, now)
	var dots []string
	for _, d := range s.Dots {
		dots = append(dots, d.Text)
	}
	assert.Equal(t, []string{"late 3 h ago", "failed 2 h ago: no luck", "done 1 h ago", "late by 20 min", "running since 6 min"}, dots)
	assert.Equal(t, "2 done, 1 failed, 2 late, 1 running; comes in 2 h", s.Text)
	assert.Equal(t, "M100 4h1v8h-1zM160 4h1v8h-1zM220 4h1v8h-1zM280 4h1v8h-1z", s.Plan)

	for schedule, want := range map[string]string{
		"every 10ms":                     "M80 4h240v8h-240z",
		"every 1m0s after the last run":  "M100 4h1v8h-1z",
		"at 2026-03-03T10:00:00Z":        "",
		"nobody knows":                   "M100 4h1v8h-1z",
		"15 10,11 1 3 * (Europe/Berlin)": "M82 4h1v8h-1z", // 9:15 and 10:15 in UTC
	} {
		got, _ := plan(rscheduler.Job{Schedule: schedule, Next: now.Add(2 * time.Hour)}, now)
		assert.Equal(t, want, got, schedule)
	}
}

func TestSchedulerPageDrawsItsJobs(t *testing.T) {
	s := newSite(t)
	scheduler := s.client.GetScheduler("billing")
	require.NoError(t, scheduler.Register("report", rscheduler.Every(time.Hour), func(context.Context, rscheduler.Run) error { return nil }))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- scheduler.Run(ctx) }()
	require.Eventually(t, func() bool { return scheduler.Trigger(t.Context(), "report") == nil }, 10*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		_, text := s.get(t, "scheduler?name=billing")
		return strings.Contains(text, `aria-label="1 done, 0 failed, 0 late, 0 running; comes in`) && strings.Contains(text, `<path class="done"`)
	}, 10*time.Second, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
}
