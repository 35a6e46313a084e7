package rlock

import (
	"context"
	"time"
)

// Info is the state of a lock in Redis at one moment.
type Info struct {
	// Name is the lock's name.
	Name string
	// Locked reports whether the lock is held.
	Locked bool
	// Owner is the owner id of the hold, see [Hold.Owner]; empty for a free lock.
	Owner string
	// Client is the id of the client that holds the lock, see redlatch.Client.ID, or the id of Java's.
	Client string
	// Levels is the number of nested levels of the hold.
	Levels int
	// Left is the rest of the lease: 0 for a free lock, negative for a key without a TTL.
	Left time.Duration
	// Waiting is the number of clients that wait, however many goroutines of each. Those of the holder's own client, which wait
	// without Redis, do not count, see redlatch.Client.Waits; a client that stopped to wait may count for a second more.
	// It is -1 if it is not known: the user may not run PUBSUB, or a node did not answer within a second.
	Waiting int
	// Token is the last fencing token that was drawn; 0 without one. The plain lock does not know it.
	Token int64
}

// Info returns who holds the lock and how many wait. It blocks and fails as [Lock.IsLocked] does, and costs two round
// trips, on a cluster three, one of them to all nodes at once.
func (l *Lock) Info(ctx context.Context) (Info, error) {
	info, err := l.name.Holder(ctx)
	return Info(info), wrap("info", l.Name(), err)
}
