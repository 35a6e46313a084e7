// Package rfairlock provides a reentrant lock that is granted first come, first served, across goroutines and processes.
//
//	lock := client.GetFairLock("counter")
//	hold, err := lock.Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return serve(hold.Context())
//
// Holds, their contexts, options and errors are those of package rlock, and so are its promises and limits.
//
// # Order
//
// Waiters queue in Redis, in the order in which Redis saw their first attempts. Each is woken alone, on a channel of its own,
// when it is its turn. A cancelled waiter leaves the queue at once. A waiter that died is skipped when it has not
// renewed its place for the fair wait timeout, 5 s by default (redlatch.WithFairWaitTimeout), together with all dead waiters
// behind it. A waiter that was skipped although it lives, because its process stood still, queues again at the end.
//
// TryLock without a wait never queues. It is refused while anyone else is next.
//
// A reentrant lock (package rlock) of the same name excludes holders of this one, but does not queue and wakes nobody in
// the queue.
//
// # Sharing a queue with Redisson
//
// With redlatch.WithRedissonFairQueue the queue has Redisson's layout, so that Java clients wait in it too.
// All clients of a queue need the same settings. If settings differ, at most one client holds the lock even so, but the
// order holds only among clients with the same ones; in a queue that began in Redisson's layout, and behind Java's
// waiters in any other, the others get redlatch.ErrWrongType. In Redisson's layout nobody renews places, and each dead
// waiter costs a timeout of its own.
//
// # Cost
//
// Lock and Unlock of a free lock cost one round trip each. A waiter costs an attempt when it comes and one when it is
// woken, however many wait. About once a second one call renews the places of up to a hundred waiters of a client, more often
// if a third of the fair wait timeout is less. The lock never passes within a client past waiters elsewhere.
package rfairlock
