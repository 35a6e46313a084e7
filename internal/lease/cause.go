package lease

import (
	"fmt"

	"github.com/redlatch/redlatch/internal/errs"
)

// ended returns the cause of a context of the lease's that ends.
func (l *Lease) ended(err error, detail string) *ended {
	return &ended{title: l.space.kind.Title(), noun: l.space.noun(), name: l.user(), err: err, detail: detail}
}

// noun is what a lease of the space is called in messages.
func (s *Space) noun() string {
	if s.pool != nil {
		return s.pool.Noun()
	}
	return "lock"
}

// ended is the cause of a context that a hold has ended: it names the lock, and tells why.
type ended struct {
	title, noun, name string
	err               error  // the sentinel
	detail            string // what happened; may be empty
	hold              *Hold  // the hold that was unlocked, for errs.ErrUnlocked
}

func (e *ended) Error() string {
	text := fmt.Sprintf("%s: %s %q: %v", e.title, e.noun, e.name, errs.Of(e.noun, e.err))
	if e.detail == "" {
		return text
	}
	return text + ": " + e.detail
}

func (e *ended) Unwrap() error { return e.err }

const (
	lostInRedis = "Redis has it no longer: its lease ended there, or it was taken away"
	lostByTime  = "the lease ended"
	lostByRedis = "it could not be renewed before the lease ended"
)
