// Package redlatch provides distributed locks, semaphores, latches and delayed queues on Redis or Valkey. A [Client] hands
// out named objects. All clients on one Redis share the objects of a name, in Go and, except for queues, in Java with
// Redisson. Buckets, numbers, maps, sets and caches are in the packages below grid, and take the client.
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
// A script is never run twice unnoticed. What is held is renewed until it is released. A call ends with its context,
// whatever its connection does. Asking for an object does no I/O and keeps nothing alive. The number of a client's
// goroutines and connections does not grow with its locks, holds and waiters.
//
// # Limits
//
// Exclusion is as good as the memory of Redis. Replication is asynchronous, so a master that fails over may forget a lock
// that it has just granted. Fencing tokens keep rising even then, as long as the servers' clocks do not step back; see
// package rlock.
package redlatch
