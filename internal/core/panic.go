package core

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// mostPanics is how many messages whose handler panicked are known.
const mostPanics = 10_000

// panics are the messages whose handler has panicked.
type panics struct {
	mu   sync.Mutex // guards the rest
	seen map[string]struct{}
}

// first notes that the handler of a message panicked, and reports whether that is new. Where there are too many it forgets them all.
func (p *panics) first(message string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, seen := p.seen[message]; seen {
		return false
	}
	if p.seen == nil || len(p.seen) == mostPanics {
		p.seen = map[string]struct{}{}
	}
	p.seen[message] = struct{}{}
	return true
}

// Panicked returns the error of an attempt at a message whose handler panicked with p. Its text is the first line of p, and the place.
// The first panic of a message is logged with its stack. The deferred function that recovered p calls it.
func (c *Core) Panicked(p any, kind, name, id string, attempt int) error {
	text := fmt.Sprint(p) // which bears an Error that panics
	line, _, _ := strings.Cut(text, "\n")
	err := errors.New("panic: " + line + panicPlace())
	if c.panics.first(kind+" "+name+" "+id) || attempt == 1 {
		c.Logger.Warn("redlatch: a handler panicked", "kind", kind, "name", name, "id", id, "attempt", attempt, "cause", err,
			"stack", text+"\n"+string(debug.Stack()))
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
