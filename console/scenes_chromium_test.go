package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rdelayedqueue"
	"github.com/redlatch/redlatch/rscheduler"
)

// seenFirst is which of some texts are not on the first screen of a page.
const seenFirstScript = `((texts) => texts.filter((text) => ![...document.querySelectorAll("#main *")].some((e) => {
  const r = e.getBoundingClientRect();
  return e.innerText?.includes(text) && ![...e.children].some((c) => c.innerText?.includes(text)) && r.height > 0 && r.top >= 0 && r.bottom <= innerHeight;
})))(%s)`

// look is a page of a scene, and what an engineer on call has to see first.
type look struct {
	page    string
	first   []string
	picture string // its name in the documents; empty for none
}

// shows checks pages at all widths, in light and dark, and keeps pictures of them if these are wanted.
func (b *chromium) shows(scene string, looks ...look) {
	b.t.Helper()
	for i, l := range looks {
		for _, scheme := range []string{"light", "dark"} {
			b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
			for _, width := range []int64{1280, 800, 400} {
				b.do(emulation.SetDeviceMetricsOverride(width, 820, 1, false))
				redistest.Eventually(b.t, 30*time.Second, fmt.Sprintf("%q of %s is seen first, %d wide", l.page, scene, width), func() error {
					var hidden []string // on a busy machine the overview has no time for all
					b.open(l.page)
					b.do(chromedp.Evaluate(fmt.Sprintf(seenFirstScript, quotedList(l.first)), &hidden))
					if len(hidden) > 0 {
						return fmt.Errorf("not on the first screen: %q", hidden)
					}
					return nil
				})
				var beside int
				var pale []string
				b.do(chromedp.Evaluate(`document.documentElement.scrollWidth - window.innerWidth`, &beside), chromedp.Evaluate(paleScript, &pale))
				assert.LessOrEqual(b.t, beside, 0, "%q of %s is wider than %d", l.page, scene, width)
				assert.Empty(b.t, pale, "%q of %s, %s", l.page, scene, scheme)
				name := fmt.Sprintf("scene-%s-%d-%d-%s", scene, i, width, scheme)
				inDocuments := l.picture != "" && width == 1280 && scheme == "light"
				if inDocuments {
					name = l.picture
				}
				if *pictures != "" && (inDocuments || strings.Contains(os.Getenv("SHOTS"), "all")) {
					var png []byte
					b.do(chromedp.FullScreenshot(&png, 100))
					require.NoError(b.t, os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o644)) //nolint:gosec // a document
				}
			}
		}
	}
}

func quotedList(texts []string) string {
	list := "["
	for _, text := range texts {
		list += fmt.Sprintf("%q,", text)
	}
	return list + "]"
}

// watched is a console of a scene, with actions.
func watched(t *testing.T, s *redistest.Server) *chromium {
	t.Helper()
	viewer := open(t, s, redlatch.WithoutPresence())
	quiet := WithLogger(slog.New(slog.DiscardHandler))
	return startChromium(t, served(t, Handler(viewer, quiet, WithActions(func(*http.Request, Action) error { return nil }))))
}

func TestSceneOfAnIdleSystem(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	b := watched(t, s)
	client := open(t, s, redlatch.WithClientName("web-1"))
	offer(t, client, "mails", "m-1", "hello", 0)
	m, err := redlatch.GetDelayedQueue[string](client, "mails").Take(t.Context())
	require.NoError(t, err)
	require.NoError(t, m.Ack(t.Context()))
	b.shows("idle", look{"", []string{"Nothing is seen to be wrong"}, ""}, look{"locks", []string{"Nothing was found"}, ""})
}

func TestSceneOfADeadlock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	ctx, giveUp := context.WithCancel(context.Background())
	t.Cleanup(giveUp)
	waits := map[string]*redlatch.Client{}
	for _, c := range [][3]string{
		{"orders", "order:4711", "stock:17"}, {"stock", "stock:17", "order:4711"}, // a deadlock
		{"import", "feed:eu", ""}, {"prices", "price:9", "feed:eu"}, {"web-1", "cart:3", "price:9"}, {"web-2", "", "cart:3"},
	} {
		client := open(t, s, redlatch.WithClientName(c[0]), redlatch.WithCallSites())
		if c[1] != "" {
			acquire(t, client.GetLock(c[1]))
		}
		waits[c[2]] = client
	}
	delete(waits, "")
	for name, client := range waits {
		go func() { _, _ = client.GetLock(name).Lock(ctx) }() // until the test ends
	}
	b := watched(t, s)
	b.shows("deadlock",
		look{"", []string{"deadlock?", "order:4711", "stock:17"}, "console-deadlock"},
		look{"lock?name=order:4711", []string{"Free this lock", "Held.", "Perhaps a circle of waits"}, ""},
		look{"lock?name=price:9", []string{"Free this lock", "Held.", "prices."}, ""},
	)
	b.open("lock?name=price:9")
	b.sees("holds up 3 clients by lock feed:eu")
}

