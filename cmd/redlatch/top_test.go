package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"html"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/test/redistest"
	"github.com/redlatch/redlatch/rexecutor"
	"github.com/redlatch/redlatch/rlock"
	"github.com/redlatch/redlatch/rscheduler"
)

// keys presses keys.
func keys(s *screen, all ...string) {
	for _, key := range all {
		msg := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(key)}
		switch key {
		case "enter":
			msg = tea.KeyMsg{Type: tea.KeyEnter}
		case "esc":
			msg = tea.KeyMsg{Type: tea.KeyEsc}
		case "up":
			msg = tea.KeyMsg{Type: tea.KeyUp}
		case "down":
			msg = tea.KeyMsg{Type: tea.KeyDown}
		}
		s.Update(msg)
	}
}

func TestScreenShowsSortsFiltersAndDrillsDown(t *testing.T) {
	r := newRig(t)
	hold, err := r.c.GetLock("alpha").Lock(t.Context())
	require.NoError(t, err)
	_, err = r.c.GetSemaphore("beta").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	s := &screen{ctx: t.Context(), c: r.c, every: time.Second, by: byName}
	look := func() {
		t.Helper()
		s.Update(s.look()())
		require.NoError(t, s.err)
	}
	s.Update(tea.WindowSizeMsg{Width: 80, Height: 24})
	look()
	assert.Regexp(t, `(?s)> +lock +alpha .*held by worker.*semaphore +beta`, s.View())
	keys(s, "down")
	assert.Regexp(t, `> +semaphore +beta`, s.View())
	keys(s, "/", "a", "l", "enter")
	assert.NotContains(t, s.View(), "beta")
	_, opening := s.Update(tea.KeyMsg{Type: tea.KeyEnter})
	_, next := s.Update(opening())
	assert.Nil(t, next, "the next look is that of before")
	assert.Regexp(t, `held by +`+hold.Owner(), s.View(), "it was looked at at once")
	look()
	assert.Regexp(t, `held by +`+hold.Owner(), s.View())
	keys(s, "esc", "/", "esc")
	assert.Contains(t, s.View(), "beta")

	s.Update(looked{err: assert.AnError})
	assert.Contains(t, s.View(), assert.AnError.Error())
	assert.Contains(t, s.View(), "beta", "what was seen last")
	_, end := s.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("q")})
	assert.Equal(t, tea.QuitMsg{}, end())
	require.NoError(t, hold.Unlock(t.Context()))
}

