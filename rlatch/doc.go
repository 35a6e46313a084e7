// Package rlatch provides a countdown latch that processes share through Redis: a count that others wait for to reach zero.
//
//	ready := client.GetCountDownLatch("ready")
//	if _, err := ready.TrySetCount(ctx, 3); err != nil { // the first process sets it
//		return err
//	}
//	...
//	if err := ready.CountDown(ctx); err != nil { // in each of three processes
//		return err
//	}
//	err := ready.Await(ctx) // until all three have counted down
//
// # What is promised
//
// Every operation takes effect at most once, and exactly once if it succeeds, also if its reply is lost and it is
// repeated. Zero releases every waiter in every process: at once by a message, or within about a second if the message
// is lost. That holds also if the latch is set again before a waiter has noticed, unless both came before its first
// read.
//
// # Zero and missing
//
// A latch without a count is at zero: Await returns at once, and CountDown changes nothing. Set the count before anyone
// waits. At zero the latch is removed from Redis and may be used again; with TrySetCountOnce only after a time, so that
// participants which restart do not begin anew. A latch that never reaches zero stays until Delete.
//
// # What is not promised
//
// Redis replicates asynchronously: a master that fails over may forget its last operations.
//
// Redisson knows neither when a latch last opened nor its participants. If a Java client opens a latch that is set
// again at once, waiters here may wait for the second zero; and participants stay until a Go client sets, counts down
// or deletes the latch. Java also sets the count of a latch that TrySetCountOnce keeps open.
package rlatch
