package console

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/grid/rcache"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rscheduler"
)

var pictures = flag.String("pictures", "", "the folder for pictures of the pages")

// chromium is a real browser.
type chromium struct {
	t   *testing.T
	ctx context.Context // of the browser
	url string
}

func startChromium(t *testing.T, s *httptest.Server) *chromium {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil && os.Getenv("REDLATCH_REQUIRE_CHROMIUM") != "" {
		require.NoError(t, err, "REDLATCH_REQUIRE_CHROMIUM is set")
	}
	if err != nil {
		t.Skip("skipped: chromium is not on PATH")
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1160, 820))
	ctx, kill := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, end := chromedp.NewContext(ctx)
	limited, stop := context.WithTimeout(ctx, 4*time.Minute)
	b := &chromium{t: t, ctx: limited, url: s.URL + "/"}
	t.Cleanup(func() {
		if err := chromedp.Cancel(ctx); err != nil { // it may not be able to remove its folder while the browser still writes there
			t.Logf("the browser ended: %v", err)
		}
		stop()
		end()
		kill()
	})
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *cdpruntime.EventExceptionThrown:
			t.Errorf("a script failed: %v", e.ExceptionDetails)
		case *cdpruntime.EventConsoleAPICalled:
			if e.Type == cdpruntime.APITypeError {
				t.Errorf("the browser complains: %v", e.Args)
			}
		case *cdplog.EventEntryAdded: // what the page's policy has kept from loading or running is here
			if e.Entry.Source == cdplog.SourceSecurity {
				t.Errorf("the browser complains: %s %s", e.Entry.Text, e.Entry.URL)
			}
		}
	})
	require.NoError(t, chromedp.Run(limited)) // the browser ends with the context of its first run
	return b
}

func (b *chromium) do(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	require.NoError(b.t, chromedp.Run(ctx, actions...))
}

func (b *chromium) open(page string) { b.t.Helper(); b.do(chromedp.Navigate(b.url + page)) }

// sees waits until the page says something. A page that is on its way says nothing.
func (b *chromium) sees(want string) {
	b.t.Helper()
	redistest.Eventually(b.t, 20*time.Second, "it is on the page", func() error { return b.says(want) })
}

// click presses the first thing that a CSS selector finds and whose text is this one; any text if there is none. The page
// finds and presses it in one step: as it follows Redis, it may replace what the browser found a moment before.
func (b *chromium) click(selector string, text ...string) {
	b.t.Helper()
	find := fmt.Sprintf("e => %v || e.textContent === %q", len(text) == 0, strings.Join(text, ""))
	press := fmt.Sprintf("(() => { const found = [...document.querySelectorAll(%q)].find(%s); found?.click(); return !!found })()", selector, find)
	redistest.Eventually(b.t, 20*time.Second, "it can be pressed", func() error {
		var found bool
		if err := chromedp.Run(b.ctx, chromedp.Evaluate(press, &found)); err != nil || found {
			return err
		}
		return fmt.Errorf("no %s %s", selector, text)
	})
}

// says returns an error if the page does not say all of this now.
func (b *chromium) says(wants ...string) error {
	var text string
	if err := chromedp.Run(b.ctx, chromedp.Evaluate("document.body.innerText", &text)); err != nil {
		return err
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			return fmt.Errorf("%s is not in\n%s", want, text)
		}
	}
	return nil
}

// picture keeps what the page looks like, if pictures are wanted.
func (b *chromium) picture(name string, dark bool) {
	b.t.Helper()
	if *pictures == "" {
		return
	}
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	var png []byte
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}), chromedp.FullScreenshot(&png, 100)) // as a PNG
	require.NoError(b.t, os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o644))                                                                         //nolint:gosec // a document
}

