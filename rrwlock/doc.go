// Package rrwlock is a read-write lock that many processes share through Redis, after sync.RWMutex: any number of readers hold
// it at a time, or one writer.
//
//	lock := client.GetReadWriteLock("prices")
//	hold, err := lock.RLock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return read(hold.Context())
//
// Holds, their contexts, options and errors are those of package rlock. What it says of exclusion holds between a writer and
// everybody else.
//
// # Readers
//
// Every reader has a lease of its own. One that crashed stops counting when its lease ends, whatever the others renew, and no
// reader's lease shortens another's.
//
// # Both modes in one context
//
// The context of a writer may take the read lock, which is granted at once, unless a reply for the one before was lost. When the write lock is given up first, the
// reader stays, and other readers get in beside it: the writer has been downgraded, and nobody wrote in between. The context of a
// reader that asks for the write lock gets [ErrUpgrade] at once: two readers that waited for each other to leave would wait for ever.
//
// # Who waits for whom
//
// A writer that waits holds new readers back, in all clients of this library, so that a stream of readers ends and the writer
// gets in; see [WithoutWriterPreference]. What re-enters by its context is never held back. A writer that dies while it waits
// holds readers back for 3 s at most. Redisson's readers are not held back.
//
// # What is not promised
//
// A stream of writers may keep readers out. There is no order among writers of several clients, nor among readers. A downgrade is
// announced to nobody, as Redisson has it: readers of other clients find out within about a second.
package rrwlock
