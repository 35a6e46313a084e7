package rfairlock

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/core"
	"github.com/redlatch/redlatch/internal/script"
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
	info, err := l.info(ctx, core.MostListed)
	return info, wrap("info", l.Name(), err)
}

// Holder is [Lock.Info] without the queue, whatever its length, under the name that all kinds of lock have for it.
func (l *Lock) Holder(ctx context.Context) (rlock.Info, error) {
	info, err := l.info(ctx, 0)
	return info.Info, wrap("holder", l.Name(), err)
}

// info looks at the lock and at so many waiters, at most.
func (l *Lock) info(ctx context.Context, most int) (Info, error) {
	if err := l.name.Check(); err != nil {
		return Info{}, err
	}
	answer, err := l.core.Read(ctx, func() *script.Call { return l.kind.inspect(l.name.Key(), most) })
	if err != nil {
		return Info{}, err
	}
	row := answer.Row()
	info := Info{Info: rlock.ReadInfo(l.Name(), row)}
	info.Waiting = int(row.Int())
	for row.More() {
		w := Waiter{Owner: row.Text(), Left: core.Left(row.Int())}
		w.Client = core.ClientOf(w.Owner)
		info.Queue = append(info.Queue, w)
	}
	return info, row.Err()
}