// night is a system in which some things have gone wrong.
func night(t *testing.T) (viewer *redlatch.Client, held *rlock.Hold) {
	t.Helper()
	s := redistest.Start(t)
	client := func(name string) *redlatch.Client {
		return open(t, s, redlatch.WithClientName(name), redlatch.WithCallSites())
	}
	web, worker := client("web-1"), client("worker-2")
	held = acquire(t, web.GetFencedLock("order:4711"))
	acquire(t, web.GetReadWriteLock("prices").RLocker())
	for i := range 12 {
		acquire(t, worker.GetLock(fmt.Sprintf("import:%02d", i)))
	}
	acquire(t, web.GetFairLock("invoices"))
	lost := acquire(t, worker.GetLock("report"))
	_, err := web.GetLock("report").ForceUnlock(t.Context())
	require.NoError(t, err)
	<-lost.Context().Done()
	ctx, giveUp := context.WithCancel(context.Background())
	t.Cleanup(giveUp)
	go func() { _, _ = worker.GetLock("order:4711").Lock(ctx) }() // it waits until the test ends
	go func() { _, _ = worker.GetReadWriteLock("prices").Lock(ctx) }()
	for range 2 {
		go func() { _, _ = worker.GetFairLock("invoices").Lock(ctx) }()
	}
	_, err = web.GetPermitSemaphore("uploads").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	_, err = web.GetPermitSemaphore("uploads").Acquire(t.Context())
	require.NoError(t, err)
	_, err = web.GetCountDownLatch("start").TrySetCount(t.Context(), 7)
	require.NoError(t, err)
	q := redlatch.GetDelayedQueue[string](worker, "mails", rdelayedqueue.WithMaxAttempts(1))
	for i := range 9 {
		offer(t, worker, "mails", fmt.Sprintf("mail-%d", i), "hello", time.Duration(i/3)*time.Hour)
	}
	m, err := q.Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Nack(t.Context(), 0))
	bury(t, worker, "payments", func(id string) string {
		if strings.HasSuffix(id, "3") {
			return "the card has expired"
		}
		return "dial tcp 10.0.0.7:443: connection refused\nwhile charging " + id
	}, "payment-2301", "payment-2302", "payment-2303", "payment-2304", "payment-2305")
	runJobs(t, ctx, worker.GetScheduler("billing"))
	busy(t, worker)
	users := rcache.New(web, "users", func(context.Context, int) (string, error) { return "Ann", nil }, rcache.WithNear(10))
	for range 2 {
		_, err = users.Get(t.Context(), 42)
		require.NoError(t, err)
	}
	viewer = open(t, s, redlatch.WithoutPresence())
	require.Eventually(t, func() bool {
		all, err := viewer.Clients(t.Context())
		return err == nil && len(all) == 2
	}, 15*time.Second, 50*time.Millisecond)
	return viewer, held
}

// runJobs has a scheduler run two jobs until ctx ends. One of them fails, and the other one is paused.
func runJobs(t *testing.T, ctx context.Context, s *rscheduler.Scheduler) {
	t.Helper()
	require.NoError(t, s.Register("dunning", rscheduler.MustCron("30 4 * * MON"), func(context.Context, rscheduler.Run) error {
		return errors.New("the bank does not answer")
	}))
	require.NoError(t, s.Register("report", rscheduler.Every(24*time.Hour), func(context.Context, rscheduler.Run) error { return nil }))
	go func() { _ = s.Run(ctx) }()
	for _, job := range []string{"dunning", "report"} {
		require.Eventually(t, func() bool { return s.Trigger(t.Context(), job) == nil }, 10*time.Second, 10*time.Millisecond)
		require.Eventually(t, func() bool {
			runs, err := s.Runs(t.Context(), job, 1)
			return err == nil && len(runs) == 1
		}, 10*time.Second, 10*time.Millisecond)
	}
	require.NoError(t, s.Pause(t.Context(), "report", "the month is closed"))
}

