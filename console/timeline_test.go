package console

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/queue"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

func TestTimelineHasWhatIsKeptOfAMessage(t *testing.T) {
	now := time.Now()
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	m := inspect.Message{State: "delayed", Attempt: 7, DueAt: at(60), History: []queue.Attempt{
		{Started: at(-40), Took: 10 * time.Second, Where: "web", Err: "no luck"}, {Started: at(-100), Took: -1, Where: "old"},
	}}
	l := timelineOf(m, nil, now)
	assert.Equal(t, 5, l.Before)
	assert.Equal(t, []step{
		{What: "attempt", At: at(-100), Took: -1, Client: "old"},
		{What: "attempt", At: at(-40), Took: 10 * time.Second, Client: "web", Err: "no luck", After: time.Minute},
		{What: "due", At: at(60), After: 90 * time.Second},
	}, l.Steps)
	assert.Equal(t, "2 attempts in 1 min that failed or did not end; due in 1 min", l.Text)
	assert.Equal(t, []hourBars{{"failed", "M0 3h3v10h-3z", ""}, {"failed", "M118 3h20v10h-20z", ""}, {"plan", "M317 3h3v10h-3z", ""}}, l.Bars)
	assert.Equal(t, 198, l.Now)

	m.State, m.DueAt = "in-flight", at(20)
	assert.Equal(t, 4, timelineOf(m, nil, now).Before, "this attempt is none of those before")
	l = timelineOf(m, &inspect.Hold{Client: "web", HoldInfo: redlatch.HoldInfo{Since: at(-10)}}, now)
	assert.Equal(t, []step{{What: "running", At: at(-10), Client: "web", After: 20 * time.Second}, {What: "claimed until", At: at(20), After: 30 * time.Second}}, l.Steps[2:])
	m.State, m.DueAt, m.Attempt = "dead", at(-30), 2
	l = timelineOf(m, nil, now)
	assert.Zero(t, l.Before)
	assert.Equal(t, []hourBars{{"failed", "M0 3h3v10h-3z", ""}, {"failed", "M271 3h46v10h-46z", ""}, {"dead", "M317 3h3v10h-3z", ""}}, l.Bars)
	assert.Negative(t, l.Now)
	assert.Empty(t, timelineOf(inspect.Message{State: "ready", DueAt: now}, nil, now))
	assert.NotPanics(t, func() {
		m.DueAt = time.Time{} // tampered with
		timelineOf(m, nil, now)
		m.DueAt = now.AddDate(200, 0, 0)
		timelineOf(m, nil, now)
	})
}

func TestPageOfAMessageSaysWhoHasIt(t *testing.T) {
	s := newSite(t)
	acquire(t, s.client.GetLock("orders")) // so that the client listens, as consumers do
	q := redlatch.GetDelayedQueue[string](s.client, "mails", rdelayedqueue.WithVisibility(time.Hour))
	_, err := q.Offer(t.Context(), "hello", 0, rdelayedqueue.WithID("m-1"))
	require.NoError(t, err)
	m, err := q.Take(t.Context())
	require.NoError(t, err)
	want := `an attempt on <a href="client?id=` + s.client.ID() + `">` + s.client.ID() + `</a> began, and goes on</li>`
	redistest.Eventually(t, 30*time.Second, "its client says that it has it", func() error {
		if _, text := s.get(t, "message?name=mails&id=m-1"); !strings.Contains(text, want) {
			return errors.New(text)
		}
		return nil
	})
	require.NoError(t, m.Ack(t.Context()))
}