func TestScreenFiltersAndOpensEveryKind(t *testing.T) {
	r := newRig(t)
	for _, l := range []rlock.Locker{r.c.GetLock("a-lock"), r.c.GetFairLock("a-fair"), r.c.GetReadWriteLock("a-page").RLocker()} {
		hold, err := l.Lock(t.Context())
		require.NoError(t, err)
		defer func() { assert.NoError(t, hold.Unlock(context.WithoutCancel(t.Context()))) }()
	}
	_, err := r.c.GetSemaphore("a-pool").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	_, err = r.c.GetPermitSemaphore("a-semaphore").TrySetPermits(t.Context(), 2)
	require.NoError(t, err)
	permit, err := r.c.GetPermitSemaphore("a-semaphore").Acquire(t.Context())
	require.NoError(t, err)
	_, err = r.c.GetCountDownLatch("a-latch").TrySetCount(t.Context(), 7)
	require.NoError(t, err)
	_, err = redlatch.GetDelayedQueue[string](r.c, "a-queue").Offer(t.Context(), "hello", time.Hour)
	require.NoError(t, err)
	require.NoError(t, rexecutor.NewTask[string, struct{}]("resize").Send(t.Context(), rexecutor.New(r.c, "a-worker"), "a.png"))
	leader, err := r.c.GetElection("a-leader").Campaign(t.Context())
	require.NoError(t, err)
	jobs := r.c.GetScheduler("a-scheduler")
	require.NoError(t, jobs.Register("report", rscheduler.Every(time.Hour), func(context.Context, rscheduler.Run) error { return nil }))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- jobs.Run(ctx) }()
	require.Eventually(t, func() bool { all, err := jobs.Jobs(t.Context()); return err == nil && len(all) == 1 }, 10*time.Second, 10*time.Millisecond)
	s := &screen{ctx: t.Context(), c: r.c, every: time.Second, by: byName}
	s.Update(tea.WindowSizeMsg{Width: 110, Height: 24})
	for name, want := range map[string]string{
		"a-lock": `held by +worker`, "a-fair": `held by +worker`, "a-page": `held to +read`, "a-pool": `available +3`,
		"a-semaphore": `permit +` + permit.ID(), "a-latch": `count +7`, "a-queue": `(?s)delayed +1\n.*lag +0s\n.*\nlast hour +1 +0 `,
		"a-worker": `(?s)executor +a-worker\n.*task resize +0 delayed, 1 ready, 0 in flight, 0 dead, no worker handles it\n.*\nlast hour +1 +0 `, "a-leader": `led by +` + leader.ID(),
		"a-scheduler": `report +every 1h`,
	} {
		s.Update(s.look()())
		require.NoError(t, s.err, name)
		keys(s, append(append([]string{"/"}, strings.Split(name, "")...), "enter")...)
		assert.Regexp(t, `> +[\w ]+ +`+name, s.View())
		assert.Equal(t, name == "a-lock", strings.Contains(s.View(), "a-lock"), s.View())
		keys(s, "enter")
		assert.Contains(t, s.View(), name, "before it was looked at")
		s.Update(s.look()())
		require.NoError(t, s.err, name)
		assert.Regexp(t, want, s.View(), name)
		keys(s, "esc", "/", "esc")
	}
	stop()
	require.NoError(t, <-ended)
	require.NoError(t, permit.Release(t.Context()))
	require.NoError(t, leader.Resign(t.Context()))
}

func TestObjectThatIsLongerThanTheScreenBeginsWithItsHolder(t *testing.T) {
	l := lockState{inspect.Lock{Name: "orders", Locked: true, Waiting: 40, Holders: []inspect.Holder{{Owner: "worker.1:1", Since: time.Now(), Site: "a.go:7"}}}}
	for i := range 40 {
		l.Waits = append(l.Waits, inspect.Wait{Client: fmt.Sprintf("web-%d.2", i), WaitInfo: redlatch.WaitInfo{Since: time.Now()}})
	}
	s := &screen{by: byName, every: time.Second}
	s.Update(tea.WindowSizeMsg{Width: 120, Height: 24})
	s.Update(looked{all: []inspect.Summary{{Kind: "lock", Name: "orders"}, {Kind: "lock", Name: "other"}}})
	keys(s, "enter")
	look := func() { s.Update(looked{one: &opened{"lock", "orders", l.write}}) }
	look()
	sees := func(says string) {
		t.Helper()
		assert.LessOrEqual(t, strings.Count(s.View(), "\n")+1, 24)
		assert.Regexp(t, "(?s)^redlatch top.*"+says+".*esc back", s.View())
	}
	sees(`lock +orders\n.*held by +worker.1:1\n.*a\.go:7\n.*web-7\.2,[^\n]*\n… and 32 more lines\n\nw `)
	keys(s, "down", "down")
	look() // what is shown stays there
	sees(`\n\n  levels.*web-9\.2,[^\n]*\n… and 30 more lines\n\nw `)
	for range 50 {
		keys(s, "down")
	}
	sees(`\n\n  a call of +web-21\.2,.*web-39\.2,[^\n]*\n\nw `)
	keys(s, "up")
	sees(`\n\n  a call of +web-20\.2,.*web-37\.2,[^\n]*\n… and 2 more lines\n\nw `)
	l.Waits = nil
	look()
	sees(`lock +orders\n`)
	keys(s, "esc", "enter")
	assert.Zero(t, s.above)
	keys(s, "esc")
	assert.Regexp(t, `> +lock +orders`, s.View(), "the list has not moved")
}

// terminal is a terminal of tmux with the screen in it.
type terminal struct {
	t    *testing.T
	name string
}

