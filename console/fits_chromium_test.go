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
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	bury(t, viewer, "payments", func(id string) string { return "the bank does not answer: dial tcp 10.0.0.7:443: connection refused\n" + id }, "order-1", "order-2", "order-3")
	b := startChromium(t, served(t, Handler(viewer, WithLogger(slog.New(slog.DiscardHandler)), WithActions(func(*http.Request, Action) error { return nil }))))
	pages := mainPages()
	pages["queue?name=payments&state=dead"] = []string{"order-3"}
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
