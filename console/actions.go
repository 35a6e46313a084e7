package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
	"github.com/redlatch/redlatch/rscheduler"
)

// Action is something that a person wants to do.
type Action struct {
	// Verb is force; redrive, cancel, snooze, purge, pause or resume; trigger, pause-job or resume-job.
	Verb string
	// Kind is lock for force, scheduler for what is about a job, and queue or executor for all others. Name is that of the object.
	Kind, Name string
	// ID is that of a message or a task, for cancel, snooze and redrive; redrive without one is of all dead letters. Of a scheduler it is the job. A person
	// may choose many messages: each is an action, and none is done if one of them is refused.
	ID string
	// Delay is after what time a message is to be due, for snooze.
	Delay time.Duration
	// State is which messages purge deletes: delayed, ready, in-flight or dead.
	State string
	// Why is the reason, for pause-job; "by the console" if none was given.
	Why string
	// Owners are the owner ids that the page has shown as holding the lock, for force. If another one holds it now, nothing is done,
	// unless the page has shown 100 readers: then all readers lose it.
	Owners []string
}

const (
	cookie   = "redlatch_console"
	bodySize = 1 << 20 // enough for some 10,000 readers of a lock
)

// token returns what a form has to send back, which is also in a cookie.
func token(w http.ResponseWriter, r *http.Request) string {
	if c, err := r.Cookie(cookie); err == nil && len(c.Value) >= 26 {
		return c.Value
	}
	value := rand.Text()
	http.SetCookie(w, &http.Cookie{Name: cookie, Value: value, HttpOnly: true, Secure: r.TLS != nil, SameSite: http.SameSiteStrictMode})
	return value
}

// act does what a form asks for, and shows the object's page.
func (h *handler) act(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "an action is a POST", http.StatusMethodNotAllowed)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, bodySize)
	if err := r.ParseForm(); err != nil {
		http.Error(w, "the form cannot be read", http.StatusBadRequest)
		return
	}
	sent := r.PostForm.Get("csrf")
	c, err := r.Cookie(cookie)
	if h.allow == nil || h.origin.Check(r) != nil || err != nil || sent == "" ||
		subtle.ConstantTimeCompare([]byte(sent), []byte(c.Value)) != 1 {
		http.Error(w, "this action is not allowed from here", http.StatusForbidden)
		return
	}
	verb, known := verbs[r.PostForm.Get("verb")]
	if !known || r.PostForm.Get("name") == "" {
		http.Error(w, "there is no such action", http.StatusBadRequest)
		return
	}
	if verb.kind == kinds.Queue {
		verb.kind = kindOf(r.PostForm)
	}
	actions, err := h.actions(r.Context(), verb.kind, r.PostForm)
	if err != nil {
		http.Error(w, "it failed: "+err.Error(), statusOf(err))
		return
	}
	logs := make([]*slog.Logger, len(actions))
	for i, a := range actions {
		logs[i] = h.logger.With("verb", a.Verb, "kind", a.Kind, "name", a.Name, "id", a.ID, "state", a.State, "owners", a.Owners,
			"user", h.user(r), "remote", r.RemoteAddr, "why", a.Why)
		if err := h.allow(r, a); err != nil {
			logs[i].WarnContext(r.Context(), "redlatch console: an action was refused", "cause", err)
			http.Error(w, "you may not do that", http.StatusForbidden)
			return
		}
	}
	came, err := h.doAll(r.Context(), verb.do, actions, logs)
	h.surveys.forget(ofQueue(inspect.Object{Kind: verb.kind, Name: r.PostForm.Get("name")}))
	if err != nil {
		http.Error(w, "it failed: "+err.Error(), statusOf(err))
		return
	}
	// Relative, as all links: where the console is mounted is not known here, and http.Redirect would guess.
	w.Header().Set("Location", back(verb.kind, r.PostForm, result(came, len(actions))))
	w.WriteHeader(http.StatusSeeOther)
}

// actions returns those that a form is for. Where messages are to be chosen there may be none.
func (h *handler) actions(ctx context.Context, kind string, form url.Values) (all []Action, err error) {
	a := Action{
		Verb: form.Get("verb"), Kind: kind, Name: form.Get("name"), State: form.Get("state"), Why: form.Get("why"), Owners: form["owner"],
	}
	if a.Verb == "snooze" {
		if a.Delay, err = time.ParseDuration(form.Get("delay")); err != nil {
			return nil, fmt.Errorf("%w: %w", redlatch.ErrInvalid, err)
		}
	}
	ids := form["id"]
	switch {
	case form.Has("all"):
		of := inspect.Object{Kind: kind, Name: a.Name}
		h.surveys.forget(ofQueue(of))
		found, _, err := h.find(ctx, of, form.Get("tab"), form.Get("q"), form.Get("error"))
		if err != nil {
			return nil, err
		}
		ids = nil
		for _, m := range found {
			ids = append(ids, m.ID)
		}
	case len(ids) == 0 && !form.Has("choose"):
		ids = []string{""}
	}
	for _, id := range ids {
		a.ID = id
		all = append(all, a)
	}
	return all, nil
}

const doMost = 50 // actions at a time

