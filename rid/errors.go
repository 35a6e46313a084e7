package rid

import "errors"

// ErrExhausted is returned (wrapped) by Next if no id is left: with [WithTimePrefix] if the day's counter has been used
// up, until midnight UTC, or if the seconds do not fit.
var ErrExhausted = errors.New("no id is left")
