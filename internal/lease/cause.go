package lease

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
	"github.com/redlatch/redlatch/internal/kinds"
)

// endCause is the cause of a context that a hold has ended: it names the lock and the reason.
type endCause struct {
	title, name string
	noun        string // what was held
	err         error  // the sentinel
	detail      string // what happened; may be empty
	level       Level  // what was unlocked, for errs.ErrEnded
}

// Level is what an Unlock ends: a hold, or one that is made of several.
type Level interface {
	// Given returns the context that the acquiring call was given.
	Given() context.Context
	// Covers reports whether other is this level, or a part of it.
	Covers(other any) bool
}

// Given returns the context that the acquiring call was given.
func (h *Hold) Given() context.Context { return h.given }

// Covers reports whether other is this hold.
func (h *Hold) Covers(other any) bool { return other == any(h) }

// lockNoun is what is held, unless a kind has another word for it.
const lockNoun = "lock"

// endCause returns the cause of a context of the lease's that ends.
func (l *Lease) endCause(err error, detail string) *endCause {
	return &endCause{title: kinds.Package(l.manager.kind.Name), noun: l.manager.noun(), name: l.user(), err: err, detail: detail}
}

// unlocked returns the cause of the context of a level of the lease's that was unlocked.
func (l *Lease) unlocked(h *Hold) error {
	cause := l.endCause(errs.ErrEnded, "")
	cause.level = h
	return cause
}

// noun is what a lease of the manager is called in messages.
func (m *Manager) noun() string {
	return cmp.Or(m.kind.Noun, lockNoun)
}

// Ended returns the cause of a context that a hold has ended: err is the sentinel, detail says what happened.
func Ended(title, name string, err error, detail string) error {
	return &endCause{title: title, noun: lockNoun, name: name, err: err, detail: detail}
}

// Unlocked returns the cause of a context whose level was unlocked.
func Unlocked(title, name string, level Level) error {
	return &endCause{title: title, noun: lockNoun, name: name, err: errs.ErrEnded, level: level}
}

func (e *endCause) Error() string {
	text := fmt.Sprintf("%s: %s %q: %v", e.title, e.noun, e.name, errs.Of(e.noun, e.err))
	if e.detail == "" {
		return text
	}
	return text + ": " + e.detail
}

func (e *endCause) Unwrap() error { return e.err }

// CauseGone is what happened to a lock that Redis does not have any more.
const CauseGone = "Redis has it no longer: its lease ended there, or it was taken away"

const (
	causeLeaseEnded = "the lease ended"
	causeNotRenewed = "it could not be renewed before the lease ended"
)
