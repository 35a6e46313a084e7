package console

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rscheduler"
)

func TestWhatIsWrongComesFirstTheWorstAbove(t *testing.T) {
	now := time.Now()
	failed := rscheduler.Result{Started: now.Add(-90 * time.Second), Err: "no luck\nat all"}
	var all []trouble
	all = append(all, jobTroubles("billing", []rscheduler.Job{
		{Name: "fine"}, {Name: "a", Late: time.Minute}, {Name: "b", Orphaned: true, Late: time.Hour}, {Name: "c", Last: failed}, {Name: "d", Late: time.Second},
	})...)
	for name, s := range map[string]rdelayedqueue.Stats{
		"fine":   {Delayed: 7, Ready: 3, Oldest: time.Second},
		"lagged": {Ready: 7, Oldest: 5 * time.Minute},
		"paused": {Ready: 7, Oldest: 5 * time.Minute, Paused: true},
		"empty":  {Paused: true, Delayed: 4},
		"dead":   {Dead: 9},
	} {
		all = append(all, queueTroubles(inspect.Object{Kind: "queue", Name: name}, rexecutor.Stats{Stats: s})...)
	}
	all = append(all, queueTroubles(inspect.Object{Kind: "executor", Name: "media"}, rexecutor.Stats{
		Stats: rdelayedqueue.Stats{Ready: 3, Dead: 1}, Tasks: []rexecutor.TaskStats{{Name: "report"}, {Name: "resize", Ready: 3, Orphaned: true}},
	})...)
	var said []string
	for _, w := range sorted(all) {
		text := w.Weight.String() + " " + w.What + " " + w.Kind + " " + w.Name + ": " + w.Text
		if !w.At.IsZero() {
			text += relative(time.Until(w.At))
		}
		said = append(said, text+w.Rest)
	}
	assert.Equal(t, []string{
		"bad dead letters queue dead: 9 messages",
		"bad dead tasks executor media: 1 task",
		"bad lags queue lagged: 7 ready, the first was due 5 min ago",
		"bad late scheduler billing: job a, was due 1 min ago",
		`bad orphaned executor media: no worker handles "resize", of which 3 tasks wait`,
		"warn failed scheduler billing: job c, 1 min ago: no luck",
		"warn nobody runs it scheduler billing: job b",
		"warn paused queue paused: 7 ready, the first was due 5 min ago",
	}, said)
}

func TestOverviewSaysWhatIsWrongOrThatNothingIs(t *testing.T) {
	s := newSite(t)
	offer(t, s.client, "later", "m-1", "hello", time.Hour)
	assert.Contains(t, s.whole(t, ""), "Nothing is seen to be wrong")
	bury(t, s.client, "mails", func(string) string { return "no luck" }, "m-1", "m-2")
	require.NoError(t, redlatch.GetDelayedQueue[string](s.client, "later").Pause(t.Context()))
	offer(t, s.client, "later", "m-2", "hello", 0)
	text := s.whole(t, "")
	assert.Regexp(t, `(?s)<h1>Overview</h1>\s*<div id="live" data-live></div>\s*<section id="wrong" data-live>\s*<h2>What is wrong</h2>`, text)
	wrong := regexp.MustCompile(`<li class="(bad|warn)">.*`).FindAllString(text, -1)
	require.Len(t, wrong, 2, text)
	assert.Contains(t, wrong[0], `<strong>dead letters</strong> queue <a href="queue?name=mails&amp;state=dead">mails</a>: 2 messages`)
	assert.Regexp(t, `<strong>paused</strong> queue <a href="queue\?name=later&amp;state=ready">later</a>: 1 ready, the first was due <time datetime="[^"]+" title="[^"]+">\d s ago</time></li>`, wrong[1])
}

func TestOverviewThatHadNoTimeForAllDoesNotSayThatAllIsWell(t *testing.T) {
	var b strings.Builder
	require.NoError(t, templates.ExecuteTemplate(&b, "overview", content{Data: &overview{Cut: true}}))
	assert.Contains(t, b.String(), "Not all was looked at")
	assert.NotContains(t, b.String(), `class="good"`)
	b.Reset()
	require.NoError(t, templates.ExecuteTemplate(&b, "overview", content{Data: &overview{}}))
	assert.Contains(t, b.String(), `class="good"`)
}
