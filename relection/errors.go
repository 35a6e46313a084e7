package relection

import (
	"errors"

	"github.com/redlatch/redlatch/internal/errs"
)

var (
	// ErrNoLeader is returned (wrapped) by Leader, and is an error of Observe, while nobody leads.
	ErrNoLeader = errors.New("nobody leads")
	// ErrNotHeld is returned (wrapped) by Proclaim and Resign of one that leads no more: it has resigned, or lost the lock.
	ErrNotHeld = errs.ErrNotHeld
	// ErrLost is the cause of a leadership's context that ended without Resign. It is rlock.ErrLost.
	ErrLost = errs.ErrLost
	// ErrResigned is the cause of a leadership's context after Resign. It is rlock.ErrUnlocked.
	ErrResigned = errs.ErrEnded
	// ErrHeld is returned (wrapped) by Campaign and Run under the context of a leadership of the same election.
	ErrHeld = errs.ErrHeld
)
