// Package rsemaphore lets at most n of something happen at a time in many processes that share a Redis.
//
//	jobs := client.GetSemaphore("jobs")
//	if _, err := jobs.TrySetPermits(ctx, 5); err != nil { // the first one sets them
//		return err
//	}
//	if err := jobs.Acquire(ctx, 1); err != nil {
//		return err
//	}
//	defer jobs.Release(ctx, 1)
//	return work(ctx)
//
// # Two kinds
//
// A [Semaphore] is a counter. Its permits belong to nobody: whoever acquires may have another process release, and the
// permits of a process that dies are gone until somebody adds them again. A [PermitSemaphore] leases each permit to its
// holder, renews it, and has it back when the holder dies. Prefer the second one where processes may crash.
//
// # What is promised
//
// Every operation takes effect exactly once, also when its reply is lost and it has to be repeated. A call that gave up
// while it was under way keeps nothing: what it was granted is given back. Waiters of one client stand in one line,
// first come, first served, so that many small requests do not starve a large one. A missed message costs a waiter about
// a second and nothing else.
//
// # What is not promised
//
// There is no order among processes. Redis replicates asynchronously: a master that fails over may forget what it had
// just granted or taken back, and the counter is then off by as much.
package rsemaphore
