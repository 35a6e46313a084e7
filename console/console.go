package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kinds"
)

//go:embed assets/style.css assets/live.js
var assets embed.FS

//go:embed pages.html
var pagesSource string

// Option is a setting of [Handler].
type Option interface{ set(h *handler) }

type setting func(*handler)

func (f setting) set(h *handler) { f(h) }

// WithActions lets the console free locks and change queues. allow is asked before each action, with the request, and refuses it by
// an error: it has to know who asks, by your service's own login. The person sees that it was refused, and the log says why.
// Defaults to none: the console only reads.
func WithActions(allow func(*http.Request, Action) error) Option {
	return setting(func(h *handler) { h.allow = allow })
}

// WithPayloads shows what messages say, in payloads and headers. Defaults to not: they may be private. The names of headers and the
// text of a message's last error are shown all the same.
func WithPayloads() Option { return setting(func(h *handler) { h.payloads = true }) }

// WithUser tells whom the log names for an action. Defaults to the user of HTTP's basic authentication.
func WithUser(user func(*http.Request) string) Option {
	return setting(func(h *handler) { h.user = user })
}

// WithLogger sets where actions are logged. Defaults to [slog.Default].
func WithLogger(l *slog.Logger) Option { return setting(func(h *handler) { h.logger = l }) }

// handler serves the console.
type handler struct {
	client   *redlatch.Client
	allow    func(*http.Request, Action) error
	user     func(*http.Request) string
	payloads bool
	logger   *slog.Logger
	origin   *http.CrossOriginProtection
	crowd    crowd
	surveys  shared[inspect.Survey] // by state and queue
	streams  atomic.Int32
}

// Handler serves the console of what client sees: the objects with its name prefix. It can be mounted anywhere, with
// [http.StripPrefix]; the path it is mounted at has to end with a slash. It starts no goroutine but those of requests, and
// asks Redis only for them; a page that lists objects looks at them by SCAN. Pages that are open in a browser ask again every
// two seconds, and less often where that takes long or is much to send: a viewer receives at most 1 MB a minute, and a page of more
// than 250 kB has no live updates and says so. A nil client panics.
func Handler(client *redlatch.Client, opts ...Option) http.Handler {
	if client == nil {
		panic("console: the client is nil")
	}
	h := &handler{
		client: client, logger: slog.Default(), origin: http.NewCrossOriginProtection(),
		user: func(r *http.Request) string { name, _, _ := r.BasicAuth(); return name },
	}
	for _, opt := range opts {
		opt.set(h)
	}
	h.crowd.client = client
	h.surveys.most, h.surveys.share = surveysMost, surveyShare
	return h
}

// view is a page: what it shows, or an error.
type view struct {
	title string
	slow  bool // it may have to look at many keys, or ask clients
	of    func(h *handler, r *request) (any, error)
}

// request is what a page is asked for.
type request struct {
	ctx   context.Context //nolint:containedctx // of the HTTP request
	path  string
	query url.Values
	begin func() // sends the head: the page is there, and clients are asked, who may not answer
}

// views are the pages by their paths, which are also the names of their templates.
var views = map[string]view{ //nolint:gochecknoglobals // a constant in all but name
	"":           {"Overview", true, (*handler).overview},
	"locks":      {"Locks", true, (*handler).objects},
	"semaphores": {"Semaphores", true, (*handler).objects},
	"latches":    {"Latches", true, (*handler).objects},
	"barriers":   {"Barriers", true, (*handler).objects},
	"queues":     {"Queues and executors", true, (*handler).objects},
	"schedulers": {"Schedulers", true, (*handler).objects},
	"elections":  {"Elections", true, (*handler).objects},
	"lock":       {"Lock", false, (*handler).lock},
	"semaphore":  {"Semaphore", false, (*handler).semaphore},
	"latch":      {"Latch", false, (*handler).latch},
	"barrier":    {"Barrier", false, (*handler).barrier},
	"queue":      {"Queue", false, (*handler).queue},
	"executor":   {"Executor", false, (*handler).queue},
	"message":    {"Message", false, (*handler).message},
	"scheduler":  {"Scheduler", false, (*handler).scheduler},
	"election":   {"Election", false, (*handler).election},
	"caches":     {"Caches", true, (*handler).caches},
	"cache":      {"Cache", false, (*handler).cache},
	"clients":    {"Clients", true, (*handler).clients},
	"client":     {"Client", true, (*handler).one},
}

// errAbsent is the error of a page about something that is not there.
var errAbsent = errors.New("it is not there")

// policy lets a page load nothing from elsewhere, run no script but ours, and be framed by nobody.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	set := w.Header().Set
	set("Content-Security-Policy", policy)
	set("X-Content-Type-Options", "nosniff")
	set("Referrer-Policy", "same-origin")
	set("Cache-Control", "no-store")
	path := strings.TrimPrefix(r.URL.Path, "/")
	if path == "act" {
		h.act(w, r)
		return
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		set("Allow", "GET, HEAD")
		http.Error(w, "this page can only be read", http.StatusMethodNotAllowed)
		return
	}
	switch v, found := views[path]; {
	case found:
		h.page(w, r, path, v)
	case path == "events":
		h.events(w, r)
	case strings.HasPrefix(path, "assets/"):
		http.ServeFileFS(w, r, assets, path)
	default:
		http.NotFound(w, r)
	}
}

