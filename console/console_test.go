package console

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/embedded"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/redlatchtest"
	"github.com/redlatch/redlatch/rlock"
)

// hostile is a name that would be a script if it were not escaped.
const hostile = `<script>document.title="stolen"</script>"&lock`

// site is a console under a path of a server, and a browser without scripts.
type site struct {
	*httptest.Server
	client  *redlatch.Client
	browser *http.Client
}

func newSite(t *testing.T, opts ...Option) *site {
	t.Helper()
	client := open(t, redistest.Start(t), redlatch.WithCallSites(), redlatch.WithClientName("web"))
	mux := http.NewServeMux()
	quiet := WithLogger(slog.New(slog.DiscardHandler))
	mux.Handle("/ops/locks/", http.StripPrefix("/ops/locks", Handler(client, append([]Option{quiet}, opts...)...)))
	s := &site{Server: httptest.NewServer(mux), client: client}
	t.Cleanup(s.Close)
	s.browser = s.Client()
	s.browser.Jar = newJar(t)
	return s
}

// newJar returns the cookies of a browser.
func newJar(t *testing.T) http.CookieJar {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return jar
}

func (s *site) at(page string) string { return s.URL + "/ops/locks/" + page }

// get returns the status and the text of a page.
func (s *site) get(t *testing.T, page string) (int, string) {
	t.Helper()
	r, err := s.browser.Get(s.at(page))
	require.NoError(t, err)
	text, err := io.ReadAll(r.Body)
	require.NoError(t, errors.Join(err, r.Body.Close()))
	return r.StatusCode, string(text)
}

