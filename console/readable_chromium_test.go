package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// mainPages are pages of a night, and what each shows.
func mainPages() map[string][]string {
	return map[string][]string{
		"":                                   {"order:4711", "mails", "worker-2", "report"},
		"locks":                              {"import:11", "order:4711"},
		"lock?name=order:4711":               {"Held, token 1", "web-1", "Calls that wait", "worker-2"},
		"semaphores":                         {"uploads"},
		"semaphore?name=uploads":             {"2 of 3 permits"},
		"latches":                            {"start"},
		"latch?name=start":                   {"The count is 7"},
		"barriers":                           {"Nothing was found"},
		"barrier?name=none":                  {"Nobody has used it for a minute"},
		"queues":                             {"mails"},
		"queue?name=mails&state=dead":        {"6 delayed, 2 ready, 0 in flight, 1 dead", "mail-0"},
		"queue?name=mails&state=delayed":     {"mail-8"},
		"executor?name=media":                {"report", "orphaned"},
		"message?name=mails&id=mail-0":       {"dead", "not shown here"},
		"lock?name=invoices":                 {"Queue, in order"},
		"schedulers":                         {"billing"},
		"scheduler?name=billing&job=dunning": {"the bank does not answer"},
		"elections":                          {"Nothing was found"},
		"election?name=none":                 {"Nobody leads"},
		"caches":                             {"users"},
		"cache?name=users":                   {"50.0 %", "web-1"},
		"cache?name=none":                    {"No client that answers has read it"},
		"clients":                            {"2 of 2 clients answered"},
		"lock":                               {"the address has no name"}, // an error
	}
}

func TestPagesAreReadAndUsedWithoutScripts(t *testing.T) {
	t.Parallel()
	viewer, _ := night(t)
	b := startChromium(t, served(t, Handler(viewer, WithLogger(slog.New(slog.DiscardHandler)), WithActions(func(*http.Request, Action) error { return nil }))))
	b.do(emulation.SetScriptExecutionDisabled(true))
	for page, wants := range mainPages() {
		redistest.Eventually(t, 20*time.Second, "the page is read", func() error { // on a busy machine the overview has no time for all
			b.open(page)
			return b.says(append(wants, "Without JavaScript")...)
		})
	}
	b.open("")
	for _, page := range []string{"Locks", "Semaphores", "Latches", "Barriers", "Queues and executors", "Schedulers", "Elections", "Caches", "Clients", "Overview"} {
		b.do(chromedp.Click(`//nav/a[.="`+page+`"]`, chromedp.BySearch))
		b.sees(page)
		b.title(page)
	}
	b.open("locks")
	b.do(chromedp.SetValue(`select[name="sort"]`, "name", chromedp.ByQuery),
		chromedp.SendKeys(`input[name="q"]`, "import:0*", chromedp.ByQuery), chromedp.Click(`form button`, chromedp.ByQuery))
	b.lists("import:00", "import:01", "import:02", "import:03", "import:04", "import:05", "import:06", "import:07", "import:08", "import:09")
	b.do(chromedp.Click(`//td/a[.="import:03"]`, chromedp.BySearch))
	b.sees("Held.")
	b.do(chromedp.Click(`button[value="force"]`, chromedp.ByQuery))
	b.sees("It was freed.")
	locked, err := viewer.GetLock("import:03").IsLocked(t.Context())
	require.NoError(t, err)
	assert.False(t, locked)
}

func TestListsHavePagesWithoutScripts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var names []string
	for i := range 2*pageSize + 1 {
		names = append(names, fmt.Sprintf("order:%03d", i))
		acquire(t, s.client.GetLock(names[i]))
	}
	b := startChromium(t, s.Server)
	b.do(emulation.SetScriptExecutionDisabled(true))
	turn := func(link string) { t.Helper(); b.do(chromedp.Click(`a[rel="`+link+`"]`, chromedp.ByQuery)) }
	b.open("ops/locks/locks?sort=name")
	b.lists(names[:pageSize]...)
	turn("next")
	b.lists(names[pageSize : 2*pageSize]...)
	turn("next")
	b.lists(names[2*pageSize:]...)
	turn("prev")
	b.lists(names[pageSize : 2*pageSize]...)
}

// title waits until the page has a title.
func (b *chromium) title(want string) {
	b.t.Helper()
	redistest.Eventually(b.t, 20*time.Second, "the title is "+want, func() error {
		var title string
		if err := chromedp.Run(b.ctx, chromedp.Evaluate(`document.readyState === "complete" ? document.title : "loading"`, &title)); err != nil {
			return err
		}
		if !strings.HasPrefix(title, want) {
			return fmt.Errorf("it is %s", title)
		}
		return nil
	})
}

