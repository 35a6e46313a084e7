// Package rmultilock combines several locks into one: all of them, or, for RedLock, a majority of independent masters.
//
//	lock := client.GetMultiLock(client.GetLock("account:1"), client.GetLock("account:2"))
//	hold, err := lock.Lock(ctx)
//	if err != nil {
//		return err
//	}
//	defer hold.Unlock(ctx)
//	return transfer(hold.Context())
//
// The locks may be of any kind, client and server. Holds, contexts, nesting, options and errors are those of package
// rlock. A hold's context ends as soon as one lock of a multi-lock is lost, or a majority of a RedLock is no longer
// certain; its cause names the whole lock and the lock that was lost. The rest of a lost hold is released at once. The loss
// is one line of the log of the client that returned the lock, not one for each part; a part that a RedLock loses while it
// stays held is none. A redlatch.Observer is told of each part.
//
// # Multi-lock
//
// All or nothing. A call attempts all locks at the same time. If one is busy, it releases the others, pauses for a
// random time, waits for the busy one while it holds nothing, and attempts the others again. If another one is busy
// then, what follows depends on the order of the names. For a later name the call waits 20 ms and four times as long as
// a reply takes; for an earlier name it does not wait: of two calls that each hold what the other needs, one has to
// yield. So no call holds one lock and waits without bound for another. Callers are not served in order.
//
// # RedLock: what it promises
//
// A RedLock is held when a majority of its locks was granted within the lease, less the time that this took and an
// allowance for clock drift (1 % of the lease and 2 ms). Each lock should be on another master, by a client of its own,
// and no master should be a replica of another. Then exclusion and progress survive the loss of a minority of the
// masters: two of five may be down. An even number is allowed but no better than one fewer: four tolerate the loss of
// one, as three do.
//
// # RedLock: what it does not promise
//
// It is not consensus, and only as safe as its assumptions about time: the masters' clocks run at about the same speed,
// and do not jump by more than the allowance. A master that restarts empty forgets its grants; if enough masters do
// that within one lease that a majority is free, two holders are possible. One is enough while a hold has no more than a
// majority. Without rlock.WithFixedLease a hold tries again for its missing parts, at least each eighth of the lease. Keep a
// master that lost its data down for longer than the longest lease, or let it write each change to disk.
//
// A lock that expires cannot stop a paused process: when the process resumes, its next instruction may run before it
// checks its context. Where two holders would do harm, use a fenced lock on one master (redlatch.Client.GetFencedLock),
// and have the resource refuse older tokens. A RedLock has no token.
//
// # Cost
//
// The attempts of plain and fenced locks of one client share a round trip, and so do their releases; on a cluster those
// of one node do. A lock of another kind, and one that nests, costs a call and a goroutine for the duration of the
// call. A RedLock returns with the majority's replies, and waits for no master longer than a tenth of the lease (20 to
// 500 ms). No message wakes a waiter for a RedLock: it asks again after a random pause, of up to 200 ms. Of the calls
// of one client that wait for one RedLock of plain or fenced locks, one asks; the next one asks when it ends, and, most
// times, as soon as the client releases the lock. Each member lock is renewed by its own client, together with that
// client's other holds. A hold has no goroutine.
package rmultilock
