package rrwlock

import "github.com/redlatch/redlatch/internal/errs"

// ErrUpgrade is returned (wrapped) at once by Lock, TryLock and Do under the context of a reader: the call would wait
// for its own caller. Unlock the read hold first, or acquire the write lock first and downgrade.
var ErrUpgrade = errs.ErrUpgrade