func TestSceneOfAQueueThatGrows(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	client := open(t, s, redlatch.WithClientName("web-1"))
	faults := []string{
		"dial tcp 10.0.0.7:443: connect: connection refused", "context deadline exceeded", "the card has expired", "the account is closed",
		"409 Conflict: the invoice was paid", "unexpected EOF", "no such customer", "x509: certificate has expired or is not yet valid",
		"json: cannot unmarshal string into Go struct field Order.amount of type int", "the currency is not known", "429 Too Many Requests", "disk quota exceeded",
	}
	ids := make([]string, 4_999)
	kind := map[string]int{}
	for i := range ids {
		ids[i] = fmt.Sprintf("payment-%04d", i)
		kind[ids[i]] = min(i*i%41, i%len(faults)) // some of them come often
	}
	bury(t, client, "payments", func(id string) string { return faults[kind[id]] }, ids...)
	payments := redlatch.GetDelayedQueue[string](client, "payments")
	_, err := payments.Offer(t.Context(), "100 EUR", 0, rdelayedqueue.WithID("refund-17"))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	require.NoError(t, payments.Consume(ctx, func(_ context.Context, m *rdelayedqueue.Message[string]) error {
		if m.Attempt == 3 {
			stop()
		}
		return errors.New(faults[m.Attempt-1])
	}, rdelayedqueue.WithMaxAttempts(3), rdelayedqueue.WithBackoff(func(int) time.Duration { return 400 * time.Millisecond })))
	items := make([]rdelayedqueue.Item[string], 2_000)
	for i := range items {
		items[i] = rdelayedqueue.Item[string]{ID: fmt.Sprintf("next-%04d", i), Value: "100 EUR"}
	}
	_, err = payments.OfferBatch(t.Context(), items)
	require.NoError(t, err)
	tell(t, s.Client(t), "payments", 300, 180)
	watched(t, s).shows("growth",
		look{"", []string{"grows", "more came than went in the last 10 min", "dead letters", "5000 messages, of the newest 50: "}, "console-growth"},
		look{"queue?name=payments&state=dead", []string{"2000 ready", "5000 dead", "context deadline exceeded"}, ""},
		look{"message?name=payments&id=refund-17", []string{"Deliver it again", "dead", "died", "Timeline"}, "console-message"},
	)
}

// A run is late after ten seconds.
func TestSceneOfLateRuns(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	s := redistest.Start(t)
	client := open(t, s, redlatch.WithClientName("worker-1"))
	ctx, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	runJobs(t, ctx, client.GetScheduler("billing"))
	busy := client.GetScheduler("exports", rscheduler.WithConcurrency(1))
	begun := make(chan struct{})
	require.NoError(t, busy.Register("import", rscheduler.At(time.Now().Add(100*time.Millisecond)), func(context.Context, rscheduler.Run) error {
		close(begun)
		<-ctx.Done()
		return nil
	}))
	go func() { _ = busy.Run(ctx) }()
	<-begun
	for i := range 6 {
		every := rscheduler.Every(time.Duration(1+i/2*1_000) * time.Second)
		require.NoError(t, busy.Register(fmt.Sprintf("export-%d", i), every, func(context.Context, rscheduler.Run) error { return nil }))
	}
	watched(t, s).shows("late",
		look{"", []string{"late", "job export-0, was due", "job export-1, was due", "failed", "dunning"}, ""},
		look{"scheduler?name=exports", []string{"export-0", "From 8 hours ago"}, ""},
	)
}

func TestSceneOfManyLocks(t *testing.T) {
	redistest.Long(t)
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client(t)
	for at := 0; at < 100_000; at += 5_000 {
		_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := at; i < at+5_000; i++ {
				p.HSet(t.Context(), fmt.Sprintf("order:%d", i), fmt.Sprint("web.9f2c1a0b77d01e42:", i), 1)
				p.PExpire(t.Context(), fmt.Sprintf("order:%d", i), time.Hour)
			}
			return nil
		})
		require.NoError(t, err)
	}
	client := open(t, s)
	bury(t, client, "mails", func(string) string { return "no luck" }, "m-1")
	watched(t, s).shows("crowd",
		look{"", []string{"dead letters", "1 message"}, ""},
		look{"locks?q=order:777*", []string{"order:777", "held by web.9f2c1a0b77d01e42"}, ""},
	)
}