// post sends a form, and returns the status and the text of the page that follows.
func (s *site) post(t *testing.T, form url.Values) (int, string) {
	t.Helper()
	r, err := s.browser.PostForm(s.at("act"), form)
	require.NoError(t, err)
	text, err := io.ReadAll(r.Body)
	require.NoError(t, errors.Join(err, r.Body.Close()))
	return r.StatusCode, string(text)
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// csrf returns the token of a page's forms.
func (s *site) csrf(t *testing.T, page string) string {
	t.Helper()
	_, text := s.get(t, page)
	field := csrfField.FindStringSubmatch(text)
	require.NotNil(t, field, text)
	return field[1]
}

func acquire(t *testing.T, l rlock.Locker) *rlock.Hold {
	t.Helper()
	h, err := l.Lock(t.Context())
	require.NoError(t, err)
	return h
}

func offer(t *testing.T, c *redlatch.Client, queue, id, payload string, delay time.Duration) {
	t.Helper()
	_, err := redlatch.GetDelayedQueue[string](c, queue).Offer(t.Context(), payload, delay, rdelayedqueue.WithID(id))
	require.NoError(t, err)
}

// waitAtBarriers has a call wait at a barrier of three, and another one at a double barrier of two and the same name.
func waitAtBarriers(t *testing.T, c *redlatch.Client, name string) {
	t.Helper()
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	for _, call := range []func(context.Context) error{c.GetBarrier(name, 3).Await, c.GetDoubleBarrier(name, 2).Enter} {
		go func() { ended <- call(ctx) }()
	}
	t.Cleanup(func() {
		giveUp()
		for range 2 {
			require.ErrorIs(t, <-ended, context.Canceled)
		}
	})
	require.Eventually(t, func() bool {
		single, err := c.GetBarrier(name, 3).Info(t.Context())
		require.NoError(t, err)
		double, err := c.GetDoubleBarrier(name, 2).Info(t.Context())
		require.NoError(t, err)
		return single.Arrived.Count+double.Arrived.Count == 2
	}, 10*time.Second, 10*time.Millisecond)
}

func TestPagesShowWhatThereIs(t *testing.T) {
	s := newSite(t)
	began := time.Now()
	acquire(t, s.client.GetFencedLock("orders"))
	if _, text := s.get(t, "lock?name=orders"); time.Since(began) < 2*time.Second {
		assert.Contains(t, text, "its client says so once it has held something for 3 s")
	}
	acquire(t, s.client.GetReadWriteLock("prices"))
	_, err := s.client.GetPermitSemaphore("uploads").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	_, err = s.client.GetPermitSemaphore("uploads").Acquire(t.Context())
	require.NoError(t, err)
	_, err = s.client.GetCountDownLatch("start").TrySetCount(t.Context(), 7)
	require.NoError(t, err)
	waitAtBarriers(t, s.client, "steps")
	offer(t, s.client, "mails", "m-1", "hello", 0)
	offer(t, s.client, "mails", "m-2", "later", time.Hour)
	for page, wants := range map[string][]string{
		"":                               {"Overview", "mails", "Losses of the last hour"},
		"locks":                          {"orders", "prices", s.client.ID()},
		"locks?q=ord":                    {"orders"},
		"locks?q=p*&sort=name":           {"prices"},
		"lock?name=orders":               {", token 1", s.client.ID()},
		"lock?name=prices":               {"Held to write"},
		"lock?name=nobody":               {"Nobody holds it"},
		"semaphores":                     {"uploads", "2 of 3 available"},
		"semaphore?name=uploads":         {"2 of 3 permits", "Leased permits"},
		"latches":                        {"start"},
		"latch?name=start":               {"The count is 7"},
		"barriers":                       {"steps", `id="row-barrier-steps"`, `id="row-barrierdouble-steps"`, "1 of 3 arrived", "double, 1 of 2 arrived, 0 inside, 0 leaving"},
		"barrier?name=steps":             {"The barrier has 3 participants", "The double barrier has 2 participants", "Arrived: 1", "Leaving: 0", s.client.ID() + ":"},
		"queues":                         {"mails", "1 delayed, 1 ready"},
		"queue?name=mails":               {"m-1", "1 delayed, 1 ready"},
		"queue?name=mails&state=delayed": {"m-2"},
		"message?name=mails&id=m-1":      {"ready", "not shown here"},
		"clients":                        {"clients answered"},
		"assets/style.css":               {"color-scheme: light dark"},
		"assets/live.js":                 {"EventSource"},
	} {
		status, text := s.get(t, page)
		assert.Equal(t, http.StatusOK, status, page)
		for _, want := range wants {
			assert.Contains(t, text, want, page)
		}
		assert.NotContains(t, text, "hello", page)
	}
	_, found := s.get(t, "locks?q=ord")
	assert.NotContains(t, found, "prices")
}

func TestPagesShowCirclesAndWhyThingsWereLost(t *testing.T) {
	t.Parallel()
	server := redlatchtest.Start(t)
	quiet := redlatch.WithLogger(slog.New(slog.DiscardHandler))
	client := func(name string) *redlatch.Client {
		return server.Client(redlatch.WithClientName(name), redlatch.WithCallSites(), redlatch.WithCloseGrace(0), quiet)
	}
	s := &site{Server: served(t, http.StripPrefix("/ops/locks", Handler(server.Client(redlatch.WithoutPresence(), quiet)))), browser: http.DefaultClient}
	orders, stock := client("orders"), client("stock")
	acquire(t, orders.GetLock("order:7"))
	acquire(t, stock.GetLock("stock:1"))
	server.Lose(acquire(t, stock.GetLock("report")))
	_, err := stock.GetPermitSemaphore("uploads").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	_, err = stock.GetPermitSemaphore("uploads").Acquire(t.Context())
	require.NoError(t, err)
	ctx, giveUp := context.WithCancel(context.Background())
	t.Cleanup(giveUp)
	go func() { _, _ = orders.GetLock("stock:1").Lock(ctx) }() // until the test ends
	go func() { _, _ = stock.GetLock("order:7").Lock(ctx) }()
	q := redlatch.GetDelayedQueue[string](stock, "mails", rdelayedqueue.WithVisibility(time.Hour))
	_, err = q.Offer(t.Context(), "hello", 0, rdelayedqueue.WithID("m-1"))
	require.NoError(t, err)
	m, err := q.Take(t.Context())
	require.NoError(t, err)
	var text string
	shows := func(page, want string) {
		t.Helper()
		require.Eventually(t, func() bool { _, text = s.get(t, page); return strings.Contains(text, want) }, 30*time.Second, 50*time.Millisecond, page)
	}
	shows("", "Perhaps a circle of waits")
	assert.Contains(t, text, `<svg class="circle"`, "it is drawn")
	assert.Regexp(t, orders.ID()+` holds order:7 \(console/console_test.go:\d+\) and has waited \d+s for stock:1 \(console/console_test.go:\d+\)`, text)
	assert.Regexp(t, stock.ID()+` holds stock:1 \(console/console_test.go:\d+\) and has waited \d+s for order:7 \(console/console_test.go:\d+\)`, text)
	assert.Regexp(t, `order:7</a></td><td>1 call</td>`, text)
	assert.Regexp(t, `uploads</a></td><td><span class="dim">nobody</span></td>`, text)
	assert.Regexp(t, `report</a></td>.*<code>console/console_test.go:\d+</code></td><td>Redis has it no longer`, text)
	host, err := os.Hostname()
	require.NoError(t, err)
	shows("lock?name=stock:1", fmt.Sprintf("<td>%d on %s</td>", os.Getpid(), host))
	shows("semaphore?name=uploads", `<a href="client?id=`+stock.ID()+`">`)
	assert.Regexp(t, `<td><time [^>]*>\d\S*s</time></td><td class="n">\d+</td><td><code>console/console_test.go:\d+</code></td>`, text)
	shows("lock?name=order:7", "Perhaps a circle of waits")
	assert.Contains(t, text, `<svg class="circle"`)
	assert.Contains(t, text, "1 other client waits.")
	shows("client?id="+stock.ID(), "Redis has it no longer")
	assert.Contains(t, text, `<a href="message?name=mails&amp;id=m-1">m-1</a>`)
	shows("queue?name=mails&state=in-flight", `<th class="when">claimed until</th>`)
	require.NoError(t, m.Ack(t.Context()))
}

func TestRelativeTimesShowTheExactOneOnHover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Date(2026, 11, 30, 6, 15, 0, 0, time.FixedZone("", 3600))
		time.Sleep(time.Until(at.Add(90 * time.Second)))
		for name, tc := range map[string]struct {
			of   any
			want string
		}{
			"since": {at, `<time datetime="2026-11-30T05:15:00Z" title="since 2026-11-30 05:15:00 UTC">1m30s</time>`},
			"time":  {at, `<time datetime="2026-11-30T05:15:00Z" title="2026-11-30 05:15:00 UTC">1 min ago</time>`},
			"lag":   {90 * time.Second, `<time datetime="2026-11-30T05:15:00Z" title="since 2026-11-30 05:15:00 UTC">1 min</time>`},
		} {
			var b strings.Builder
			require.NoError(t, templates.ExecuteTemplate(&b, name, tc.of))
			assert.Equal(t, tc.want, b.String())
		}
	})
	for _, word := range []string{"ago", "relative", "about"} {
		assert.Equal(t, 1, strings.Count(pagesSource, "{{"+word+" "), "%s stands in a time element alone", word)
	}
}