func startTop(t *testing.T, url string) *terminal {
	t.Helper()
	return startInTerminal(t, url, "top", "--every", "200ms")
}

// startInTerminal runs the command in a terminal, which stays when it has ended, with its exit code.
func startInTerminal(t *testing.T, url string, args ...string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		require.Empty(t, os.Getenv("REDLATCH_REQUIRE_TMUX"), "tmux is not on PATH")
		t.Skip("skipped: tmux is not on PATH")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	term := &terminal{t, fmt.Sprint("redlatch", os.Getpid(), ".", time.Now().UnixNano())} // the server of the test before may be about to end
	term.tmux(append([]string{
		"-f", "/dev/null", "new-session", "-d", "-s", "top", "-x", "130", "-y", "18", "env", "REDLATCH_TEST_COMMAND=1", "REDIS_URL=" + url,
		"sh", "-c", `trap : INT; "$0" "$@"; echo "exit code $?"; cat`, self,
	}, args...)...)
	t.Cleanup(func() { term.tmux("kill-server") })
	return term
}

// tmux talks to the tmux of this test.
func (term *terminal) tmux(args ...string) string {
	term.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-L", term.name}, args...)...).CombinedOutput()
	require.NoError(term.t, err, "%v: %s", args, out)
	return string(out)
}

// sees waits until something is on the screen, and returns all of it.
func (term *terminal) sees(want string) (text string) {
	term.t.Helper()
	redistest.Eventually(term.t, 20*time.Second, "it is on the screen", func() error {
		text = term.tmux("capture-pane", "-p", "-t", "top")
		if regexp.MustCompile(want).MatchString(text) {
			return nil
		}
		return fmt.Errorf("%s is not in\n%s", want, text)
	})
	return text
}

var pictures = flag.String("pictures", "", "the folder for a picture of the screen, which chromium draws")

