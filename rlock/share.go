package rlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/script"
)

// Base returns how a lock is kept, renewed and released whose holder is the only field of a hash. It is for this
// module's kinds of lock that are kept so.
func Base() lease.Kind { return kind{} }

// State is what Redis knows of a lock.
type State struct {
	// Locked says that somebody holds it.
	Locked bool
	// Left is what is left of the lease: 0 for a lock that is free, negative for a key without an end.
	Left time.Duration
	// Levels is how many levels the owner asked for holds.
	Levels int
}

// Inspect asks Redis for the state of such a lock, and for the levels of an owner, which may be empty. It is for this
// module's kinds of lock.
func Inspect(ctx context.Context, e *core.Core, n *lease.Name, owner string) (State, error) {
	if err := n.Check(); err != nil {
		return State{}, err
	}
	c, err := e.Read(ctx, func() *script.Call { return kind{}.inspect(n.Key(), owner) })
	if err != nil {
		return State{}, err
	}
	left, levels, err := inspected(c)
	if err != nil || left == free {
		return State{Levels: levels}, err
	}
	return State{Locked: true, Left: left, Levels: levels}, nil
}