func TestErrorsOfMessagesAreOneLineInLists(t *testing.T) {
	s := newSite(t)
	q := redlatch.GetDelayedQueue[string](s.client, "mails")
	_, err := q.Offer(t.Context(), "hello", 0, rdelayedqueue.WithID("m-1"))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- q.Consume(ctx, func(context.Context, *rdelayedqueue.Message[string]) error { return errors.New("no luck\nand why") },
			rdelayedqueue.WithBackoff(func(int) time.Duration { return time.Hour }))
	}()
	require.Eventually(t, func() bool {
		_, text := s.get(t, "queue?name=mails&state=delayed")
		return strings.Contains(text, "1 being retried") && strings.Contains(text, "no luck …") && !strings.Contains(text, "and why")
	}, 10*time.Second, 10*time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	_, text := s.get(t, "message?name=mails&id=m-1")
	assert.Contains(t, text, "no luck\nand why")
	assert.Contains(t, text, "<tr><th>attempt</th><td>1</td></tr>", "its consumers have the limit")
}

func TestWhatIsNotThereIsSaid(t *testing.T) {
	s := newSite(t)
	offer(t, s.client, "mails", "m-1", "hello", 0)
	for page, want := range map[string]int{
		"nonsense":                             http.StatusNotFound,
		"assets/other.js":                      http.StatusNotFound,
		"lock":                                 http.StatusBadRequest,
		"lock?name=redlatch_queue:%7Bmails%7D": http.StatusOK, // a name like any other
		"lock?name=" + strings.Repeat("x", 70000): http.StatusBadRequest,
		"queue?name=mails&state=lost":             http.StatusBadRequest,
		"message?name=mails&id=other":             http.StatusNotFound,
		"client?id=nonsense":                      http.StatusOK, // it is asked once the head is out
		"events?page=nonsense":                    http.StatusNotFound,
	} {
		status, text := s.get(t, page)
		assert.Equal(t, want, status, "%.40s: %.300s", page, text)
	}
	_, text := s.get(t, "client?id=web.0123456789abcdef")
	assert.Contains(t, text, "it is not there")
	r, err := s.browser.Post(s.at("locks"), "text/plain", nil)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	assert.Equal(t, http.StatusMethodNotAllowed, r.StatusCode)
}

