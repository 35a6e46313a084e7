// Package rmultilock makes one lock of several: all of them, or, for RedLock, a majority of independent masters.
//
//	lock := client.GetMultiLock(client.GetLock("account:1"), client.GetLock("account:2"))
//	hold, err := lock.Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return transfer(hold.Context())
//
// The locks may be of any kind and of different clients and servers; a user's own [rlock.Locker] will do too. What they have
// in common with all others (holds, contexts, lineage, options, errors) is told in package rlock. A hold's context ends as
// soon as one lock of a multi-lock is lost, or fewer than a majority of a RedLock are certain; its cause names the whole
// lock, and says which part it was. What is left of a lost hold is released at once.
//
// # Multi-lock
//
// All or nothing. The locks are taken in the order of their names, so that two multi-locks which share some meet in the
// same order. A call blocks on one lock only while it holds none; for those after it in the order it waits 20 ms and four times as long as
// an answer takes, for those before it not at all, and when one of them stays busy it releases all, pauses at random, and waits for that one. So it never holds one lock and waits
// without bound for another, whatever others do. Nobody is served first come, first served.
//
// # RedLock: what it promises
//
// A RedLock is held when a majority of its locks was granted within the lease, less the time that this took and
// an allowance for clocks that drift (1 % of the lease and 2 ms). Each lock should be of a client of another master, none of them
// a replica of another. Then exclusion survives the loss of a minority of the masters, and so does progress: two of five may be
// down. An even number is allowed and worse than one fewer: four tolerate the loss of one, as three do.
//
// # RedLock: what it does not promise
//
// It is no consensus, and no safer than its assumptions about time: that the masters' clocks run at about the same
// speed, and do not jump by more than the allowance. A master that restarts empty forgets what it had granted; if that happens to enough of them within
// one lease, two holders are possible. Keep a master that lost its data down for longer than the longest lease, or have it write each
// change to disk. And no lock that ends by time stops a process which was paused from going on when it wakes up: its next instruction runs before its
// context is looked at. Where two holders would do harm, use the fenced lock on one master (redlatch.Client.GetFencedLock) and have the resource refuse
// older tokens; a RedLock has no token.
//
// # Cost
//
// A multi-lock takes up to 100 plain locks of one client (on a cluster: of one hash tag) in one round trip if all its locks are such, or all
// but the one that it waits for first, unless its context holds one of them; others one after the other, a
// round trip each. It releases all at the same time. A RedLock asks all masters at the same time and
// returns with the majority's answers; it waits for no master longer than a tenth of the lease (20 to 500 ms). Who waits for a RedLock asks again after a random
// pause; it is not woken. Neither has a goroutine of its own while it is held.
package rmultilock