// page is what the layout shows.
type page struct {
	Title, Path string // of the view
	Self        string // the page's own address, relative to the console
	Main        template.HTML
	Actions     bool
	CSRF        string
	Done        string // what came of an action
}

// page writes a whole page. Once Redis answers, the head goes out before what may take a while is looked for.
func (h *handler) page(w http.ResponseWriter, r *http.Request, path string, v view) {
	p := page{Title: v.title, Path: path, Self: path, Actions: h.allow != nil}
	if path == "message" && kindOf(r.URL.Query()) == kinds.Executor {
		p.Title = "Task"
	}
	if r.URL.RawQuery != "" {
		p.Self += "?" + r.URL.RawQuery
	}
	if p.Actions {
		p.CSRF, p.Done = token(w, r), said(path, r.URL.Query().Get("done"))
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	var head bytes.Buffer
	if err := templates.ExecuteTemplate(&head, "head", p); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	begun := false
	begin := func(status int) {
		if begun {
			return
		}
		begun = true
		w.WriteHeader(status)
		_, _ = head.WriteTo(w) // the browser may be gone, which the next writes see too
		_ = http.NewResponseController(w).Flush()
	}
	if v.slow {
		if err := h.reach(r.Context()); err != nil {
			v.of = func(*handler, *request) (any, error) { return nil, err }
		} else {
			begin(http.StatusOK)
		}
	}
	main, status := h.render(p, v, &request{r.Context(), path, r.URL.Query(), func() { begin(http.StatusOK) }})
	begin(status)
	p.Main = main
	if err := templates.ExecuteTemplate(w, "body", p); err != nil {
		h.logger.DebugContext(r.Context(), "redlatch console: a page was not written", "error", err)
	}
}

// content is what a page's template shows.
type content struct {
	page
	Data any
}

// statusOf returns the status of an answer that ended with err.
func statusOf(err error) int {
	switch {
	case err == nil:
		return http.StatusOK
	case errors.Is(err, errAbsent):
		return http.StatusNotFound
	case errors.Is(err, redlatch.ErrInvalid), errors.Is(err, redlatch.ErrWrongType):
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}

// render returns the part of a page that changes, and the status of the answer.
func (h *handler) render(p page, v view, r *request) (template.HTML, int) {
	var b bytes.Buffer
	data, err := v.of(h, r)
	name, status := p.Path, statusOf(err)
	if err != nil {
		name, data = "error", err.Error()
		if errors.Is(err, redlatch.ErrUnavailable) && !errors.Is(err, redlatch.ErrUnwritable) {
			data = "Redis does not answer: " + strings.TrimPrefix(err.Error(), redlatch.ErrUnavailable.Error()+": ")
		}
	}
	if name == "" {
		name = "overview"
	}
	if err := templates.ExecuteTemplate(&b, name, content{p, data}); err != nil {
		return template.HTML(template.HTMLEscapeString(err.Error())), http.StatusInternalServerError //nolint:gosec // escaped
	}
	return template.HTML(b.String()), status //nolint:gosec // a template wrote it
}

var templates = template.Must(template.New("").Funcs(template.FuncMap{ //nolint:gochecknoglobals // a constant in all but name
	"ago":     func(t time.Time) string { return round(time.Since(t)).String() },
	"past":    func(d time.Duration) time.Time { return time.Now().Add(-d) },
	"known":   func(t time.Time) bool { return !t.IsZero() },
	"short":   func(d time.Duration) string { return round(d).String() },
	"ms":      func(d time.Duration) int64 { return d.Milliseconds() },
	"most":    func(d time.Duration) int64 { return max(d, 30*time.Second).Milliseconds() },
	"address": address,
	"pick": func(task, of, otherwise string) string {
		if task != "" {
			return of
		}
		return otherwise
	},
	"counted":   counted,
	"sought":    func(of inspect.Object, text string) string { return queueAddress(of, "q", text) },
	"words":     kinds.Words,
	"number":    inspect.Number,
	"more":      inspect.More,
	"firstline": inspect.FirstLine,
	"timename":  inspect.TimeName,
	"state":     func(i int) string { return inspect.StateName(inspect.States()[i]) },
	"places":    placesOf,
	"n":         inspect.N,
	"form": func(csrf, verb, label, kind, name, id string) map[string]string {
		return map[string]string{"CSRF": csrf, "Verb": verb, "Label": label, "Kind": kind, "Name": name, "ID": id}
	},
	"when":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"iso":      func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"drawn":    drawn,
	"chained":  chained,
	"sub":      func(a, b int) int { return a - b },
	"late":     inspect.Late,
	"came":     came,
	"shape":    shape,
	"about":    about,
	"relative": func(t time.Time) string { return relative(time.Until(t)) },
}).Parse(pagesSource))

// round leaves out what nobody reads.
func round(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Millisecond)
	}
}

// relative says in a few words when something is.
func relative(in time.Duration) string {
	if in < 0 {
		return about(-in) + " ago"
	}
	return "in " + about(in)
}

// about is a time of which only the largest unit matters.
func about(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}
