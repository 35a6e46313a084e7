// Package rfairlock is a reentrant lock that is granted first come, first served, across goroutines and processes.
//
//	lock := client.GetFairLock("counter")
//	hold, err := lock.Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return serve(hold.Context())
//
// # Order
//
// Whoever waits stands in a queue in Redis, in the order in which Redis saw the first attempts. Each waiter is woken alone,
// over a channel of its own, when it is its turn: a hand-off costs one message and one attempt, however many wait. A waiter
// that gives up leaves the queue at once. One that died is passed over when it has not been heard of for the fair wait
// timeout, 5 s by default (redlatch.WithFairWaitTimeout), together with all dead ones behind it. A waiter that was taken for dead,
// because its process stood still for longer, queues again at the end.
//
// A single try, TryLock without a wait, never queues; it is refused while anybody else is next.
//
// # Sharing a queue with Redisson
//
// With a fair wait timeout of 300 s the queue is kept just as Redisson keeps it at its default, and its dead waiters are
// passed over as late as there. All clients of a queue need the same setting: where they differ at most one holds the lock
// even so, but order is promised only among clients of one setting. Redisson lowers the times of all who wait at each
// grant, which takes a waiter that is good for seconds out of the queue; it then queues again.
//
// # What a holder is promised
//
// The same as of package rlock, whose [rlock.Hold] a holder gets. What is not promised there is not promised here: a master
// that fails over may forget the lock, and the queue with it. A reentrant lock (package rlock) of the same name excludes
// holders of this one, but knows of no queue and wakes nobody in it.
//
// # Cost
//
// Lock and Unlock of a free lock are one round trip each. A waiter costs an attempt when it comes and one when it is woken.
// All waiters of one client for one name are looked after together, by about one call a second for each hundred of them, and one each
// third of the fair wait timeout if that is less. A lock is never passed on within a client past waiters elsewhere.
package rfairlock
