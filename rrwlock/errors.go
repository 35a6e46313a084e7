package rrwlock

import "github.com/redlatch/redlatch/internal/errs"

// ErrUpgrade is returned (wrapped) at once by Lock, TryLock and Do under the context of a reader, which would wait for
// itself. Unlock the read hold first, or take the write lock to begin with and downgrade.
var ErrUpgrade = errs.ErrUpgrade
