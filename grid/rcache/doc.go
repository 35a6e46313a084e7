// Package rcache keeps values that are slow to read for all processes, and loads each of them once.
//
//	users := rcache.New[int64, User](client, "users", loadUser, rcache.WithTTL(10*time.Minute))
//	u, err := users.Get(ctx, 42) // from Redis, or by loadUser
//
// # What is promised
//
// While a value is loaded, no other load of its key runs, in any process: who misses it meanwhile waits. A loader whose process dies
// frees the key after its lease.
//
// A Get that began after [Cache.Invalidate] had returned does not get what was read before. A load that was under way then is not kept.
// Near values apart: those of other clients end with a message.
//
// A failure is shared, not kept: who waited for the load gets it, and the next Get loads. So what is down is not asked by all in turn.
// While others still wait in a client, a Get of it may get a failure that is up to a second old.
//
// # What is not promised
//
// A value may be loaded again at any time: Redis may evict it, a master that fails over may forget it, a claim may be lost. A change of
// what the loader reads without Invalidate is seen when the value is over, or is refreshed ([WithRefresh]).
//
// Close of the client frees the keys that it loads. A loader that does not heed the end of its context goes on meanwhile, and another
// client may load the same key.
//
// Two loaders that Get each other's key wait for each other, until the contexts of their loads end ([WithLoadTimeout]).
//
// # In Redis
//
// A key is one hash, with the result and the claim of a load, and expires with them. A cache is not cleared: put a version into its name.
package rcache