// lists waits until the page lists these names and no others.
func (b *chromium) lists(want ...string) {
	b.t.Helper()
	redistest.Eventually(b.t, 20*time.Second, fmt.Sprint("the list is of ", want), func() error {
		var names []string
		err := chromedp.Run(b.ctx, chromedp.Evaluate(`[...document.querySelectorAll("#rows td:first-child")].map((c) => c.innerText)`, &names))
		if err == nil && !slices.Equal(want, names) {
			err = fmt.Errorf("it is of %v", names)
		}
		return err
	})
}

// focused is what has the focus: its text, or its name if it has none, and whether a person sees that.
type focused struct {
	Text, Name string
	Seen       bool
}

const focusScript = `(() => {
  const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect();
  const outlined = s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 1 && s.outlineColor !== "rgba(0, 0, 0, 0)";
  return {text: e.innerText.trim().slice(0, 40), name: e.getAttribute("name") || "", seen: e.matches(":focus-visible") && outlined && r.width > 0 && r.left >= 0};
})()`

// tab goes to the next place that takes the focus, and returns what it is called.
func (b *chromium) tab() string {
	b.t.Helper()
	b.key(kb.Tab)
	f := b.focus()
	assert.True(b.t, f.Seen, "%+v is not seen to have the focus", f)
	if f.Name != "" {
		return f.Name
	}
	return f.Text
}

func (b *chromium) focus() (f focused) {
	b.t.Helper()
	b.do(chromedp.Evaluate(focusScript, &f))
	return f
}

func (b *chromium) enter() { b.t.Helper(); b.key(kb.Enter) }

// key presses a key once the page is loaded: until then Chromium goes back to what the address names, and takes the focus along.
func (b *chromium) key(key string) {
	b.t.Helper()
	redistest.Eventually(b.t, 20*time.Second, "the page is loaded", func() error { // a poll in the page ends with an error if the page goes
		var state string
		err := chromedp.Run(b.ctx, chromedp.Evaluate("document.readyState", &state))
		if err == nil && state != "complete" {
			err = errors.New(state)
		}
		return err
	})
	b.do(chromedp.KeyEvent(key))
}

// tabs goes through places, one after the other.
func (b *chromium) tabs(places ...string) {
	b.t.Helper()
	for _, want := range places {
		require.Equal(b.t, want, b.tab())
	}
}

func TestKeyboardReachesAllInOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t, WithActions(func(*http.Request, Action) error { return nil }))
	names := []string{"import:1", "orders", "prices"}
	for _, name := range names {
		acquire(t, s.client.GetLock(name))
	}
	b := startChromium(t, s.Server)
	pages := []string{"Overview", "Locks", "Semaphores", "Latches", "Barriers", "Queues and executors", "Schedulers", "Elections", "Caches", "Clients"}
	b.open("ops/locks/")
	b.sees("Longest holds")
	b.tabs(append([]string{"To the content"}, pages[:2]...)...)
	b.enter()
	b.title("Locks")
	b.sees("orders")
	b.tabs(append(append([]string{"To the content"}, pages...), "q", "sort", "Search")...)
	require.Contains(t, names, b.tab(), "in any order")

	b.open("ops/locks/locks?sort=name")
	b.sees("orders")
	b.tabs("To the content")
	b.enter()
	b.tabs("q") // past the navigation
	b.key("ord")
	b.enter()
	b.lists("orders")
	b.tabs("To the content")
	b.enter()
	b.tabs("q", "sort", "Search", "orders")

	// The row is replaced while its link has the focus: its lease runs down.
	b.do(chromedp.Evaluate(`document.activeElement.closest("tr").dataset.old = "1"`, nil),
		chromedp.Poll(`!document.querySelector("tr[data-old]")`, nil, chromedp.WithPollingTimeout(20*time.Second)))
	assert.Equal(t, focused{Text: "orders", Seen: true}, b.focus())

	b.enter()
	b.sees("Held.")
	b.tabs("To the content")
	b.enter()
	b.tabs("verb") // above the rows
	b.enter()
	b.sees("It was freed.")
	locked, err := s.client.GetLock("orders").IsLocked(t.Context())
	require.NoError(t, err)
	assert.False(t, locked)

	offer(t, s.client, "mails", "m-1", "hello", time.Hour)
	b.open("ops/locks/queue?name=mails&state=delayed")
	b.sees("m-1")
	b.tabs("To the content")
	b.enter()
	b.tabs("verb", "verb", "verb", "delayed 1", "ready 0", "in-flight 0", "dead 0", "q", "Search") // pause, resume, redrive
	b.tabs("verb", "verb", "delay")                                                                // of the chosen ones: cancel, snooze
	assert.Empty(t, b.tab())                                                                       // the box without which nothing is deleted
	b.key(" ")
	b.tabs("verb")
	b.enter()
	b.sees("Done.")
	assert.Empty(t, s.state(t, "m-1"))
}