func TestPayloadsAreShownIfWanted(t *testing.T) {
	s := newSite(t, WithPayloads())
	offer(t, s.client, "mails", "m-1", "hello", 0)
	_, text := s.get(t, "message?name=mails&id=m-1")
	assert.Contains(t, text, "hello")
}

func TestNamesAreText(t *testing.T) {
	s := newSite(t, WithPayloads())
	acquire(t, s.client.GetLock(hostile))
	offer(t, s.client, hostile, hostile, hostile, 0)
	escaped := url.QueryEscape(hostile)
	for _, page := range []string{
		"", "locks", "lock?name=" + escaped, "locks?q=" + escaped,
		"queues", "queue?name=" + escaped, "message?name=" + escaped + "&id=" + escaped,
	} {
		text := s.whole(t, page)
		assert.Contains(t, text, "&lt;script&gt;document.title", page)
		assert.NotContains(t, text, "<script>", page)
	}
}

func TestHeadersKeepOthersOut(t *testing.T) {
	s := newSite(t)
	for _, page := range []string{"", "locks", "events?page=nonsense", "nonsense"} {
		r, err := s.browser.Get(s.at(page))
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		assert.Contains(t, r.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'", page)
		assert.NotContains(t, r.Header.Get("Content-Security-Policy"), "unsafe", page)
		assert.Equal(t, "nosniff", r.Header.Get("X-Content-Type-Options"), page)
	}
}

func TestActionsNeedTheCallersPermission(t *testing.T) {
	s := newSite(t)
	acquire(t, s.client.GetLock("orders"))
	_, text := s.get(t, "lock?name=orders")
	assert.NotContains(t, text, "<form")
	status, _ := s.post(t, url.Values{"verb": {"force"}, "name": {"orders"}})
	assert.Equal(t, http.StatusForbidden, status)
	locked, err := s.client.GetLock("orders").IsLocked(t.Context())
	require.NoError(t, err)
	assert.True(t, locked)
}

func TestActionsAreAskedForAndLogged(t *testing.T) {
	var log bytes.Buffer
	var asked []Action
	s := newSite(t, WithLogger(slog.New(slog.NewTextHandler(&log, nil))), WithUser(func(*http.Request) string { return "ann" }),
		WithActions(func(_ *http.Request, a Action) error {
			asked = append(asked, a)
			if a.Name == "private" {
				return errors.New("not hers")
			}
			return nil
		}))
	hold := acquire(t, s.client.GetLock("orders"))
	acquire(t, s.client.GetLock("private"))
	csrf := s.csrf(t, "lock?name=orders")

	status, text := s.post(t, url.Values{"verb": {"force"}, "name": {"orders"}, "owner": {hold.Owner()}, "csrf": {csrf}})
	assert.Equal(t, http.StatusOK, status, text)
	assert.Contains(t, text, "It was freed.")
	locked, err := s.client.GetLock("orders").IsLocked(t.Context())
	require.NoError(t, err)
	assert.False(t, locked)
	require.ErrorIs(t, hold.Unlock(t.Context()), rlock.ErrNotHeld)
	assert.Contains(t, log.String(), `"redlatch console: an action was done" verb=force kind=lock name=orders id="" state="" owners=[`+hold.Owner()+`] user=ann`)

	status, _ = s.post(t, url.Values{"verb": {"force"}, "name": {"private"}, "csrf": {csrf}})
	assert.Equal(t, http.StatusForbidden, status)
	assert.Contains(t, log.String(), `an action was refused" verb=force kind=lock name=private`)
	assert.Contains(t, log.String(), "not hers")
	locked, err = s.client.GetLock("private").IsLocked(t.Context())
	require.NoError(t, err)
	assert.True(t, locked)
	assert.Equal(t, []Action{{Verb: "force", Kind: "lock", Name: "orders", Owners: []string{hold.Owner()}}, {Verb: "force", Kind: "lock", Name: "private"}}, asked)
}

// The page has shown one holder, and by the time of the click another one holds the lock.
func TestLockIsFreedFromThoseAloneWhomThePageHasShown(t *testing.T) {
	s := newSite(t, WithActions(func(*http.Request, Action) error { return nil }))
	for name, l := range map[string]rlock.Locker{"orders": s.client.GetLock("orders"), "prices": s.client.GetReadWriteLock("prices").RLocker()} {
		shown := acquire(t, l)
		_, text := s.get(t, "lock?name="+name)
		form := url.Values{"verb": {"force"}, "name": {name}, "csrf": {csrfField.FindStringSubmatch(text)[1]}}
		for _, field := range regexp.MustCompile(`name="owner" value="([^"]+)"`).FindAllStringSubmatch(text, -1) {
			form.Add("owner", field[1])
		}
		require.Equal(t, []string{shown.Owner()}, form["owner"])
		require.NoError(t, shown.Unlock(t.Context()))
		other := acquire(t, l)
		status, text := s.post(t, form)
		assert.Equal(t, http.StatusOK, status)
		assert.Contains(t, text, "somebody else holds it now")
		assert.Contains(t, text, `name="owner" value="`+other.Owner()+`"`)
		form.Del("owner")
		_, text = s.post(t, form)
		assert.Contains(t, text, "somebody else holds it now")
		require.NoError(t, other.Context().Err())

		form.Add("owner", other.Owner())
		_, text = s.post(t, form)
		assert.Contains(t, text, "It was freed.")
	}
}

func TestActionsFromElsewhereAreRefused(t *testing.T) {
	asked := false
	s := newSite(t, WithActions(func(*http.Request, Action) error { asked = true; return nil }))
	hold := acquire(t, s.client.GetLock("orders"))
	r, err := s.browser.Get(s.at("lock?name=orders"))
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Len(t, r.Cookies(), 1)
	assert.True(t, r.Cookies()[0].HttpOnly)
	assert.Equal(t, http.SameSiteStrictMode, r.Cookies()[0].SameSite)
	csrf := s.csrf(t, "lock?name=orders")
	good := url.Values{"verb": {"force"}, "name": {"orders"}, "csrf": {csrf}}
	send := func(change func(r *http.Request, form url.Values)) int {
		form := url.Values{}
		for k, v := range good {
			form[k] = v
		}
		r := httptest.NewRequest(http.MethodPost, s.at("act"), nil)
		r.RequestURI = ""
		r.AddCookie(&http.Cookie{Name: cookie, Value: csrf})
		change(r, form)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Body = io.NopCloser(strings.NewReader(form.Encode()))
		answer, err := (&http.Client{Transport: s.browser.Transport}).Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	for name, change := range map[string]func(r *http.Request, form url.Values){
		"no token":       func(_ *http.Request, f url.Values) { f.Del("csrf") },
		"another token":  func(_ *http.Request, f url.Values) { f.Set("csrf", "x"+csrf) },
		"no cookie":      func(r *http.Request, _ url.Values) { r.Header.Del("Cookie") },
		"another origin": func(r *http.Request, _ url.Values) { r.Header.Set("Origin", "https://elsewhere.example") },
		"cross-site":     func(r *http.Request, _ url.Values) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
	} {
		assert.Equal(t, http.StatusForbidden, send(change), name)
	}
	assert.Equal(t, http.StatusBadRequest, send(func(_ *http.Request, f url.Values) { f.Set("verb", "format") }))
	assert.Equal(t, http.StatusBadRequest, send(func(_ *http.Request, f url.Values) { f.Del("name") }))
	status, _ := s.get(t, "act")
	assert.Equal(t, http.StatusMethodNotAllowed, status)
	assert.False(t, asked)
	require.NoError(t, hold.Context().Err())
}

func TestQueuesAreOperated(t *testing.T) {
	s := newSite(t, WithActions(func(*http.Request, Action) error { return nil }))
	q := redlatch.GetDelayedQueue[string](s.client, "mails", rdelayedqueue.WithMaxAttempts(1))
	for _, id := range []string{"m-1", "m-2", "m-3"} {
		offer(t, s.client, "mails", id, id, 0)
	}
	for range 2 {
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Nack(t.Context(), 0))
	}
	csrf := s.csrf(t, "queue?name=mails")
	do := func(verb, id, state string) string {
		status, text := s.post(t, url.Values{"verb": {verb}, "name": {"mails"}, "id": {id}, "state": {state}, "csrf": {csrf}})
		assert.Equal(t, http.StatusOK, status, text)
		return text
	}
	assert.Contains(t, do("pause", "", ""), "It is paused.")
	assert.Contains(t, do("redrive", "m-1", ""), "0 delayed, 2 ready, 0 in flight, 1 dead")
	assert.Contains(t, do("redrive", "m-1", ""), "Nothing was done")
	assert.Contains(t, do("redrive", "", ""), "0 delayed, 3 ready, 0 in flight, 0 dead")
	require.NoError(t, q.PauseFor(t.Context(), time.Hour))
	assert.Regexp(t, `0 delayed, 2 ready.*<strong>paused</strong> until <time datetime="2\d{3}-`, do("cancel", "m-2", ""))
	assert.Contains(t, do("purge", "", "ready"), "0 delayed, 0 ready")
	assert.Contains(t, do("resume", "", ""), "It delivers again.")
	status, text := s.post(t, url.Values{"verb": {"purge"}, "name": {"mails"}, "state": {"lost"}, "csrf": {csrf}})
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Contains(t, text, "no state")
}

func TestListsHavePages(t *testing.T) {
	s := newSite(t)
	for i := range 250 {
		acquire(t, s.client.GetLock("n"+string(rune('a'+i%26))+strings.Repeat("x", i/26)))
	}
	for _, order := range []string{"", "name"} {
		seen := map[string]bool{}
		pages := 0
		for next := "locks?sort=" + order; next != ""; pages++ {
			_, text := s.get(t, next)
			for _, row := range regexp.MustCompile(`<tr id="row-lock-([^"]+)"`).FindAllStringSubmatch(text, -1) {
				seen[row[1]] = true
			}
			next = ""
			if link := regexp.MustCompile(`<a href="([^"]+)" rel="next"`).FindStringSubmatch(text); link != nil {
				next = strings.ReplaceAll(link[1], "&amp;", "&")
			}
		}
		assert.Len(t, seen, 250, "order %q", order)
		assert.Equal(t, 3, pages)
	}
}

// An address is made up by anybody: a page number that is too large is a page behind the last one, and breaks nothing.
func TestPageNumberThatIsTooLargeIsAPageBehindTheLast(t *testing.T) {
	_, client, url := serve(t)
	acquire(t, client.GetLock("orders"))
	for _, page := range []string{"9223372036854775807", "99999999999999999999", "92233720368547759"} {
		for _, sort := range []string{"", "name"} {
			r, err := http.Get(url + "locks?sort=" + sort + "&page=" + page)
			require.NoError(t, err)
			text, err := io.ReadAll(r.Body)
			assert.NoError(t, err, "sort %q, page %s: it is cut off", sort, page)
			assert.NoError(t, r.Body.Close())
			assert.Equal(t, http.StatusOK, r.StatusCode)
			assert.NotContains(t, string(text), "page -", "sort %q, page %s", sort, page)
			assert.NotContains(t, string(text), `rel="next"`, "sort %q, page %s", sort, page)
		}
	}
}

func TestPagesFollowWhatHappens(t *testing.T) {
	s := newSite(t)
	hold := acquire(t, s.client.GetLock("orders"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.at("events?page="+url.QueryEscape("lock?name=orders")), nil)
	require.NoError(t, err)
	answer, err := s.browser.Do(r)
	require.NoError(t, err)
	defer func() { _ = answer.Body.Close() }()
	assert.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	assert.Equal(t, "no", answer.Header.Get("X-Accel-Buffering"))
	lines := bufio.NewScanner(answer.Body)
	await := func(text string) {
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") && strings.Contains(lines.Text(), text) {
				return
			}
		}
		require.Fail(t, "no message has "+text, "%v", lines.Err())
	}
	await("Held.")
	require.NoError(t, hold.Unlock(t.Context()))
	await("Nobody holds it")
}

