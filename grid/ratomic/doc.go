// Package ratomic provides numbers that processes share through Redis, as Redisson's RAtomicLong and RAtomicDouble do. The
// methods are those of sync/atomic, and three more.
//
//	hits := ratomic.NewInt64(client, "hits")
//	n, err := hits.Add(ctx, 1)
//	left, ok, err := ratomic.NewInt64(client, "stock").AddWithin(ctx, -2, 0, math.MaxInt64) // not below 0
//
// A number that is not there is 0. Package grid says what holds for all objects: errors, costs, times to live. An Add whose
// answer was lost is redlatch.ErrUnknown and is not repeated, so that it never counts twice.
//
// # In Redis
//
// A number is the decimal text of its name, which Java reads as well.
package ratomic