// doAll does what a form asks for, and returns how often it came to what. It stops at an error.
func (h *handler) doAll(ctx context.Context, do func(context.Context, *handler, Action) (string, error), actions []Action, logs []*slog.Logger) (map[string]int, error) {
	var mu sync.Mutex // guards came and failed
	came, failed := map[string]int{}, error(nil)
	var doing sync.WaitGroup
	slots := make(chan struct{}, doMost)
	for i, a := range actions {
		slots <- struct{}{}
		mu.Lock()
		stop := failed != nil
		mu.Unlock()
		if stop {
			break
		}
		doing.Go(func() {
			defer func() { <-slots }()
			done, err := do(ctx, h, a)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = cmp.Or(failed, err)
				logs[i].WarnContext(ctx, "redlatch console: an action failed", "cause", err)
				return
			}
			logs[i].InfoContext(ctx, "redlatch console: an action was done", "result", done)
			came[done]++
		})
	}
	doing.Wait()
	return came, failed
}

// result says what came of actions, as an address has it.
func result(came map[string]int, of int) string {
	switch {
	case of == 0:
		return "none"
	case of > 1:
		return fmt.Sprintf("%d-of-%d", came["done"], of)
	}
	for done := range came {
		return done
	}
	return ""
}

// back returns the address of the page with a form, as far as it is about the same.
func back(kind string, form url.Values, done string) string {
	query := url.Values{"done": {done}}
	for param, field := range map[string]string{"name": "name", "state": "tab", "q": "q", "error": "error", "job": "job"} {
		if value := form.Get(field); value != "" {
			query.Set(param, value)
		}
	}
	return kind + "?" + query.Encode()
}

// said returns what the page at a path says after an action, by what the address says.
func said(path, done string) string {
	var n, of int
	if _, err := fmt.Sscanf(done, "%d-of-%d", &n, &of); err == nil && n >= 0 && n <= of {
		text := fmt.Sprintf("Done for %d of %d %ss.", n, of, noun(path))
		if n < of {
			text += " The others are not there, or not in a state for that."
		}
		return text
	}
	if done == "none" {
		return "Nothing was done: no " + noun(path) + " was chosen."
	}
	return outcomes[done]
}

// outcomes are what a page says after an action, by what the address says. Another text of the address is not shown.
var outcomes = map[string]string{ //nolint:gochecknoglobals // a constant in all but name
	"freed": "It was freed.", "free": "Nobody held it any more.",
	"others": "Nothing was done: somebody else holds it now, as this page shows.",
	"paused": "It is paused.", "resumed": "It delivers again.",
	"triggered": "It runs as soon as a process has time; if it runs already, its overlap policy decides.", "scheduled": "It runs by its schedule again.",
	"done": "Done.", "nothing": "Nothing was done: what it was about is not there, or not in a state for that.",
}

// verbs are the actions. Each says what came of it.
var verbs = map[string]struct { //nolint:gochecknoglobals // a constant in all but name
	kind string // of the object
	do   func(ctx context.Context, h *handler, a Action) (done string, err error)
}{
	"force": {"lock", func(ctx context.Context, h *handler, a Action) (string, error) {
		seen := inspect.Lock{Name: a.Name}
		for _, owner := range a.Owners {
			seen.Holders = append(seen.Holders, inspect.Holder{Owner: owner})
		}
		switch freed, err := seen.Force(ctx, h.client); {
		case errors.Is(err, inspect.ErrOthers):
			return "others", nil
		case freed:
			return "freed", err
		default:
			return "free", err
		}
	}},
	"redrive": {"queue", func(ctx context.Context, h *handler, a Action) (string, error) {
		q := h.messagesOf(a)
		if a.ID == "" {
			return messages(q.RedriveAll(ctx))
		}
		return message(q.Redrive(ctx, a.ID))
	}},
	"cancel": {"queue", func(ctx context.Context, h *handler, a Action) (string, error) {
		return message(h.messagesOf(a).Cancel(ctx, a.ID))
	}},
	"snooze": {"queue", func(ctx context.Context, h *handler, a Action) (string, error) {
		return message(h.messagesOf(a).Reschedule(ctx, a.ID, a.Delay))
	}},
	"purge": {"queue", func(ctx context.Context, h *handler, a Action) (string, error) {
		s, err := stateOf(a.State)
		if err != nil {
			return "", err
		}
		return messages(h.messagesOf(a).Purge(ctx, s))
	}},
	"pause": {"queue", func(ctx context.Context, h *handler, a Action) (string, error) {
		return "paused", h.messagesOf(a).Pause(ctx)
	}},
	"resume": {"queue", func(ctx context.Context, h *handler, a Action) (string, error) {
		return "resumed", h.messagesOf(a).Resume(ctx)
	}},
	"trigger": {"scheduler", func(ctx context.Context, h *handler, a Action) (string, error) {
		return job("triggered", h.client.GetScheduler(a.Name).Trigger(ctx, a.ID))
	}},
	"pause-job": {"scheduler", func(ctx context.Context, h *handler, a Action) (string, error) {
		return job("paused", h.client.GetScheduler(a.Name).Pause(ctx, a.ID, cmp.Or(a.Why, "by the console")))
	}},
	"resume-job": {"scheduler", func(ctx context.Context, h *handler, a Action) (string, error) {
		return job("scheduled", h.client.GetScheduler(a.Name).Resume(ctx, a.ID))
	}},
}

// messagesOf returns those of the queue or the executor that an action is about.
func (h *handler) messagesOf(a Action) *inspect.Messages {
	return inspect.MessagesOf(h.client, inspect.Object{Kind: a.Kind, Name: a.Name})
}

// job says that nothing was done if there is no such job.
func job(done string, err error) (string, error) {
	if errors.Is(err, rscheduler.ErrNotFound) {
		return "nothing", nil
	}
	return done, err
}

func messages(n int, err error) (string, error) { return message(n > 0, err) }

func message(changed bool, err error) (string, error) {
	if !changed {
		return "nothing", err
	}
	return "done", err
}
