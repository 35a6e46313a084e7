// Package rlock provides a reentrant lock that processes share through Redis, and its fenced variant.
//
//	lock := client.GetLock("order:42")
//	hold, err := lock.Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return work(hold.Context())
//
// # What is promised
//
// While the hold's context is alive, no one else holds the lock, as long as Redis keeps what it acknowledged. The context
// ends before the lease can end in Redis, by this machine's monotonic clock, whether or not Redis can be reached. A process
// that was stopped learns of a loss when it runs again. Only a fencing token protects against its very next instruction:
// see [Hold.Token].
//
// # What is not promised
//
// Redis replicates asynchronously: a master that fails over may forget a lock that it has just granted. Tokens keep rising
// even then. There is no order among processes; package rfairlock has one. Within one client waiters are served first
// come, first served. A step of the server's wall clock makes leases end early or late.
//
// # Cost
//
// Lock and Unlock of a free lock cost one round trip each. The waiters of one client for one lock share a subscription, and
// only the first of them asks Redis. A lock that is released while others of the same client wait may pass to one of them
// without a round trip.
package rlock
