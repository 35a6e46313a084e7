package console

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/test/faulttest"
	"github.com/redlatch/redlatch/internal/test/locktest"
	"github.com/redlatch/redlatch/internal/test/redistest"
)

// A page begins before Redis is asked, a list ends with its first rows, and what there are few of is not hidden by many locks.
func TestPagesComeSoonAmongManyKeys(t *testing.T) {
	keys := faulttest.Rounds(t, 10_000, 1_000_000)
	server := redistest.Start(t)
	rdb := server.Client(t)
	const chunk = 5_000
	for at := 0; at < keys; at += chunk {
		_, err := rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := at; i < min(at+chunk, keys); i++ {
				if i < keys/10 {
					p.HSet(t.Context(), fmt.Sprint("lock", i), fmt.Sprint("web.9f2c1a0b77d01e42:", i), 1)
					p.PExpire(t.Context(), fmt.Sprint("lock", i), time.Hour)
				} else {
					p.Set(t.Context(), fmt.Sprint("session", i), "text", 0)
				}
			}
			return nil
		})
		require.NoError(t, err)
	}
	quiet := slog.New(slog.DiscardHandler)
	client, err := redlatch.New(server.Client(t), redlatch.WithCloseGrace(0), redlatch.WithLogger(quiet))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	offer(t, client, "mails", "m-1", "hello", 0)
	s := httptest.NewServer(Handler(client, WithLogger(quiet)))
	t.Cleanup(s.Close)
	lag := faulttest.MeasureLag(t, server.Addr())
	redistest.WatchCalls(t, rdb, 2*time.Millisecond)
	for page, rows := range map[string]int{"": 0, "locks": pageSize, "locks?q=lock1": pageSize, "locks?sort=lease": pageSize, "queues": 1, "latches": 0} {
		scripts := rdb.Info(t.Context(), "commandstats").Val()
		text, first, whole := timed(t, s, page)
		assert.Less(t, first, 300*time.Millisecond+lag.Worst(), page)
		if page == "locks" { // as found; the others look at all keys
			assert.Less(t, whole, 300*time.Millisecond+10*lag.Worst(), page)
		}
		assert.NotContains(t, text, `role="alert"`, page)
		if page != "" {
			assert.Equal(t, rows, strings.Count(text, `<tr id="row-lock-`)+strings.Count(text, `<tr id="row-queue-`), page)
		}
		if page == "" && !faulttest.Soaking() { // a million keys take the overview more time than it has
			redistest.Eventually(t, time.Minute, "all is shown", func() error {
				if text, _, _ = timed(t, s, page); strings.Contains(text, "There are more objects") {
					return errors.New("there are more")
				}
				return nil
			})
		}
		if page == "" && !faulttest.Soaking() || page == "queues" {
			assert.Contains(t, text, "mails", page)
		}
		asked := calls(t, rdb.Info(t.Context(), "commandstats").Val()) - calls(t, scripts)
		if page == "queues" || page == "latches" {
			assert.Less(t, asked, 10, "locks are not looked at for %s", page)
		}
		t.Logf("%q: first byte %v, whole page %v, %d bytes, %d scripts", page, first, whole, len(text), asked)
	}
	// The machine may take time away in the middle of a call, so a few long ones prove nothing.
	if long := redistest.LongCalls(t, rdb, ""); len(long) > 0 {
		t.Logf("%d calls took 2 ms or more, the longest %v: %.60q", len(long), long[0].Duration, long[0].Args)
		if lag.Worst() < 2*time.Millisecond {
			assert.Less(t, len(long), max(10, keys/1000))
		}
	}
}

// Where not all are listed, a page says how many more there are.
func TestPagesOfACrowdSayHowManyMore(t *testing.T) {
	server := redistest.Start(t)
	client := open(t, server)
	permits := client.GetPermitSemaphore("uploads")
	require.NoError(t, permits.SetPermits(t.Context(), 130))
	_, err := permits.AcquireN(t.Context(), 120)
	require.NoError(t, err)
	for range 130 {
		acquire(t, client.GetReadWriteLock("prices").RLocker())
	}
	acquire(t, client.GetFairLock("orders"))
	rdb := server.Client(t)
	for i := range 140 {
		require.NoError(t, rdb.RPush(t.Context(), "redisson_lock_queue:{orders}", fmt.Sprint("java:", i)).Err())
	}
	s := served(t, Handler(client, WithActions(func(*http.Request, Action) error { return nil })))
	for page, more := range map[string]string{"lock?name=orders": "40", "lock?name=prices": "30", "semaphore?name=uploads": "20"} {
		status, text := get(t, s.URL+"/"+page)
		assert.Equal(t, http.StatusOK, status)
		assert.Contains(t, text, "<p>… and "+more+" more</p>", page)
		assert.Equal(t, page == "lock?name=orders", strings.Contains(text, "and from nobody else"), page)
	}
}