// picture keeps what the screen looks like, if pictures are wanted.
func picture(t *testing.T, name, text string) {
	t.Helper()
	if *pictures == "" {
		return
	}
	page := filepath.Join(t.TempDir(), "screen.html")
	style := `margin:0;padding:14px;height:100vh;box-sizing:border-box;background:#14171a;color:#e8eaed;font:15px/20px monospace`
	require.NoError(t, os.WriteFile(page, fmt.Appendf(nil, `<meta charset="utf-8"><body style="margin:0"><pre style=%q>%s</pre>`, style, html.EscapeString(text)), 0o600))
	to, err := filepath.Abs(filepath.Join(*pictures, name+".png"))
	require.NoError(t, err)
	out, err := exec.Command("chromium", "--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1240,388", "--screenshot="+to, page).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestTopInATerminal(t *testing.T) {
	r := &rig{url: redistest.Start(t).URL()}
	client := func(name string) *redlatch.Client {
		return r.other(t, name, redlatch.WithCloseGrace(0), redlatch.WithLogger(slog.New(slog.DiscardHandler)))
	}
	web, worker := client("web-1"), client("worker-2")
	for _, l := range []rlock.Locker{web.GetLock("order:4711"), web.GetReadWriteLock("prices").RLocker(), worker.GetFairLock("import:eu"), worker.GetLock("report")} {
		_, err := l.Lock(t.Context())
		require.NoError(t, err)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer giveUp()
	calls.Go(func() { _, _ = worker.GetLock("order:4711").Lock(ctx) }) // until the end
	calls.Go(func() { _, _ = web.GetFairLock("import:eu").Lock(ctx) })
	_, err := web.GetPermitSemaphore("uploads").TrySetPermits(t.Context(), 3)
	require.NoError(t, err)
	_, err = web.GetPermitSemaphore("uploads").Acquire(t.Context())
	require.NoError(t, err)
	_, err = web.GetCountDownLatch("start").TrySetCount(t.Context(), 7)
	require.NoError(t, err)
	for i := range 9 {
		_, err = redlatch.GetDelayedQueue[string](web, "mails").Offer(t.Context(), "hello", time.Duration(i/3)*time.Hour)
		require.NoError(t, err)
	}
	require.NoError(t, rexecutor.NewTask[string, struct{}]("resize").Send(t.Context(), rexecutor.New(web, "media"), "a.png"))

	top := startTop(t, r.url)
	text := top.sees(`(?s)> +fair lock +import:eu +1 +\d+s +held.*order:4711 +1 +\d+s +held.*mails +\d +\d+s +6 delayed, 3 ready.*executor +media +\d +\d+s +0 delayed, 1 ready, .* no worker handles resize`)
	picture(t, "top", text)
	top.tmux("send-keys", "-t", "top", "l")
	top.sees(`by lag[^>]*> +queue +mails`)
	top.tmux("send-keys", "-t", "top", "h")
	top.sees(`(?s)by held for[^>]*> +lock +order:4711 .*rw lock +prices .*fair lock +import:eu .*lock +report .*permits +uploads .*mails`)
	top.tmux("send-keys", "-t", "top", "w")
	top.sees(`by waiting[^>]*> +fair lock +import:eu`)
	top.tmux("send-keys", "-t", "top", "Down", "Enter")
	text = top.sees(`(?s)held by +web-1\..*circle +web-1.*\n +worker-2\.\S+ holds import:eu .*has waited.*a call of +worker-2\.`)
	picture(t, "top-lock", text)
	top.tmux("send-keys", "-t", "top", "Escape")
	top.sees("KIND")
	top.tmux("send-keys", "-t", "top", "/")
	top.sees(`filter:`)
	top.tmux("send-keys", "-t", "top", "q")
	top.sees(`filter: q`)
	top.tmux("send-keys", "-t", "top", "Enter")
	top.tmux("send-keys", "-t", "top", "q")
	top.sees("exit code 0")
}

func TestScreenShowsWhatItCouldLearn(t *testing.T) {
	s := &screen{by: byName, height: 24}
	s.Update(looked{all: []inspect.Summary{{Name: "alpha"}}, err: errors.Join(errors.New("one queue cannot be read"), errors.New("nor another"))})
	assert.Regexp(t, `(?s)one queue cannot be read …\n.*alpha`, s.View())
	assert.NotContains(t, s.View(), "another", "the list has the place of other lines")
	s.Update(looked{err: errors.New("no answer")})
	assert.Regexp(t, `(?s)no answer.*alpha`, s.View(), "what was seen last")
	s.Update(looked{})
	assert.NotContains(t, s.View(), "alpha")
}

func TestOrderIsByWhatWasAskedFor(t *testing.T) {
	now := time.Now()
	few := inspect.Summary{Name: "a", Waiting: 1, Since: now, Left: 3 * time.Second, Messages: 9, Lag: time.Second}
	many := inspect.Summary{Name: "b", Waiting: 2, Since: now.Add(-time.Hour), Left: time.Second, Messages: 1, Lag: time.Minute}
	silent := inspect.Summary{Name: "c", Messages: 10}
	assert.Negative(t, byWaiting.compare(many, few))
	assert.Negative(t, byHeld.compare(many, few))
	assert.Negative(t, byHeld.compare(few, silent), "it is not known since when")
	assert.Negative(t, byLag.compare(many, few))
	assert.Negative(t, byLag.compare(silent, inspect.Summary{Name: "a"}))
	assert.Negative(t, byName.compare(few, many))
	double := few
	double.Variant = "double"
	assert.Negative(t, byWaiting.compare(few, double), "a barrier and a double barrier of one name")
}

func TestCtrlCEndsTheScreenWhileAFilterIsTyped(t *testing.T) {
	s := &screen{by: byName, height: 24}
	keys(s, "/", "a")
	_, end := s.Update(tea.KeyMsg{Type: tea.KeyCtrlC})
	require.NotNil(t, end)
	assert.Equal(t, tea.QuitMsg{}, end())
}

func TestTopNeedsATerminal(t *testing.T) {
	code, _, text := newRig(t).run(t.Context(), "top")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, text, "terminal")
}