func TestPagesInChromium(t *testing.T) {
	viewer, held := night(t)
	b := startChromium(t, served(t, Handler(viewer)))
	for _, page := range []struct {
		at, picture string
		dark        bool
		wants       []string
	}{
		{"", "console-overview", false, []string{"order:4711", "mails", "worker-2", "report", "chromium_test.go"}},
		{"locks", "console-locks", true, []string{"import:11", "order:4711"}},
		{"semaphores", "", false, []string{"uploads"}},
		{"semaphore?name=uploads", "", false, []string{"2 of 3 permits"}},
		{"latches", "", false, []string{"start"}},
		{"latch?name=start", "", false, []string{"The count is 7"}},
		{"queues", "", false, []string{"mails"}},
		{"queue?name=mails&state=dead", "", false, []string{"6 delayed, 2 ready, 0 in flight, 1 dead", "mail-0"}},
		{"queue?name=payments&state=dead", "console-queue", false, []string{"payment-2305", "the card has expired"}},
		{"executor?name=media", "console-executor", false, []string{"report orphaned: no worker was ever seen", "resize a worker was seen"}},
		{"message?kind=executor&name=media&id=r-1", "", false, []string{"resize", "no picture"}},
		{"message?name=mails&id=mail-0", "", false, []string{"dead", "not shown here"}},
		{"schedulers", "", false, []string{"billing", "jobs: 2, running 0, paused 1, failed at last 1"}},
		{"schedulers?q=none", "", false, []string{"Nothing was found"}},
		{"scheduler?name=none", "", false, []string{"No process has run this scheduler"}},
		{"scheduler?name=billing&job=dunning", "console-scheduler", false, []string{"30 4 * * MON", "failed", "paused: the month is closed", "by hand", "the bank does not answer"}},
		{"clients", "", false, []string{"web-1", "worker-2", "2 of 2 clients answered"}},
		{"lock?name=order:4711", "console-lock", false, []string{"Held, token 1", "web-1", "chromium_test.go", "Calls that wait", "worker-2"}},
	} {
		b.open(page.at)
		for _, want := range page.wants {
			b.sees(want)
		}
		if page.picture != "" {
			b.picture(page.picture, page.dark)
		}
	}
	b.open("client?id=" + held.Owner()[:strings.LastIndexByte(held.Owner(), ':')])
	b.sees("Holds: 4") // with the permit

	fair, err := viewer.GetFairLock("invoices").Info(t.Context())
	require.NoError(t, err)
	require.Len(t, fair.Queue, 2)
	b.open("lock?name=invoices")
	b.sees("Queue, in order")
	var queue []string
	b.do(chromedp.Evaluate(`[...document.querySelectorAll("h2 + ol code")].map(c => c.textContent)`, &queue))
	assert.Equal(t, []string{fair.Queue[0].Owner, fair.Queue[1].Owner}, queue)
	_, err = viewer.GetFairLock("invoices").ForceUnlock(t.Context())
	require.NoError(t, err)
	b.do(chromedp.Poll(`document.querySelector("[aria-label=Holders] td").innerText === "`+queue[0]+`"`, nil, chromedp.WithPollingTimeout(20*time.Second)))

	b.open("lock?name=order:4711")
	b.sees("web-1")
	b.do(chromedp.Poll(`(() => { // the bar runs down, also while no message puts another one in its place
		const bar = document.querySelector("progress");
		if (window.seen !== bar) {
			[window.seen, window.left] = [bar, bar.value];
		}
		return bar.value < window.left;
	})()`, nil, chromedp.WithPollingTimeout(20*time.Second)))
	require.NoError(t, held.Unlock(t.Context()))
	b.sees("worker-2") // whom the page has not shown as holder, without being loaded again
	var history string
	b.do(chromedp.Poll(`document.querySelectorAll("#history li").length > 0`, nil, chromedp.WithPollingTimeout(20*time.Second)),
		chromedp.Text("#history", &history, chromedp.ByQuery))
	assert.Contains(t, history, "worker-2")
}

func TestChromiumRunsNoScriptOfAName(t *testing.T) {
	s := newSite(t)
	acquire(t, s.client.GetLock(hostile))
	b := startChromium(t, s.Server)
	for _, page := range []string{"locks", "lock?name=" + url.QueryEscape(hostile)} {
		b.open("ops/locks/" + page)
		b.sees(hostile)
		var title string
		b.do(chromedp.Title(&title))
		assert.NotContains(t, title, "stolen")
	}
}

func TestActionsInChromium(t *testing.T) {
	allowed := false
	s := newSite(t, WithActions(func(*http.Request, Action) error {
		if !allowed {
			return errors.New("nobody is logged in")
		}
		return nil
	}))
	shown := acquire(t, s.client.GetLock("orders"))
	b := startChromium(t, s.Server)
	free := func() { t.Helper(); b.click(`button[value="force"]`) }
	b.open("ops/locks/lock?name=orders")
	free()
	b.sees("you may not do that")

	allowed = true
	b.open("ops/locks/lock?name=orders")
	b.do(chromedp.SetValue(`input[name="csrf"]`, "forged", chromedp.ByQuery))
	free()
	b.sees("not allowed from here")

	b.open("ops/locks/lock?name=orders")
	b.sees("This takes it from " + shown.Owner())
	require.NoError(t, shown.Unlock(t.Context()))
	acquire(t, s.client.GetLock("orders"))
	free()
	b.sees("somebody else holds it now")
	free()
	b.sees("It was freed.")
	locked, err := s.client.GetLock("orders").IsLocked(t.Context())
	require.NoError(t, err)
	assert.False(t, locked)
}

