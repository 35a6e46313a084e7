// Package ronce runs a function once for each key, for all processes, and keeps its result in Redis.
//
//	receipts := redlatch.GetOnce[Receipt](client, "webhooks", ronce.WithTTL(24*time.Hour))
//	receipt, shared, err := receipts.Do(ctx, event.ID, func(ctx context.Context) (Receipt, error) {
//		return charge(ctx, event)
//	})
//
// The first caller of a key runs its function. Those who call meanwhile, in any process, wait for it and get its value, and
// later ones get the value that is kept, for 24 h unless [WithTTL] says otherwise.
//
// # What is promised
//
// While a function runs, no other one runs for its key. The caller whose claim was lost meanwhile does not write over the
// result of the next one, and does not return its own: its Do returns [ErrLost], and the context of its function ends
// before anybody else runs. A value and the release of its claim are one step: nobody sees a key free between the two. A write
// whose reply was lost is repeated, and takes effect once.
//
// # What is not promised
//
// With redlatch.WithReplicas a claim is confirmed, and a result is not.
//
// A function may run again: after a failure, a panic, the death of its process, a lost claim, [ErrLost] and redlatch.ErrUnknown
// of Do, Forget, and the end of the time that its result is kept. A master that fails over may forget the last claims and results, and
// one that evicts keys or restarts empty any of them. So what a function does should bear to be done twice: use
// the key as the idempotency key of whom it calls.
//
// # In Redis
//
// A key is one hash, with the lease while its function runs, and with the time of the result after that.
package ronce