func TestEventsKeepTheLinesOfATextAsTheyAre(t *testing.T) {
	for text, want := range map[string]string{
		"<pre>{\n  \"to\": 7\n}</pre>\n":   "data: <pre>{\ndata:   \"to\": 7\ndata: }</pre>\n\n",
		"<pre>panic\n\n\tmain.go:7 </pre>": "data: <pre>panic\ndata: \ndata: \tmain.go:7 </pre>\n\n",
		"a\rb\r\nc":                        "data: a\ndata: b\ndata: c\n\n", // a carriage return ends a line of an event too
	} {
		assert.Equal(t, want, string(event(text)))
	}
}

func TestDeadRedisIsSaid(t *testing.T) {
	s := newSite(t)
	require.NoError(t, s.client.Close())
	status, text := s.get(t, "lock?name=orders")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, text, `role="alert"`)
	_, text = s.get(t, "locks")
	assert.Contains(t, text, `role="alert"`)
}

// serve returns a server, with a client of it and the address of its console.
func serve(t *testing.T) (*embedded.Server, *redlatch.Client, string) {
	t.Helper()
	server, err := embedded.Start()
	require.NoError(t, err)
	t.Cleanup(server.Close)
	client := open(t, server)
	s := httptest.NewServer(Handler(client, WithLogger(slog.New(slog.DiscardHandler))))
	t.Cleanup(s.Close)
	return server, client, s.URL + "/"
}

