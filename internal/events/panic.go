package events

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// mostKnown is how many messages whose handler panicked are known, and how many places.
const mostKnown = 10_000

// known are texts that have been met. Where there are too many it forgets them all.
type known struct {
	mu  sync.Mutex // guards the rest
	all map[string]struct{}
}

// first notes a text, and reports whether it is new.
func (k *known) first(text string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, met := k.all[text]; met {
		return false
	}
	if k.all == nil || len(k.all) == mostKnown {
		k.all = map[string]struct{}{}
	}
	k.all[text] = struct{}{}
	return true
}

// Panicked returns the error of an attempt at a message whose handler panicked with p. Its text is the first line of p, and the place.
// The first panic of a message is logged, and the first one at a place with its stack. The deferred function that recovered p calls it.
func (e *Events) Panicked(p any, kind, name, id string, attempt int) error {
	text := fmt.Sprint(p) // which bears an Error that panics
	line, _, _ := strings.Cut(text, "\n")
	place := panicPlace()
	err := errors.New("panic: " + line + place)
	if e.panicked.first(kind+" "+name+" "+id) || attempt == 1 {
		attributes := []any{"kind", kind, "name", name, "id", id, "attempt", attempt, "cause", err}
		if e.panicPlaces.first(place) {
			attributes = append(attributes, "stack", text+"\n"+string(debug.Stack()))
		}
		e.Logger.Warn("redlatch: a handler panicked", attributes...)
	}
	return err
}

// panicPlace returns, for a message, the first function of the panic's stack that belongs to neither this library nor Go, if there is one.
func panicPlace() string {
	var pcs [siteFrames]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	standard := "" // where Go's own files are, unless the program was built with -trimpath
	for more := true; more; {
		var frame runtime.Frame
		frame, more = frames.Next()
		if frame.Function == "runtime.gopanic" {
			standard = strings.TrimSuffix(frame.File, "runtime/panic.go")
		}
		ofGo := strings.HasPrefix(frame.Function, "runtime.") || standard != "" && strings.HasPrefix(frame.File, standard)
		if frame.File != "" && !ofGo && !ofLibrary(frame) {
			return " at " + path.Base(frame.Function) + " (" + place(frame) + ")"
		}
	}
	return ""
}
