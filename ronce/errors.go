package ronce

import "github.com/redlatch/redlatch/internal/errs"

// ErrLost is returned (wrapped) by [Once.Do] to a caller whose fn ran, and whose claim was lost meanwhile: its lease ended, or the key
// was deleted. The result of fn is not kept, and another caller may have run, or may run now. It is the cause of the context of fn then.
// It is rlock.ErrLost.
var ErrLost = errs.ErrLost

// Error is the failure of a run that was kept, see [WithErrors], as the other callers get it: find it with errors.As. The caller
// whose fn failed gets the error of fn itself.
type Error struct {
	// Text is the text of the error, of which the first 4 KiB are kept.
	Text string
}

// Error returns the text.
func (e *Error) Error() string { return e.Text }
