// Package rdelayedqueue provides a queue of jobs that consumers in any process run at a later time, or at once.
//
//	q := redlatch.GetDelayedQueue[Order](client, "orders")
//	id, err := q.Offer(ctx, order, 15*time.Minute)
//	...
//	err = q.Consume(ctx, func(ctx context.Context, m *rdelayedqueue.Message[Order]) error {
//		return closeUnpaid(ctx, m.Value)
//	}, rdelayedqueue.WithConcurrency(16))
//
// # What is promised
//
// Every message is delivered at least once, and never before its time by Redis's clock. A consumer claims a message for
// the visibility, 30 s by default. A message that is not acknowledged by then is delivered again, whatever happened to its
// consumer. After its last attempt it is a dead letter, which stays until it is redriven, cancelled or purged. Offers with an
// id of the caller's own are idempotent. A message is not delivered that is replaced, cancelled or expires before.
//
// Of the messages that are due those with a higher priority ([WithPriority]) are delivered first; of the same priority by due time, then in
// the order of offering. Several consumers and redelivery loosen that. Of the messages of a group ([WithGroup]) one is in flight at a
// time, and they are delivered in their order, redelivery included.
//
// # Waiting
//
// Consumers do not poll. A consumer sleeps until the next message is due, is woken if an earlier one is offered, and
// checks every 10 to 15 s in case it missed that. Of many sleeping consumers one is woken for each message. All state is
// in Redis: a producer may exit right after Offer, and a consumer that starts later finds everything.
//
// # What is not promised
//
// There is no exactly-once delivery: a handler may see a message twice. What a master loses in a failover before a replica
// has it is lost. The queue's keys must not be evicted: use maxmemory-policy noeviction.
package rdelayedqueue
