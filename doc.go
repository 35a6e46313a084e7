// Package redlatch is a toolkit of distributed primitives on Redis or Valkey. One [Client] hands out named objects; all
// clients that use the same Redis, in Go or in Java with Redisson, share the objects of one name. Delayed queues alone are
// not shared with Java.
//
//	client, err := redlatch.Open(ctx, "redis://localhost:6379/0")
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//
//	hold, err := client.GetLock("orders").Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return work(hold.Context()) // ends when the lock is lost
//
// # Guarantees
//
// All objects of a client share one way to run scripts, which never runs one twice unnoticed; one subscription
// connection for wake-ups; and one watchdog, which renews what is held. A client has a few goroutines, whose number does
// not grow with its locks, holds and waiters. Asking for an object costs nothing and keeps nothing alive.
//
// # Limits
//
// Exclusion is as good as Redis's memory: a master that fails over may forget what it had just granted, since
// replication is asynchronous. Fencing tokens keep rising even then, as long as the servers' clocks do not step back; see
// package rlock.
package redlatch
