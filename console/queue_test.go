package console

import (
	"context"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
)

// bury has messages of these ids become dead letters, each with the error that follows its id.
func bury(t *testing.T, c *redlatch.Client, queue string, errorOf func(id string) string, ids ...string) {
	t.Helper()
	q := redlatch.GetDelayedQueue[string](c, queue)
	items := make([]rdelayedqueue.Item[string], len(ids))
	for i, id := range ids {
		items[i].ID = id
	}
	_, err := q.OfferBatch(t.Context(), items)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	left := len(ids)
	require.NoError(t, q.Consume(ctx, func(_ context.Context, m *rdelayedqueue.Message[string]) error {
		if left--; left == 0 {
			stop()
		}
		return rdelayedqueue.Reject(errors.New(errorOf(m.ID)))
	}, rdelayedqueue.WithPrefetch(100)))
}

// rows returns the ids of the messages that a page lists.
func rows(text string) (ids []string) {
	for _, row := range regexp.MustCompile(`<tr id="row-([^"]+)"`).FindAllStringSubmatch(text, -1) {
		ids = append(ids, row[1])
	}
	return ids
}

func TestErrorsOfAQueueAreCountedAndLeadToTheirMessages(t *testing.T) {
	s := newSite(t)
	bury(t, s.client, "mails", func(id string) string {
		if id == "m-3" {
			return "<no money>"
		}
		return "no luck\nwith " + id
	}, "m-1", "m-2", "m-3")
	offer(t, s.client, "mails", "m-4", "hello", time.Hour)
	_, text := s.get(t, "queue?name=mails")
	assert.Regexp(t, `(?s)no luck</a></td><td class="n">2</td>.*&lt;no money&gt;</a></td><td class="n">1</td>`, text)
	link := regexp.MustCompile(`href="(queue\?error=[^"]+)">no luck`).FindStringSubmatch(text)
	require.NotNil(t, link, text)
	_, text = s.get(t, html.UnescapeString(link[1]))
	assert.ElementsMatch(t, []string{"m-1", "m-2"}, rows(text))
	assert.Contains(t, text, "with the error “no luck”")
}

func TestMessagesAreFoundInOneBox(t *testing.T) {
	s := newSite(t)
	bury(t, s.client, "mails", func(id string) string { return "no luck\nwith " + id }, "m-1", "m-2")
	offer(t, s.client, "mails", "later-1", "hello", time.Hour)
	offer(t, s.client, "mails", "now-1", "hello", 0)
	_, err := redlatch.GetDelayedQueue[string](s.client, "mails").Offer(t.Context(), "hello", 2*time.Hour, rdelayedqueue.WithID("later-2"),
		rdelayedqueue.WithGroup("Acme & Co"), rdelayedqueue.WithPriority(7))
	require.NoError(t, err)
	_, text := s.get(t, "message?name=mails&id=later-2")
	assert.Contains(t, text, `<a href="queue?name=mails&amp;q=Acme&#43;%26&#43;Co">Acme &amp; Co</a>`)
	assert.Contains(t, text, "<tr><th>priority</th><td>7</td></tr>")
	for q, want := range map[string][]string{
		"m-1": {"m-1"}, "-1": {"m-1", "later-1", "now-1"}, "LUCK": {"m-1", "m-2"}, "with m-2": {"m-2"}, "dead": {"m-1", "m-2"},
		"dead -1": {"m-1"}, "delayed": {"later-1", "later-2"}, "ready delayed": {"later-1", "later-2", "now-1"}, "acme": {"later-2"}, "nothing of that": nil, strings.Repeat("x", 5000): nil,
	} {
		status, text := s.get(t, "queue?name=mails&q="+url.QueryEscape(q))
		assert.Equal(t, http.StatusOK, status)
		assert.ElementsMatch(t, want, rows(text), q)
		assert.Equal(t, want == nil, strings.Contains(text, "Nothing was found."))
	}
}

func TestChosenMessagesAreOperated(t *testing.T) {
	var asked []Action
	s := newSite(t, WithActions(func(_ *http.Request, a Action) error {
		asked = append(asked, a)
		if a.ID == "private" {
			return errors.New("not hers")
		}
		return nil
	}))
	bury(t, s.client, "mails", func(string) string { return "no luck" }, "d-1", "d-2", "private")
	offer(t, s.client, "mails", "later-1", "hello", time.Hour)
	csrf := s.csrf(t, "queue?name=mails")
	do := func(form url.Values) (int, string) {
		form.Set("csrf", csrf)
		form.Set("name", "mails")
		form.Set("choose", "")
		form.Set("error", "no luck")
		return s.post(t, form)
	}
	status, _ := do(url.Values{"verb": {"redrive"}, "id": {"d-1", "private"}})
	assert.Equal(t, http.StatusForbidden, status)
	assert.Equal(t, "dead", s.state(t, "d-1"), "one is refused, and none is done")
	_, text := do(url.Values{"verb": {"redrive"}})
	assert.Contains(t, text, "Nothing was done: no message was chosen.")
	assert.Equal(t, "dead", s.state(t, "d-1"), "none is not all")
	_, text = do(url.Values{"verb": {"redrive"}, "id": {"d-1", "d-2", "later-1"}})
	assert.Contains(t, text, "Done for 2 of 3 messages. The others are not there, or not in a state for that.")
	assert.ElementsMatch(t, []string{"private"}, rows(text), "the page is as before, and of what is now")
	assert.Equal(t, "ready", s.state(t, "d-1"))
	asked = nil
	_, text = do(url.Values{"verb": {"snooze"}, "delay": {"1h"}, "id": {"d-1", "d-2"}})
	assert.Contains(t, text, "Done for 2 of 2 messages.")
	assert.Equal(t, "delayed", s.state(t, "d-1"))
	assert.Equal(t, []Action{
		{Verb: "snooze", Kind: "queue", Name: "mails", ID: "d-1", Delay: time.Hour}, {Verb: "snooze", Kind: "queue", Name: "mails", ID: "d-2", Delay: time.Hour},
	}, asked)
	_, text = do(url.Values{"verb": {"cancel"}, "id": {"d-1"}})
	assert.Contains(t, text, "Done.")
	assert.Empty(t, s.state(t, "d-1"))
	for _, delay := range []string{"", "soon", "-1h"} {
		status, _ = do(url.Values{"verb": {"snooze"}, "delay": {delay}, "id": {"d-2"}})
		assert.Equal(t, http.StatusBadRequest, status, delay)
	}
}

