// Package rdelayedqueue is a queue of jobs that are done at a later time, or at once, by any of many consumers.
//
//	q := redlatch.GetDelayedQueue[Order](client, "orders")
//	id, err := q.Offer(ctx, order, 15*time.Minute)
//	...
//	err = q.Consume(ctx, func(ctx context.Context, m *rdelayedqueue.Message[Order]) error {
//		return closeUnpaid(ctx, m.Value)
//	}, rdelayedqueue.WithConcurrency(16))
//
// # Guarantees
//
// Every message is delivered at least once. To take a message is to claim it for the visibility, 30 s by default: a message
// that is not acknowledged by then is delivered again, whatever became of its consumer, and after its last attempt it is a
// dead letter, which stays until it is redriven or purged. Nothing is delivered before its time, by the clock of Redis. A message
// may be delivered twice: handlers have to bear that. Offers with an id of the caller's own are idempotent.
//
// Order is due time, then order of offering; many consumers, and redelivery, loosen it.
//
// # Waiting
//
// Nobody polls. A consumer sleeps until the next message is due, or hears that an earlier one was offered, and looks in every 10 to
// 15 s in case it did not. Of many sleeping consumers one is woken for each message. All state is in Redis: a producer may end
// right after Offer, and a consumer that starts later finds everything.
//
// # Limits
//
// What a master loses in a failover before a replica has it, is lost. The queue's keys must not be evicted: use maxmemory-policy
// noeviction. Exactly-once does not exist here.
package rdelayedqueue