// state is where a message is; "" for one that was deleted.
func (s *site) state(t *testing.T, id string) string {
	t.Helper()
	m, err := redlatch.GetDelayedQueue[string](s.client, "mails").Get(t.Context(), id)
	if errors.Is(err, rdelayedqueue.ErrNotFound) {
		return ""
	}
	require.NoError(t, err)
	return m.State.String()
}

func TestQueueIsOperatedInChromium(t *testing.T) {
	t.Parallel()
	var allowed atomic.Bool
	s := newSite(t, WithActions(func(*http.Request, Action) error {
		if !allowed.Load() {
			return errors.New("nobody is logged in")
		}
		return nil
	}))
	q := redlatch.GetDelayedQueue[string](s.client, "mails", rdelayedqueue.WithMaxAttempts(1))
	for _, id := range []string{"dead-1", "dead-2", "dead-3"} {
		offer(t, s.client, "mails", id, "hello", 0)
		m, err := q.Take(t.Context())
		require.NoError(t, err)
		require.NoError(t, m.Nack(t.Context(), 0))
	}
	for _, id := range []string{"later-1", "later-2", "later-3"} {
		offer(t, s.client, "mails", id, "hello", time.Hour)
	}
	b := startChromium(t, s.Server)
	all := func() (states []string) {
		for _, id := range []string{"dead-1", "dead-2", "dead-3", "later-1", "later-2", "later-3"} {
			states = append(states, s.state(t, id))
		}
		return states
	}
	before := all()
	require.Equal(t, []string{"dead", "dead", "dead", "delayed", "delayed", "delayed"}, before)
	for _, step := range []struct {
		page, verb, says string
		then             []string
	}{
		{"message?name=mails&id=dead-1", "redrive", "3 delayed, 1 ready, 0 in flight, 2 dead", []string{"ready", "dead", "dead", "delayed", "delayed", "delayed"}},
		{"message?name=mails&id=dead-2", "cancel", "3 delayed, 1 ready, 0 in flight, 1 dead", []string{"ready", "", "dead", "delayed", "delayed", "delayed"}},
		{"message?name=mails&id=later-1", "cancel", "2 delayed, 1 ready, 0 in flight, 1 dead", []string{"ready", "", "dead", "", "delayed", "delayed"}},
		{"queue?name=mails", "redrive", "2 delayed, 2 ready, 0 in flight, 0 dead", []string{"ready", "", "ready", "", "delayed", "delayed"}},
		{"queue?name=mails&state=delayed", "purge", "0 delayed, 2 ready, 0 in flight, 0 dead", []string{"ready", "", "ready", "", "", ""}},
	} {
		press := func() { t.Helper(); b.click(`button[value="` + step.verb + `"]`) }
		tick := func() {
			t.Helper()
			if step.verb == "purge" {
				b.click(`input[type="checkbox"]`)
			}
		}
		allowed.Store(false)
		b.open("ops/locks/" + step.page)
		tick()
		press()
		b.sees("you may not do that")
		require.Equal(t, before, all(), "%s, refused", step.page)

		allowed.Store(true)
		b.open("ops/locks/" + step.page)
		if step.verb == "purge" {
			press() // without a tick the browser sends nothing
			assert.Equal(t, before, all())
		}
		tick()
		press()
		b.sees("Done.")
		b.sees(step.says)
		before = all()
		assert.Equal(t, step.then, before, step.page)
	}
	b.click(`button[value="redrive"]`)
	b.sees("Nothing was done")
}

func TestReaderHasNoActionsInChromium(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	acquire(t, s.client.GetLock("orders"))
	offer(t, s.client, "mails", "m-1", "hello", time.Hour)
	b := startChromium(t, s.Server)
	for page, shown := range map[string]string{"lock?name=orders": "Held.", "queue?name=mails&state=delayed": "m-1", "message?name=mails&id=m-1": "delayed"} {
		b.open("ops/locks/" + page)
		b.sees(shown)
		var actions int
		b.do(chromedp.Evaluate(`document.querySelectorAll("form[method=post], button[name=verb]").length`, &actions))
		assert.Zero(t, actions, page)
	}
}

func served(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}
