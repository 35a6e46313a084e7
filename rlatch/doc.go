// Package rlatch is a count that many processes share through Redis, and that others wait for to reach zero.
//
//	ready := client.GetCountDownLatch("ready")
//	if _, err := ready.TrySetCount(ctx, 3); err != nil { // the first one sets it
//		return err
//	}
//	...
//	if err := ready.CountDown(ctx); err != nil { // in each of three processes
//		return err
//	}
//	err := ready.Await(ctx) // until all three have
//
// # What is promised
//
// Every operation takes effect exactly once, also when its reply is lost and it has to be repeated. Zero releases every
// waiter in every process, whatever messages were missed: at once by a message, and otherwise within about a second. That
// holds also when the latch is used again before a waiter has noticed.
//
// # Zero and missing
//
// A latch without a count is at zero: Await returns at once, CountDown changes nothing. So set the count before anybody
// awaits it. At zero the latch is gone from Redis, and may be used again. A latch that nobody counts down to zero stays
// until Delete. What else there is of it goes with the count, or expires by itself after an hour.
//
// # What is not promised
//
// Redis replicates asynchronously: a master that fails over may forget what it had just counted.
//
// Redisson knows neither when a latch last opened nor its participants. When one of its clients opens a latch that is
// used again at once, waiters here may wait for the second zero; and participants stay until the count is next set,
// counted or deleted from here.
package rlatch
