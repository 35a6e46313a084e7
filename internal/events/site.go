package events

import (
	"path"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

// Site is the place in a program that acquired something; 0 if it is not known.
type Site uint32

// sites are the places that were seen. All clients of the program share them, since a multi-lock has parts of several.
var sites struct { //nolint:gochecknoglobals // as said above
	mu    sync.Mutex // guards the rest
	known map[string]Site
	texts []string // by place, from 1 on
}

const (
	mostSites  = 100_000 // what is seen after so many is not known
	siteFrames = 32      // of a stack, in which the place is looked for
)

// Site returns the place outside this library that has called it, if the client keeps track of places.
func (e *Events) Site() Site {
	if !e.CallSites {
		return 0
	}
	return callSite()
}

// callSite returns the place outside this library that has called it.
func callSite() Site {
	var pcs [siteFrames]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	for {
		frame, more := frames.Next()
		if strings.HasPrefix(frame.Function, "runtime.") { // by which each goroutine begins
			frame, more = creator(), false
		}
		if frame.File != "" && !ofLibrary(frame) {
			return siteOf(place(frame))
		}
		if !more {
			return 0
		}
	}
}

// creator returns the go statement that has started the goroutine, as in go q.Consume(ctx, handle). Only the text of a stack has it.
func creator() (frame runtime.Frame) {
	text := make([]byte, 1<<14)
	text = text[:runtime.Stack(text, false)]
	_, last, _ := strings.Cut(string(text), "\ncreated by ")
	function, at, _ := strings.Cut(last, " in goroutine ")
	_, at, _ = strings.Cut(at, "\n\t")
	at, _, _ = strings.Cut(at, " +0x")
	if i := strings.LastIndexByte(at, ':'); i >= 0 {
		frame.Function, frame.File = function, at[:i]
		frame.Line, _ = strconv.Atoi(at[i+1:]) // it is a number
	}
	return frame
}

// place returns the last folder, the file and the line of a frame.
func place(frame runtime.Frame) string {
	dir, file := path.Split(frame.File)
	return path.Join(path.Base(dir), file) + ":" + strconv.Itoa(frame.Line)
}

func siteOf(text string) Site {
	s := &sites
	s.mu.Lock()
	defer s.mu.Unlock()
	site := s.known[text]
	if site == 0 && len(s.texts) < mostSites {
		if s.known == nil {
			s.known = map[string]Site{}
		}
		s.texts = append(s.texts, text)
		site = Site(len(s.texts)) //nolint:gosec // at most mostSites
		s.known[text] = site
	}
	return site
}

// String returns the last folder, the file and the line of a place; "" if it is not known.
func (site Site) String() string {
	if site == 0 {
		return ""
	}
	sites.mu.Lock()
	defer sites.mu.Unlock()
	return sites.texts[site-1]
}

// ModulePath is the path of this module.
const ModulePath = "github.com/redlatch/redlatch"

// ofLibrary reports whether a function is one of this module, but no test.
func ofLibrary(frame runtime.Frame) bool {
	return strings.HasPrefix(frame.Function, ModulePath) && !strings.HasSuffix(frame.File, "_test.go")
}
