package rlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
)

// Base returns the reentrant lock as package locker sees it: a hash with its holder as the only field. It is for this
// module's kinds of lock that are stored in the same way.
func Base() *locker.Kind { return plainKind() }

// State is the state of a lock in Redis.
type State struct {
	// Locked reports whether the lock is held.
	Locked bool
	// Left is the rest of the lease: 0 for a free lock, negative for a key without a TTL.
	Left time.Duration
	// Levels is the number of levels of the given owner.
	Levels int
}

// Inspect asks Redis for the state of a lock, and for the levels of an owner, which may be empty. It is for this
// module's kinds of lock that are stored like a reentrant lock.
func Inspect(ctx context.Context, e *core.Core, n *locker.Name, owner string) (State, error) {
	if err := n.Check(); err != nil {
		return State{}, err
	}
	c, err := e.Read(ctx, func() *script.Call { return inspect(n.Key(), owner) })
	if err != nil {
		return State{}, err
	}
	left, levels, err := inspected(c)
	if err != nil || left == free {
		return State{Levels: levels}, err
	}
	return State{Locked: true, Left: left, Levels: levels}, nil
}
