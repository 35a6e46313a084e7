package rlock

import (
	"context"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/locker"
	"github.com/redlatch/redlatch/internal/script"
)

// Base returns the reentrant lock as package locker sees it: a hash with its holder as the only field. It is for this
// module's kinds of lock that are stored in the same way.
func Base() *locker.Kind { return plainKind() }

// Inspect asks Redis for the state of a lock, without those who wait. It is for this module's kinds of lock that are stored
// like a reentrant lock.
func Inspect(ctx context.Context, c *core.Core, n *locker.Name) (Info, error) {
	return ask(ctx, c, n, inspect)
}

func ask(ctx context.Context, c *core.Core, n *locker.Name, call func(key string) *script.Call) (Info, error) {
	if err := n.Check(); err != nil {
		return Info{}, err
	}
	answer, err := c.Read(ctx, func() *script.Call { return call(n.Key()) })
	if err != nil {
		return Info{}, err
	}
	return inspected(n.User(), answer)
}

// ReadInfo reads what a script answers of a lock's holder: the rest of the lease, the owner and its levels. It is for this
// module's kinds of lock that are stored like a reentrant lock.
func ReadInfo(name string, row *script.Row) Info {
	left, owner, levels := row.Int(), row.Text(), row.Int()
	if left == core.Free {
		return Info{Name: name}
	}
	return Info{Name: name, Locked: true, Owner: owner, Client: core.ClientOf(owner), Levels: int(levels), Left: core.Left(left)}
}
