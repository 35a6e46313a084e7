// Package grid holds the data half of redlatch: objects that processes share through Redis or Valkey, with Go types.
//
//	config := rbucket.New[Config](client, "config")          // one value
//	hits := ratomic.NewInt64(client, "hits")                 // a number
//	orders := rmap.New[string, Order](client, "open orders") // a map
//	buyers := rset.New[string](client, "buyers")             // a set
//	scores := rsortedset.New[string](client, "scores")       // a set in the order of scores
//
// Each object is in a package below this one. This page says what holds for all of them; package rcache, which loads what it has not,
// has a page of its own.
//
// # An object
//
// New does no I/O and keeps nothing alive: an object is a name, and may be made for each call. Make a cache, and a map with
// rmap.WithNear, once: each has entries of its own in the client. A bad name or option is the error of every method. An object is
// safe for concurrent use. Name returns what was given to New, and Key the Redis key, for commands of go-redis that have no method here.
// It is one key, so on a cluster one master serves it. Delete, Expire, Persist, TTL and Info are about all of it.
//
// # Calls
//
// A call costs one round trip unless its comment says otherwise, and concurrent calls of a client share round trips. It waits
// for Redis until its context is done, or for the call timeout if the context has no deadline (redlatch.WithCallTimeout). Its
// errors are
//
//   - redlatch.ErrInvalid, before any I/O: a bad name or argument, or a value that cannot be encoded or is too long.
//   - redlatch.ErrUnavailable: Redis did not answer, or cannot serve now. Nothing was changed. Calls that only read are
//     repeated while there is no answer. A connection that is refused ends any call after about 0.4 s.
//   - redlatch.ErrUnknown: a change was sent, and its answer was lost. It may have been made, or may still be, once, even after a
//     later change; it is not repeated.
//   - redlatch.ErrWrongType: the key holds another kind of value. It is as it was. A map and a lock are both hashes, which Redis
//     cannot tell apart: a map with the name of a lock damages both.
//   - codec.ErrDecode: a stored value is not what the type and the codec expect. Swap, Pop, PopMin and PopMax have made their change.
//   - redlatch.ErrUnsupported: the server is too old.
//
// What is missing is no error: ok is false.
//
// # Values
//
// Values are encoded by codec.Text unless WithCodec says otherwise: texts and numbers as they are, other types as JSON, so
// that other programs can read them. An encoded value has at most 16 MiB, or what WithMaxValue says. Every program must
// use the same codec.
//
// Keys of maps and members of sets are found by their bytes. codec.Text writes equal values as equal bytes, but for a zero with a
// sign in a struct; codec.MsgPack does not. A struct with a field that JSON leaves out, such as one that is not exported, is
// redlatch.ErrInvalid as a key or member.
//
// # Big objects
//
// No method reads a whole collection at once. All iterates in steps of about 100 elements, each of which is a round trip with a
// call timeout of its own: what is there from the beginning to the end comes at least once, perhaps twice. An error is the
// last value. Methods that take any number of elements send them in calls of 1,000 elements or 1 MiB, and are atomic within
// one call only; after an error the calls before have taken effect. Delete frees memory in the background.
//
// # Time to live
//
// Expire sets the time to live of a whole object, from 1 ms to 100 years. Methods that write keep it, unless they say
// otherwise.
//
// # Fence
//
// Set, SetIfAbsent, SetIfPresent, CompareAndSwap and Update of buckets and maps take WithFence(hold.Token()). Each object has its
// own fence: a change of an old holder is refused with redlatch.ErrFenced once a later holder has tried a fenced change of the same
// object, even one without effect. Before that it goes through, so fence each change that a holder makes. The highest token is kept
// in the key redlatch_fence:{name}, as long as tokens are (redlatch.WithTokenTTL), and Delete leaves it. Reads, and changes without
// the option, do not look at it; Delete, Remove, Pop, Swap, SetAll and Add have none.
//
// # Replicas
//
// Plain reads go where go-redis sends them, to replicas too if the client was made so (ReadOnly), and may then be old.
// Changes, iteration and what an Update reads go to the master. A change does not wait for replicas, with redlatch.WithReplicas
// neither: a failover may lose those of the last moments.
package grid