func open(t *testing.T, server interface{ URL() string }, opts ...redlatch.Option) *redlatch.Client {
	t.Helper()
	opts = append(opts, redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	c, err := redlatch.Open(t.Context(), server.URL(), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.Get(url) //nolint:gosec // of this test
	require.NoError(t, err)
	text, err := io.ReadAll(r.Body)
	require.NoError(t, errors.Join(err, r.Body.Close()))
	http.DefaultClient.CloseIdleConnections()
	return r.StatusCode, string(text)
}

func TestPagesWithoutRedisAreUnavailable(t *testing.T) {
	server, _, url := serve(t)
	server.Close()
	for _, page := range []string{"", "locks", "clients"} {
		status, text := get(t, url+page)
		assert.Equal(t, http.StatusServiceUnavailable, status, page)
		assert.Contains(t, text, "Redis does not answer: dial tcp", page)
	}
}

func TestOneClientWaits(t *testing.T) {
	server, client, url := serve(t)
	hold := acquire(t, client.GetLock("orders"))
	defer func() { assert.NoError(t, hold.Unlock(t.Context())) }()
	_, text := get(t, url+"lock?name=orders")
	assert.Contains(t, text, "Held. 0 other clients wait.")
	waiter := open(t, server)
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := waiter.GetLock("orders").Lock(ctx); ended <- err }()
	require.Eventually(t, func() bool {
		_, text := get(t, url+"lock?name=orders")
		return strings.Contains(text, "Held. 1 other client waits.")
	}, 10*time.Second, 10*time.Millisecond)
	giveUp()
	require.ErrorIs(t, <-ended, context.Canceled)
}

func TestHistoryIsHiddenWhileThereIsNone(t *testing.T) {
	_, _, url := serve(t)
	_, text := get(t, url+"lock?name=orders")
	assert.Contains(t, text, "<section hidden><h2>While this page is open</h2>")
}