// A page with all of them would be too large to be followed.
func TestPagesListTheLongestWaits(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		client := unhurried(t, b)
		h := Handler(client)
		c := &h.(*handler).crowd
		const id = "web.9f2c1a0b77d01e42"
		a := &answer[redlatch.ClientReport]{at: time.Now(), there: make(chan struct{}), value: redlatch.ClientReport{ID: id, WaitCount: 5_000}}
		close(a.there)
		for i := range 5_000 {
			w := redlatch.WaitInfo{Kind: "lock", Name: "orders", Since: time.Now().Add(-time.Hour), Site: fmt.Sprintf("billing/main.go:%d", i)}
			c.last.Waits = append(c.last.Waits, inspect.Wait{Client: id, WaitInfo: w})
			if i < 1_000 { // as many as a client tells
				a.value.Waits = append(a.value.Waits, w)
			}
		}
		c.at, c.asked.all = time.Now(), map[string]*answer[redlatch.ClientReport]{id: a}
		b.Foreign(t, "orders", time.Minute)
		for _, page := range []string{"lock?name=orders", "semaphore?name=uploads", "latch?name=start", "barrier?name=start", "client?id=" + id} {
			c.last.Waits = slices.Clone(c.last.Waits)
			for i := range c.last.Waits {
				_, c.last.Waits[i].Name, _ = strings.Cut(page, "=")
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/"+page, nil))
			text := w.Body.String()
			assert.Contains(t, text, "billing/main.go:99<", page)
			assert.NotContains(t, text, "billing/main.go:100<", page)
			assert.Contains(t, text, "<p>… and 4900 more</p>", page)
			assert.Less(t, len(text), liveMost, page)
		}
	})
}

func TestOverviewListsTheNewestLosses(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, b *locktest.Bubble) {
		h := Handler(unhurried(t, b))
		c := &h.(*handler).crowd
		for i := range 1_000 {
			l := redlatch.LossInfo{
				Kind: "lock", Name: fmt.Sprintf("order:%d", i), At: time.Now().Add(-time.Duration(i) * 3 * time.Second),
				Held: time.Minute, Site: "billing/main.go:95", Cause: "Redis has it no longer",
			}
			c.last.Losses = append(c.last.Losses, inspect.Loss{Client: "web.9f2c1a0b77d01e42", LossInfo: l, Failover: "10.0.0.7:6379"})
		}
		c.at = time.Now()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		text := w.Body.String()
		assert.Contains(t, text, `aria-label="1000 losses in the last hour`)
		assert.Contains(t, text, `<rect x="16" y="0" width="7" height="25"/>`, "what is not listed is in the chart")
		assert.Contains(t, text, ">order:99<")
		assert.NotContains(t, text, ">order:100<")
		assert.Contains(t, text, "<p>… and 900 more</p>")
		assert.Less(t, len(text), liveMost)
	})
}

// timed returns what a page says, and after what times its first byte and all of it came.
func timed(t *testing.T, s *httptest.Server, page string) (text string, first, whole time.Duration) {
	t.Helper()
	began := time.Now()
	answer, err := s.Client().Get(s.URL + "/" + page)
	require.NoError(t, err)
	body := bufio.NewReader(answer.Body)
	_, err = body.Peek(1)
	require.NoError(t, err)
	first = time.Since(began)
	all, err := io.ReadAll(body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return string(all), first, time.Since(began)
}

// A client whose process was stopped still listens. Pages begin before it could answer.
func TestPagesComeSoonWhereAClientDoesNotAnswer(t *testing.T) {
	server := redistest.Start(t)
	client := open(t, server)
	owner := acquire(t, client.GetLock("orders")).Owner()
	_, err := client.GetPermitSemaphore("uploads").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	_, err = client.GetCountDownLatch("start").TrySetCount(t.Context(), 7)
	require.NoError(t, err)
	stopped := server.Client(t).Subscribe(t.Context(), "redlatch_client:stopped.0123456789abcdef")
	t.Cleanup(func() { assert.NoError(t, stopped.Close()) })
	_, err = stopped.Receive(t.Context())
	require.NoError(t, err)
	lag := faulttest.MeasureLag(t, server.Addr())
	for page, want := range map[string]string{
		"lock?name=orders": owner, "semaphore?name=uploads": "3 of 3 permits", "latch?name=start": "The count is 7",
		"client?id=stopped.0123456789abcdef": "no answer in",
	} {
		s := served(t, Handler(client)) // another one would know what was said a moment ago
		text, first, whole := timed(t, s, page)
		assert.Less(t, first, 300*time.Millisecond+lag.Worst(), page)
		assert.GreaterOrEqual(t, whole, crowdWait, page)
		assert.Contains(t, text, want, page)
	}
}

// calls returns how many scripts a server has run.
func calls(t *testing.T, stats string) (n int) {
	t.Helper()
	for line := range strings.Lines(stats) {
		if count, found := strings.CutPrefix(line, "cmdstat_evalsha:calls="); found {
			_, err := fmt.Sscanf(count, "%d", &n)
			require.NoError(t, err)
		}
	}
	return n
}
