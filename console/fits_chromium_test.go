package console

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// pale is text whose contrast with what is behind it is below that of WCAG AA.
const paleScript = `(() => {
  const rgb = (c) => c.match(/[\d.]+/g).map(Number);
  const light = (c) => {
    const [r, g, b] = rgb(c).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if ((rgb(c)[3] ?? 1) > 0) { return c; }
    }
    return "rgb(255, 255, 255)";
  };
  const pale = [];
  for (const e of document.querySelectorAll("body *")) {
    const says = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!says || !e.checkVisibility() || ["SCRIPT", "NOSCRIPT", "OPTION", "TITLE"].includes(e.tagName.toUpperCase())) { continue; }
    const s = getComputedStyle(e);
    const [a, b] = [light(e instanceof SVGElement ? s.fill : s.color), light(behind(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) { pale.push(e.tagName + " " + e.textContent.trim().slice(0, 30) + " " + ((a + 0.05) / (b + 0.05)).toFixed(2)); }
  }
  return pale;
})()`

func TestPagesFitAndAreReadableInLightAndDark(t *testing.T) {
	t.Parallel()
	viewer, _ := night(t)
	b := startChromium(t, served(t, Handler(viewer, WithLogger(slog.New(slog.DiscardHandler)), WithActions(func(*http.Request, Action) error { return nil }))))
	pages := mainPages()
	pages["queue?name=payments&state=dead"] = []string{"payment-2305"}
	pages["queue?name=payments&q=connection"] = []string{"payment-2301", "all that are found"}
	for page, wants := range pages {
		redistest.Eventually(t, 20*time.Second, "the page is read", func() error {
			b.open(page)
			return b.says(wants...)
		})
		for _, scheme := range []string{"light", "dark"} {
			b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
			for _, width := range []int64{1280, 800, 400} {
				var beside int
				var pale []string
				b.do(emulation.SetDeviceMetricsOverride(width, 820, 1, false),
					chromedp.Evaluate(`document.documentElement.scrollWidth - window.innerWidth`, &beside), chromedp.Evaluate(paleScript, &pale))
				assert.LessOrEqual(t, beside, 0, "%q is wider than %d", page, width)
				assert.Empty(t, pale, "%q, %s", page, scheme)
				if *pictures != "" && strings.Contains(os.Getenv("SHOTS"), "all") {
					var png []byte
					b.do(chromedp.FullScreenshot(&png, 100))
					name := fmt.Sprintf("%s-%d-%s.png", url.QueryEscape(page), width, scheme)
					require.NoError(t, os.WriteFile(filepath.Join(*pictures, name), png, 0o644)) //nolint:gosec // a document
				}
			}
		}
	}
}

// shifted adds up by how much a page moves without being asked to, as Chromium measures it.
const shiftScript = `window.shifted = 0; window.moved = [];
new PerformanceObserver((l) => l.getEntries().forEach((e) => {
  window.shifted += e.value;
  e.sources.forEach((s) => window.moved.push((s.node?.outerHTML ?? s.node?.textContent ?? "").slice(0, 60) + " " + JSON.stringify(s.previousRect) + JSON.stringify(s.currentRect)));
})).observe({type: "layout-shift", buffered: false}); 0`

func TestPagesDoNotMoveWhenTheyAreUpdated(t *testing.T) {
	t.Parallel()
	s := newSite(t, WithActions(func(*http.Request, Action) error { return nil }))
	bury(t, s.client, "mails", func(string) string { return "no luck" }, "d-1", "d-2")
	for i := range 9 {
		offer(t, s.client, "mails", fmt.Sprintf("m-%d", i), "hello", time.Hour)
		acquire(t, s.client.GetLock(fmt.Sprintf("import:%d", i)))
	}
	b := startChromium(t, s.Server)
	for page, is := range map[string]struct{ before, after string }{
		"":                               {"import:8", `document.querySelector("#queues td:nth-child(2)")?.innerText === "%d"`},
		"queue?name=mails&state=delayed": {"m-8", `document.querySelector("#live p")?.innerText.startsWith("%d delayed")`},
		"locks":                          {"import:8", ""},
	} {
		b.open("ops/locks/" + page)
		b.sees(is.before)
		b.do(chromedp.Evaluate(shiftScript, nil))
		if is.after == "" {
			b.do(chromedp.Evaluate(`window.old = document.querySelector("progress"); 0`, nil),
				chromedp.Poll(`document.querySelector("progress") !== window.old`, nil, chromedp.WithPollingTimeout(20*time.Second)))
		} else {
			stats, err := redlatch.GetDelayedQueue[string](s.client, "mails").Stats(t.Context())
			require.NoError(t, err)
			offer(t, s.client, "mails", "later"+url.QueryEscape(page), "hello", 2*time.Hour)
			b.do(chromedp.Poll(fmt.Sprintf(is.after, stats.Delayed+1), nil, chromedp.WithPollingTimeout(20*time.Second)))
		}
		var shifted float64
		var moved []string
		b.do(chromedp.Evaluate(`window.shifted`, &shifted), chromedp.Evaluate(`window.moved`, &moved))
		assert.Less(t, shifted, 0.01, "%q: %v", page, moved)
	}
}

func TestSlashGoesToTheSearch(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := startChromium(t, s.Server)
	for _, page := range []string{"locks", "queue?name=mails"} {
		b.open("ops/locks/" + page)
		b.title("") // it is loaded
		b.do(input.DispatchKeyEvent(input.KeyDown).WithKey("/").WithText("/"), input.DispatchKeyEvent(input.KeyUp).WithKey("/"))
		require.Equal(t, "q", b.focus().Name)
		b.key("a")
		b.key("/")
		var text string
		b.do(chromedp.Value(`input[name="q"]`, &text, chromedp.ByQuery))
		assert.Equal(t, "a/", text, "in the search it is a sign as others")
	}
}

func TestChosenMessagesStayChosenInChromium(t *testing.T) {
	t.Parallel()
	s := newSite(t, WithActions(func(*http.Request, Action) error { return nil }))
	bury(t, s.client, "mails", func(string) string { return "no luck" }, "d-1", "d-2", "d-3")
	b := startChromium(t, s.Server)
	b.open("ops/locks/queue?name=mails&state=dead")
	b.sees("d-3")
	b.click(`input[value="d-1"]`)
	b.click(`input[value="d-2"]`)
	_, err := redlatch.GetDelayedQueue[string](s.client, "mails").Cancel(t.Context(), "d-3") // which has the page updated
	require.NoError(t, err)
	b.do(chromedp.Poll(`document.querySelectorAll("#rows tr").length === 2`, nil, chromedp.WithPollingTimeout(20*time.Second)))
	b.click(`#chosen button[value="redrive"]`)
	b.sees("Done for 2 of 2 messages.")
	assert.Equal(t, "ready", s.state(t, "d-1"))

	offer(t, s.client, "mails", "later-1", "hello", time.Hour)
	b.open("ops/locks/queue?name=mails&q=-")
	b.sees("later-1")
	b.click(`[data-all] input`)
	b.click(`button[value="cancel"]`)
	b.sees("Done for 3 of 3 messages.")
	assert.Empty(t, s.state(t, "d-1"))
	assert.Empty(t, s.state(t, "later-1"))
}
