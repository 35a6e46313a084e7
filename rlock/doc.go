// Package rlock is a reentrant lock that many processes share through Redis, and its fenced variant.
//
//	lock := client.GetLock("order:42")
//	hold, err := lock.Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return work(hold.Context())
//
// # What a holder is promised
//
// While the hold's context has not ended, nobody else holds the lock, as long as Redis keeps what it acknowledged. The
// context ends before the lease can run out in Redis, by this machine's monotonic clock, whether or not Redis can be
// reached. A process that was stopped learns of a loss when it runs again; what it does in its very next instruction
// only a fencing token can stop: see [Hold.Token].
//
// # What is not promised
//
// Redis replicates asynchronously: a master that fails over may forget a lock that was just granted. Tokens keep rising
// even then. There is no order among processes (package rfairlock has one); within one client waiters are served first
// come, first served. A step of the server's wall clock makes leases end early or late.
//
// # Cost
//
// Lock and Unlock of a free lock are one round trip each. Waiters within one client share one subscription and one
// place in the competition; a lock that is released while others of the same client wait may pass on locally.
package rlock
