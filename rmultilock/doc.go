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
// The locks may be of any kind, and of different clients and servers. Holds, contexts, nesting, options and errors are those of package
// rlock. A hold's context ends as soon as one lock of a multi-lock is lost, or fewer than a majority of a RedLock are certain; its cause
// names the whole lock, and says which part it was. What is left of a lost hold is released at once.
//
// # Multi-lock
//
// All or nothing. A call attempts all locks at the same time. If one is busy it releases the others, pauses at random, waits for the busy
// one while it holds nothing, and attempts the others again. If another one is busy then, the call waits for it for 20 ms and four times
// as long as an answer takes if its name comes later in the order, and not at all if it comes earlier: of two calls that hold what the other
// wants one has to yield. So no call holds one lock and waits without bound for another. Callers are not served in the order in which they came.
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
// The attempts of plain and fenced locks of one client share a round trip, and so do their releases; on a cluster those of one node do. A lock of another kind, and one that nests,
// costs a call and a goroutine of its own for as long as the call takes. A RedLock returns with the majority's answers, and waits for no
// master longer than a tenth of the lease (20 to 500 ms). Who waits for a RedLock asks again after a random pause; it is not notified. Each
// part is renewed by its own client, with that client's other holds. Nothing has a goroutine of its own while it is held.
package rmultilock
