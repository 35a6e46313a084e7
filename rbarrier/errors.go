package rbarrier

import "errors"

// ErrBroken is returned (wrapped) to all participants of a round of which one has given up or died, and after Redis has
// lost its data.
var ErrBroken = errors.New("barrier broken")
