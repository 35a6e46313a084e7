package rcache

import "github.com/redlatch/redlatch/internal/errs"

// ErrNotFound is returned (wrapped) by [Cache.Get] for a key of which the loader found nothing, or that a cache without a loader does
// not have. A loader returns it, wrapped or not, to say so. It is rdelayedqueue.ErrNotFound.
var ErrNotFound = errs.ErrNotFound

// LoadError is the failure of a load, as those get it who waited for it, or who come while it is kept (see [WithErrors]): find it with
// errors.As. The caller whose load failed gets the error of the loader itself.
type LoadError struct {
	// Text is the text of the error, of which the first 4 KiB are kept.
	Text string
}

// Error returns the text.
func (e *LoadError) Error() string { return e.Text }
