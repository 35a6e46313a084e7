package console

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"

	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/rscheduler"
)

// Action is something that a person wants to do.
type Action struct {
	// Verb is force; redrive, cancel, purge, pause or resume; trigger, pause-job or resume-job.
	Verb string
	// Kind is lock for force, scheduler for what is about a job, and queue for all others. Name is that of the object.
	Kind, Name string
	// ID is a message's, for cancel and redrive; redrive without one is of all dead letters. Of a scheduler it is the job.
	ID string
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
	a := Action{
		Verb: r.PostForm.Get("verb"), Kind: verb.kind, Name: r.PostForm.Get("name"), ID: r.PostForm.Get("id"), State: r.PostForm.Get("state"),
		Why: r.PostForm.Get("why"), Owners: r.PostForm["owner"],
	}
	if !known || a.Name == "" {
		http.Error(w, "there is no such action", http.StatusBadRequest)
		return
	}
	log := h.logger.With("verb", a.Verb, "kind", a.Kind, "name", a.Name, "id", a.ID, "state", a.State, "owners", a.Owners,
		"user", h.user(r), "remote", r.RemoteAddr, "why", a.Why)
	if err := h.allow(r, a); err != nil {
		log.WarnContext(r.Context(), "redlatch console: an action was refused", "cause", err)
		http.Error(w, "you may not do that", http.StatusForbidden)
		return
	}
	done, err := verb.do(r.Context(), h, a)
	if err != nil {
		log.WarnContext(r.Context(), "redlatch console: an action failed", "cause", err)
		http.Error(w, "it failed: "+err.Error(), statusOf(err))
		return
	}
	log.InfoContext(r.Context(), "redlatch console: an action was done", "result", done)
	// Relative, as all links: where the console is mounted is not known here, and http.Redirect would guess.
	w.Header().Set("Location", a.Kind+"?name="+url.QueryEscape(a.Name)+"&done="+url.QueryEscape(done))
	w.WriteHeader(http.StatusSeeOther)
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
		q := inspect.QueueOf(h.client, a.Name)
		if a.ID == "" {
			return messages(q.RedriveAll(ctx))
		}
		return message(q.Redrive(ctx, a.ID))
	}},
	"cancel": {"queue", func(ctx context.Context, h *handler, a Action) (string, error) {
		return message(inspect.QueueOf(h.client, a.Name).Cancel(ctx, a.ID))
	}},
	"purge": {"queue", func(ctx context.Context, h *handler, a Action) (string, error) {
		s, err := stateOf(a.State)
		if err != nil {
			return "", err
		}
		return messages(inspect.QueueOf(h.client, a.Name).Purge(ctx, s))
	}},
	"pause": {"queue", func(ctx context.Context, h *handler, a Action) (string, error) {
		return "paused", inspect.QueueOf(h.client, a.Name).Pause(ctx)
	}},
	"resume": {"queue", func(ctx context.Context, h *handler, a Action) (string, error) {
		return "resumed", inspect.QueueOf(h.client, a.Name).Resume(ctx)
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
