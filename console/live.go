package console

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	liveEvery   = 2 * time.Second
	liveShare   = 10             // of its time a stream spends asking at most one part in so many
	liveMinute  = 1_000_000      // bytes a minute, for one viewer
	liveMost    = liveMinute / 4 // bytes of an event
	liveFor     = time.Minute    // then the browser connects again, so that a server can shut down
	liveStreams = 100            // at a time; a browser that gets none shows the page as it was
	liveWrite   = 10 * time.Second
)

// events sends the changing part of a page each time that it has changed.
func (h *handler) events(w http.ResponseWriter, r *http.Request) {
	path, rawQuery, _ := strings.Cut(r.URL.Query().Get("page"), "?")
	v, found := views[path]
	query, err := url.ParseQuery(rawQuery)
	if !found || err != nil {
		http.NotFound(w, r)
		return
	}
	if h.streams.Add(1) > liveStreams {
		h.streams.Add(-1)
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer h.streams.Add(-1)
	p := page{Title: v.title, Path: path, Self: path, Actions: h.allow != nil}
	if p.Actions {
		p.CSRF = token(w, r)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep the events
	out := http.NewResponseController(w)
	var last string
	pause := time.NewTimer(0)
	defer pause.Stop()
	for end := time.Now().Add(liveFor); ; {
		select {
		case <-r.Context().Done():
			return
		case <-pause.C: // also before the end: the next stream sends at once
		}
		if time.Now().After(end) {
			_ = out.SetWriteDeadline(time.Now().Add(liveWrite)) // of the end itself
			return
		}
		began := time.Now()
		main, _ := h.render(p, v, &request{r.Context(), path, query, func() {}})
		wait := max(liveEvery, liveShare*time.Since(began))
		text := string(main) + followed
		if len(text) > liveMost {
			text = unfollowed
		}
		if text != last {
			last = text
			_ = out.SetWriteDeadline(time.Now().Add(liveWrite)) // a server without deadlines has none
			n, err := w.Write(event(text))
			if err != nil || out.Flush() != nil {
				return
			}
			_ = out.SetWriteDeadline(time.Time{}) // else it ends the stream, though nothing is being written
			wait = max(wait, rest(n))
		}
		pause.Reset(wait)
	}
}

// The element of the layout with this id, without a notice and with one.
const (
	followed   = `<div id="large" role="status" data-live></div>`
	unfollowed = `<div id="large" role="status" data-live><p class="bad">This page is too large for live updates. Reload it to see the current state.</p></div>`
)

// rest returns how long to wait after n bytes. An event may have any size up to liveMost: all events of a minute but its last are
// within what the waits leave, and the last one, whose wait is outside of it, within liveMost.
func rest(n int) time.Duration {
	return time.Minute * time.Duration(n) / (liveMinute - liveMost)
}

// event is a server-sent event. A browser puts its lines together as they were, which matters within a pre.
func event(text string) []byte {
	var b bytes.Buffer
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text) // as HTML reads them
	for line := range strings.Lines(text) {
		fmt.Fprintf(&b, "data: %s\n", strings.TrimSuffix(line, "\n"))
	}
	b.WriteByte('\n')
	return b.Bytes()
}
