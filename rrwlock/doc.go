// Package rrwlock provides a read-write lock that processes share through Redis. It follows sync.RWMutex: any number of
// readers hold it at a time, or one writer.
//
//	lock := client.GetReadWriteLock("prices")
//	hold, err := lock.RLock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return read(hold.Context())
//
// Holds, their contexts, options and errors are those of package rlock, and so are its promises and limits: a writer
// excludes everyone else.
//
// # Readers
//
// Every reader has a lease of its own. A reader that crashed stops counting when its lease ends, whatever others renew,
// and no reader's lease shortens another's.
//
// # Downgrade and upgrade
//
// A call with a writer's context acquires the read lock at once. If the write hold is unlocked first, the read hold stays
// and other readers enter: the lock was downgraded, and nobody wrote in between. A call with a reader's context for the
// write lock returns [ErrUpgrade] at once, because two readers that wait for each other would wait forever.
//
// # Preference
//
// A waiting writer holds back new readers in all clients of this library, so a stream of readers cannot keep it out; see
// [WithoutWriterPreference]. A call that re-enters by its context is never held back. A writer that dies while it waits holds
// readers back for 3 s at most. A client that waits for more than a thousand names asks less often than each 3 s, so that readers
// enter between: if these follow one another without a gap, they may keep its writers out. Redisson's readers are not held back. Its writers hold back readers of this
// library after 2 to 3 s, for 5 s at most, if the Redis user may run PUBSUB.
//
// # What is not promised
//
// A stream of writers may keep readers out. There is no order among writers of several clients, nor among readers.
package rrwlock
