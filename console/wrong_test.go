package console

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/test/redistest"
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
		all = append(all, queueTroubles(queueLine{Object: inspect.Object{Kind: "queue", Name: name}, Stats: rexecutor.Stats{Stats: s}})...)
	}
	for name, report := range map[string]int{"media": 0, "mixed": 1} {
		all = append(all, queueTroubles(queueLine{Object: inspect.Object{Kind: "executor", Name: name}, Stats: rexecutor.Stats{
			Stats: rdelayedqueue.Stats{Ready: 3 + report, Oldest: 5 * time.Minute, Dead: 1 - report},
			Tasks: []rexecutor.TaskStats{{Name: "report", Ready: report}, {Name: "resize", Ready: 3, Orphaned: true}},
		}})...)
	}
	busy := make([]rdelayedqueue.Minute, 60)
	for i := range busy {
		busy[i] = rdelayedqueue.Minute{Offered: 300, Done: 180}
	}
	for name, oldest := range map[string]time.Duration{"grown": time.Second, "late": time.Hour} {
		all = append(all, queueTroubles(queueLine{Object: inspect.Object{Kind: "queue", Name: name}, Stats: rexecutor.Stats{Stats: rdelayedqueue.Stats{Ready: 7_000, Oldest: oldest}}, minutes: busy})...)
	}
	all = append(all, queueTroubles(queueLine{Object: inspect.Object{Kind: "queue", Name: "retried"}, Stats: rexecutor.Stats{Stats: rdelayedqueue.Stats{Delayed: 7_000, Failed: 7_000}}, minutes: busy})...)
	var said []string
	for _, w := range sorted(all) {
		text := w.Weight.String() + " " + w.What + " " + w.Kind + " " + w.Name + ": " + w.Text
		if !w.At.IsZero() {
			text += relative(time.Until(w.At))
		}
		said = append(said, text+w.Rest)
	}
	assert.Equal(t, []string{
		"bad grows and lags queue late: 1200 more came than went in the last 10 min; 7000 ready, the first was due 1 h ago",
		"bad lags executor mixed: 4 ready, the first was due 5 min ago",
		"bad lags queue lagged: 7 ready, the first was due 5 min ago",
		"bad dead letters queue dead: 9 messages",
		"bad dead tasks executor media: 1 task",
		`bad orphaned executor media: no worker handles "resize", of which 3 tasks wait; the first of all was due 5 min ago`,
		`bad orphaned executor mixed: no worker handles "resize", of which 3 tasks wait`,
		"bad late scheduler billing: job a, was due 1 min ago",
		"warn failed scheduler billing: job c, 1 min ago: no luck",
		"warn grows queue grown: 1200 more came than went in the last 10 min; 7000 ready, the first was due 1 s ago",
		"warn grows queue retried: 1200 more came than went in the last 10 min; 7000 being retried",
		"warn nobody runs it scheduler billing: job b",
		"warn paused queue paused: 7 ready, the first was due 5 min ago",
	}, said)
}

func TestDeadLettersAreNamedByTheirErrors(t *testing.T) {
	var v inspect.Survey
	assert.Empty(t, errorsIn(v))
	for i := range 50 {
		v.Messages = append(v.Messages, inspect.Message{State: "dead", Error: fmt.Sprintf("no luck %d\nat all", min(i/10*i%10, 4))})
	}
	assert.Equal(t, ", 24 × no luck 4, 16 × no luck 0, 6 × no luck 2, and 2 other errors", errorsIn(v))
	v.More = true
	assert.Contains(t, errorsIn(v), ", of the newest 50: 24 × no luck 4, 16 ×")
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
	assert.Contains(t, wrong[0], `<strong>dead letters</strong> queue <a href="queue?name=mails&amp;state=dead">mails</a>: 2 messages, 2 × no luck</li>`)
	assert.Regexp(t, `<strong>paused</strong> queue <a href="queue\?name=later&amp;state=ready">later</a>: 1 ready, the first was due <time datetime="[^"]+" title="[^"]+">\d s ago</time></li>`, wrong[1])
}

func TestOverviewThatHadNoTimeForAllDoesNotSayThatAllIsWell(t *testing.T) {
	var b strings.Builder
	require.NoError(t, templates.ExecuteTemplate(&b, "overview", content{Data: &overview{Cut: true}}))
	assert.Contains(t, b.String(), "Not all was looked at")
	assert.NotContains(t, b.String(), `class="good"`)
	b.Reset()
	require.NoError(t, templates.ExecuteTemplate(&b, "overview", content{Data: &overview{Unjudged: true}}))
	assert.Contains(t, b.String(), "Not all was looked at")
	assert.NotContains(t, b.String(), `class="good"`)
	b.Reset()
	require.NoError(t, templates.ExecuteTemplate(&b, "overview", content{Data: &overview{}}))
	assert.Contains(t, b.String(), `class="good"`)
}

// tell writes the counts of a queue for each minute of the last hour and the next ones: messages offered, messages done, and a lateness that
// rises.
func tell(t *testing.T, rdb redis.UniversalClient, queue string, offered, done int) {
	t.Helper()
	now, err := rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	keys, err := rdb.Keys(t.Context(), "*"+queue+"*:series").Result()
	require.NoError(t, err)
	require.Len(t, keys, 1)
	for i := int64(-59); i <= 10; i++ {
		minute := now.Unix()/60 + i
		require.NoError(t, rdb.HSet(t.Context(), keys[0], fmt.Sprint(minute, "o"), offered, fmt.Sprint(minute, "d"), done, fmt.Sprint(minute, "x"), 0,
			fmt.Sprint(minute, "l"), (60+min(i, 0))*1e6).Err())
	}
}

func TestOverviewDrawsQueuesThatGrow(t *testing.T) {
	server := redistest.Start(t)
	client := open(t, server)
	items := make([]rdelayedqueue.Item[string], 1_000)
	for i := range items {
		items[i].ID = fmt.Sprint("m-", i)
	}
	for _, queue := range []string{"a", "b", "c", "d", "steady"} {
		_, err := redlatch.GetDelayedQueue[string](client, queue).OfferBatch(t.Context(), items)
		require.NoError(t, err)
		tell(t, server.Client(t), "{"+queue+"}", 1_300, 1_180)
	}
	tell(t, server.Client(t), "{steady}", 1_300, 1_300)
	s := served(t, Handler(client))
	redistest.Eventually(t, 20*time.Second, "all queues are judged", func() error { // a busy machine may not have time for that
		_, text := get(t, s.URL)
		found := regexp.MustCompile(`(?s)<strong>grows</strong> queue <a href="[^"]*">(.)</a>: 1200 more came than went in the last 10 min; 1000 ready.*?</li>`).FindAllString(text, -1)
		if len(found) != 4 || strings.Contains(text, "Nothing is seen") {
			return errors.New(text)
		}
		for i, one := range found {
			assert.Equal(t, i < curvesMost, strings.Contains(one, `aria-label="78000 offered`), one)
			assert.Equal(t, i < curvesMost, strings.Contains(one, `aria-label="claimed up to 1m0s late`), one)
		}
		return nil
	})
}
