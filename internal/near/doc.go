// Package near keeps entries of one object of Redis in a client, and knows when they are over.
//
//	v, ok := entries.Get(key)            // a hit: no I/O
//	ticket := entries.Ask(encodedKey)    // before a miss asks Redis, at the master
//	entries.Store(key, v, encoded, ttl, ticket)
//
//	w := entries.Write(encodedKey)       // before a change
//	... the script publishes w.Message() on the topic's channel in the same step
//	w.Answered()                         // with the reply, before the caller has it
//
// # What is promised
//
// A [Cache.Get] that begins after [Write.Answered] returned in this client, or after the message of another client's write
// came, does not return what was there before the write. None returns an entry that was asked for longer ago than
// [Options].MaxStale, by the client's clock.
//
// The object has a state in each client, which all its caches share, and each entry has one:
//
//	object     begins with                                  Get and Store
//	off        the client; the first use joins the channel  nothing is served or kept
//	confirmed  Subscribed: what was kept before is over     entries that are stored are served
//	lost       Lost, or the end of the client               nothing is served or kept
//
//	entry      begins with                                  ends
//	absent                                                  with Ask
//	asked      Ask, while confirmed                         with Store; over already if anything below came meanwhile
//	stored     Store                                        when it is over
//	over       a message for its stripe or for all, the     when it is looked at, stored again, or evicted
//	           answer to an own write, a loss, its age, or
//	           the end of its time to live
//
// # How
//
// The keys of an object are spread over stripes by the hash of their encoding. A stripe is a counter; a change adds one to the
// counters of its keys. A [Ticket] has the counter from before Redis was asked, and an entry keeps its ticket: it is over as
// soon as the counter differs. So a reply that crossed an invalidation is never served, nothing has to be found and removed
// under a lock, and keys that share a stripe end one another's entries, which costs a round trip. There are four to eight
// stripes for each entry. The same way a number for the whole object, the gate, changes with each confirmation, each loss
// and each message for all; it is odd while the subscription is not confirmed.
//
// A write has a number. Its answer ends the entries of its keys, and so does each message before it: Redis may refuse a write
// after its message, and the client sends it again under that number. A message after the answer does nothing, or it would end
// what was stored since. A ring remembers the last 1,024 numbers: older ones cost an entry at the most.
//
// # Cost
//
// A hit takes about 0.15 µs and allocates nothing; a value with pointers is decoded for each caller, unless callers share it. An
// object has one channel for each client, and no goroutine; its subscription and its entries stay until the client closes.
//
// # Redisson
//
// The messages are those of RLocalCachedMap. A clear that waits for its receivers gets a permit from each client; the keys of a
// transaction are not kept until it is over or its time-out, and the client says so. A client that subscribes while a
// transaction is under way does not learn of it: its entries may be as old as MaxStale.
//
// On a cluster with sharded channels Redisson announces transactions, and clients with useTopicPattern all writes, on a plain
// channel, which nobody listens to who listens to the sharded one: neither this package nor Redisson's own caches. Entries may
// be as old as MaxStale here, and are stale for good there. commit() of a transaction stops to listen to the answers before it
// waits for them, so that it may take its response time-out, 3 s, also among Java alone; commitAsync() does not.
package near
