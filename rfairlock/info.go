package rfairlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/rlock"
)

// Info is the state of a fair lock in Redis at one moment. Its Waiting is the length of the queue, however long it is.
type Info struct {
	rlock.Info
	// Queue are those who wait, the next one first: the first 100 of them.
	Queue []Waiter
}

// Waiter is a call that waits in the queue of a fair lock.
type Waiter struct {
	// Owner is the id under which it waits, and will be the owner id of its hold.
	Owner string
	// Client is the id of its client, see redlatch.Client.ID, or the id of Java's.
	Client string
	// Left is for how long the waiter keeps its place unless its client renews it; 0 for one that counts as dead, and
	// will be skipped; negative if that is not known.
	Left time.Duration
}

// Info returns who holds the lock and who waits for it, in order. It blocks and fails as [rlock.Lock.IsLocked] does, and
// costs one round trip, and time in Redis in proportion to what it lists, which is bounded: less than a millisecond.
func (l *Lock) Info(ctx context.Context) (Info, error) {
	info, waiters, err := l.locks.Look(ctx, &l.name, core.MostListed)
	if err != nil {
		return Info{}, wrap("info", l.Name(), err)
	}
	all := Info{Info: rlock.Info(info)}
	for waiters.More() {
		w := Waiter{Owner: waiters.Text(), Left: core.Left(waiters.Int())}
		w.Client = core.ClientOf(w.Owner)
		all.Queue = append(all.Queue, w)
	}
	return all, wrap("info", l.Name(), waiters.Err())
}