func TestAllThatAreFoundAreOperatedAlsoThoseThatAreNotListed(t *testing.T) {
	var asked atomic.Int32
	s := newSite(t, WithActions(func(*http.Request, Action) error { asked.Add(1); return nil }))
	ids := make([]string, 3*pageSize)
	for i := range ids {
		ids[i] = fmt.Sprintf("m-%03d", i)
	}
	bury(t, s.client, "mails", func(id string) string {
		if id == "m-007" {
			return "no money"
		}
		return "no luck"
	}, ids...)
	_, text := s.get(t, "queue?name=mails&error=no+luck")
	assert.Contains(t, text, "<p>… and 199 more</p>")
	csrf := csrfField.FindStringSubmatch(text)[1]
	_, text = s.post(t, url.Values{"verb": {"redrive"}, "name": {"mails"}, "error": {"no luck"}, "choose": {""}, "all": {"on"}, "csrf": {csrf}})
	assert.Contains(t, text, "Done for 299 of 299 messages.")
	assert.Contains(t, text, "0 delayed, 299 ready, 0 in flight, 1 dead")
	assert.EqualValues(t, 299, asked.Load(), "each is an action")
	assert.Equal(t, "dead", s.state(t, "m-007"))
}

func TestMessageShowsItsHeadersIfWantedAndItsTimes(t *testing.T) {
	for _, opts := range [][]Option{nil, {WithPayloads()}} {
		s := newSite(t, opts...)
		q := redlatch.GetDelayedQueue[string](s.client, "mails")
		_, err := q.Offer(t.Context(), "hello", 90*time.Minute, rdelayedqueue.WithID("m-1"), rdelayedqueue.WithHeaders(map[string]string{"tenant": "<acme>"}))
		require.NoError(t, err)
		_, text := s.get(t, "message?name=mails&id=m-1")
		assert.Contains(t, text, "<th>tenant</th>")
		assert.Equal(t, opts != nil, strings.Contains(text, "&lt;acme&gt;"))
		assert.Regexp(t, `<time datetime="2\d{3}-[^"]+Z" title="2\d{3}-[^"]+ UTC">in 1 h</time>`, text)
	}
}

func TestTimesAreRelative(t *testing.T) {
	for in, want := range map[time.Duration]string{
		0: "in 0 s", -time.Millisecond: "0 s ago", 59 * time.Second: "in 59 s", -61 * time.Second: "1 min ago", -47 * time.Hour: "47 h ago", 49 * time.Hour: "in 2 days",
	} {
		assert.Equal(t, want, relative(in))
	}
}

func TestQueuePageComesSoonAmongManyMessages(t *testing.T) {
	many := faulttest.Rounds(t, 20_000, 100_000)
	server := redistest.Start(t)
	client := open(t, server)
	var dead []string
	for i := range many / 2 {
		dead = append(dead, fmt.Sprintf("dead-%06d", i))
	}
	bury(t, client, "mails", func(id string) string { return "no luck with the bank\n" + id }, dead...)
	items := make([]rdelayedqueue.Item[string], many/2)
	for i := range items {
		items[i] = rdelayedqueue.Item[string]{ID: fmt.Sprintf("m-%06d", i), Value: strings.Repeat("x", 200), Delay: time.Hour}
	}
	_, err := redlatch.GetDelayedQueue[string](client, "mails").OfferBatch(t.Context(), items)
	require.NoError(t, err)
	lag := faulttest.MeasureLag(t, server.Addr())
	rdb := server.Client(t)
	redistest.WatchCalls(t, rdb, 2*time.Millisecond)
	for _, page := range []string{"", "&state=delayed", "&q=" + dead[0], "&q=nothing+of+that"} {
		s := served(t, Handler(client, WithLogger(slog.New(slog.DiscardHandler)))) // another one would know what was found a moment ago
		text, first, whole := timed(t, s, "queue?name=mails"+page)
		assert.Less(t, first, 100*time.Millisecond+lag.Worst(), page)
		assert.Contains(t, text, "no luck with the bank</a>", page)
		assert.Equal(t, strings.Contains(page, dead[0]), strings.Contains(text, `id="row-`+dead[0]+`"`), "one is found wherever it is")
		t.Logf("%q: first byte %v, whole page %v, %d bytes", page, first, whole, len(text))
	}
	if long := redistest.LongCalls(t, rdb, ""); len(long) > 0 { // the machine may take time away in the middle of a call
		t.Logf("%d calls took 2 ms or more, the longest %v: %.60q", len(long), long[0].Duration, long[0].Args)
		if lag.Worst() < 2*time.Millisecond {
			assert.Less(t, len(long), 10)
		}
	}
}
