package lease

import "fmt"

// ended is the cause of a context that a hold has ended: it names the lock, and tells why.
type ended struct {
	title, name string
	err         error  // the sentinel
	detail      string // what happened; may be empty
	hold        *Hold  // the hold that was unlocked, for errs.ErrUnlocked
}

func (e *ended) Error() string {
	if e.detail == "" {
		return fmt.Sprintf("%s: lock %q: %v", e.title, e.name, e.err)
	}
	return fmt.Sprintf("%s: lock %q: %v: %s", e.title, e.name, e.err, e.detail)
}

func (e *ended) Unwrap() error { return e.err }

const (
	lostInRedis = "Redis has it no longer: its lease ended there, or it was taken away"
	lostByTime  = "the lease ended"
	lostByRedis = "it could not be renewed before the lease ended"
)