// node is a part of what a screen reader is given. cdproto has such a type, which does not know all that Chromium says.
type node struct {
	Ignored    bool  `json:"ignored"`
	Role       value `json:"role"`
	Name       value `json:"name"`
	Properties []struct {
		Name  string `json:"name"`
		Value value  `json:"value"`
	} `json:"properties"`
}

type value struct {
	Value any `json:"value"`
}

func (v value) String() string { return fmt.Sprint(v.Value) }

// tree returns the accessibility tree of the page.
func (b *chromium) tree() []node {
	b.t.Helper()
	var tree struct {
		Nodes []node `json:"nodes"`
	}
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		return cdp.Execute(ctx, accessibility.CommandGetFullAXTree, nil, &tree)
	}))
	return slices.DeleteFunc(tree.Nodes, func(n node) bool { return n.Ignored })
}

func TestScreenReaderIsGivenRolesAndNames(t *testing.T) {
	t.Parallel()
	viewer, held := night(t)
	b := startChromium(t, served(t, Handler(viewer, WithLogger(slog.New(slog.DiscardHandler)), WithActions(func(*http.Request, Action) error { return nil }))))
	pages := mainPages()
	pages["client?id="+held.Owner()[:strings.LastIndexByte(held.Owner(), ':')]] = []string{"Holds: 4"}
	named := []string{"table", "columnheader", "rowheader", "button", "link", "searchbox", "textbox", "combobox", "checkbox", "progressbar", "img", "image", "heading", "navigation"}
	seen := map[string]int{}
	for page, wants := range pages {
		b.open(page)
		for _, want := range wants {
			b.sees(want)
		}
		headings, r := 0, map[string]int{}
		for _, n := range b.tree() {
			role := n.Role.String()
			r[role]++
			if slices.Contains(named, role) {
				assert.NotEmpty(t, n.Name.Value, "a %s of %q", role, page)
			}
			for _, p := range n.Properties {
				if role == "heading" && p.Name == "level" && p.Value.String() == "1" {
					headings++
				}
			}
		}
		assert.Equal(t, 1, headings, "h1 of %q", page)
		assert.Equal(t, 1, r["main"], "main of %q", page)
		var counts struct{ Tables, Buttons, Links, Fields, Silent int }
		b.do(chromedp.Evaluate(`(() => {
  const n = (s) => [...document.querySelectorAll(s)].filter((e) => e.checkVisibility()).length;
  // The number or the state that a bar draws is in its row, and what a sign means is beside it.
  const silent = [...document.querySelectorAll("svg")].filter((s) => s.ariaHidden === "true" ? !s.closest(".legend, figcaption") && !/\d/.test(s.closest("tr")?.innerText) : !s.ariaLabel).length;
  return {tables: n("table"), buttons: n("button"), links: n("a"), fields: n("input:not([type=hidden]), select"), silent};
})()`, &counts))
		assert.Equal(t, counts.Tables, r["table"], "tables of %q", page)
		assert.Equal(t, counts.Buttons, r["button"], "buttons of %q", page)
		assert.Equal(t, counts.Links, r["link"], "links of %q", page)
		assert.Equal(t, counts.Fields, r["searchbox"]+r["textbox"]+r["combobox"]+r["checkbox"], "fields of %q", page)
		assert.Zero(t, counts.Silent, "charts without a text of %q", page)
		for role, n := range r {
			seen[role] += n
		}
	}
	for _, role := range []string{"table", "columnheader", "button", "link", "searchbox", "combobox", "checkbox", "progressbar", "navigation", "search"} {
		assert.NotZero(t, seen[role], role)
	}
}

func TestTooLargePageSaysSoInChromium(t *testing.T) {
	t.Parallel()
	s := newSite(t, WithPayloads())
	offer(t, s.client, "mails", "m-1", strings.Repeat("x", liveMost), time.Hour)
	b := startChromium(t, s.Server)
	b.open("ops/locks/message?name=mails&id=m-1")
	b.sees("too large for live updates")
	_, err := redlatch.GetDelayedQueue[string](s.client, "mails").Cancel(t.Context(), "m-1")
	require.NoError(t, err)
	b.sees("it is not there")
	var said string
	b.do(chromedp.Text("#large", &said, chromedp.ByQuery, chromedp.NodeReady))
	assert.Empty(t, said)
}
